"""The interface that every source of snapshots implements."""

from collections.abc import Iterator
from typing import Protocol

from model.snapshot import MeshSnapshot


class SnapshotSource(Protocol):
    """A source of the snapshots of one mesh, in order of time."""

    @property
    def interval_seconds(self) -> float:
        """Expected time between two snapshots, s."""

    def snapshots(self) -> Iterator[MeshSnapshot]:
        """Yield the snapshots, oldest first; may never end."""
