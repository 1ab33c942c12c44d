"""Access to stored meshes through a cache. The store is authoritative."""

import time
from dataclasses import replace
from datetime import datetime
from threading import Lock
from weakref import WeakValueDictionary

from model.errors import IncompatibleWeights
from model.snapshot import MeshSnapshot
from model.state.history import block_length
from model.state.mesh_state import MeshState
from model.state.serialization import pack_state, pack_step, unpack_state, unpack_step
from serve_app.errors import SameTimeOtherContent, StaleSnapshot, StoreConflict, UnknownInstant, UnknownMesh
from serve_app.metrics import MESH_LOAD, Instruments
from serve_app.pipeline import Mesh, Replay
from serve_app.stores.cache import CachedMesh, FullState, MeshCache
from serve_app.stores.records import ArchivedIncident, NewSnapshot, StoredMesh
from serve_app.stores.scored_snapshot import ScoredSnapshot, StoredVerdict, match_verdicts, unpack_window
from serve_app.stores.state_store import StateStore

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

    Methods raise ``UnknownMesh`` for a mesh that is not stored, and ``StoreConflict`` if another session wrote it since
    it was read.
    """

    def __init__(
        self, store: StateStore, cached: MeshCache, replay: Replay, instruments: Instruments | None = None
    ) -> None:
        self._store, self.cached, self._replay, self._instruments = store, cached, replay, instruments
        self._guard = Lock()
        self._reads: WeakValueDictionary[str, Lock] = WeakValueDictionary()

    def get(self, mesh: str) -> CachedMesh:
        """Return a mesh from the cache, else from the store; revision 0 if nothing is stored. If another session has
        written it since, the store refuses the next write."""
        return self._find_or_read(mesh, None)

    def reload(self, mesh: str) -> CachedMesh:
        """Return a mesh as stored now; revision 0 if nothing is stored, such as after another session deleted it."""
        stored = self._store.load(mesh)
        if stored is None:
            self.cached.drop(mesh)
            return CachedMesh(Mesh(), 0)
        return self._refresh(stored)

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
        match = self._store.verdict_at(mesh, at)
        if match is None:
            self._load_newest(mesh)  # raises if the mesh is unknown
            raise _unknown_instant(mesh, at)
        return StoredVerdict.unpack(match[1])

    def load_verdicts(self, mesh: str, since: datetime | None, limit: int) -> list[StoredVerdict]:
        """Return at most ``limit`` verdicts of snapshots after ``since`` (None: of all), oldest first."""
        verdicts = [StoredVerdict.unpack(verdict) for verdict in self._store.verdicts(mesh, since, limit)]
        if not verdicts and self._store.load(mesh) is None:
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
        match = self._store.verdict_at(mesh, snapshot.observed_at)
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
        revision = self._store.replace(mesh, content, revision=entry.revision, incidents=incidents)
        return CachedMesh.in_full(entry.mesh, revision, entry.history_end)

    def compact(self, mesh: str, entry: CachedMesh, keep: int) -> CachedMesh:
        """Store the state in full in place of many steps, and return the entry with its newest full state. Appends may
        go on meanwhile. If the process is killed before, the next one does it, since the steps are stored."""
        state, full = entry.mesh.state, entry.full
        if full is None or not is_compaction_due(entry, keep):
            return entry
        is_written = self._store.compact(
            mesh, pack_state(state), sequence=state.sequence, revision=entry.revision, full=full
        )
        return replace(entry, full=FullState(state.sequence, entry.revision)) if is_written else entry

    def append(
        self,
        mesh: str,
        before: CachedMesh,
        after: Mesh,
        snapshot: MeshSnapshot,
        packed: bytes,
        verdict: StoredVerdict,
        incidents: tuple[ArchivedIncident, ...],
        *,
        keep: int,
    ) -> CachedMesh:
        """Store a counted snapshot with its verdict and the incidents to archive.

        Args:
            packed: the snapshot's stored form.
            keep: maximum number of stored snapshots.

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
            verdict.pack(),
            incidents,
            is_step,
        )
        revision = self._store.append(mesh, new, keep=keep, revision=before.revision)
        if is_step:
            return CachedMesh(after, revision, full, before.history_end)
        return CachedMesh.in_full(after, revision, before.history_end)

    def delete(self, mesh: str) -> None:
        self.cached.drop(mesh)
        if not self._store.delete(mesh):
            raise _unknown_mesh(mesh)

    def _load_newest(self, mesh: str) -> StoredMesh:
        """Return a stored mesh that has a verdict, or raise ``UnknownMesh``."""
        stored = self._store.load(mesh)
        if stored is None:
            raise _unknown_mesh(mesh)
        if not stored.verdict:
            raise UnknownMesh(f"mesh {mesh!r}: has a baseline but no verdict yet; push a snapshot")
        return stored

    def _refresh(self, stored: StoredMesh) -> CachedMesh:
        """Return the cached mesh if it has the stored revision, else the mesh from the store."""
        return self._find_or_read(stored.mesh, stored.revision)

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
        stored = self._store.load_state(mesh)
        if stored is None:
            return CachedMesh(Mesh(), 0)
        begin = stored.sequence - len(stored.steps)
        try:
            window = dict(unpack_window(self._store.window(mesh)))
            state = unpack_state(stored.state, (window[number] for number in window if number <= begin))
            steps = [unpack_step(step, state.memory) for step in stored.steps]
        except IncompatibleWeights as error:  # the schema of another version
            if not self._store.set_aside(mesh, str(error), revision=stored.revision):
                raise
            return CachedMesh(Mesh(), 0)
        if steps:
            numbers = range(begin + 1, stored.sequence + 1)
            if not window.keys() >= set(numbers):  # deleted, and perhaps created again, in between
                self._store.verify(mesh)
                raise StoreConflict(
                    f"mesh {mesh!r}: expected snapshots {begin + 1} to {stored.sequence}, got others, because another "
                    "session wrote in between; load the mesh again"
                )
            replayed = ((window[number], step) for number, step in zip(numbers, steps, strict=True))
            state = self._replay(mesh, state, replayed)
        full = FullState(begin, stored.state_revision)
        if self._instruments is not None:
            self._instruments.observe(MESH_LOAD, time.perf_counter() - start)
        return CachedMesh(Mesh(state), stored.revision, full, was_loaded=True)


def _max_steps(keep: int) -> int:
    """Return the maximum number of replayed snapshots. The store also keeps as many before them."""
    return min(MAX_STEPS, keep // 2)


def is_compaction_due(entry: CachedMesh, keep: int) -> bool:
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
