"""The snapshots of a past period of a live mesh."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Protocol, TypeVar

from model.snapshot import MeshSnapshot
from serve_app.collect.base import Poll
from serve_app.collect.prometheus.client import Instants
from serve_app.collect.prometheus.past import range_length
from serve_app.errors import NoTelemetry

T = TypeVar("T")
AHEAD = 4  # instants that are polled before the reader asks for them


class RangeSource(Protocol):
    """A source that answers a range of instants, oldest first."""

    def read(self, instants: Instants) -> Iterator[Poll]: ...


class PastPeriod:
    """Polls a past period; a :class:`~serve_app.collect.base.SnapshotSource`.

    Args:
        source: answers a range of instants.
        first, last: the period, both ends included; whole seconds count.

    Attributes:
        missing: instants without a snapshot and the reason, in the latest pass of ``snapshots()``.

    Raises:
        NoTelemetry: if the period ends before it begins.
    """

    def __init__(self, source: RangeSource, first: datetime, last: datetime, interval_seconds: float) -> None:
        if last < first:
            raise NoTelemetry(
                f"period: expected an end after the start, got {first.isoformat()} to {last.isoformat()}; swap them"
            )
        count = int((last - first).total_seconds() / interval_seconds + 1e-6) + 1
        self._source, self._instants = source, Instants(float(int(first.timestamp())), interval_seconds, count)
        self.missing: list[tuple[datetime, str]] = []

    @property
    def interval_seconds(self) -> float:
        """Time between two instants, s."""
        return self._instants.step

    def __len__(self) -> int:
        """Number of instants in the period."""
        return self._instants.count

    def snapshots(self) -> Iterator[MeshSnapshot]:
        """Yield the snapshots that there are data for, oldest first. Some are polled ahead, so that Prometheus and the
        reader work at the same time.

        Raises:
            NoTelemetry: if there is none.
        """
        self.missing = []
        for poll in fetch_ahead(self._polls(), AHEAD):
            if poll.snapshot is None:
                self.missing.append((poll.at, poll.why))
            else:
                yield poll.snapshot
        if len(self.missing) == len(self):
            (first, _), (last, why) = self.missing[0], self.missing[-1]
            raise NoTelemetry(f"no snapshot from {first.isoformat()} to {last.isoformat()}: {why}")

    def _polls(self) -> Iterator[Poll]:
        number, count = 0, 1
        while number < len(self):
            begin = self._instants.begin + number * self._instants.step
            polls = list(self._source.read(Instants(begin, self._instants.step, min(count, len(self) - number))))
            yield from polls
            number, count = number + len(polls), range_length(polls, self._instants.step)


def fetch_ahead(things: Iterable[T], most: int) -> Iterator[T]:
    """Yield ``things`` in their order; a thread fetches up to ``most`` of them ahead. Their errors are raised here."""
    waiting_for: Iterator[T | None] = iter(things)
    with ThreadPoolExecutor(1, "ahead") as thread:
        fetched = deque(thread.submit(next, waiting_for, None) for _ in range(most))
        try:
            while (thing := fetched.popleft().result()) is not None:
                fetched.append(thread.submit(next, waiting_for, None))
                yield thing
        finally:
            for one in fetched:
                one.cancel()
