"""The seam between telemetry and everything else: one method wide."""

from collections.abc import Iterator
from typing import Protocol

from model.snapshot import MeshSnapshot


class SnapshotSource(Protocol):
    """Whatever gives the snapshots of one mesh in the order of their time."""

    @property
    def interval_seconds(self) -> float:
        """Expected time between two snapshots, s."""

    def snapshots(self) -> Iterator[MeshSnapshot]:
        """The snapshots, oldest first; may never end."""
