"""Steps of stored meshes, without Ray: the sessions of the service run them.

A step reads the state of a mesh, computes the next one, and writes it with compare-and-set. If another writer was
first, the step is done once more from what the store has by then.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar
from weakref import WeakValueDictionary

from model.snapshot import MeshSnapshot
from model.state.mesh_state import MeshState
from model.verdict import ClusterEvent
from serve_app.actions.feedback import MAX_FEEDBACK, add_feedback, encode_feedback, record_feedback, withdraw_feedback
from serve_app.actions.incident_actions import add_action
from serve_app.actions.mutes import add_mute, encode_mute, remove_mute
from serve_app.api.codec import encode_verdict, unpack_snapshot
from serve_app.api.schemas.actions import (
    ActionDocument,
    FeedbackDocument,
    KeptActionDocument,
    KeptFeedbackDocument,
    KeptMuteDocument,
    MissedDocument,
    MuteDocument,
)
from serve_app.api.schemas.incidents import ArchivedIncidentDocument
from serve_app.errors import BaselineTooLate, CorruptState, StoreConflict, UnknownIncident, UnknownMesh
from serve_app.observability import spans
from serve_app.observability.logs import set_log_context
from serve_app.pipeline import PREPARE, STORE, Options, StageResults, StageRunner, deviations_of, run_stages
from serve_app.stores.archive import archive_updates, pack_document, unpack_document
from serve_app.stores.cache import CachedMesh
from serve_app.stores.documents import Connections
from serve_app.stores.history_writer import HistoryWriter
from serve_app.stores.records import ArchivedIncident, HistoryLimit
from serve_app.stores.repository import MeshRepository, is_compaction_due
from serve_app.stores.scored_snapshot import StoredVerdict, drift_gauges
from serve_app.stores.state_store import StateStore

T = TypeVar("T")
Incident = ArchivedIncidentDocument | None
Change = Callable[[MeshState, Incident], tuple[MeshState, Incident, T]]  # returns both after it, and a result


@dataclass(frozen=True, slots=True)
class NextSnapshot:
    """A snapshot whose verdict is being computed.

    Attributes:
        content: the packed snapshot.
        is_counted: False for a baseline.
        events: recent Kubernetes events of the mesh, newest first.
        is_replay: whether it is from a new mesh's past; no notification is sent.
        is_connected: whether a person connected the mesh on the page. It creates no mesh that was deleted meanwhile.
    """

    mesh: str
    content: bytes
    is_counted: bool = True
    events: tuple[ClusterEvent, ...] = ()
    is_replay: bool = False
    is_connected: bool = False


@dataclass(frozen=True, slots=True)
class PushResult:
    """The answer to a snapshot.

    Attributes:
        computation: the pipeline's results, and the stored mesh; None: the snapshot was pushed before.
    """

    document: bytes
    computation: tuple[StageResults, CachedMesh] | None = None


class MeshSteps:
    """Runs the steps of meshes, one at a time for each mesh. Use it from one event loop.

    All but a push raise ``UnknownMesh`` for a mesh that has no verdict.

    Args:
        store: of the ``meshes``.
        history: limits of each mesh's history; None: no history is written.
        on_change: called with the name of a mesh that a person has changed.
    """

    def __init__(
        self,
        store: StateStore,
        meshes: MeshRepository,
        history: HistoryLimit | None = None,
        on_change: Callable[[str], None] = lambda mesh: None,
    ) -> None:
        self._store, self._meshes = store, meshes
        self._history = HistoryWriter(store, history)
        self._on_change = on_change
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tidying: set[str] = set()

    def lock(self, mesh: str) -> asyncio.Lock:
        """The lock of a mesh; it lives as long as someone holds or awaits it."""
        return self._locks.setdefault(mesh, asyncio.Lock())

    async def push(self, push: NextSnapshot, options: Options, runner: StageRunner) -> PushResult:
        """Compute the verdict of a snapshot and store it. A failed push changes nothing.

        Raises:
            SameTimeOtherContent: another snapshot of this instant has a verdict.
            StaleSnapshot: it is older than the newest one.
            ServeError: it could not be scored or stored.
        """

        async def step() -> PushResult:
            entry = self._meshes.cached.look_up(push.mesh)
            result = await runner.run_all(lambda: self._push(push, entry, options, runner))
            if result.computation is not None:
                self._meshes.cached.put(push.mesh, result.computation[1])
            return result

        return await self._step(push.mesh, step)

    async def tidy(self, mesh: str, entry: CachedMesh, options: Options) -> None:
        """Do what a push leaves for later: call it after the answer. The mesh and its verdicts stay the same. If the
        store cannot be written, a later push does it."""
        keep = options.window_size
        if mesh in self._tidying or not (is_compaction_due(entry, keep) or self._history.is_due(entry, keep)):
            return
        self._tidying.add(mesh)
        try:  # pushes go on meanwhile
            after = await asyncio.to_thread(
                lambda: self._history.write(mesh, self._meshes.compact(mesh, entry, keep), keep)
            )
        finally:
            self._tidying.discard(mesh)
        async with self.lock(mesh):
            newest = self._meshes.cached.get(mesh)
            if newest is not None and newest.full == entry.full:
                self._meshes.cached.put(mesh, replace(newest, full=after.full, history_end=after.history_end))
        await asyncio.to_thread(self._store.tidy)

    async def change(self, mesh: str, change: Callable[[MeshState], tuple[MeshState, T]]) -> T:
        """Replace a mesh's state, and return the result of ``change``."""

        def of_state(state: MeshState, before: Incident) -> tuple[MeshState, Incident, T]:
            after, result = change(state)
            return after, before, result

        return await self._change(mesh, None, of_state)

    async def add_feedback(
        self, mesh: str, document: FeedbackDocument | MissedDocument, by: str
    ) -> KeptFeedbackDocument:
        """Store feedback: with the state; on an incident that the state has forgotten, with it in the archive.

        Raises:
            UnknownIncident: there is none.
            InvalidDocument: it names a service that the mesh does not have.
            TooMuchFeedback: the mesh has the maximum.
        """

        def change(state: MeshState, before: Incident) -> tuple[MeshState, Incident, KeptFeedbackDocument]:
            try:
                after, feedback = add_feedback(state, document, MAX_FEEDBACK, by)
            except UnknownIncident:
                if isinstance(document, MissedDocument) or before is None or before.until is None:
                    raise
                return record_feedback(state, before, document, by)
            return after, before, encode_feedback(feedback)

        return await self._change(mesh, None if isinstance(document, MissedDocument) else document.incident, change)

    async def withdraw_feedback(self, mesh: str, incident: str) -> None:
        """Withdraw the feedback on an incident, from the state or from the archive; ``UnknownIncident`` if it has
        none."""

        def change(state: MeshState, before: Incident) -> tuple[MeshState, Incident, None]:
            try:
                return withdraw_feedback(state, incident)[0], before, None
            except UnknownIncident:
                if before is None or before.until is None or before.feedback is None:
                    raise
                return state, before.model_copy(update={"feedback": None}), None

        await self._change(mesh, incident, change)

    async def add_action(self, mesh: str, incident: str, document: ActionDocument, by: str) -> KeptActionDocument:
        """Store what a person did about an incident, with it in the archive; if its level is accepted, with the state,
        too. A repeated request changes nothing.

        Raises:
            UnknownIncident: there is none, or it is not open and its level should be accepted.
            TooManyActions: the incident has the maximum.
        """
        return await self._change(
            mesh, incident, lambda state, before: add_action(state, before, incident, document, by)
        )

    async def add_mute(self, mesh: str, document: MuteDocument, by: str) -> KeptMuteDocument:
        """Store a user's mute, which applies from the first snapshot of its period on.

        Raises:
            InvalidDocument: it names a service that the mesh does not have, is over, or is too long.
            TooManyMutes: the mesh has the maximum.
        """

        def change(state: MeshState) -> tuple[MeshState, KeptMuteDocument]:
            after, mute = add_mute(state, document, by)
            return after, encode_mute(mute, after.observed_at)

        return await self.change(mesh, change)

    async def remove_mute(self, mesh: str, mute: str) -> None:
        """Remove a mute from the next snapshot on, or raise ``UnknownMute``."""
        await self.change(mesh, lambda state: remove_mute(state, mute))

    async def _change(self, mesh: str, incident: str | None, change: Change[T]) -> T:
        """Change a state and an archived incident (None: no incident), and return the result."""

        async def step() -> T:
            entry, result = await asyncio.to_thread(self._apply, mesh, incident, change)
            self._meshes.cached.put(mesh, entry)
            return result

        result = await self._step(mesh, step)
        self._on_change(mesh)
        return result

    def _apply(self, mesh: str, incident: str | None, change: Change[T]) -> tuple[CachedMesh, T]:
        """Apply a change, and store state and incident in one write; if both stay the same, nothing is written."""
        entry = self._meshes.load(mesh)
        record = None if incident is None else self._store.incident(mesh, incident)
        before = None if record is None else unpack_document(record.document)
        state, after, result = change(entry.mesh.state, before)
        updates: tuple[ArchivedIncident, ...] = ()
        if record is not None and after is not None and after != before:
            updates = (replace(record, document=pack_document(after)),)
        if state is not entry.mesh.state or updates:
            entry = self._meshes.replace(mesh, replace(entry, mesh=replace(entry.mesh, state=state)), updates)
        return entry, result

    async def _step(self, mesh: str, step: Callable[[], Awaitable[T]]) -> T:
        async with self.lock(mesh):
            try:
                return await step()
            # Another writer was first, or a damaged state was set aside: what is in memory is out of date.
            except (StoreConflict, CorruptState):
                self._meshes.cached.drop(mesh)
                return await step()

    async def _push(
        self, push: NextSnapshot, entry: CachedMesh | None, options: Options, runner: StageRunner
    ) -> PushResult:
        """Compute and store a verdict."""
        start = time.perf_counter()
        # The ingress has checked the snapshot. Services and calls of the previous one are not checked again.
        previous = entry.mesh.state.window[-1:] if entry is not None else ()
        snapshot = await runner.run(PREPARE, unpack_snapshot, push.content, *previous)
        # A change of threads delays the snapshot; it is necessary only if the store must be read.
        if entry is None or _is_repeat(snapshot, entry):
            answer = await runner.run(PREPARE, self._find, push, snapshot)
            if isinstance(answer, PushResult):
                return answer
            entry = answer
        sequence = entry.mesh.state.sequence + push.is_counted
        if not push.is_counted and sequence:
            raise BaselineTooLate(
                f"mesh {push.mesh}: expected no baseline after its first verdict, got one after {sequence} snapshots, "
                "from which it has learned by now; push snapshots, or delete the mesh to learn it again"
            )
        spans.annotate(sequence=sequence, services=snapshot.num_nodes, calls=snapshot.num_edges)
        with set_log_context(push.mesh, sequence):
            results = await run_stages(
                runner, entry.mesh, snapshot, options, counted=push.is_counted, events=push.events
            )
            spans.annotate(status=results.verdict.status.value)
            document, stored_mesh = await runner.run(
                STORE, self._store_verdict, push, entry, snapshot, results, options.window_size, start
            )
        return PushResult(document, (results, stored_mesh))

    def _store_verdict(
        self,
        push: NextSnapshot,
        entry: CachedMesh,
        snapshot: MeshSnapshot,
        results: StageResults,
        window_size: int,
        start: float,
    ) -> tuple[bytes, CachedMesh]:
        """Store a mesh with its verdict, and return the verdict's JSON.

        Args:
            entry: the mesh before the snapshot.
            start: of the push, s of the performance counter.
        """
        verdict = encode_verdict(results.verdict).model_copy(update={"replayed": push.is_replay})
        document = verdict.model_dump_json().encode()
        if not push.is_counted:
            return document, self._meshes.replace(push.mesh, replace(entry, mesh=results.mesh))
        state = results.mesh.state
        record = StoredVerdict(
            snapshot.num_nodes,
            document,
            deviations=deviations_of(results.prepared, results.calibrated, snapshot).pack(),
            seconds=time.perf_counter() - start,
            made_at=time.time(),
            interval=state.interval_seconds,
            drift=drift_gauges(state.drift),
        )
        incidents = archive_updates(self._store, push.mesh, verdict, record, state.window, window_size)
        stored_mesh = self._meshes.append(
            push.mesh, entry, results.mesh, snapshot, push.content, record, incidents, keep=window_size
        )
        return document, stored_mesh

    def _find(self, push: NextSnapshot, snapshot: MeshSnapshot) -> CachedMesh | PushResult:
        """The mesh before the snapshot, or the verdict if the snapshot was pushed before."""
        entry = self._meshes.get(push.mesh)
        if not entry.revision:
            if push.is_connected and push.mesh not in Connections(self._store).all():
                raise UnknownMesh(f"mesh {push.mesh!r}: it was deleted while its Prometheus was read; connect it again")
            self._store.check_room(push.mesh)
        if not push.is_counted or not _is_repeat(snapshot, entry):
            return entry
        # Another session may have deleted or evicted the mesh that is in memory here.
        entry = self._meshes.reload(push.mesh)
        newest = entry.mesh.state.observed_at
        if newest is None or not _is_repeat(snapshot, entry):
            return entry
        return PushResult(self._meshes.repeat_verdict(push.mesh, snapshot, newest.isoformat()))


def _is_repeat(snapshot: MeshSnapshot, mesh: CachedMesh) -> bool:
    """Whether the mesh has counted this snapshot, or a newer one."""
    newest = mesh.mesh.state.observed_at
    return newest is not None and snapshot.observed_at <= newest
