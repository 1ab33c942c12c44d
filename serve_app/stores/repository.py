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
Change = Callable[[MeshState, Incident], tuple[MeshState, Incident, T]]  # both after it, and a result
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
        cached: the meshes that this session has in memory.
        replay: brings a state up to date, see :func:`~serve_app.pipeline.replayer`.
        instruments: measure reads of the store.
        history: what the history of each mesh keeps; None: no history is written.

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
        """A mesh from the cache, else from the store; revision 0 if nothing is stored. If another session has written
        it since, the store refuses the next write.

        Reading a large mesh can take longer than the deadline of a snapshot. So it stays in memory if there is room,
        and a repeated snapshot finds it there, or waits for the read that is under way.
        """
        found = self.cached.get(mesh)
        if found is not None:
            return found
        with self._read_lock(mesh):
            found = self.cached.get(mesh)
            if found is None:
                found = self._read(mesh)
                if found.revision:
                    self.cached.offer(mesh, found)
            return found

    def reload(self, mesh: str) -> CachedMesh:
        """A mesh as the store has it now; revision 0 if nothing is stored, such as after another session deleted it."""
        stored = self.store.load(mesh)
        if stored is None:
            self.cached.drop(mesh)
            return CachedMesh(Mesh(), 0)
        return self._refresh(stored)

    def load(self, mesh: str) -> CachedMesh:
        """A mesh that has a verdict, as the store has it now."""
        found = self._refresh(self._load_newest(mesh))
        if not found.mesh.state.window:  # deleted in between, or of another version and set aside when it was read
            raise _unknown_mesh(mesh)
        return found

    def load_state(self, mesh: str) -> MeshState:
        """The newest state of a mesh that has a verdict; its window is not empty."""
        return self.load(mesh).mesh.state

    def load_verdict(self, mesh: str, at: datetime | None = None) -> StoredVerdict:
        """The verdict of the snapshot of this time, or ``UnknownInstant``; None: of the newest."""
        if at is None:
            return StoredVerdict.unpack(self._load_newest(mesh).verdict)
        found = self.store.verdict_at(mesh, at)
        if found is None:
            self._load_newest(mesh)  # raises if the mesh is unknown
            raise _unknown_instant(mesh, at)
        return StoredVerdict.unpack(found[1])

    def load_verdicts(self, mesh: str, since: datetime | None, limit: int) -> list[StoredVerdict]:
        """At most ``limit`` verdicts of kept snapshots after ``since`` (None: of all), oldest first."""
        verdicts = self._verdicts(mesh, since, limit)
        if not verdicts and self.store.load(mesh) is None:
            raise _unknown_mesh(mesh)
        return verdicts

    def load_scored(self, mesh: str, state: MeshState, at: datetime | None = None) -> ScoredSnapshot:
        """The snapshot of this time in the window of a state, with its verdict, or ``UnknownInstant``; None: the
        newest."""
        snapshot = next((one for one in reversed(state.window) if at in (None, one.observed_at)), None)
        if snapshot is None:
            assert at is not None  # a mesh with a verdict has a newest snapshot
            raise _unknown_instant(mesh, at)
        return ScoredSnapshot(snapshot, self.load_verdict(mesh, snapshot.observed_at))

    def load_window(self, mesh: str, state: MeshState, since: datetime | None = None) -> list[ScoredSnapshot]:
        """The snapshots in the window of a state with their verdicts, oldest first; only later ones than ``since``."""
        return match_verdicts(state.window, self.load_verdicts(mesh, since, len(state.window)))

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
        digest, verdict = judged
        if digest != snapshot.digest:
            raise SameTimeOtherContent(
                f"mesh {mesh!r}: {snapshot.observed_at.isoformat()} was scored with other content; the newest snapshot "
                f"is of {newest}; send each instant once",
                pointer="/observed_at",
            )
        return StoredVerdict.unpack(verdict).document

    def replace(self, mesh: str, entry: CachedMesh, incidents: tuple[ArchivedIncident, ...] = ()) -> CachedMesh:
        """Store a state without counting a snapshot, and incidents of the archive with it. The entry has the revision
        that the state was computed from; the one that is returned, for the cache, has the new one."""
        packed = pack_state(entry.mesh.state)
        revision = self.store.replace(mesh, packed, revision=entry.revision, incidents=incidents)
        return CachedMesh.in_full(entry.mesh, revision, entry.history_end)

    def is_tidying_due(self, entry: CachedMesh, keep: int) -> bool:
        """Whether a mesh has something for :meth:`tidy`; otherwise as :meth:`append`."""
        return _is_compaction_due(entry, keep) or self._is_history_due(entry, keep)

    def tidy(self, mesh: str, entry: CachedMesh, keep: int) -> CachedMesh:
        """Do what an append leaves for later: store a state in full in place of its steps, and write the history of the
        blocks that are over. Appends may go on meanwhile. If a process is killed before, the next one does it, since
        steps and window are stored.

        Returns:
            The entry, with what is stored now.
        """
        if _is_compaction_due(entry, keep):
            entry = self._compact(mesh, entry)
        return self._write_history(mesh, entry, keep) if self._is_history_due(entry, keep) else entry

    def _compact(self, mesh: str, entry: CachedMesh) -> CachedMesh:
        state, full = entry.mesh.state, entry.full
        if full is None or not entry.steps:
            return entry
        now = FullState(state.sequence, entry.revision)
        written = self.store.compact(
            mesh,
            pack_state(state),
            sequence=now.sequence,
            revision=now.revision,
            full=(full.sequence, full.revision),
        )
        return replace(entry, full=now) if written else entry

    def _is_history_due(self, entry: CachedMesh, keep: int) -> bool:
        """Whether a block is over that the history may lack."""
        window = entry.mesh.state.window
        if self._history is None or len(window) < 2:
            return False
        block = block_seconds(keep, entry.mesh.state.interval_seconds)
        before, newest = (unix(one.observed_at) // block * block for one in window[-2:])
        return newest > (entry.history_end or before)

    def _write_history(self, mesh: str, entry: CachedMesh, keep: int) -> CachedMesh:
        """Write the blocks that are over, as far as the window has them."""
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
        scored = [one for one in match_verdicts(window, verdicts) if unix(one.at) < begin]
        if scored:
            update = HistoryWriter(self._history, sizes, read).update(scored, window[-1].observed_at, block)
            if not self.store.write_history(mesh, update, full=(full.sequence, full.revision)):
                return entry
        return replace(entry, history_end=begin)

    def change(self, mesh: str, incident: str | None, change: Change[T]) -> tuple[CachedMesh, T]:
        """Apply a change to a state and to an incident of the archive, and store both in one write. If both stay the
        same, nothing is written.

        Args:
            incident: id; None: the change is about no incident.
            change: gets the state, and the incident if the archive has it.

        Returns:
            The entry for the cache, and the result of the change.
        """
        entry = self.load(mesh)
        archived = None if incident is None else self.store.incident(mesh, incident)
        before = None if archived is None else unpack_document(archived.document)
        state, after, result = change(entry.mesh.state, before)
        written: tuple[ArchivedIncident, ...] = ()
        if archived is not None and after is not None and after != before:
            written = (replace(archived, document=pack_document(after)),)
        if state is not entry.mesh.state or written:
            entry = self.replace(mesh, replace(entry, mesh=replace(entry.mesh, state=state)), written)
        return entry, result

    def append(
        self,
        mesh: str,
        before: CachedMesh,
        after: Mesh,
        snapshot: MeshSnapshot,
        packed: bytes,
        verdict: VerdictDocument,
        stored: StoredVerdict,
        *,
        keep: int,
    ) -> CachedMesh:
        """Store a counted snapshot with its verdict, and what the archive gets with it.

        Args:
            packed: the stored form of the snapshot.
            stored: the stored form of the verdict.
            keep: at most this many snapshots stay.

        Returns:
            The entry for the cache.
        """
        state, full = after.state, before.full
        is_costly = before.was_loaded and before.steps >= FEW_STEPS  # the next read should have fewer
        is_step = full is not None and not is_costly and not _is_full_due(state, before.steps, keep)
        packed_state = pack_step(state.memory, before.steps + 1) if is_step else pack_state(state)
        new = NewSnapshot(
            state.sequence,
            snapshot.observed_at,
            packed,
            snapshot.digest,
            packed_state,
            stored.pack(),
            self._update_archive(mesh, verdict, stored, state, keep),
            is_step,
        )
        revision = self.store.append(mesh, new, keep=keep, revision=before.revision)
        if is_step:
            return CachedMesh(after, revision, full, before.history_end)
        return CachedMesh.in_full(after, revision, before.history_end)

    def _update_archive(
        self, mesh: str, verdict: VerdictDocument, stored: StoredVerdict, state: MeshState, keep: int
    ) -> tuple[ArchivedIncident, ...]:
        """The incidents that the archive has to store with a snapshot, after which the mesh has this state."""
        wanted = due(verdict, self.store.open_incidents(mesh), keep)
        if not wanted:
            return ()
        # Empty if another session has deleted the mesh: the write then raises StoreConflict, and the mesh starts again.
        scored = match_verdicts(state.window, [*self._verdicts(mesh, None, keep), stored])
        written: dict[str, ArchivedIncident] = {}
        for name in wanted:
            if (one := archive(name, scored, verdict.sequence, self.store.incident(mesh, name))) is not None:
                written[name] = one
        for ended in [one for one in written.values() if one.until is not None]:
            into = merged_into(ended.id, scored)
            home = None if into is None else written.get(into) or self.store.incident(mesh, into)
            if home is not None and (merged := merge_actions(home, ended)) is not home:
                written[home.id] = merged
        return tuple(written.values())

    def load_incident(self, mesh: str, incident: str) -> ArchivedIncident:
        """An archived incident with its details, or ``UnknownIncident``. One that is open is brought up to date."""
        self._load_newest(mesh)  # raises if the mesh is unknown
        archived = self.store.incident(mesh, incident)
        if archived is None or archived.until is None:
            state = self.load_state(mesh)
            scored = self.load_window(mesh, state)
            archived = archive(incident, scored, state.sequence, archived) if scored else archived
        if archived is None:
            raise UnknownIncident(
                f"mesh {mesh!r}: expected an incident of its archive, got {incident[:80]!r}; take an id from the "
                "list of incidents"
            )
        return archived

    def gauges(self) -> list[MeshGauges]:
        """The gauges of all stored meshes. It loads no state."""
        return [gauges(stored) for stored in self.store.meshes()]

    def delete(self, mesh: str) -> None:
        if not self.store.delete(mesh):
            raise _unknown_mesh(mesh)

    def _verdicts(self, mesh: str, since: datetime | None, limit: int) -> list[StoredVerdict]:
        return [StoredVerdict.unpack(verdict) for verdict in self.store.verdicts(mesh, since, limit)]

    def _load_newest(self, mesh: str) -> StoredMesh:
        """What is stored of a mesh; ``UnknownMesh`` if it has only a baseline."""
        stored = self.store.load(mesh)
        if stored is None:
            raise _unknown_mesh(mesh)
        if not stored.verdict:
            raise UnknownMesh(f"mesh {mesh!r}: has a baseline but no verdict yet; push a snapshot")
        return stored

    def _refresh(self, stored: StoredMesh) -> CachedMesh:
        """The cached mesh if it has this revision, else the mesh from the store."""
        entry = self.cached.get(stored.mesh)
        if entry is None or entry.revision != stored.revision:
            entry = self._read(stored.mesh)
        return entry

    def _read_lock(self, mesh: str) -> Lock:
        """The lock of those who read a mesh from the store; it lives as long as someone holds or awaits it."""
        with self._guard:
            return self._reads.setdefault(mesh, Lock())

    def _read(self, mesh: str) -> CachedMesh:
        """A mesh from the store; revision 0 if nothing is stored, or it was set aside."""
        started = time.perf_counter()
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
        if self._instruments is not None:
            self._instruments.observe(MESH_LOAD, time.perf_counter() - started)
        return CachedMesh(Mesh(state), stored.revision, full, was_loaded=True)


def _max_steps(keep: int) -> int:
    """How many snapshots are replayed at most: the store keeps them, and as many before them."""
    return min(MAX_STEPS, keep // 2)


def _is_compaction_due(entry: CachedMesh, keep: int) -> bool:
    """Whether a mesh has so many steps that its state should be stored in full."""
    return entry.steps >= max(1, _max_steps(keep) // 2)


def _is_full_due(state: MeshState, steps: int, keep: int) -> bool:
    """Whether a state is stored in full after so many steps, or since a replay could not repeat the block of the
    history that ends with it: the store keeps too few snapshots before the steps."""
    length = block_length(state.interval_seconds)
    is_block_out_of_reach = length > keep - _max_steps(keep) and state.sequence % length == 0
    return steps >= _max_steps(keep) or is_block_out_of_reach


def _unknown_mesh(mesh: str) -> UnknownMesh:
    """The error for a name without a stored mesh."""
    return UnknownMesh(f"mesh {mesh!r}: nothing is stored under this name; push a snapshot first, or correct the name")


def _unknown_instant(mesh: str, at: datetime) -> UnknownInstant:
    """The error for a time without a kept snapshot."""
    return UnknownInstant(
        f"mesh {mesh!r}: no snapshot of {at.isoformat()} is kept; choose a time from its timeline, which covers the "
        "window (model.window_size)"
    )
