"""The state of alerts outlives its process, in each storage; a Redis has one writer."""

import asyncio
import logging
from contextlib import closing, suppress
from functools import partial
from typing import Any

import pytest
import redis

from model.verdict import Verdict
from serve_app.alerts import saved_state
from serve_app.alerts.alert import AlertState
from serve_app.alerts.delivery import AlertDelivery
from serve_app.alerts.owner import Owner
from serve_app.alerts.storage import AlertStorage
from serve_app.errors import StoreConflict, StoreGone
from serve_app.exporter import PrometheusInstruments
from serve_app.settings import Settings, StoreSettings
from serve_app.stores.alert_documents import NAME, AlertDocuments
from serve_app.stores.opening import open_alert_storage, open_store
from tests.serve_app.alerts.alerting import (
    NOW,
    PATIENT,
    WITHIN,
    Request,
    incident,
    metric_value,
    receivers,
    resend_after,
    start_endpoints,
    verdict,
)


def storage_at(place: StoreSettings) -> AlertStorage:
    """A storage as a process opens it."""
    return open_alert_storage(Settings(store=place))


def redis_at(place: StoreSettings) -> AlertDocuments:
    """The same, for tests of a Redis alone."""
    if place.kind != "redis":
        pytest.skip("a file has no second writer: its directory belongs to one process")
    return AlertDocuments(open_store(place))


def delivery(storage: AlertStorage, **more: Any) -> AlertDelivery:
    return AlertDelivery(receivers(**more), storage, PrometheusInstruments(), lambda: NOW)


async def test_the_next_process_continues(place: StoreSettings) -> None:
    first = delivery(storage_at(place))
    first.accept_verdict("shop", verdict(incident("a")), NOW)
    await first.close()
    second = delivery(storage_at(place))
    assert [alert.labels["incident"] for alert in second.firing_alerts("shop")] == ["a"]


def test_an_empty_storage_has_an_empty_state(place: StoreSettings) -> None:
    assert storage_at(place).read() == AlertState()


async def test_a_process_that_was_taken_over_sends_nothing_more(
    place: StoreSettings, caplog: pytest.LogCaptureFixture
) -> None:
    storage = redis_at(place)
    async with start_endpoints(200) as (hook,):
        more = {"webhooks": [hook], "deadline_seconds": PATIENT}
        first = delivery(storage, **more)
        running = asyncio.create_task(first.run())
        first.accept_verdict("shop", verdict(incident("a")), NOW)
        await hook.until(lambda requests: len(requests) == 1)
        take_over(place, storage)
        first.accept_verdict("shop", verdict(), NOW)
        await running  # it ends by itself
        assert [request.json["event"] for request in hook.requests] == ["opened"]
        second = delivery(redis_at(place), **more)
        running = asyncio.create_task(second.run())
        second.accept_verdict("shop", verdict(), NOW)
        await hook.until(lambda requests: len(requests) >= 2)
        await second.close()
        await running
    events = [(request.json["event"], request.json["incident"]["id"]) for request in hook.requests]
    assert list(dict.fromkeys(events)) == [("opened", "a"), ("resolved", "a")]
    assert len({request.json["id"] for request in hook.requests}) == 2
    assert "another process sends the notifications" in caplog.text


def take_over(place: StoreSettings, storage: AlertDocuments) -> None:
    """Take over as another process does: from here on, ``storage`` cannot write."""
    assert redis_at(place).read().meshes["shop"].open
    with pytest.raises(StoreConflict, match="taken over"):
        storage.write(AlertState())


async def test_a_process_with_an_open_alert_notices_the_takeover_without_a_verdict(place: StoreSettings) -> None:
    storage = redis_at(place)
    async with start_endpoints(200) as (manager,):
        first = delivery(storage, alertmanagers=[manager], deadline_seconds=PATIENT, timing=resend_after())
        running = asyncio.create_task(first.run())
        first.accept_verdict("shop", verdict(incident("a")), NOW)
        await manager.until(lambda requests: len(requests) >= 1)
        redis_at(place).read()
        await running


def test_a_damaged_state_is_set_aside(place: StoreSettings, caplog: pytest.LogCaptureFixture) -> None:
    storage = redis_at(place)
    storage.read()
    with closing(open_store(place)) as store:
        document = store.read_document(NAME)
        assert document is not None
        store.write_document(NAME, b"{", revision=document.revision)
    with caplog.at_level(logging.ERROR):
        assert storage.read() == AlertState()
    assert "set aside" in caplog.text
    storage.write(AlertState())
    assert redis_at(place).read() == AlertState()


def test_a_redis_that_lost_the_state_is_named(place: StoreSettings) -> None:
    storage = redis_at(place)
    storage.read()
    with closing(redis.Redis.from_url(place.url or "")) as hand:
        hand.delete(f"{place.key_prefix}:{{STORE}}:rows", f"{place.key_prefix}:{{STORE}}:keys")
    with pytest.raises(StoreGone, match="emptied or replaced"):
        storage.write(AlertState())


async def test_a_redis_that_is_away_delays_no_notification(place: StoreSettings) -> None:
    storage = redis_at(place)
    instruments = PrometheusInstruments()
    async with start_endpoints(200) as (hook,):
        to = receivers(webhooks=[hook], deadline_seconds=PATIENT)
        sending = AlertDelivery(to, storage, instruments, lambda: NOW)
        storage.close()
        away = place.model_copy(update={"url": "redis://127.0.0.1:1/0", "timeout_seconds": 0.1})
        storage._store = open_store(away)
        running = asyncio.create_task(sending.run())
        sending.accept_verdict("shop", verdict(incident("a")), NOW)
        await hook.until(lambda requests: len(requests) == 1)
        await sending.close()
        await running
    assert metric_value(instruments, "tagae_notices_failed_total", receiver="state", reason="unwritable") >= 1


async def test_of_two_notifiers_the_one_that_gets_verdicts_sends(
    place: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As during an upgrade with a second cluster: it starts, and takes over, before the traffic moves to it."""
    redis_at(place)
    monkeypatch.setattr(saved_state, "PATIENCE_SECONDS", WITHIN)  # a slow machine must not send before it has saved
    async with start_endpoints(200) as (hook,):
        more = {"webhooks": [hook], "deadline_seconds": PATIENT, "timing": resend_after()}
        old = Owner(partial(delivery, redis_at(place), **more))
        tasks = [asyncio.create_task(old.run())]
        await deliver(old, verdict(incident("a")))
        await hook.until(lambda requests: len(distinct(requests)) == 1)
        new = Owner(partial(delivery, redis_at(place), **more))
        tasks.append(asyncio.create_task(new.run()))
        await deliver(old, verdict(incident("a"), incident("b", "pay/bank")))
        await hook.until(lambda requests: len(distinct(requests)) == 2)
        await deliver(new, verdict(incident("b", "pay/bank")))
        await hook.until(lambda requests: len(distinct(requests)) == 3)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert distinct(hook.requests) == [("opened", "a"), ("opened", "b"), ("resolved", "a")]


async def deliver(owner: Owner, one: Verdict) -> None:
    """Send the same verdict, as each snapshot has the same alerts, until it is stored."""
    async with asyncio.timeout(WITHIN):
        while True:
            with suppress(StoreGone):
                sending = owner.delivery()
                sending.accept_verdict("shop", one, NOW)
                await sending._saved.publish()
                if not sending.is_taken_over:
                    return
            await asyncio.sleep(0.01)


def distinct(requests: list[Request]) -> list[tuple[str, str]]:
    """Kind and incident of each event. One that was delivered just before a takeover comes again, with the same id."""
    events = {request.json["id"]: request.json for request in requests}
    return [(event["event"], event["incident"]["id"]) for event in events.values()]
