"""Access to stored meshes through a cache. The store is authoritative."""

import time
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime
from threading import Lock
from typing import TypeVar
from weakref import WeakValueDictionary

import pyarrow as pa

from model.errors import IncompatibleWeights
from model.snapshot import MeshSnapshot
from model.state.history import block_length
from model.state.mesh_state import MeshState
from model.state.serialization import pack_state, pack_step, unpack_state, unpack_step
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
from serve_app.stores.archive import (
    archive,
    due,
    merge_actions,
    merged_into,
    pack_document,
    unpack_document,
)
from serve_app.stores.cache import CachedMesh, FullState, MeshCache
from serve_app.stores.history import HistoryLimit, HistoryWriter, block_seconds, end_of, unix
from serve_app.stores.history_files import read_files
from serve_app.stores.records import ArchivedIncident, ChunkKey, NewSnapshot, StoredMesh
from serve_app.stores.rows import ONE_STEP, time_of
from serve_app.stores.scored_snapshot import ScoredSnapshot, StoredVerdict, gauges, match_verdicts, unpack_window
from serve_app.stores.state_store import StateStore

T = TypeVar("T")
Incident = ArchivedIncidentDocument | None
Change = Callable[[MeshState, Incident], tuple[MeshState, Incident, T]]  # returns both after it, and a result
# Steps between two full states. After half of them, a full state is stored after an answer; failing that, the snapshot
# after the last step stores it. A replay of 15 takes as long as scoring a snapshot or two.
MAX_STEPS = 30
FEW_STEPS = 4  # after these, a mesh that is read for each snapshot is stored in full


class MeshRepository:
    """The meshes of a store, some of them in memory.

    A state is stored in full now and then, after an answer. In between, each snapshot stores only a step, and a read
    replays the snapshots since the full state.

    Args:
        store: shared by all sessions.
        cached: this session's meshes in memory.
        replay: brings a state up to date, see :func:`~serve_app.pipeline.replayer`.
        instruments: measure reads of the store.
        history: limits of each mesh's history; None: no history is written.

    Methods raise ``UnknownMesh`` for a mesh that is not stored, and ``StoreConflict`` if another session wrote it since
    it was read.
    """

    def __init__(
        self,
        store: StateStore,
        cached: MeshCache,
        replay: Replay,
        instruments: Instruments | None = None,
        history: HistoryLimit | None = None,
    ) -> None:
        self.store, self.cached = store, cached
        self._replay = replay
        self._instruments = instruments
        self._history = history
        self._guard = Lock()
        self._reads: WeakValueDictionary[str, Lock] = WeakValueDictionary()

    def check(self) -> None:
        """Read once, to raise any error of the store such as ``StoreGone``."""
        self.store.load("tagae-readiness")

    def get(self, mesh: str) -> CachedMesh:
        """Return a mesh from the cache, else from the store; revision 0 if nothing is stored. If another session has
        written it since, the store refuses the next write."""
        return self._find_or_read(mesh, None)

    def reload(self, mesh: str) -> CachedMesh:
        """Return a mesh as stored now; revision 0 if nothing is stored, such as after another session deleted it."""
        stored_mesh = self.store.load(mesh)
        if stored_mesh is None:
            self.cached.drop(mesh)
            return CachedMesh(Mesh(), 0)
        return self._refresh(stored_mesh)

    def load(self, mesh: str) -> CachedMesh:
        """Return a mesh that has a verdict, as stored now."""
        entry = self._refresh(self._load_newest(mesh))
        if not entry.mesh.state.window:  # deleted in between, or of another version and set aside when it was read
            raise _unknown_mesh(mesh)
        return entry

    def load_state(self, mesh: str) -> MeshState:
        """Return the newest state of a mesh that has a verdict; its window is not empty."""
        return self.load(mesh).mesh.state

    def load_verdict(self, mesh: str, at: datetime | None = None) -> StoredVerdict:
        """Return the verdict of the snapshot at this time, None: of the newest. Raise ``UnknownInstant`` if there is
        none."""
        if at is None:
            return StoredVerdict.unpack(self._load_newest(mesh).verdict)
        match = self.store.verdict_at(mesh, at)
        if match is None:
            self._load_newest(mesh)  # raises if the mesh is unknown
            raise _unknown_instant(mesh, at)
        return StoredVerdict.unpack(match[1])

    def load_verdicts(self, mesh: str, since: datetime | None, limit: int) -> list[StoredVerdict]:
        """Return at most ``limit`` verdicts of snapshots after ``since`` (None: of all), oldest first."""
        verdicts = self._verdicts(mesh, since, limit)
        if not verdicts and self.store.load(mesh) is None:
            raise _unknown_mesh(mesh)
        return verdicts

    def load_scored(self, mesh: str, state: MeshState, at: datetime | None = None) -> ScoredSnapshot:
        """Return the snapshot at this time in a state's window, None: the newest, with its verdict. Raise
        ``UnknownInstant`` if there is none."""
        match = next((snapshot for snapshot in reversed(state.window) if at in (None, snapshot.observed_at)), None)
        if match is None:
            assert at is not None  # a mesh with a verdict has a newest snapshot
            raise _unknown_instant(mesh, at)
        return ScoredSnapshot(match, self.load_verdict(mesh, match.observed_at))

    def load_window(self, mesh: str, state: MeshState, since: datetime | None = None) -> list[ScoredSnapshot]:
        """Return the snapshots in a state's window after ``since`` with their verdicts, oldest first."""
        return match_verdicts(state.window, self.load_verdicts(mesh, since, len(state.window)))

    def repeat_verdict(self, mesh: str, snapshot: MeshSnapshot, newest: str) -> bytes:
        """Return the stored verdict, as JSON, of a snapshot that was sent again.

        Args:
            snapshot: not after the newest one.
            newest: time of the newest one, for messages.

        Raises:
            StaleSnapshot: no verdict of this time is stored.
            SameTimeOtherContent: a snapshot of this time with other content was scored.
        """
        match = self.store.verdict_at(mesh, snapshot.observed_at)
        if match is None:
            raise StaleSnapshot(
                f"mesh {mesh!r}: expected a snapshot after the newest one, {newest}, got "
                f"{snapshot.observed_at.isoformat()}; send snapshots in order",
                pointer="/observed_at",
            )
        digest, verdict = match
        if digest != snapshot.digest:
            raise SameTimeOtherContent(
                f"mesh {mesh!r}: {snapshot.observed_at.isoformat()} was scored with other content; the newest snapshot "
                f"is of {newest}; send each instant once",
                pointer="/observed_at",
            )
        return StoredVerdict.unpack(verdict).document

    def replace(self, mesh: str, entry: CachedMesh, incidents: tuple[ArchivedIncident, ...] = ()) -> CachedMesh:
        """Store a state without counting a snapshot, together with incidents of the archive. ``entry`` has the revision
        that the state was computed from. Returns the entry for the cache, with the new revision."""
        content = pack_state(entry.mesh.state)
        revision = self.store.replace(mesh, content, revision=entry.revision, incidents=incidents)
        return CachedMesh.in_full(entry.mesh, revision, entry.history_end)

    def is_tidying_due(self, entry: CachedMesh, keep: int) -> bool:
        """Return whether a mesh has work for :meth:`tidy`."""
        return _is_compaction_due(entry, keep) or self._is_history_due(entry, keep)

    def tidy(self, mesh: str, entry: CachedMesh, keep: int) -> CachedMesh:
        """Do work that appends have deferred: store the state in full in place of its steps, and write the history of
        finished blocks. Appends may go on meanwhile. If the process is killed before, the next one does it, since steps
        and window are stored.

        Returns:
            The entry with its newest full state and history end.
        """
        if _is_compaction_due(entry, keep):
            entry = self._compact(mesh, entry)
        return self._write_history(mesh, entry, keep) if self._is_history_due(entry, keep) else entry

    def _compact(self, mesh: str, entry: CachedMesh) -> CachedMesh:
        state, full = entry.mesh.state, entry.full
        if full is None or not entry.steps:
            return entry
        is_written = self.store.compact(
            mesh, pack_state(state), sequence=state.sequence, revision=entry.revision, full=full
        )
        return replace(entry, full=FullState(state.sequence, entry.revision)) if is_written else entry

    def _is_history_due(self, entry: CachedMesh, keep: int) -> bool:
        """Return whether the history may lack a finished block."""
        window = entry.mesh.state.window
        if self._history is None or len(window) < 2:
            return False
        block = block_seconds(keep, entry.mesh.state.interval_seconds)
        before, newest = (unix(snapshot.observed_at) // block * block for snapshot in window[-2:])
        return newest > (entry.history_end or before)

    def _write_history(self, mesh: str, entry: CachedMesh, keep: int) -> CachedMesh:
        """Write the finished blocks that the window has."""
        window, full = entry.mesh.state.window, entry.full
        if self._history is None or full is None:
            return entry
        block = block_seconds(keep, entry.mesh.state.interval_seconds)
        begin = unix(window[-1].observed_at) // block * block

        def read(keys: Collection[ChunkKey]) -> dict[ChunkKey, pa.Table]:
            return read_files(mesh, self.store.history(mesh, keys))

        sizes = self.store.history_sizes(mesh)
        end = entry.history_end or end_of(sizes, read)
        verdicts = self._verdicts(mesh, time_of(end * 1_000_000) - ONE_STEP if end else None, keep)
        scored = [item for item in match_verdicts(window, verdicts) if unix(item.at) < begin]
        if scored:
            update = HistoryWriter(self._history, sizes, read).update(scored, window[-1].observed_at, block)
            if not self.store.write_history(mesh, update, full=full):
                return entry
        return replace(entry, history_end=begin)

    def change(self, mesh: str, incident: str | None, change: Change[T]) -> tuple[CachedMesh, T]:
        """Apply a change to a state and to an incident of the archive, and store both in one write. If both stay the
        same, nothing is written.

        Args:
            incident: id; None: the change concerns no incident.
            change: takes the state, and the incident if the archive has it.

        Returns:
            The entry for the cache, and the result of the change.
        """
        entry = self.load(mesh)
        record = None if incident is None else self.store.incident(mesh, incident)
        before = None if record is None else unpack_document(record.document)
        state, after, result = change(entry.mesh.state, before)
        updates: tuple[ArchivedIncident, ...] = ()
        if record is not None and after is not None and after != before:
            updates = (replace(record, document=pack_document(after)),)
        if state is not entry.mesh.state or updates:
            entry = self.replace(mesh, replace(entry, mesh=replace(entry.mesh, state=state)), updates)
        return entry, result

    def append(
        self,
        mesh: str,
        before: CachedMesh,
        after: Mesh,
        snapshot: MeshSnapshot,
        content: bytes,
        verdict: VerdictDocument,
        stored_verdict: StoredVerdict,
        *,
        keep: int,
    ) -> CachedMesh:
        """Store a counted snapshot with its verdict, and update the archive.

        Args:
            content: the snapshot's stored form.
            keep: maximum number of stored snapshots.

        Returns:
            The entry for the cache.
        """
        state, full = after.state, before.full
        is_costly = before.was_loaded and before.steps >= FEW_STEPS  # the next read should have fewer
        is_step = full is not None and not is_costly and not _is_full_due(state, before.steps, keep)
        packed_state = pack_step(state.memory, before.steps + 1) if is_step else pack_state(state)
        new_snapshot = NewSnapshot(
            state.sequence,
            snapshot.observed_at,
            content,
            snapshot.digest,
            packed_state,
            stored_verdict.pack(),
            self._update_archive(mesh, verdict, stored_verdict, state, keep),
            is_step,
        )
        revision = self.store.append(mesh, new_snapshot, keep=keep, revision=before.revision)
        if is_step:
            return CachedMesh(after, revision, full, before.history_end)
        return CachedMesh.in_full(after, revision, before.history_end)

    def _update_archive(
        self, mesh: str, verdict: VerdictDocument, newest: StoredVerdict, state: MeshState, keep: int
    ) -> tuple[ArchivedIncident, ...]:
        """Return the incidents to archive with a snapshot; ``state`` is the mesh's state after it."""
        names = due(verdict, self.store.open_incidents(mesh), keep)
        if not names:
            return ()
        # If another session has deleted the mesh, this is empty, and the write raises StoreConflict.
        window = match_verdicts(state.window, [*self._verdicts(mesh, None, keep), newest])
        updates: dict[str, ArchivedIncident] = {}
        for name in names:
            if (incident := archive(name, window, verdict.sequence, self.store.incident(mesh, name))) is not None:
                updates[name] = incident
        for incident in [incident for incident in updates.values() if incident.until is not None]:
            into = merged_into(incident.id, window)
            home = None if into is None else updates.get(into) or self.store.incident(mesh, into)
            if home is not None and (merged_home := merge_actions(home, incident)) is not home:
                updates[home.id] = merged_home
        return tuple(updates.values())

    def load_incident(self, mesh: str, incident: str) -> ArchivedIncident:
        """Return an archived incident with its details, an open one as of the newest snapshot. Raise
        ``UnknownIncident`` if there is none."""
        self._load_newest(mesh)  # raises if the mesh is unknown
        record = self.store.incident(mesh, incident)
        if record is None or record.until is None:
            state = self.load_state(mesh)
            window = self.load_window(mesh, state)
            record = archive(incident, window, state.sequence, record) if window else record
        if record is None:
            raise UnknownIncident(
                f"mesh {mesh!r}: expected an incident of its archive, got {incident[:80]!r}; take an id from the "
                "list of incidents"
            )
        return record

    def gauges(self) -> list[MeshGauges]:
        """Return the gauges of all stored meshes, without loading their states."""
        return [gauges(stored_mesh) for stored_mesh in self.store.meshes()]

    def delete(self, mesh: str) -> None:
        if not self.store.delete(mesh):
            raise _unknown_mesh(mesh)

    def _verdicts(self, mesh: str, since: datetime | None, limit: int) -> list[StoredVerdict]:
        return [StoredVerdict.unpack(verdict) for verdict in self.store.verdicts(mesh, since, limit)]

    def _load_newest(self, mesh: str) -> StoredMesh:
        """Return a stored mesh that has a verdict, or raise ``UnknownMesh``."""
        stored_mesh = self.store.load(mesh)
        if stored_mesh is None:
            raise _unknown_mesh(mesh)
        if not stored_mesh.verdict:
            raise UnknownMesh(f"mesh {mesh!r}: has a baseline but no verdict yet; push a snapshot")
        return stored_mesh

    def _refresh(self, stored_mesh: StoredMesh) -> CachedMesh:
        """Return the cached mesh if it has the stored revision, else the mesh from the store."""
        return self._find_or_read(stored_mesh.mesh, stored_mesh.revision)

    def _find_or_read(self, mesh: str, revision: int | None) -> CachedMesh:
        """Return the cached mesh if it has this revision (None: any), else the mesh from the store.

        Reading a large mesh can take longer than a request's deadline. So it stays in memory if there is room, and a
        repeated request finds it there or waits for the current read.
        """
        entry = self._find(mesh, revision)
        if entry is not None:
            return entry
        with self._read_lock(mesh):
            entry = self._find(mesh, revision)
            if entry is None:
                entry = self._read(mesh)
                if entry.revision:
                    self.cached.offer(mesh, entry)
            return entry

    def _find(self, mesh: str, revision: int | None) -> CachedMesh | None:
        entry = self.cached.get(mesh)
        return entry if entry is not None and revision in (None, entry.revision) else None

    def _read_lock(self, mesh: str) -> Lock:
        """Return the lock for reading a mesh from the store. It lives while a thread holds or awaits it."""
        with self._guard:
            return self._reads.setdefault(mesh, Lock())

    def _read(self, mesh: str) -> CachedMesh:
        """Read a mesh from the store; revision 0 if nothing is stored, or it was set aside."""
        start = time.perf_counter()
        record = self.store.load_state(mesh)
        if record is None:
            return CachedMesh(Mesh(), 0)
        begin = record.sequence - len(record.steps)
        try:
            window = dict(unpack_window(self.store.window(mesh)))
            state = unpack_state(record.state, (window[number] for number in window if number <= begin))
            steps = [unpack_step(step, state.memory) for step in record.steps]
        except IncompatibleWeights as error:  # the schema of another version
            if not self.store.set_aside(mesh, str(error), revision=record.revision):
                raise
            return CachedMesh(Mesh(), 0)
        if steps:
            numbers = range(begin + 1, record.sequence + 1)
            if not window.keys() >= set(numbers):  # deleted, and perhaps created again, in between
                self.store.verify(mesh)
                raise StoreConflict(
                    f"mesh {mesh!r}: expected snapshots {begin + 1} to {record.sequence}, got others, because another "
                    "session wrote in between; load the mesh again"
                )
            missing_steps = ((window[number], step) for number, step in zip(numbers, steps, strict=True))
            state = self._replay(mesh, state, missing_steps)
        full = FullState(begin, record.state_revision)
        if self._instruments is not None:
            self._instruments.observe(MESH_LOAD, time.perf_counter() - start)
        return CachedMesh(Mesh(state), record.revision, full, was_loaded=True)


def _max_steps(keep: int) -> int:
    """Return the maximum number of replayed snapshots. The store also keeps as many before them."""
    return min(MAX_STEPS, keep // 2)


def _is_compaction_due(entry: CachedMesh, keep: int) -> bool:
    """Return whether a mesh has so many steps that its state should be stored in full."""
    return entry.steps >= max(1, _max_steps(keep) // 2)


def _is_full_due(state: MeshState, steps: int, keep: int) -> bool:
    """Return whether a snapshot must store the state in full: after too many steps, or if it ends a history block that
    a replay could not repeat, because the store keeps too few snapshots before the steps."""
    length = block_length(state.interval_seconds)
    is_block_out_of_reach = length > keep - _max_steps(keep) and state.sequence % length == 0
    return steps >= _max_steps(keep) or is_block_out_of_reach


def _unknown_mesh(mesh: str) -> UnknownMesh:
    return UnknownMesh(f"mesh {mesh!r}: nothing is stored under this name; push a snapshot first, or correct the name")


def _unknown_instant(mesh: str, at: datetime) -> UnknownInstant:
    return UnknownInstant(
        f"mesh {mesh!r}: no snapshot of {at.isoformat()} is kept; choose a time from its timeline, which covers the "
        "window (model.window_size)"
    )
