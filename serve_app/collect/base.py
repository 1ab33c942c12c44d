"""The interfaces of sources of snapshots."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from model.snapshot import MeshSnapshot
from serve_app.plugins import O, Plugin
from serve_app.settings import CollectorSettings


class SnapshotSource(Protocol):
    """A source of the snapshots of one mesh, in order of time. It needs one property and one generator."""

    @property
    def interval_seconds(self) -> float:
        """Expected time between two snapshots, s."""

    def snapshots(self) -> Iterator[MeshSnapshot]:
        """Yield the snapshots, oldest first; may never end. Each is made on demand and not stored."""


class LiveSource(Protocol):
    """A source of a live mesh: what a package provides to read something else than Prometheus. It needs two methods
    and no thread, no clock and no retries: the collector decides which instants are due, and asks again after a
    failure.

    Cost of each method: ``snapshot_at`` is called once an interval for each mesh, and up to
    ``collector.catch_up_snapshots`` times in a row after an outage. It runs in a thread of its own and may block, but
    only for ``collector.deadline_seconds``: the next instant waits for it. ``close`` is called once.
    """

    def snapshot_at(self, at: datetime) -> MeshSnapshot | None:
        """The mesh at an instant, UTC, with ``observed_at`` equal to it. Instants come in order; the same instant may
        come again, and then has the same content.

        Returns:
            None: the mesh has no services at this instant, and will not get any for it.

        Raises:
            Exception: the snapshot is not available now. People read the text, and the same time is requested again.
        """

    def close(self) -> None:
        """Release files and connections."""


@dataclass(frozen=True, kw_only=True)
class SourcePlugin(Plugin[O]):
    """A source that settings can choose: what a package provides as an entry point of ``tagae.sources``.

    Attributes:
        open: opens the source of a mesh with its options. The settings of all collected meshes have the interval and
            the deadline.
    """

    open: Callable[[O, CollectorSettings], LiveSource]
