"""What a store has reaches the receivers: across kills, restarts of meshes, deletions and damage."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from serve_app.alerts import verdict_feed
from serve_app.alerts.delivery import AlertDelivery, utc_now
from serve_app.alerts.verdict_feed import VerdictFeed
from serve_app.api.schemas.verdict import VerdictDocument
from serve_app.errors import StoreGone
from serve_app.exporter import PrometheusInstruments
from serve_app.settings import StoreSettings
from serve_app.stores import rows
from serve_app.stores.opening import open_store
from serve_app.stores.row_store import Change, under
from serve_app.stores.state_store import StateStore
from tests.serve_app.alerts.alerting import (
    NOW,
    PATIENT,
    eventually,
    incident,
    receivers,
    refuse,
    run_notifier,
    start_endpoints,
    store_verdict,
    stored_state,
    verdict,
)


@pytest.fixture
def reading(place: StoreSettings) -> Iterator[StateStore]:
    """The store of the sessions, as the notifier opens it."""
    with closing(open_store(place)) as opened:
        yield opened


class Memory(AlertDelivery):
    """A delivery to no one, which remembers what it was handed."""

    def __init__(self, store: StateStore) -> None:
        super().__init__(receivers(), store, PrometheusInstruments())
        self.had: list[tuple[str, int]] = []
        self.times: list[datetime] = []
        self.gone: list[str] = []

    def accept_verdict(self, mesh: str, verdict: VerdictDocument, now: datetime, interval_seconds: float = 0.0) -> None:
        super().accept_verdict(mesh, verdict, now, interval_seconds)
        self.had.append((mesh, verdict.sequence))
        self.times.append(now)

    def forget_mesh(self, mesh: str, now: datetime) -> None:
        super().forget_mesh(mesh, now)
        self.gone.append(mesh)


async def test_each_verdict_comes_once_and_in_order(store: StateStore, reading: StateStore) -> None:
    feed, memory = VerdictFeed(reading), Memory(reading)
    store_verdict(store, "shop", verdict(), 1)
    await feed.hand_on(memory)
    for sequence in (2, 3, 4):  # while the notifier did something else
        store_verdict(store, "shop", verdict(), sequence)
    store_verdict(store, "pay", verdict(), 1)
    await feed.hand_on(memory)
    await feed.hand_on(memory)
    assert sorted(memory.had) == [("pay", 1), *(("shop", n) for n in (1, 2, 3, 4))]
    assert [n for mesh, n in memory.had if mesh == "shop"] == [1, 2, 3, 4]


async def test_of_a_mesh_that_is_new_to_it_only_the_newest_verdict_comes(
    store: StateStore, reading: StateStore
) -> None:
    for sequence in (1, 2, 3):
        store_verdict(store, "shop", verdict(), sequence)
    memory = Memory(reading)
    await VerdictFeed(reading).hand_on(memory)
    assert memory.had == [("shop", 3)]


async def test_a_verdict_keeps_the_time_when_it_was_made(store: StateStore, reading: StateStore) -> None:
    made_at, memory = datetime.now(UTC) - timedelta(minutes=30), Memory(reading)
    store_verdict(store, "shop", verdict(), 1, made_at=made_at)
    await VerdictFeed(reading).hand_on(memory)
    assert memory.times == [made_at]


async def test_no_one_is_notified_of_yesterday(store: StateStore, reading: StateStore) -> None:
    memory = Memory(reading)
    store_verdict(store, "shop", verdict(), 1, made_at=datetime.now(UTC) - timedelta(hours=25))
    await VerdictFeed(reading).hand_on(memory)
    assert memory.had == []


async def test_no_one_is_notified_of_the_past_of_a_mesh_that_is_new(store: StateStore, reading: StateStore) -> None:
    feed, memory = VerdictFeed(reading), Memory(reading)
    for sequence in (1, 2):
        store_verdict(store, "shop", verdict(), sequence, replayed=True)
        await feed.hand_on(memory)
    assert memory.had == []
    store_verdict(store, "shop", verdict(), 3)
    await feed.hand_on(memory)
    assert memory.had == [("shop", 3)]


async def test_a_change_without_a_snapshot_is_no_verdict(store: StateStore, reading: StateStore) -> None:
    feed, memory = VerdictFeed(reading), Memory(reading)
    revision = store_verdict(store, "shop", verdict(), 1)
    await feed.hand_on(memory)
    store.replace("shop", b"feedback", revision=revision)
    await feed.hand_on(memory)
    assert memory.had == [("shop", 1)]


async def test_a_mesh_that_begins_again_at_an_earlier_time_is_followed(store: StateStore, reading: StateStore) -> None:
    feed, memory = VerdictFeed(reading), Memory(reading)
    store_verdict(store, "shop", verdict(), 1)
    await feed.hand_on(memory)
    store.delete("shop")
    for sequence in (1, 2):
        store_verdict(store, "shop", verdict(at=NOW - timedelta(days=1)), sequence)
        await feed.hand_on(memory)
    assert memory.had == [("shop", 1), ("shop", 1), ("shop", 2)]
    assert memory.gone == []


async def test_a_deleted_mesh_is_forgotten_and_one_that_was_set_aside_is_not(
    store: StateStore, reading: StateStore
) -> None:
    feed, memory = VerdictFeed(reading), Memory(reading)
    revisions = {mesh: store_verdict(store, mesh, verdict(), 1) for mesh in ("shop", "pay")}
    await feed.hand_on(memory)
    store.delete("shop")
    assert store.set_aside("pay", "damaged", revision=revisions["pay"])
    await feed.hand_on(memory)
    assert memory.gone == ["shop"]
    store_verdict(store, "pay", verdict(at=NOW + timedelta(minutes=1)), 1)
    await feed.hand_on(memory)
    assert memory.had[2:] == [("pay", 1)]


async def test_a_damaged_mesh_holds_up_no_other(
    store: StateStore, reading: StateStore, caplog: pytest.LogCaptureFixture
) -> None:
    feed, memory = VerdictFeed(reading), Memory(reading)
    store_verdict(store, "pay", verdict(), 1)
    (verdict_rows,) = store.database.read("pay", under(rows.VERDICT))
    store.database.write("pay", Change(puts=[(verdict_rows[0][0], b"damaged")]))
    store_verdict(store, "shop", verdict(), 1)
    await feed.hand_on(memory)
    assert memory.had == [("shop", 1)]
    assert "damaged verdicts are left out" in caplog.text


async def test_a_verdict_in_another_form_is_left_out_once(
    store: StateStore, reading: StateStore, caplog: pytest.LogCaptureFixture
) -> None:
    feed, memory = VerdictFeed(reading), Memory(reading)
    store_verdict(store, "shop", verdict(), 1)
    await feed.hand_on(memory)
    for sequence in (2, 3):
        store_verdict(store, "shop", verdict(), sequence)
    newest = under(rows.VERDICT, limit=2, is_reverse=True)
    (key, _) = store.database.read("shop", newest)[0][1]
    store.database.write("shop", Change(puts=[rows.sealed("shop", key, b"of another version")]))
    for _ in range(3):
        await feed.hand_on(memory)
    assert memory.had == [("shop", 1), ("shop", 3)]
    assert caplog.text.count("mesh shop: a damaged verdict is left out") == 1


async def test_one_verdict_that_cannot_be_used_holds_up_no_other(
    store: StateStore, reading: StateStore, caplog: pytest.LogCaptureFixture
) -> None:
    class Picky(Memory):
        def accept_verdict(
            self, mesh: str, verdict: VerdictDocument, now: datetime, interval_seconds: float = 0.0
        ) -> None:
            if verdict.sequence == 2:
                raise ZeroDivisionError
            super().accept_verdict(mesh, verdict, now, interval_seconds)

    feed, memory = VerdictFeed(reading), Picky(reading)
    store_verdict(store, "shop", verdict(), 1)
    await feed.hand_on(memory)
    for sequence in (2, 3):
        store_verdict(store, "shop", verdict(), sequence)
    await feed.hand_on(memory)
    assert memory.had == [("shop", 1), ("shop", 3)]
    assert "no one is notified of this verdict" in caplog.text


async def test_a_store_that_comes_back_is_read_on(
    store: StateStore, reading: StateStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(verdict_feed, "POLL_SECONDS", 0.01)
    memory, tries = Memory(reading), 0

    def fail(*_: object) -> Any:
        nonlocal tries
        tries += 1
        raise StoreGone("away")

    with monkeypatch.context() as patch:
        patch.setattr(reading.database, "survey", fail)
        following = asyncio.create_task(VerdictFeed(reading).follow(memory))
        await eventually(lambda: tries >= 3)
    store_verdict(store, "shop", verdict(), 1)
    await eventually(lambda: memory.had == [("shop", 1)])
    following.cancel()
    assert caplog.text.count("verdicts wait for the store") == 1


async def test_a_restart_loses_no_incident_and_repeats_an_event_only_with_its_id(
    place: StoreSettings, store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first process is killed after it has sent what it could not save. Before the second one starts, one incident
    ends, and another one opens and ends."""
    async with start_endpoints(200) as (hook,):
        to = receivers(webhooks=[hook], deadline_seconds=PATIENT)
        store_verdict(store, "shop", verdict(incident("a")), 1)
        with closing(open_store(place)) as opened:
            feed = VerdictFeed(opened)
            async with run_notifier(to, opened, utc_now) as (notifier, _):
                await feed.hand_on(notifier)
                await hook.until(lambda requests: len(requests) == 1)
                await eventually(
                    lambda: bool(stored_state(store).events) and not any(stored_state(store).events.values())
                )
                store_verdict(store, "shop", verdict(incident("a"), incident("b", "pay/bank")), 2)
                monkeypatch.setattr(opened.database, "write", refuse)
                await feed.hand_on(notifier)
                await hook.until(lambda requests: len(requests) == 2)
        store_verdict(store, "shop", verdict(incident("c", "web/front")), 3)
        store_verdict(store, "shop", verdict(), 4)
        with closing(open_store(place)) as opened:
            async with run_notifier(to, opened, utc_now) as (notifier, _):
                await VerdictFeed(opened).hand_on(notifier)
    sent = [(request.json["id"], request.json["event"], request.json["incident"]["id"]) for request in hook.requests]
    assert sent[1] == sent[2], "at least once, with the same id"
    assert sorted(set(sent[1:2] + sent[3:]), key=sent.index) == [sent[1], *sent[3:]]
    once = [request[1:] for request in dict.fromkeys(sent)]
    assert once[:2] == [("opened", "a"), ("opened", "b")]
    assert sorted(once[2:]) == [("opened", "c"), ("resolved", "a"), ("resolved", "b"), ("resolved", "c")]
