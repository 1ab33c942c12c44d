"""The state of alerts outlives its process, in every store; it has one writer."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from typing import Any, NoReturn

import pytest
import redis

from serve_app.alerts import leader, saved_state
from serve_app.alerts.alert import AlertState, MeshAlerts
from serve_app.alerts.delivery import AlertDelivery
from serve_app.alerts.leader import Leader
from serve_app.alerts.storage import NAME, AlertStorage
from serve_app.errors import StoreConflict, StoreGone
from serve_app.exporter import PrometheusInstruments
from serve_app.settings import StoreSettings
from serve_app.stores.opening import open_store
from serve_app.stores.state_store import StateStore
from tests.serve_app.alerts.alerting import (
    NOW,
    PATIENT,
    PLACE,
    WITHIN,
    Request,
    accept,
    incident,
    metric_value,
    receivers,
    refuse,
    resend_after,
    run_notifier,
    start_endpoints,
    store_verdict,
    stored_state,
    transition,
    verdict,
)


@pytest.fixture
def other(place: StoreSettings) -> Iterator[StateStore]:
    """The store as another process opens it."""
    with closing(open_store(place)) as opened:
        yield opened


def delivery(store: StateStore, **more: Any) -> AlertDelivery:
    return AlertDelivery(receivers(**more), store, PrometheusInstruments(), lambda: NOW)


def test_an_empty_storage_has_an_empty_state(store: StateStore) -> None:
    assert AlertStorage(store).read() == AlertState()


async def test_a_process_that_was_taken_over_sends_nothing_more(
    store: StateStore, other: StateStore, caplog: pytest.LogCaptureFixture
) -> None:
    async with start_endpoints(200) as (hook,):
        more = {"webhooks": [hook], "deadline_seconds": PATIENT}
        first = delivery(store, **more)
        running = asyncio.create_task(first.run())
        accept(first, "shop", verdict(incident("a")), NOW)
        await hook.until(lambda requests: len(requests) == 1)
        assert AlertStorage(other).read().meshes["shop"].open
        accept(first, "shop", verdict(), NOW)
        await running  # it ends by itself
        assert [request.json["event"] for request in hook.requests] == ["opened"]
        second = delivery(other, **more)
        running = asyncio.create_task(second.run())
        accept(second, "shop", verdict(), NOW)
        await hook.until(lambda requests: len(requests) >= 2)
        await second.close()
        await running
    assert list(dict.fromkeys(distinct(hook.requests))) == [("opened", "a"), ("resolved", "a")]
    assert len({request.json["id"] for request in hook.requests}) == 2
    assert "another process sends the notifications" in caplog.text


def test_the_last_reader_is_the_only_writer(store: StateStore, other: StateStore) -> None:
    first = AlertStorage(store)
    first.read()
    AlertStorage(other).read()
    with pytest.raises(StoreConflict, match="taken over"):
        first.write(AlertState())


def test_a_write_whose_answer_was_lost_is_no_takeover(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = AlertStorage(store)
    storage.read()
    write = store.database.write

    def lose_the_answer(*arguments: Any, **more: Any) -> NoReturn:
        assert write(*arguments, **more)
        raise StoreGone("no answer", stored="unknown")

    with monkeypatch.context() as patch:
        patch.setattr(store.database, "write", lose_the_answer)
        with pytest.raises(StoreGone):
            storage.write(AlertState())
    transitioned = transition(MeshAlerts(), "shop", verdict(incident("a")), NOW, PLACE)
    newer = AlertState().apply("shop", transitioned, {})
    storage.write(newer)
    assert stored_state(store) == newer


async def test_a_process_notices_the_takeover_without_a_verdict(store: StateStore, other: StateStore) -> None:
    first = delivery(store, timing=resend_after())
    running = asyncio.create_task(first.run())
    accept(first, "shop", verdict(), NOW)
    AlertStorage(other).read()
    await running


@pytest.mark.parametrize("content", [b"", b"{", b"null", b'{"meshes": 1}', b"\xff\xfe", b"[" * 100_000], ids=range(6))
def test_a_state_of_another_version_is_replaced(
    content: bytes, store: StateStore, other: StateStore, caplog: pytest.LogCaptureFixture
) -> None:
    storage = AlertStorage(store)
    storage.read()
    document = other.read_document(NAME)
    assert document.revision
    other.write_document(NAME, b"an owner\n" + content, revision=document.revision)
    with caplog.at_level(logging.ERROR):
        assert storage.read() == AlertState()
    assert "sends open incidents again" in caplog.text
    storage.write(AlertState())
    assert AlertStorage(other).read() == AlertState()


def test_a_full_store_is_read_and_written_once_there_is_room(
    store: StateStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    transitioned = transition(MeshAlerts(), "shop", verdict(incident("a")), NOW, PLACE)
    state = AlertState().apply("shop", transitioned, {})
    before = AlertStorage(store)
    before.read()
    before.write(state)

    storage = AlertStorage(store)
    with monkeypatch.context() as patch:
        patch.setattr(store.database, "write", refuse)
        assert storage.read() == state
    assert "still sent" in caplog.text
    storage.write(AlertState())
    assert stored_state(store) == AlertState()


def test_a_redis_that_lost_the_state_is_named(place: StoreSettings, store: StateStore) -> None:
    if place.kind != "redis":
        pytest.skip("the test of a store whose files disappear is tests/serve_app/stores/test_file_gone.py")
    storage = AlertStorage(store)
    storage.read()
    with closing(redis.Redis.from_url(place.url or "")) as hand:
        hand.delete(f"{place.key_prefix}:{{STORE}}:rows", f"{place.key_prefix}:{{STORE}}:keys")
    with pytest.raises(StoreGone, match="emptied or replaced"):
        storage.write(AlertState())


async def test_a_redis_that_is_away_delays_no_notification(
    place: StoreSettings, store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    if place.kind != "redis":
        pytest.skip("the test of a file that refuses or hangs is test_delivery.py")
    away = place.model_copy(update={"url": "redis://127.0.0.1:1/0", "timeout_seconds": 0.1})
    async with start_endpoints(200) as (hook,):
        to = receivers(webhooks=[hook], deadline_seconds=PATIENT)
        with closing(open_store(away)) as unreachable:
            async with run_notifier(to, store) as (sending, instruments):
                monkeypatch.setattr(store, "database", unreachable._database)
                accept(sending, "shop", verdict(incident("a")), NOW)
                await hook.until(lambda requests: len(requests) == 1)
        monkeypatch.undo()
    assert metric_value(instruments, "tagae_notifications_failed_total", receiver="state", reason="unwritable") >= 1


async def test_of_two_notifiers_the_newer_one_sends_until_it_is_gone(
    store: StateStore, other: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As during an upgrade with a second cluster, which is taken back."""
    monkeypatch.setattr(saved_state, "WRITE_TIMEOUT_SECONDS", WITHIN)  # save before sending, however slow
    monkeypatch.setattr("serve_app.alerts.verdict_feed.POLL_SECONDS", 0.01)
    monkeypatch.setattr(leader, "SILENCE_SECONDS", 1.0)
    monkeypatch.setattr(leader, "WATCH_SECONDS", 0.01)
    async with start_endpoints(200) as (hook,):
        more = {"webhooks": [hook], "deadline_seconds": PATIENT, "timing": resend_after()}
        old = Leader(store, partial(delivery, store, **more))
        waiting = asyncio.create_task(old.run())
        store_verdict(store, "shop", verdict(incident("a")), 1)
        await hook.until(lambda requests: len(distinct(requests)) == 1)
        new = Leader(other, partial(delivery, other, **more))
        sending = asyncio.create_task(new.run())
        store_verdict(store, "shop", verdict(incident("a"), incident("b", "pay/bank")), 2)
        await hook.until(lambda requests: len(distinct(requests)) == 2)
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending
        store_verdict(store, "shop", verdict(incident("b", "pay/bank")), 3)
        await hook.until(lambda requests: len(distinct(requests)) == 3)
        await old.close()
        await waiting
    assert distinct(hook.requests) == [("opened", "a"), ("opened", "b"), ("resolved", "a")]


async def test_a_notifier_whose_state_was_deleted_sends_on_at_once(
    store: StateStore, other: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a damaged file of the store was replaced."""
    monkeypatch.setattr("serve_app.alerts.verdict_feed.POLL_SECONDS", 0.01)
    monkeypatch.setattr(leader, "WATCH_SECONDS", 0.01)
    async with start_endpoints(200) as (hook,):
        notifier = Leader(
            store, partial(delivery, store, webhooks=[hook], deadline_seconds=PATIENT, timing=resend_after())
        )
        running = asyncio.create_task(notifier.run())
        store_verdict(store, "shop", verdict(incident("a")), 1)
        await hook.until(lambda requests: len(distinct(requests)) == 1)
        while (document := other.read_document(NAME)).revision:
            with suppress(StoreConflict):
                other.write_document(NAME, b"", revision=document.revision)
                break
        store_verdict(store, "shop", verdict(incident("b", "pay/bank")), 2)
        await hook.until(lambda requests: ("opened", "b") in distinct(requests))
        await notifier.close()
        await running


async def test_delivery_ends_with_its_feed_so_that_it_is_started_again(
    store: StateStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> NoReturn:
        raise PermissionError("state.db")

    monkeypatch.setattr(store.database, "survey", fail)
    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.timeout(WITHIN):
            await Leader(store, partial(delivery, store)).run()
    assert caught.group_contains(PermissionError)
    assert "PermissionError: state.db" in caplog.text


def distinct(requests: list[Request]) -> list[tuple[str, str]]:
    """Kind and incident of each event. One that was delivered just before a takeover comes again, with the same id."""
    events = {request.json["id"]: request.json for request in requests}
    return [(event["event"], event["incident"]["id"]) for event in events.values()]
