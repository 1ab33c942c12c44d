"""A past period of a mesh, as its Prometheus remembers it."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from model.snapshot import MeshSnapshot
from serve_app.collect.prometheus.detect import MeshSource
from serve_app.errors import NoTelemetry


class PastPeriod:
    """A :class:`~serve_app.collect.base.SnapshotSource` of instants an interval apart.

    Attributes:
        missing: instants without a snapshot, with why, of the newest pass of ``snapshots()``.

    Raises:
        NoTelemetry: the period is empty.
    """

    def __init__(self, source: MeshSource, first: datetime, last: datetime, interval_seconds: float) -> None:
        if last < first:
            raise NoTelemetry(
                f"period: expected an end after its begin, came {first.isoformat()} to {last.isoformat()}; swap them"
            )
        self._source, self._first, self._last = source, first, last
        self._interval_seconds = interval_seconds
        self.missing: list[tuple[datetime, str]] = []

    @property
    def interval_seconds(self) -> float:
        """Time between two instants, s."""
        return self._interval_seconds

    def __len__(self) -> int:
        """Instants of the period."""
        return int((self._last - self._first).total_seconds() / self._interval_seconds + 1e-6) + 1

    def snapshots(self) -> Iterator[MeshSnapshot]:
        """Those that Prometheus knows, oldest first.

        Raises:
            NoTelemetry: it knows none at all.
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
