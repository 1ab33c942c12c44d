"""The snapshots of a past period, from the mesh's Prometheus."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from model.snapshot import MeshSnapshot
from serve_app.collect.prometheus.detect import MeshSource
from serve_app.errors import NoTelemetry


class PastPeriod:
    """Polls a past period; a :class:`~serve_app.collect.base.SnapshotSource`.

    Args:
        source: source of the mesh.
        first, last: the period, both ends included.
        interval_seconds: time between two snapshots, s.

    Attributes:
        missing: instants without a snapshot and the reason, in the latest pass of ``snapshots()``.

    Raises:
        NoTelemetry: if the period ends before it begins.
    """

    def __init__(self, source: MeshSource, first: datetime, last: datetime, interval_seconds: float) -> None:
        if last < first:
            raise NoTelemetry(
                f"period: expected an end after the start, came {first.isoformat()} to {last.isoformat()}; swap them"
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
        """Yield the snapshots that Prometheus has data for, oldest first.

        Raises:
            NoTelemetry: if there is none.
        """
        self.missing = []
        for i in range(len(self)):
            at = self._first + timedelta(seconds=i * self._interval_seconds)
            poll = self._source.poll(at)
            if poll.snapshot is None:
                self.missing.append((at, poll.why))
            else:
                yield poll.snapshot
        if len(self.missing) == len(self):
            at, why = self.missing[-1]
            raise NoTelemetry(f"no snapshot from {self._first.isoformat()} to {at.isoformat()}: {why}")
