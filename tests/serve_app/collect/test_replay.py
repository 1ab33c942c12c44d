"""The past of a new mesh is read once, in ranges, and pushed in order."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
import pytest

from model.snapshot import MeshSnapshot
from serve_app.collect import replay as replays
from serve_app.collect.base import Poll
from serve_app.collect.loop import Push
from serve_app.collect.prometheus.client import Instants, QueryAnswer, Samples
from serve_app.collect.prometheus.past import MAX_SAMPLES
from serve_app.collect.replay import Replay
from serve_app.errors import InvalidDocument, Overloaded, StaleSnapshot
from tests.builders import mesh_of

NOW = 1_700_000_040.0  # a multiple of a minute
HOUR = 3600.0
THREAD = ThreadPoolExecutor(1)


@dataclass
class Past:
    """A mesh whose Prometheus has data from ``since`` on, and does not answer the first ``outages`` ranges. Its answers
    for an instant have so many ``samples``."""

    since: float
    outages: int = 0
    samples: int = 1
    ranges: list[Instants] = field(default_factory=list)

    def open(self) -> "Past":
        return self

    def read(self, instants: Instants) -> Iterator[Poll]:
        self.ranges.append(instants)
        self.outages -= 1
        for number in range(instants.count):
            at = instants.begin + number * instants.step
            when = datetime.fromtimestamp(at, UTC)
            if self.outages >= 0:
                yield Poll(when, None, {("services", "requests"): QueryAnswer(failed="late", detail="too slow")})
            else:
                answer = QueryAnswer(Samples([b"{}"] * self.samples, np.zeros(self.samples)))
                snapshot = mesh_of(["shop/cart"], at=when) if at >= self.since else None
                yield Poll(when, snapshot, {("services", "requests"): answer})

    def close(self) -> None:
        """Nothing is open."""


@dataclass
class Taken:
    """What was pushed; ``raises`` is asked before."""

    raises: Callable[[float], Exception | None] = lambda _: None
    times: list[float] = field(default_factory=list)

    async def push(self, pushed: MeshSnapshot) -> None:
        at = pushed.observed_at.timestamp()
        if (error := self.raises(at)) is not None:
            raise error
        self.times.append(at)


def replay(
    past: Past, push: Push, noted: list[float] | None = None, is_owner: Callable[[], bool] = lambda: True
) -> Replay:
    note = (noted if noted is not None else []).append
    return Replay("shop", past.open, push, lambda: NOW, note, is_owner, THREAD)  # type: ignore[arg-type]  # a stand-in


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "PAUSE_SECONDS", 0.0)


async def test_each_minute_of_the_past_is_pushed_once_and_in_order() -> None:
    past, taken, noted = Past(0.0), Taken(), list[float]()
    assert await replay(past, taken.push, noted).run(NOW - 24 * HOUR) == NOW
    assert taken.times == [NOW - 24 * HOUR + minute * 60 for minute in range(24 * 60 + 1)]
    assert noted == sorted(noted)
    assert noted[-1] == 1


async def test_no_range_is_longer_than_an_hour() -> None:
    past = Past(0.0)
    await replay(past, Taken().push).run(NOW - 5 * HOUR)
    assert max(one.count for one in past.ranges) == 60
    assert sum(one.count for one in past.ranges) == 5 * 60 + 1


async def test_a_range_of_a_large_mesh_is_as_short_as_its_answers_need() -> None:
    past = Past(0.0, samples=60_000)
    await replay(past, Taken().push).run(NOW - HOUR)
    assert max(one.count for one in past.ranges) == MAX_SAMPLES // 60_000
    assert sum(one.count for one in past.ranges) == 61


async def test_a_mesh_that_is_younger_is_read_from_its_beginning() -> None:
    since = NOW - 90 * 60
    past, taken = Past(since), Taken()
    await replay(past, taken.push).run(NOW - 24 * HOUR)
    assert taken.times[0] == since


async def test_a_mesh_without_a_past_begins_with_live_snapshots() -> None:
    past, taken = Past(NOW + 1), Taken()
    assert await replay(past, taken.push).run(NOW - 24 * HOUR) is None
    assert taken.times == []


async def test_a_range_that_fails_is_asked_again() -> None:
    past, taken = Past(0.0, outages=2), Taken()
    assert await replay(past, taken.push).run(NOW - HOUR) == NOW
    assert len(taken.times) == 61
    assert past.ranges[0] == past.ranges[1] == past.ranges[2]


async def test_a_prometheus_that_stops_answering_does_not_hold_up_live_snapshots() -> None:
    past, taken = Past(0.0, outages=100), Taken()
    assert await replay(past, taken.push).run(NOW - HOUR) is None
    assert len(past.ranges) == replays.ATTEMPTS


async def test_a_busy_service_gets_the_same_snapshot_again() -> None:
    refused: list[float] = []

    def raises(at: float) -> Exception | None:
        refused.append(at)
        return Overloaded("busy", retry_after_seconds=1) if len(refused) % 2 else None

    taken = Taken(raises)
    await replay(Past(0.0), taken.push).run(NOW - 10 * 60)
    assert len(taken.times) == 11
    assert taken.times == sorted(set(taken.times))


async def test_refused_snapshots_are_left_out() -> None:
    bad = {NOW - 60: InvalidDocument("no"), NOW - 120: StaleSnapshot("old")}
    taken = Taken(bad.get)
    assert await replay(Past(0.0), taken.push).run(NOW - 5 * 60) == NOW
    assert taken.times == [NOW - 300, NOW - 240, NOW - 180, NOW]


async def test_another_process_takes_over() -> None:
    owned = iter([True, True, False])
    past, taken = Past(0.0), Taken()
    await replay(past, taken.push, is_owner=lambda: next(owned)).run(NOW - 3 * HOUR)
    assert len(taken.times) == 61  # one instant to learn the size of answers, then one range
