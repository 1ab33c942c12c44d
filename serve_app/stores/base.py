"""The seam between the sessions and whatever keeps their state."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class MeshLimit:
    """How many meshes a store takes, and when an idle one makes room for a new one.

    Attributes:
        max_meshes: at most so many.
        evict_idle_seconds: if a new mesh finds no room, the mesh that was written to longest ago is deleted, provided
            that this was at least so many seconds ago; None: no mesh is ever deleted for another.
    """

    max_meshes: int
    evict_idle_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class StoredMesh:
    """What is kept of one mesh beside its ring of snapshots.

    Attributes:
        mesh: its name.
        revision: grows with every write and never repeats in one store: the token of compare-and-set. It is the time
            of the write, µs since 1970, or one more than the last revision where the clock has not moved on.
        sequence: snapshots counted; 0 where only a baseline was set.
        observed_at: time of the newest snapshot, None before the first.
        digest: content digest of the newest snapshot, empty before the first.
        state: the O(1) state, opaque.
        verdict: the newest verdict, opaque, empty before the first.
    """

    mesh: str
    revision: int
    sequence: int
    observed_at: datetime | None
    digest: str
    state: bytes
    verdict: bytes


@dataclass(frozen=True, slots=True)
class StoredVerdict:
    """The verdict of one counted snapshot and the digest of that snapshot's content."""

    digest: str
    verdict: bytes


@dataclass(frozen=True, slots=True)
class MeshSummary:
    """One stored mesh in a list; ``verdict`` is the newest one, opaque."""

    mesh: str
    sequence: int
    observed_at: datetime | None
    verdict: bytes


class StateStore(Protocol):
    """State of meshes, written through before a verdict is answered. Blobs are opaque bytes.

    Every method raises ``BadMeshName`` for a name outside the alphabet, ``Overloaded`` where the store stayed busy, and
    ``CorruptState`` for what cannot be read: with ``details["mesh"]`` one mesh, which was set aside, so that the next
    call finds it new. A write raises ``StoreFull`` where there is no room; nothing is changed then. Every method raises
    ``StoreGone`` once the store's files were deleted or replaced: a write that was acknowledged before is in the files
    that are gone, and no write is acknowledged after. A write that creates a mesh raises ``TooManyMeshes`` beyond the
    store's limit. Instances may be used from several threads, a store from several processes.
    """

    def check_room(self, mesh: str) -> None:
        """Raise ``TooManyMeshes`` if ``mesh`` is new and a write could not create it now. The write decides: this only
        saves the work before it."""

    def load(self, mesh: str) -> StoredMesh | None:
        """The newest state, or None where nothing is stored."""

    def append(
        self,
        mesh: str,
        *,
        sequence: int,
        observed_at: datetime,
        snapshot: bytes,
        digest: str,
        state: bytes,
        verdict: bytes,
        keep: int,
        revision: int | None = None,
    ) -> int:
        """Count one snapshot: append it and its verdict, replace the state, drop snapshots beyond the last ``keep``.

        All of it happens or nothing. Pass the ``revision`` the state was computed from (0 for a mesh not stored), so
        that a baseline set in between is not overwritten; None compares the sequence alone.

        Returns:
            The new revision.

        Raises:
            StoreConflict: unless the stored sequence is ``sequence - 1`` (0 = none) and the revision is the given one.
        """

    def replace(self, mesh: str, state: bytes, *, revision: int) -> int:
        """Replace the state without counting a snapshot (a baseline); ``revision`` 0 for a mesh not stored.

        Returns:
            The new revision.

        Raises:
            StoreConflict: unless the stored revision is the given one.
        """

    def verdict_at(self, mesh: str, observed_at: datetime) -> StoredVerdict | None:
        """The verdict of the kept snapshot of this instant, None if there is none."""

    def verdicts(self, mesh: str, since: datetime | None, limit: int) -> list[bytes]:
        """The verdicts of kept snapshots later than ``since`` (None: of all), oldest first, the first ``limit`` of
        them; none where nothing is stored."""

    def window(self, mesh: str) -> Iterator[bytes]:
        """The kept snapshots, oldest first, as of the first ``next``; read one at a time."""

    def meshes(self) -> list[MeshSummary]:
        """All stored meshes by name."""

    def set_aside(self, mesh: str, why: str, *, revision: int) -> bool:
        """Move a mesh whose state cannot be used out of the way; it starts anew. False unless the stored revision is
        the given one. What was set aside of it before is dropped."""

    def delete(self, mesh: str) -> bool:
        """Forget a mesh; False where nothing was stored."""
