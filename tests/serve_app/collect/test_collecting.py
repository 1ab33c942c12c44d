"""The loop that collects one mesh: due instants, catching up, and failures."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.snapshot import MeshSnapshot, PlannedChange
from serve_app.collect.base import Finding, Poll
from serve_app.collect.kubernetes.watch import WatchState
from serve_app.collect.loop import CollectorState, PollLoop, PollSchedule, poll_schedule
from serve_app.collect.prometheus.client import QueryAnswer
from serve_app.errors import (
    InvalidDocument,
    NoCapacity,
    Overloaded,
    StaleSnapshot,
    StoreConflict,
    StoreFull,
    StoreGone,
)
from serve_app.exporter import PrometheusInstruments
from serve_app.settings import CollectorSettings
from tests.builders import mesh_of
from tests.timing import PATIENCE_SECONDS

RHYTHM = PollSchedule(interval_seconds=10, behind_seconds=10, catch_up=4)
NOW = 1_700_000_005.0  # the newest complete instant: at least 10 s ago


def snapshot(at: datetime, *changes: PlannedChange) -> MeshSnapshot:
    return replace(mesh_of(["shop/cart"], at=at), changes=changes)


def good_poll(at: datetime) -> Poll:
    return Poll(at, snapshot(at), {("services", "requests"): QueryAnswer()})


def failed_poll(at: datetime) -> Poll:
    answers = {("services", "requests"): QueryAnswer(failed="unreachable", detail="nobody there")}
    return Poll(at, None, answers, masked=(("services", "requests"),), why="requests of services are not known")


def empty(at: datetime) -> Poll:
    return Poll(at, None, {("services", "requests"): QueryAnswer()}, why="expected at least one service")


@dataclass
class Scripted:
    """A source with a scripted answer. It stores the requested instants."""

    says: Callable[[datetime], Poll] = good_poll
    asked: list[float] = field(default_factory=list)

    def poll(self, at: datetime) -> Poll:
        self.asked.append(at.timestamp())
        return self.says(at)


@dataclass
class Service:
    """A receiver that accepts snapshots or raises."""

    raises: Exception | None = None
    taken: list[MeshSnapshot] = field(default_factory=list)

    async def push(self, pushed: MeshSnapshot) -> None:
        if self.raises is not None:
            raise self.raises
        self.taken.append(pushed)

    @property
    def times(self) -> list[float]:
        return [one.observed_at.timestamp() for one in self.taken]


def run_collector(source: Scripted, service: Service, done: float | None = None) -> PollLoop:
    one = PollLoop("shop", source, service.push, RHYTHM)
    one.begin(done)
    return one


def newest(now: float = NOW) -> float:
    return RHYTHM.newest(now)


@given(st.floats(1e9, 2e9), st.floats(0, 500), st.floats(1, 60), st.floats(0, 60), st.floats(0, 0.99))
def test_due_instants_are_in_order_after_the_last_in_the_past_and_bounded(
    now: float, ago: float, interval: float, behind: float, share: float
) -> None:
    rhythm = PollSchedule(interval, behind, 5, share * interval)
    done = rhythm.newest(now - ago)
    due = rhythm.due(done, now)
    assert len(due) == min(round((rhythm.newest(now) - done) / interval), 5)
    assert due == sorted(due)
    assert all(done < at <= now - behind + 1e-3 for at in due)
    assert 0 <= rhythm.seconds_to_next(now) <= interval + 1e-3


def test_a_mesh_has_its_own_phase_and_keeps_it() -> None:
    phases = {poll_schedule(f"mesh-{i}", CollectorSettings()).phase_seconds for i in range(50)}
    assert len(phases) == 50
    assert all(0 <= phase < 15 for phase in phases)
    assert poll_schedule("mesh-7", CollectorSettings()).phase_seconds in phases


async def test_the_newest_instant_is_polled_once_and_pushed() -> None:
    source, service = Scripted(), Service()
    one = run_collector(source, service)
    await one.tick(NOW)
    await one.tick(NOW + 1)
    assert source.asked == service.times == [newest()]
    assert one.state.polls == {"taken": 1}
    assert one.state.handed_on == newest()


async def test_missed_instants_are_caught_up_to_a_limit() -> None:
    source, service = Scripted(), Service()
    one = run_collector(source, service, done=newest() - 70)
    await one.tick(NOW)
    assert service.times == [newest() - 30, newest() - 20, newest() - 10, newest()]
    assert one.state.polls == {"given_up": 3, "taken": 4}


async def test_an_instant_is_given_up_once_however_long_the_source_fails() -> None:
    source, service = Scripted(failed_poll), Service()
    one = run_collector(source, service, done=newest() - 10)
    for i in range(30):
        await one.tick(NOW + 10 * i)
    lost = one.state.polls["given_up"]
    source.says = good_poll
    await one.tick(NOW + 290)
    assert one.state.polls["given_up"] == lost
    assert lost + len(service.times) == 30


async def test_a_failing_prometheus_is_polled_once_an_interval_and_then_caught_up() -> None:
    source, service = Scripted(failed_poll), Service()
    one = run_collector(source, service, done=newest() - 10)
    for i in range(3):
        await one.tick(NOW + 10 * i)
    assert source.asked == [newest()] * 3
    assert one.state.polls == {"failed": 3}
    assert one.state.failures == {"unreachable": 3}
    assert "not known" in one.state.problem
    source.says = good_poll
    await one.tick(NOW + 20)
    assert service.times == [newest(), newest() + 10, newest() + 20]
    assert one.state.problem == ""


async def test_an_instant_without_services_is_skipped() -> None:
    source, service = Scripted(empty), Service()
    one = run_collector(source, service)
    await one.tick(NOW)
    await one.tick(NOW + 1)
    assert (len(source.asked), one.state.polls) == (1, {"empty": 1})


@pytest.mark.parametrize(
    "error", [Overloaded("full"), NoCapacity("none left"), StoreGone("away"), StoreFull("full"), StoreConflict("other")]
)
async def test_a_snapshot_that_is_not_accepted_waits_and_is_not_polled_again(error: Exception) -> None:
    source, service = Scripted(), Service(error)
    one = run_collector(source, service)
    await one.tick(NOW)
    assert "not accepted yet" in one.state.problem
    service.raises = None
    await one.tick(NOW + 10)
    assert service.times == [newest(), newest() + 10]
    assert source.asked == [newest(), newest() + 10]


async def test_planned_changes_survive_a_snapshot_that_is_given_up() -> None:
    change = PlannedChange("deploy", "shop/cart", "v2")

    def says(at: datetime) -> Poll:
        return Poll(at, snapshot(at, change) if at.timestamp() == newest() else snapshot(at), {})

    source, service = Scripted(says), Service(Overloaded("full"))
    one = run_collector(source, service)
    await one.tick(NOW)
    service.raises = None
    await one.tick(NOW + 100)
    assert newest() not in service.times
    assert service.taken[0].changes == (change,)
    assert all(not later.changes for later in service.taken[1:])


async def test_refused_or_known_snapshots_are_not_pushed_again() -> None:
    source, service = Scripted(), Service(InvalidDocument("too many services"))
    one = run_collector(source, service)
    await one.tick(NOW)
    assert (one.state.polls, one.state.problem) == ({"refused": 1}, "too many services")
    service.raises = StaleSnapshot("older than the newest")
    await one.tick(NOW + 10)
    assert one.state.polls == {"refused": 1, "taken": 1}
    assert one.state.handed_on is None


async def test_annotations_without_effect_are_logged_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    messages = ["shop/cart: tagae.io/mute: expected the reason, got 'no'"]
    source, service = Scripted(lambda at: replace(good_poll(at), ignored_annotations=tuple(messages))), Service()
    one = run_collector(source, service)
    for i in range(2):
        await one.tick(NOW + 10 * i)
    assert caplog.text.count("annotation ignored: shop/cart: tagae.io/mute") == 1
    text = PrometheusInstruments().text(collectors=[one.state]).decode()
    assert 'tagae_collector_unheeded_annotations{mesh="shop"} 1.0' in text
    messages.clear()
    await one.tick(NOW + 20)
    assert one.state.ignored_annotations == ()
    assert len(service.taken) == 3


async def test_incomplete_answers_are_logged_once_and_stated(caplog: pytest.LogCaptureFixture) -> None:
    """The last values stand in for them, so there are snapshots all the time."""
    lost: list[str] = []

    def polled(at: datetime) -> Poll:
        answers = {("calls", str(i)): QueryAnswer(failed="incomplete", detail=said) for i, said in enumerate(lost)}
        return replace(good_poll(at), answers=answers)

    caplog.set_level("INFO")
    source, service = Scripted(polled), Service()
    one = run_collector(source, service)
    for i, said in enumerate(([], ["store-1 is away"] * 2, ["store-1 is away", "isPartial: true"])):
        lost[:] = said
        await one.tick(NOW + 10 * i)
    assert one.state.incomplete == "store-1 is away; isPartial: true"
    assert one.state.failures == {"incomplete": 4}
    assert one.state.problem == ""
    assert caplog.text.count("answers of Prometheus may be incomplete, ignoring them: store-1 is away") == 1
    assert "complete again" not in caplog.text
    lost.clear()
    await one.tick(NOW + 30)
    assert one.state.incomplete == ""
    assert caplog.text.count("answers of Prometheus are complete again") == 1
    assert len(service.taken) == 4


async def test_an_unexpected_error_does_not_end_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    asked = asyncio.Event()

    def breaks(at: datetime) -> Poll:
        asked.set()
        raise ZeroDivisionError("ours")

    one = PollLoop("shop", Scripted(breaks), Service().push, PollSchedule(0.05, 0.0))
    running = asyncio.create_task(one.run())
    await asyncio.wait_for(asked.wait(), 5)
    asked.clear()
    await asyncio.wait_for(asked.wait(), 5)  # the source was polled again
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert "ZeroDivisionError: ours" in one.state.problem
    assert "collecting failed" in caplog.text


async def test_a_slow_source_does_not_delay_other_meshes() -> None:
    began, release = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def hangs(at: datetime) -> Poll:
        loop.call_soon_threadsafe(began.set)
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result(10)
        return good_poll(at)

    slow = asyncio.create_task(run_collector(Scripted(hangs), Service()).tick(NOW))
    await asyncio.wait_for(began.wait(), 5)
    service = Service()
    await run_collector(Scripted(), service).tick(NOW)
    assert service.times == [newest()]
    release.set()
    await slow


async def test_instants_are_utc() -> None:
    source, service = Scripted(), Service()
    await run_collector(source, service).tick(NOW)
    assert service.taken[0].observed_at == datetime.fromtimestamp(newest(), UTC)


async def test_a_collector_that_loses_its_mesh_stops_before_it_pushes() -> None:
    owned, service = [True], Service()

    def loses(at: datetime) -> Poll:
        owned.clear()  # another process takes over during a slow poll
        return good_poll(at)

    one = PollLoop("shop", Scripted(loses), service.push, PollSchedule(0.05, 0.0), lambda: bool(owned))
    await asyncio.wait_for(one.run(), PATIENCE_SECONDS)
    assert service.taken == []
    assert one.state.polls == {}


async def test_a_state_arrives_unchanged_at_another_collector() -> None:
    one = run_collector(Scripted(), Service())
    await one.tick(NOW)
    state = replace(one.state, masked=("services/cpu",), events=WatchState(True, 3, {"listed": 1}))
    assert CollectorState.unpack(state.pack()) == state


def late_poll(at: datetime) -> Poll:
    """No data yet: they arrive 60 s after the usual age."""
    return Poll(at, None, {("services", "requests"): QueryAnswer()}, why="data arrive late", behind_seconds=70.0)


@pytest.mark.parametrize("lag_ends", [False, True])
def test_the_newest_instant_is_as_old_as_the_data(*, lag_ends: bool) -> None:
    taken: list[MeshSnapshot] = []
    polled: list[float] = []
    now, lag = NOW, 60.0

    class Late:
        def poll(self, at: datetime) -> Poll:
            polled.append(at.timestamp())
            has_data = at.timestamp() <= now - lag
            return replace(good_poll(at) if has_data else late_poll(at), behind_seconds=70.0 if lag else 0.0)

    async def push(one: MeshSnapshot) -> None:
        taken.append(one)

    async def live() -> None:
        nonlocal now, lag
        for step in range(30):
            now = NOW + 10 * step
            if lag_ends and step == 20:
                lag = 0.0
            await collector.tick(now)

    collector = PollLoop("shop", Late(), push, replace(RHYTHM, catch_up=20))
    asyncio.run(live())
    instants = [one.observed_at.timestamp() for one in taken]
    assert instants == sorted(instants)
    assert np.diff(instants).tolist() == [10.0] * (len(instants) - 1)  # none is lost, also not the first one
    assert instants[0] == polled[0]
    assert polled.count(polled[0]) == 2
    assert collector.schedule.behind_seconds == (10.0 if lag_ends else 70.0)
    assert now - instants[-1] < (20 if lag_ends else 90)


def test_remarks_are_in_the_state_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    remark = Finding("clusters", "warning", "2 clusters in this Prometheus", "set match")

    class Remarking:
        def poll(self, at: datetime) -> Poll:
            return replace(good_poll(at), why=str(remark), arrival=(remark,))

    async def push(_: MeshSnapshot) -> None: ...

    async def live() -> None:
        for step in range(3):
            await collector.tick(NOW + 10 * step)

    collector = PollLoop("shop", Remarking(), push, RHYTHM)
    asyncio.run(live())
    assert collector.state.remarks == ("2 clusters in this Prometheus; set match",)
    assert collector.state.problem == ""
    assert caplog.text.count("2 clusters in this Prometheus; set match") == 1


async def test_the_past_of_a_new_mesh_comes_before_its_first_live_snapshot() -> None:
    source, service, read = Scripted(failed_poll), Service(), list[float]()

    async def read_past() -> float:
        read.append(len(service.taken))
        return newest() - 2 * RHYTHM.interval_seconds

    one = PollLoop("shop", source, service.push, RHYTHM)
    one.begin(None, read_past)
    await one.tick(NOW)
    assert not read  # a source that does not answer now has no past, either
    source.says = good_poll
    await one.tick(NOW)
    await one.tick(NOW)
    assert read == [0]
    assert service.times == [newest() - RHYTHM.interval_seconds, newest()]


async def test_a_mesh_whose_past_cannot_be_read_begins_with_the_present() -> None:
    async def read_past() -> None:
        return None

    service = Service()
    one = PollLoop("shop", Scripted(), service.push, RHYTHM)
    one.begin(None, read_past)
    await one.tick(NOW)
    await one.tick(NOW)
    assert service.times == [newest()]
