"""Access to stored meshes through a cache. The store is authoritative."""

import time
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime, timedelta
from threading import Lock
from typing import TypeVar
from weakref import WeakValueDictionary

import pyarrow as pa

from model.errors import IncompatibleWeights
from model.snapshot import MeshSnapshot
from model.state.history import block_length
from model.state.mesh_state import MeshState
from model.state.serialization import pack_state, pack_step, unpack_state, unpack_step
from serve_app.api.codec import pack_snapshot
from serve_app.api.schemas.incidents import ArchivedIncidentDocument
from serve_app.api.schemas.verdict import VerdictDocument
from serve_app.errors import (
    SameTimeOtherContent,
    StaleSnapshot,
    StoreConflict,
    UnknownIncident,
    UnknownInstant,
    UnknownMesh,
)
from serve_app.metrics import MESH_LOAD, Instruments, MeshGauges
from serve_app.pipeline import Mesh, Replay
from serve_app.stores.archive import KeptSnapshot, archive, due, pack_document, unpack_document
from serve_app.stores.base import (
    ArchivedIncident,
    ChunkKey,
    HistoryUpdate,
    NewSnapshot,
    StoredMesh,
)
from serve_app.stores.cache import CachedMesh, FullState, MeshCache
from serve_app.stores.history import HistoryLimit, HistoryWriter, ScoredRow, block_seconds, unix
from serve_app.stores.history_files import read_files
from serve_app.stores.record import Record, StoredSnapshot, gauges, unpack_window
from serve_app.stores.rows import time_of
from serve_app.stores.state_store import StateStore

T = TypeVar("T")
NO_UPDATE: HistoryUpdate = {}
ONE_STEP = timedelta(microseconds=1)  # between two times
# Steps between two full states. After half of them, a full state is due, which no verdict waits for. If there is none
# after the last one, the next snapshot stores it. A replay of 15 takes as long as scoring a snapshot or two.
MAX_STEPS = 30
FEW_STEPS = 4  # after which a mesh that is read for each snapshot is stored in full


class MeshRepository:
    """The meshes of a store, some of them in memory.

    A state is stored in full now and then, after an answer. In between only a step is stored with each snapshot, and a
    read replays the snapshots since.

    Args:
        store: shared by all sessions.
        cache: of this session.
        replay: brings a state up to date, see :func:`~serve_app.pipeline.replayer`.
        instruments: measure reads of the store.
        history: what the history of each mesh keeps; None: no history is written.

    Attributes:
        store: for what needs no state: incidents, history.
    """

    def __init__(
        self,
        store: StateStore,
        cache: MeshCache,
        replay: Replay,
        instruments: Instruments | None = None,
        history: HistoryLimit | None = None,
    ) -> None:
        self.store = store
        self._cache = cache
        self._replay = replay
        self._instruments = instruments
        self._history = history
        self._unfinished: dict[str, dict[datetime, ScoredRow]] = {}  # rows of the block of each mesh
        self._guard = Lock()
        self._reads: WeakValueDictionary[str, Lock] = WeakValueDictionary()

    def get_cached(self, mesh: str) -> CachedMesh | None:
        """A mesh from the cache, or None. Does not wait for the store."""
        return self._cache.get(mesh)

    def look_up(self, mesh: str) -> CachedMesh | None:
        """As :meth:`get_cached`, for a snapshot of the mesh: it counts as a hit or a miss."""
        return self._cache.look_up(mesh)

    def get(self, mesh: str) -> CachedMesh:
        """A mesh from the cache, else from the store; revision 0 if nothing is stored.

        Reading a large mesh can take longer than the deadline of a snapshot. So it stays in memory if there is room,
        and a repeated snapshot finds it there, or waits for the read that is under way.
        """
        found = self._cache.get(mesh)
        if found is not None:
            return found
        with self._read_lock(mesh):
            found = self._cache.get(mesh)
            if found is None:
                found = self._load(mesh)
                if found.revision:
                    self._cache.offer(mesh, found)
            return found

    def _read_lock(self, mesh: str) -> Lock:
        """The lock of those who read a mesh from the store; it lives as long as someone holds or awaits it."""
        with self._guard:
            return self._reads.setdefault(mesh, Lock())

    @property
    def memory(self) -> tuple[int, int]:
        """How many meshes are in memory, and their bytes."""
        return len(self._cache), self._cache.bytes

    def cache(self, mesh: str, entry: CachedMesh) -> None:
        """Put a mesh that was just written into the cache. Call it from the event loop, as :meth:`evict`."""
        self._cache.put(mesh, entry)

    def evict(self, mesh: str) -> None:
        """Drop an outdated entry of the cache. The store is not changed."""
        self._cache.drop(mesh)
        self._unfinished.pop(mesh, None)

    def has(self, mesh: str) -> bool:
        """Whether anything is stored under this name."""
        return self.store.load(mesh) is not None

    def check(self) -> None:
        """Read once, to raise any error of the store such as ``StoreGone``."""
        self.store.load("tagae-readiness")

    def load_stored(self, mesh: str) -> StoredMesh:
        """The stored form of a mesh that has a verdict.

        Raises:
            UnknownMesh: nothing is stored, or only a baseline.
        """
        stored = self.store.load(mesh)
        if stored is None:
            raise unknown_mesh(mesh)
        if not stored.verdict:
            raise UnknownMesh(f"mesh {mesh!r}: has a baseline but no verdict yet; push a snapshot")
        return stored

    def refresh(self, stored: StoredMesh) -> CachedMesh:
        """The cached mesh if it has this revision, else the mesh from the store."""
        entry = self._cache.get(stored.mesh)
        if entry is None or entry.revision != stored.revision:
            entry = self._load(stored.mesh)
        return entry

    def reload(self, mesh: str) -> CachedMesh:
        """The mesh as the store has it now; empty if another session deleted it or made room."""
        stored = self.store.load(mesh)
        if stored is None:
            self.evict(mesh)
            return CachedMesh(Mesh(), 0)
        return self.refresh(stored)

    def load_state(self, mesh: str) -> MeshState:
        """The newest state of a mesh that has a verdict.

        Raises:
            UnknownMesh: there is none.
        """
        return self.refresh(self.load_stored(mesh)).mesh.state

    def load_record(self, mesh: str, at: datetime | None = None) -> Record:
        """The verdict of the snapshot of this time; None: of the newest.

        Raises:
            UnknownMesh, UnknownInstant: there is none.
        """
        if at is None:
            return Record.unpack(self.load_stored(mesh).verdict)
        kept = self.store.verdict_at(mesh, at)
        if kept is None:
            self.load_stored(mesh)  # raises if the mesh is unknown
            raise unknown_instant(mesh, at)
        return Record.unpack(kept.verdict)

    def load_snapshot(self, mesh: str, at: datetime | None = None) -> StoredSnapshot:
        """The snapshot of this time (None: the newest) with its verdict.

        Raises:
            UnknownMesh, UnknownInstant: there is none.
        """
        stored = self.load_stored(mesh)
        record = Record.unpack(stored.verdict) if at is None else self.load_record(mesh, at)
        window, time = self.refresh(stored).mesh.state.window, at or stored.observed_at
        snapshot = next((s for s in reversed(window) if s.observed_at == time), None)
        if snapshot is None:  # deleted, or left the window, in between
            raise unknown_mesh(mesh) if at is None else unknown_instant(mesh, at)
        return StoredSnapshot(pack_snapshot(snapshot), record.deviations, record.document)

    def repeat_verdict(self, mesh: str, snapshot: MeshSnapshot, newest: str) -> bytes:
        """JSON of the stored verdict of a snapshot that was sent again.

        Args:
            snapshot: not after the newest one.
            newest: time of the newest one, for messages.

        Raises:
            StaleSnapshot: no verdict of this time is kept.
            SameTimeOtherContent: a snapshot of this time with other content was scored.
        """
        judged = self.store.verdict_at(mesh, snapshot.observed_at)
        if judged is None:
            raise StaleSnapshot(
                f"mesh {mesh!r}: expected a snapshot after the newest one, {newest}, got "
                f"{snapshot.observed_at.isoformat()}; send snapshots in order",
                pointer="/observed_at",
            )
        if judged.digest != snapshot.digest:
            raise SameTimeOtherContent(
                f"mesh {mesh!r}: {snapshot.observed_at.isoformat()} was scored with other content; the newest snapshot "
                f"is of {newest}; send each instant once",
                pointer="/observed_at",
            )
        return Record.unpack(judged.verdict).document

    def replace(self, mesh: str, entry: CachedMesh) -> CachedMesh:
        """Store a state without counting a snapshot.

        Args:
            entry: the new state, and the revision that it was computed from.

        Returns:
            The entry with its new revision, for :meth:`cache`.

        Raises:
            StoreConflict: the store has another revision.
        """
        revision = self.store.replace(mesh, pack_state(entry.mesh.state), revision=entry.revision)
        return _with_full_state(entry.mesh, revision)

    def is_compaction_due(self, entry: CachedMesh, keep: int) -> bool:
        """Whether a mesh has so many steps that its state should be stored in full; otherwise as :meth:`append`."""
        steps = 0 if entry.full is None else entry.mesh.state.sequence - entry.full.sequence
        return steps >= max(1, _most_steps(entry.mesh.state, keep) // 2)

    def compact(self, mesh: str, entry: CachedMesh) -> FullState | None:
        """Store the state of an entry in full in place of its steps, if it is stored as steps.

        Returns:
            For :meth:`cache`: what ``full`` of the mesh is now. None: nothing was written.
        """
        state, full = entry.mesh.state, entry.full
        if full is None or full.sequence == state.sequence:
            return None
        packed, now = pack_state(state), FullState(state.sequence, entry.revision)
        written = self.store.compact(
            mesh, packed, sequence=now.sequence, revision=now.revision, full=(full.sequence, full.revision)
        )
        return now if written else None

    def change_state(self, mesh: str, change: Callable[[MeshState], tuple[MeshState, T]]) -> tuple[CachedMesh, T]:
        """Apply a change to a state and store it. If the change returns the same state, nothing is written.

        Returns:
            The entry for :meth:`cache`, and the second result of the change.

        Raises:
            UnknownMesh: the mesh has no verdict.
            StoreConflict: another session wrote in between.
        """
        entry = self.refresh(self.load_stored(mesh))
        state, result = change(entry.mesh.state)
        if state is not entry.mesh.state:
            entry = self.replace(mesh, replace(entry, mesh=replace(entry.mesh, state=state)))
        return entry, result

    def change_incident(
        self,
        mesh: str,
        incident: str,
        change: Callable[[MeshState, ArchivedIncidentDocument], tuple[MeshState, ArchivedIncidentDocument]],
        *,
        is_open: bool = False,
    ) -> tuple[CachedMesh, ArchivedIncidentDocument] | None:
        """Change an ended incident of the archive together with the state, in one write; if both stay the same, nothing
        is written.

        Args:
            incident: id.
            change: returns the new state and the new incident.
            is_open: change an open incident instead.

        Returns:
            The entry for :meth:`cache`, and the incident. None: the archive has no such incident with this id.

        Raises:
            UnknownMesh: the mesh has no verdict.
            StoreConflict: another session wrote in between.
        """
        entry = self.refresh(self.load_stored(mesh))
        archived = self.store.incident(mesh, incident)
        if archived is None or (archived.until is None) is not is_open:
            return None
        before = unpack_document(archived.document)
        state, document = change(entry.mesh.state, before)
        if state is entry.mesh.state and document == before:
            return entry, document
        written = (replace(archived, document=pack_document(document)),)
        revision = self.store.replace(mesh, pack_state(state), revision=entry.revision, incidents=written)
        return _with_full_state(replace(entry.mesh, state=state), revision), document

    def append(
        self,
        mesh: str,
        before: CachedMesh,
        after: Mesh,
        snapshot: MeshSnapshot,
        packed: bytes,
        record: Record,
        *,
        keep: int,
        incidents: tuple[ArchivedIncident, ...] = (),
        history: HistoryUpdate = NO_UPDATE,
    ) -> CachedMesh:
        """Store a counted snapshot with its verdict; otherwise as :meth:`replace`.

        Args:
            before: the mesh before the snapshot.
            after: the mesh after it.
            snapshot: decoded.
            packed: its stored form.
            record: its verdict.
            keep: at most this many snapshots stay.
            incidents: to be written to the archive.
            history: files to be written and deleted.
        """
        state, full = after.state, before.full
        if full is not None and state.sequence - full.sequence <= _most_steps(state, keep) and not _is_costly(before):
            is_step, stored = True, pack_step(state.memory, state.sequence - full.sequence)
        else:
            is_step, stored = False, pack_state(state)
        new = NewSnapshot(
            state.sequence,
            snapshot.observed_at,
            packed,
            snapshot.digest,
            stored,
            record.pack(),
            incidents,
            is_step,
            history,
        )
        revision = self.store.append(mesh, new, keep=keep, revision=before.revision)
        if is_step:
            return CachedMesh(after, revision, full)
        return _with_full_state(after, revision)

    def update_archive(
        self, mesh: str, verdict: VerdictDocument, record: Record, entry: CachedMesh, window_size: int
    ) -> tuple[ArchivedIncident, ...]:
        """What the archive has to store with a snapshot.

        Args:
            verdict: on the snapshot.
            record: the verdict as it will be stored.
            entry: the new state, and the revision before it.
            window_size: number of snapshots that the store keeps.
        """
        wanted = due(verdict, self.store.open_incidents(mesh), window_size)
        if not wanted:
            return ()
        # Empty if another session has deleted the mesh: the write then raises StoreConflict, and the mesh starts again.
        records = [Record.unpack(verdict) for verdict in self.store.verdicts(mesh, None, window_size)]
        scored = KeptSnapshot.match(entry.mesh.state.window, [*records, record])
        found = (archive(one, scored, verdict.sequence, self.store.incident(mesh, one)) for one in wanted)
        return tuple(one for one in found if one is not None)

    def update_history(self, mesh: str, record: Record, entry: CachedMesh, window_size: int) -> HistoryUpdate:
        """The files of the history to write and to delete with a snapshot: none, unless it begins a new block.

        Args:
            record: the verdict as it will be stored.
            entry: the mesh after the snapshot.
            window_size: number of snapshots that the store keeps.
        """
        window = entry.mesh.state.window
        if self._history is None:
            return NO_UPDATE
        # Only to save reading them: what is missing here, as after a restart, is read from the store.
        rows = self._unfinished.setdefault(mesh, {})
        rows[window[-1].observed_at] = ScoredRow.of(window[-1], record)
        if len(window) < 2:
            return NO_UPDATE
        block = block_seconds(window_size, entry.mesh.state.interval_seconds)
        now, begin = unix(window[-1].observed_at), unix(window[-2].observed_at) // block * block
        if now // block * block == begin:
            return NO_UPDATE
        self._unfinished[mesh] = {window[-1].observed_at: rows[window[-1].observed_at]}
        sizes = self.store.history_sizes(mesh)
        # The first time, as after an upgrade, all blocks of the window are written.
        since = time_of(begin * 1_000_000) - ONE_STEP if sizes else None
        over = [one for one in window[:-1] if since is None or one.observed_at > since]
        scored = [row for one in over if (row := rows.get(one.observed_at)) is not None and row.snapshot is one]
        if len(scored) < len(over):
            records = [Record.unpack(verdict) for verdict in self.store.verdicts(mesh, since, window_size)]
            scored = ScoredRow.match(over, records)
        if not scored:  # another session has deleted the mesh
            return NO_UPDATE

        def read(keys: Collection[ChunkKey]) -> dict[ChunkKey, pa.Table]:
            return read_files(mesh, self.store.history(mesh, keys))

        writer = HistoryWriter(self._history, sizes, read)
        return writer.update(scored, window[-1].observed_at, block)

    def load_incident(self, mesh: str, incident: str) -> ArchivedIncident:
        """An archived incident with its details. One that is open is brought up to date.

        Raises:
            UnknownMesh, UnknownIncident: there is none.
        """
        stored = self.load_stored(mesh)
        archived = self.store.incident(mesh, incident)
        if archived is None or archived.until is None:
            window = self.refresh(stored).mesh.state.window
            scored = KeptSnapshot.match(window, self.load_records(mesh, None, len(window)))
            archived = archive(incident, scored, stored.sequence, archived) if scored else archived
        if archived is None:
            raise UnknownIncident(
                f"mesh {mesh!r}: expected an incident of its archive, got {incident[:80]!r}; take an id from the "
                "list of incidents"
            )
        return archived

    def load_verdicts(self, mesh: str, since: datetime | None, limit: int) -> list[bytes]:
        """JSON of the kept verdicts; otherwise as :meth:`load_records`."""
        return [record.document for record in self.load_records(mesh, since, limit)]

    def load_records(self, mesh: str, since: datetime | None, limit: int) -> list[Record]:
        """At most ``limit`` verdicts of kept snapshots after ``since`` (None: of all), oldest first.

        Raises:
            UnknownMesh: nothing is stored.
        """
        kept = self.store.verdicts(mesh, since, limit)
        if not kept and not self.has(mesh):
            raise unknown_mesh(mesh)
        return [Record.unpack(verdict) for verdict in kept]

    def gauges(self) -> list[MeshGauges]:
        """The gauges of all stored meshes. It loads no state."""
        return [gauges(stored) for stored in self.store.meshes()]

    def delete(self, mesh: str) -> None:
        """Delete a mesh from the store.

        Raises:
            UnknownMesh: nothing is stored.
        """
        if not self.store.delete(mesh):
            raise unknown_mesh(mesh)

    def _load(self, mesh: str) -> CachedMesh:
        """Load a mesh from the store. If another session appends between the two reads, the revision is outdated, and
        the store refuses the next write."""
        started = time.perf_counter()
        entry = self._read(mesh)
        if entry.revision and self._instruments is not None:
            self._instruments.observe(MESH_LOAD, time.perf_counter() - started)
        return entry

    def _read(self, mesh: str) -> CachedMesh:
        stored = self.store.load_state(mesh)
        if stored is None:
            return CachedMesh(Mesh(), 0)
        begin = stored.sequence - len(stored.steps)
        try:
            window = dict(unpack_window(self.store.window(mesh)))
            state = unpack_state(stored.state, (window[number] for number in window if number <= begin))
            steps = [unpack_step(step, state.memory) for step in stored.steps]
        except IncompatibleWeights as error:  # the schema of another version
            if not self.store.set_aside(mesh, str(error), revision=stored.revision):
                raise
            return CachedMesh(Mesh(), 0)
        if steps:
            numbers = range(begin + 1, stored.sequence + 1)
            if not window.keys() >= set(numbers):  # deleted, and perhaps created again, in between
                self.store.verify(mesh)
                raise StoreConflict(
                    f"mesh {mesh!r}: expected snapshots {begin + 1} to {stored.sequence}, got others, because another "
                    "session wrote in between; load the mesh again"
                )
            replayed = ((window[number], step) for number, step in zip(numbers, steps, strict=True))
            state = self._replay(mesh, state, replayed)
        full = FullState(begin, stored.state_revision)
        return CachedMesh(Mesh(state), stored.revision, full, was_loaded=True)


def _is_costly(entry: CachedMesh) -> bool:
    """Whether a mesh was read from the store, and had so many steps that the next read should have fewer."""
    return entry.was_loaded and entry.full is not None and entry.mesh.state.sequence - entry.full.sequence >= FEW_STEPS


def _with_full_state(mesh: Mesh, revision: int) -> CachedMesh:
    return CachedMesh(mesh, revision, FullState(mesh.state.sequence, revision))


def _most_steps(state: MeshState, keep: int) -> int:
    """How many snapshots can be replayed: the store keeps them, and those that the first block of the history needs."""
    return min(MAX_STEPS, keep - block_length(state.interval_seconds))


def unknown_mesh(mesh: str) -> UnknownMesh:
    """The error for a name without a stored mesh."""
    return UnknownMesh(f"mesh {mesh!r}: nothing is stored under this name; push a snapshot first, or correct the name")


def unknown_instant(mesh: str, at: datetime) -> UnknownInstant:
    """The error for a time without a kept snapshot."""
    return UnknownInstant(
        f"mesh {mesh!r}: no snapshot of {at.isoformat()} is kept; choose a time from its timeline, which covers the "
        "window (model.window_size)"
    )
