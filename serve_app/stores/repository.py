"""What a session knows of its meshes: the store is the truth, the cache what is held of it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from model.errors import IncompatibleWeights
from model.snapshot import MeshSnapshot
from model.state.mesh_state import MeshState
from model.state.serialization import pack_state, unpack_state
from serve_app.api.codec import pack_snapshot, unpack_snapshot
from serve_app.errors import SameTimeOtherContent, StaleSnapshot, UnknownInstant, UnknownMesh
from serve_app.metrics import MeshGauges
from serve_app.pipeline import Mesh
from serve_app.stores.base import StateStore, StoredMesh
from serve_app.stores.cache import Known, MeshCache
from serve_app.stores.record import Record, Seen, gauges

T = TypeVar("T")


class Meshes:
    """The meshes of a store, some of them in memory.

    Args:
        store: of all sessions.
        cache: of this one.
    """

    def __init__(self, store: StateStore, cache: MeshCache) -> None:
        self._store = store
        self._cache = cache

    def known(self, mesh: str) -> Known:
        """What is held of a mesh, or what the store has; revision 0 where nothing is stored."""
        return self._cache.get(mesh) or self._load(mesh)

    def hold(self, mesh: str, known: Known) -> None:
        """Keep in memory what was written; on the event loop, as :meth:`forget`."""
        self._cache.put(mesh, known)

    def forget(self, mesh: str) -> None:
        """What is held here is of the past; the store still has it."""
        self._cache.drop(mesh)

    def has(self, mesh: str) -> bool:
        """Whether anything is stored under this name."""
        return self._store.load(mesh) is not None

    def check(self) -> None:
        """Raise what keeps the store from being read, such as ``StoreGone``."""
        self._store.load("tagae-readiness")

    def check_room(self, mesh: str) -> None:
        """Raise ``TooManyMeshes`` if a mesh that is not stored could not be created now."""
        self._store.check_room(mesh)

    def stored(self, mesh: str) -> StoredMesh:
        """A mesh that has a verdict.

        Raises:
            UnknownMesh: nothing is stored, or a baseline only.
        """
        stored = self._store.load(mesh)
        if stored is None:
            raise unknown(mesh)
        if not stored.verdict:
            raise UnknownMesh(f"mesh {mesh!r}: has a baseline and no verdict yet; push a snapshot")
        return stored

    def newest(self, stored: StoredMesh) -> Known:
        """What is held if it is of this revision, else what the store has by now."""
        known = self._cache.get(stored.mesh)
        if known is None or known.revision != stored.revision:
            known = self._load(stored.mesh)
        return known

    def latest(self, mesh: str) -> Known:
        """What the store has by now; nothing yet where another session deleted or evicted the mesh."""
        stored = self._store.load(mesh)
        if stored is None:
            self.forget(mesh)
            return Known(Mesh(), 0)
        return self.newest(stored)

    def state(self, mesh: str) -> MeshState:
        """Of a mesh that has a verdict, the newest.

        Raises:
            UnknownMesh: there is none.
        """
        return self.newest(self.stored(mesh)).mesh.state

    def record(self, mesh: str, at: datetime | None = None) -> Record:
        """What was said of the newest snapshot, or of the one of an instant.

        Raises:
            UnknownMesh, UnknownInstant: there is none.
        """
        if at is None:
            return Record.unpack(self.stored(mesh).verdict)
        kept = self._store.verdict_at(mesh, at)
        if kept is None:
            self.stored(mesh)  # who has no mesh has no instants
            raise unknown_instant(mesh, at)
        return Record.unpack(kept.verdict)

    def seen(self, mesh: str, at: datetime | None = None) -> Seen:
        """The newest snapshot, or the one of an instant, and what is said of it.

        Raises:
            UnknownMesh, UnknownInstant: there is none.
        """
        stored = self.stored(mesh)
        record = Record.unpack(stored.verdict) if at is None else self.record(mesh, at)
        window, wanted = self.newest(stored).mesh.state.window, at or stored.observed_at
        snapshot = next((s for s in reversed(window) if s.observed_at == wanted), None)
        if snapshot is None:  # deleted, or out of the window, in between
            raise unknown(mesh) if at is None else unknown_instant(mesh, at)
        return Seen(pack_snapshot(snapshot), record.deviations, record.document)

    def repeated(self, mesh: str, snapshot: MeshSnapshot, newest: str) -> bytes:
        """JSON of the verdict of the same snapshot.

        Raises:
            StaleSnapshot: its instant has no kept verdict, and is before ``newest``.
            SameTimeOtherContent: another snapshot of this instant was judged.
        """
        judged = self._store.verdict_at(mesh, snapshot.observed_at)
        if judged is None:
            raise StaleSnapshot(
                f"mesh {mesh!r}: expected a snapshot after the newest one, {newest}, came "
                f"{snapshot.observed_at.isoformat()}; send snapshots in order",
                pointer="/observed_at",
            )
        if judged.digest != snapshot.digest:
            raise SameTimeOtherContent(
                f"mesh {mesh!r}: {snapshot.observed_at.isoformat()} was judged with other content; the newest snapshot "
                f"is of {newest}; send each instant once",
                pointer="/observed_at",
            )
        return Record.unpack(judged.verdict).document

    def replace(self, mesh: str, known: Known) -> Known:
        """Write a state through without counting a snapshot.

        Args:
            mesh: name.
            known: the new state, and the revision that it was made from.

        Returns:
            The same under its new revision, to be held.

        Raises:
            StoreConflict: the store has another revision.
        """
        return Known(known.mesh, self._store.replace(mesh, pack_state(known.mesh.state), revision=known.revision))

    def changed(self, mesh: str, change: Callable[[MeshState], tuple[MeshState, T]]) -> tuple[Known, T]:
        """Write a changed state through, and what else the change gave; one that changes nothing writes nothing.

        Raises:
            UnknownMesh: it has no verdict.
            StoreConflict: somebody wrote in between.
        """
        known = self.newest(self.stored(mesh))
        state, result = change(known.mesh.state)
        if state is not known.mesh.state:
            known = self.replace(mesh, Known(replace(known.mesh, state=state), known.revision))
        return known, result

    def append(
        self, mesh: str, known: Known, snapshot: MeshSnapshot, packed: bytes, record: Record, *, keep: int
    ) -> Known:
        """Write a counted snapshot through, ``packed`` as it is kept, with its verdict; the rest as :meth:`replace`.

        ``keep`` snapshots stay at most.
        """
        revision = self._store.append(
            mesh,
            sequence=known.mesh.state.sequence,
            observed_at=snapshot.observed_at,
            snapshot=packed,
            digest=snapshot.digest,
            state=pack_state(known.mesh.state),
            verdict=record.pack(),
            keep=keep,
            revision=known.revision,
        )
        return Known(known.mesh, revision)

    def verdicts(self, mesh: str, since: datetime | None, limit: int) -> list[bytes]:
        """JSON of the kept verdicts, as :meth:`records`."""
        return [record.document for record in self.records(mesh, since, limit)]

    def records(self, mesh: str, since: datetime | None, limit: int) -> list[Record]:
        """What was said of kept snapshots later than ``since``, oldest first, the first ``limit`` of them.

        Raises:
            UnknownMesh: nothing is stored.
        """
        kept = self._store.verdicts(mesh, since, limit)
        if not kept and not self.has(mesh):
            raise unknown(mesh)
        return [Record.unpack(verdict) for verdict in kept]

    def gauges(self) -> list[MeshGauges]:
        """All meshes of the store."""
        return [gauges(stored) for stored in self._store.meshes()]

    def delete(self, mesh: str) -> None:
        """Forget a mesh for good.

        Raises:
            UnknownMesh: nothing is stored.
        """
        if not self._store.delete(mesh):
            raise unknown(mesh)

    def _load(self, mesh: str) -> Known:
        """From the store. Another session may append between the two reads; then this revision is of the past, and
        the write that follows is refused."""
        stored = self._store.load(mesh)
        if stored is None:
            return Known(Mesh(), 0)
        window = (unpack_snapshot(packed) for packed in self._store.window(mesh))
        try:
            return Known(Mesh(unpack_state(stored.state, window)), stored.revision)
        except IncompatibleWeights as error:  # of another version's schema
            if not self._store.set_aside(mesh, str(error), revision=stored.revision):
                raise
            return Known(Mesh(), 0)


def unknown(mesh: str) -> UnknownMesh:
    """Nothing is stored under a name."""
    return UnknownMesh(f"mesh {mesh!r}: nothing is stored under this name; push a snapshot first, or correct the name")


def unknown_instant(mesh: str, at: datetime) -> UnknownInstant:
    """No kept snapshot is of this time."""
    return UnknownInstant(
        f"mesh {mesh!r}: no kept snapshot is of {at.isoformat()}; take a time of its timeline, which reaches as far "
        "back as the window (model.window_size)"
    )
