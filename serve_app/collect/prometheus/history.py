"""The snapshots of a past period, from the mesh's Prometheus."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import TypeVar

from model.snapshot import MeshSnapshot
from serve_app.collect.loop import PollSource
from serve_app.errors import NoTelemetry

T = TypeVar("T")
AHEAD = 4  # instants that are polled before the reader asks for them


class PastPeriod:
    """Polls a past period; a :class:`~serve_app.collect.base.SnapshotSource`.

    Args:
        first, last: the period, both ends included.

    Attributes:
        missing: instants without a snapshot and the reason, in the latest pass of ``snapshots()``.

    Raises:
        NoTelemetry: if the period ends before it begins.
    """

    def __init__(self, source: PollSource, first: datetime, last: datetime, interval_seconds: float) -> None:
        if last < first:
            raise NoTelemetry(
                f"period: expected an end after the start, got {first.isoformat()} to {last.isoformat()}; swap them"
            )
        self._source, self._first, self._last = source, first, last
        self._interval_seconds = interval_seconds
        self.missing: list[tuple[datetime, str]] = []

    @property
    def interval_seconds(self) -> float:
        """Time between two instants, s."""
        return self._interval_seconds

    def __len__(self) -> int:
        """Number of instants in the period."""
        return int((self._last - self._first).total_seconds() / self._interval_seconds + 1e-6) + 1

    def snapshots(self) -> Iterator[MeshSnapshot]:
        """Yield the snapshots that Prometheus has data for, oldest first. Some are polled ahead, so that Prometheus and
        the reader work at the same time.

        Raises:
            NoTelemetry: if there is none.
        """
        self.missing = []
        instants = [self._first + timedelta(seconds=number * self._interval_seconds) for number in range(len(self))]
        for poll in fetch_ahead(map(self._source.poll, instants), AHEAD):
            if poll.snapshot is None:
                self.missing.append((poll.at, poll.why))
            else:
                yield poll.snapshot
        if len(self.missing) == len(instants):
            at, why = self.missing[-1]
            raise NoTelemetry(f"no snapshot from {instants[0].isoformat()} to {at.isoformat()}: {why}")


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
