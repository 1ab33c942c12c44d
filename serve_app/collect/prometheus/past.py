"""A mesh's past from its Prometheus: snapshots of a period from range queries.

It uses the collector's queries and the code that reads their answers; only the evaluator differs. It sends each query
once for the whole period, and answers the period's instants from the result. Rates are over the whole step
between two snapshots, so that nothing between them is left out.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from math import floor

from model.snapshot import MeshSnapshot
from serve_app.collect.base import Poll
from serve_app.collect.prometheus.client import Instants, K, Prometheus, QueryAnswer, RangeAnswer
from serve_app.collect.prometheus.detect import MeshSource, open_prometheus
from serve_app.errors import NoTelemetry
from serve_app.settings import CollectorSettings, MeshSettings

MAX_SAMPLES = 1_000_000  # limit for a period's queries together
MAX_INSTANTS, MIN_INSTANTS = 600, 12  # of a period
MAX_RANGE_SECONDS = 3600.0  # a longer period is read in ranges of at most this
RANGE_WITHIN_SECONDS = 60.0  # deadline for such a range's queries
MAX_PERIODS = 4  # in memory
RECENT_SECONDS = 300.0  # younger data may still change


class RangeEvaluator:
    """Answers the instants of a range from range queries, and other instants as its client does."""

    def __init__(self, client: Prometheus) -> None:
        self._client = client
        self.begin(Instants(0.0, 1.0, 0))

    def begin(self, instants: Instants) -> None:
        """Begin another range; the previous one's answers are forgotten."""
        self._instants = instants
        self._ranges: dict[str, RangeAnswer] = {}

    def ask(self, queries: Mapping[K, str], at: datetime, within: float) -> dict[K, QueryAnswer]:
        number = self._instants.find(at.timestamp())
        if number is None:
            return self._client.ask(queries, at, within)
        new_texts = [text for text in dict.fromkeys(queries.values()) if text not in self._ranges]
        self._ranges |= self._client.ask_range(new_texts, self._instants, within)
        return {name: self._ranges[text].at(number) for name, text in queries.items()}


class PastSource:
    """Polls past instants of one mesh from range queries. It remembers between ranges what it learned about the mesh.

    Args:
        step: time between two instants, s; their rates are over at least that.
        within: deadline for a range's queries, s.
    """

    def __init__(self, mesh: MeshSettings, collector: CollectorSettings, step: float, within: float) -> None:
        changes: dict[str, float] = {"interval_seconds": step, "deadline_seconds": max(within, 0.001)}
        if step > collector.window_seconds:
            changes["window_seconds"] = step
        self._client = open_prometheus(mesh)
        self._evaluator = RangeEvaluator(self._client)
        self._source = MeshSource(mesh, collector.model_copy(update=changes), evaluator=self._evaluator)

    def read(self, instants: Instants) -> Iterator[Poll]:
        """Poll the instants of a range, in order. The first one waits for the queries."""
        self._evaluator.begin(instants)
        yield from map(self._source.poll, instants.times())

    def close(self) -> None:
        self._client.close()


def count_samples(poll: Poll) -> int:
    """Return the samples in the answers for one instant."""
    return sum(len(answer.samples) for answer in poll.answers.values())


def range_length(polls: Sequence[Poll], step: float) -> int:
    """Return the number of instants in the next range of a long period: an hour of them, or fewer if they have too
    many samples.

    Args:
        polls: the previous range's polls.
    """
    largest = max(map(count_samples, polls))
    return max(1, min(round(MAX_RANGE_SECONDS / step), MAX_SAMPLES // max(largest, 1)))


class PastPeriod:
    """Polls a past period; a :class:`~serve_app.collect.base.SnapshotSource`.

    Args:
        read: polls a range of instants, oldest first.
        first, last: the period, both ends included; whole seconds count.

    Attributes:
        missing: instants without a snapshot and the reason, in the latest pass of ``snapshots()``.

    Raises:
        NoTelemetry: if the period ends before it begins.
    """

    def __init__(
        self, read: Callable[[Instants], Iterator[Poll]], first: datetime, last: datetime, interval_seconds: float
    ) -> None:
        if last < first:
            raise NoTelemetry(
                f"period: expected an end after the start, got {first.isoformat()} to {last.isoformat()}; swap them"
            )
        count = int((last - first).total_seconds() / interval_seconds + 1e-6) + 1
        self._read, self._instants = read, Instants(float(int(first.timestamp())), interval_seconds, count)
        self.missing: list[tuple[datetime, str]] = []

    @property
    def interval_seconds(self) -> float:
        return self._instants.step

    def __len__(self) -> int:
        return self._instants.count

    def snapshots(self) -> Iterator[MeshSnapshot]:
        """Yield the snapshots with data, oldest first.

        Raises:
            NoTelemetry: if there is none.
        """
        self.missing = []
        step, number, count = self.interval_seconds, 0, 1
        while number < len(self):
            begin = self._instants.begin + number * step
            polls = list(self._read(Instants(begin, step, min(count, len(self) - number))))
            for poll in polls:
                if poll.snapshot is None:
                    self.missing.append((poll.at, poll.why))
                else:
                    yield poll.snapshot
            number, count = number + len(polls), range_length(polls, step)
        if len(self.missing) == len(self):
            (first, _), (last, reason) = self.missing[0], self.missing[-1]
            raise NoTelemetry(f"no snapshot from {first.isoformat()} to {last.isoformat()}: {reason}")


@dataclass(frozen=True, slots=True)
class PastSnapshots:
    """The snapshots of a period."""

    step_seconds: float  # between two of them; also their rate window
    begin: float  # Unix time of the first instant
    count: int  # of instants
    snapshots: tuple[MeshSnapshot, ...]  # oldest first, without instants for which Prometheus has no data


class PastReader:
    """Reads periods of collected meshes, and caches some. Use it from one thread.

    Args:
        meshes: by name; they may change.
    """

    def __init__(self, meshes: Mapping[str, MeshSettings], collector: CollectorSettings) -> None:
        self._meshes, self._collector = meshes, collector
        self._periods: OrderedDict[tuple[str, str, int, int, int], PastSnapshots] = OrderedDict()

    def read(self, mesh: str, begin: datetime, end: datetime, points: int, until: float) -> PastSnapshots:
        """The snapshots of a period, at most ``points``.

        Args:
            until: deadline, s of the monotonic clock.

        Raises:
            NoTelemetry: the mesh has no Prometheus, or Prometheus has no data for the period, or no time is left.
        """
        settings = self._settings(mesh)
        key = mesh, settings.prometheus_url, floor(begin.timestamp()), floor(end.timestamp()), points
        if key not in self._periods:
            period = self._read(mesh, settings, begin, end, min(points, MAX_INSTANTS), until)
            if end.timestamp() > time.time() - RECENT_SECONDS:
                return period
            self._periods[key] = period
            while len(self._periods) > MAX_PERIODS:
                self._periods.popitem(last=False)
        self._periods.move_to_end(key)
        return self._periods[key]

    def read_instant(self, mesh: str, at: datetime, until: float) -> MeshSnapshot:
        """The snapshot of an instant. Arguments and errors as of :meth:`read`."""
        settings = self._settings(mesh)
        collector = self._collector.model_copy(update={"deadline_seconds": _time_left(mesh, until)})
        with closing(MeshSource(settings, collector)) as source:
            poll = source.poll(at)
        if poll.snapshot is None:
            raise NoTelemetry(f"mesh {mesh!r}: its Prometheus has no data of {at.isoformat()}: {poll.why}")
        return poll.snapshot

    def _settings(self, mesh: str) -> MeshSettings:
        settings = self._meshes.get(mesh)
        if settings is None or settings.other_source is not None:
            raise NoTelemetry(f"mesh {mesh!r} is not collected from Prometheus")
        return settings

    def _read(
        self, mesh: str, settings: MeshSettings, begin: datetime, end: datetime, points: int, until: float
    ) -> PastSnapshots:
        _time_left(mesh, until)
        step = max((end - begin).total_seconds() / max(points - 1, 1), self._collector.interval_seconds)
        step = float(-(-step // 1))
        first = begin.timestamp() // step * step
        instants = Instants(first, step, max(1, floor((end.timestamp() - first) / step) + 1))
        instants = self._limit(mesh, settings, instants, until)
        snapshots, reason = [], ""
        with closing(self._open(settings, instants.step, until)) as source:
            for poll in source.read(instants):
                if poll.snapshot is not None:
                    snapshots.append(poll.snapshot)
                reason = reason or poll.why
        if not snapshots:
            raise NoTelemetry(
                f"mesh {mesh!r}: its Prometheus has no data from {begin.isoformat()} to {end.isoformat()}: {reason}; "
                "check how long it retains data"
            )
        return PastSnapshots(instants.step, instants.begin, instants.count, tuple(snapshots))

    def _limit(self, mesh: str, settings: MeshSettings, instants: Instants, until: float) -> Instants:
        """Return fewer instants if the answers would be too large, judged by the answers for the last instant."""
        with closing(self._open(settings, instants.step, until)) as source:
            (poll,) = source.read(Instants(instants.end, instants.step, 1))
        size = count_samples(poll)
        if size * MIN_INSTANTS > MAX_SAMPLES:
            raise NoTelemetry(
                f"mesh {mesh!r}: {size} samples for each past instant are too many: the limit is {MAX_SAMPLES} for "
                f"{MIN_INSTANTS} instants; "
                "load the rules that `tagae rules` prints into this Prometheus"
            )
        fewer = -(-instants.count * max(size, 1) // MAX_SAMPLES)
        step = instants.step * fewer
        begin = instants.begin // step * step
        return Instants(begin, step, floor((instants.end - begin) / step) + 1)

    def _open(self, settings: MeshSettings, step: float, until: float) -> PastSource:
        return PastSource(settings, self._collector, step, until - time.monotonic())


def _time_left(mesh: str, until: float) -> float:
    """The seconds until a deadline, or ``NoTelemetry`` if it has passed while the request waited for its turn."""
    seconds = until - time.monotonic()
    if seconds <= 0:
        raise NoTelemetry(f"mesh {mesh!r}: its Prometheus is still busy with earlier requests; try again in a moment")
    return seconds
