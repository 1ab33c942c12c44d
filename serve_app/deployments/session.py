"""MeshSession: what is known of each mesh, and the way of a snapshot to its verdict.

The store is the truth: state is written through with compare-and-set before an answer, so that two sessions cannot
both advance a mesh. That a mesh comes to the same session each time only saves a read.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

import torch

from model.checkpoint import load_or_shipped
from model.incidents.context import explained
from model.incidents.tracking import IncidentMemory
from model.scoring.score import PartitionTask
from model.snapshot import MeshSnapshot
from model.state.adapter_fit import Candidate, adopted
from model.state.mesh_state import MeshState
from model.verdict import ClusterEvent, Verdict
from serve_app.actions.adapter import encode_adaptation, roll_back
from serve_app.actions.feedback import add_feedback, encode_feedback, withdraw_feedback
from serve_app.actions.mutes import add_mute, encode_mute, remove_mute
from serve_app.api.codec import encode_verdict, unpack_snapshot
from serve_app.api.schemas.actions import (
    FeedbackDocument,
    KeptMuteDocument,
    MissedDocument,
    MuteDocument,
)
from serve_app.api.views import Deviations
from serve_app.deployments.instruments import RayInstruments
from serve_app.deployments.messages import Equipment, Judged
from serve_app.deployments.news import News
from serve_app.deployments.queries import Queries
from serve_app.deployments.rpc import RETRY_AFTER_SECONDS, Caller, Handle, P, remaining_seconds
from serve_app.deployments.scorer import Scored, Scorer, balanced
from serve_app.deployments.session_step import Push, Step, Stopwatch
from serve_app.deployments.storage import open_store
from serve_app.errors import (
    CorruptState,
    DeadlineExceeded,
    NoCapacity,
    Overloaded,
    ServeError,
    StoreConflict,
    StoreGone,
)
from serve_app.metrics import ADAPTERS, PARTS_MISSING, STAGE, STORE_GONE
from serve_app.pipeline import (
    Mesh,
    MetaInput,
    PreparedSnapshot,
    adapts,
    build_meta_input,
    calibrate,
    commit,
    decide,
    deviations_of,
    options,
    prepare,
)
from serve_app.settings import AlertSettings, Settings
from serve_app.stores.cache import CachedMesh, MeshCache
from serve_app.stores.record import Record
from serve_app.stores.repository import MeshRepository

if TYPE_CHECKING:
    from serve_app.deployments.meta import MetaModel
    from serve_app.deployments.notifier import Notifier
    from serve_app.deployments.trainer import Trainer

COMBINING_SHARE = 0.8  # of what is left then
SCORING_SHARE = 0.8  # of the time left: what is missing then is left out, so that the verdict still comes in time
log = logging.getLogger("ray.serve")
T = TypeVar("T")


def taken(state: MeshState, candidate: Candidate) -> tuple[MeshState, str]:
    """The mesh with a candidate's adapter where it is better, and what became of it."""
    after = adopted(state, candidate)
    return after, "refused" if after is state else "adopted"


class MeshSession:
    """Owner of some of the meshes.

    Args:
        settings: all of them.
        scorer, meta: handles.
        trainer: handle; None: nothing is fitted.
        notifier: handle; None: nobody is told.

    Raises:
        IncompatibleWeights: not even the shipped weights can be read.
        CorruptState, StoreFull: the store cannot be opened.
        StoreGone: this run had a store, and its files are gone.
    """

    def __init__(
        self,
        settings: Settings,
        scorer: Handle[Scorer],
        meta: Handle[MetaModel],
        trainer: Handle[Trainer] | None = None,
        notifier: Handle[Notifier] | None = None,
    ) -> None:
        torch.set_num_threads(settings.model.threads)
        self._settings = settings
        self._checkpoint = load_or_shipped(settings.model.weights)
        if self._checkpoint.refused:
            log.error("model.weights: refused, and the shipped weights are in use: %s", self._checkpoint.refused)
        self._evicted: deque[str] = deque()  # meshes deleted for new ones, by threads that write
        store = open_store(settings, on_evicted=self._evicted.append)
        self._meshes = MeshRepository(store, MeshCache(settings.serve.session_memory_bytes))
        self._options = options(settings)
        self._news = News()
        self._queries = Queries(self._meshes, self._checkpoint, self._options, self._news)
        self._scores = asyncio.Semaphore(settings.serve.max_ongoing_scores)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._scorer, self._meta, self._trainer, self._notifier = scorer, meta, trainer, notifier
        self._errands: set[asyncio.Task[None]] = set()  # the event loop alone would let them go
        self._instruments = RayInstruments()
        # Handles call these methods by name.
        self.verdict, self.verdicts, self.newer = self._queries.verdict, self._queries.verdicts, self._queries.newer
        self.graph, self.plan, self.map = self._queries.graph, self._queries.plan, self._queries.map
        self.timeline, self.series = self._queries.timeline, self._queries.series
        self.comparison, self.report = self._queries.comparison, self._queries.report
        self.feedback, self.mutes = self._queries.feedback, self._queries.mutes
        self.adaptation, self.model, self.meshes = self._queries.adaptation, self._queries.model, self._queries.meshes

    def reconfigure(self, user_config: dict[str, Any]) -> None:
        """When to page, live: fields of ``AlertSettings``."""
        alert = AlertSettings.model_validate({**self._settings.alert.model_dump(), **user_config})
        self._settings = self._settings.model_copy(update={"alert": alert})
        self._options = options(self._settings)

    async def check_health(self) -> None:
        """Serve asks now and then: measure whether the store is there.

        A store that is gone does not make the replica unhealthy: its replacement would not find the store either, and
        this replica goes on as soon as the files are back.
        """
        gone = 0.0
        try:
            await asyncio.to_thread(self._meshes.check)
        except StoreGone:  # in the log since it was first found
            gone = 1.0
        except ServeError as error:
            log.warning("the store could not be checked: %s", error)
        self._instruments.set(STORE_GONE, gone)

    async def push(self, mesh: str, packed: bytes, expires_at: float, events: tuple[ClusterEvent, ...] = ()) -> Judged:
        """Count a snapshot and judge it; ``events`` are told beside its incidents. A failed push changes nothing.

        Raises:
            SameTimeOtherContent: another snapshot of this instant was judged.
            StaleSnapshot: it is older than the newest one.
            ServeError: it could not be judged, or not in time.
        """
        return await self._advance(Push(mesh, packed, expires_at, events=events))

    async def baseline(self, mesh: str, packed: bytes, expires_at: float) -> None:
        """Let a snapshot set baselines and calibration; neither the mesh's clock nor its verdict move."""
        await self._advance(Push(mesh, packed, expires_at, counted=False))

    async def score(self, packed: Sequence[bytes], expires_at: float) -> Judged:
        """Judge the last of several snapshots of one mesh, in order of time, by those before it. Nothing is kept.

        Raises:
            Overloaded: as many such requests as are allowed are under way.
            ServeError: it could not be judged, or not in time.
        """
        if self._scores.locked():
            raise Overloaded(
                "MeshSession: as many requests of many snapshots as it takes are under way; come back later, or raise "
                "serve.max_ongoing_scores",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        async with self._scores:
            watch, mesh = Stopwatch(), Mesh()
            for one in packed:
                push = Push("(nothing kept)", one, expires_at)
                push.in_time()
                with watch.stage("lay"):
                    snapshot = await asyncio.to_thread(unpack_snapshot, one)
                    laid = await asyncio.to_thread(prepare, self._checkpoint, mesh, snapshot, self._options)
                step = await self._judge(push, laid, snapshot, watch)
                mesh = step.mesh
            return step.judged(watch)

    async def delete(self, mesh: str) -> None:
        """Forget a mesh.

        Raises:
            UnknownMesh: there is none.
        """
        async with self._lock(mesh):
            self._meshes.evict(mesh)
            await asyncio.to_thread(self._meshes.delete, mesh)
            await self._queries.forget(mesh)
            self._news.notify(mesh)
        self._tell_gone(mesh)

    async def add_feedback(self, mesh: str, said: FeedbackDocument | MissedDocument) -> bytes:
        """Keep what somebody says of an incident, and heed it from the next snapshot on; JSON of what is kept.

        Raises:
            UnknownMesh, UnknownIncident: there is none.
            InvalidDocument: it names what is not there.
            TooMuchFeedback: there is no room for more.
        """
        most = self._settings.limits.max_feedback
        kept = await self._change(mesh, lambda state: add_feedback(state, said, most))
        return encode_feedback(kept).model_dump_json().encode()

    async def withdraw_feedback(self, mesh: str, incident: str) -> None:
        """As if nobody had spoken of an incident, from the next snapshot on.

        Raises:
            UnknownMesh, UnknownIncident: there is none, or nobody had.
        """
        await self._change(mesh, lambda state: withdraw_feedback(state, incident))

    async def add_mute(self, mesh: str, said: MuteDocument) -> bytes:
        """Keep a mute, in force from the next snapshot on that is of its time; JSON of what is kept.

        Raises:
            UnknownMesh: there is none.
            InvalidDocument: it names what is not there, is over, or takes too long.
            TooManyMutes: there is no room for more.
        """

        def change(state: MeshState) -> tuple[MeshState, KeptMuteDocument]:
            after, kept = add_mute(state, said, self._settings.limits)
            return after, encode_mute(kept, after.observed_at)

        return (await self._change(mesh, change)).model_dump_json().encode()

    async def remove_mute(self, mesh: str, mute: str) -> None:
        """As if there were no such mute, from the next snapshot on.

        Raises:
            UnknownMesh, UnknownMute: there is none.
        """
        await self._change(mesh, lambda state: remove_mute(state, mute))

    async def roll_back(self, mesh: str, fitted_at: datetime | None) -> bytes:
        """Take back the adapter of this time: the one before it, or none, is in use from the next snapshot on; JSON of
        what is in use then.

        Raises:
            UnknownMesh, NoAdapter: there is none.
        """
        after = await self._change(mesh, lambda state: roll_back(state, fitted_at))
        self._instruments.count(ADAPTERS, outcome="rolled_back")
        return encode_adaptation(after).model_dump_json().encode()

    async def ready(self, expires_at: float) -> Equipment:
        """Whether the store, a scorer and the meta-model answer; what the scorer works with."""
        caller = Caller(expires_at)
        _, equipment, _ = await asyncio.gather(
            asyncio.to_thread(self._meshes.check), caller.ask(self._scorer.equipment), caller.ask(self._meta.digest)
        )
        return equipment

    def _lock(self, mesh: str) -> asyncio.Lock:
        """One step of a mesh at a time; the lock lives as long as somebody holds or awaits it."""
        lock = self._locks.get(mesh)
        if lock is None:
            lock = self._locks[mesh] = asyncio.Lock()
        return lock

    async def _advance(self, push: Push) -> Judged:
        return await self._owning(push.mesh, lambda: self._step(push))

    async def _change(self, mesh: str, change: Callable[[MeshState], tuple[MeshState, T]]) -> T:
        async def changed() -> T:
            known, result = await asyncio.to_thread(self._meshes.change_state, mesh, change)
            self._meshes.cache(mesh, known)
            return result

        return await self._owning(mesh, changed)

    async def _owning(self, mesh: str, step: Callable[[], Awaitable[T]]) -> T:
        """A step of a mesh, alone; once more where another session was first."""
        async with self._lock(mesh):
            try:
                return await step()
            # Another session was first, or what was damaged has been set aside: what is held here is of the past.
            except (StoreConflict, CorruptState):
                self._meshes.evict(mesh)
                return await step()
            finally:
                self._forget_evicted()

    def _forget_evicted(self) -> None:
        """Let go of the meshes that the store has deleted to make room for new ones, and resolve their alerts."""
        while self._evicted:
            mesh = self._evicted.popleft()
            self._meshes.evict(mesh)
            self._news.notify(mesh)
            self._tell_gone(mesh)

    def _tell_gone(self, mesh: str) -> None:
        if self._notifier is not None:
            self._aside(self._tell(self._notifier.forget_mesh, mesh))

    async def _step(self, push: Push) -> Judged:
        push.in_time()
        watch = Stopwatch()
        with watch.stage("lay"):
            begun = await asyncio.to_thread(self._begin, push)
        if isinstance(begun, Judged):
            return begun
        known, snapshot, laid = begun
        step = await self._judge(push, laid, snapshot, watch)
        with watch.stage("store"):
            known = CachedMesh(step.mesh, known.revision)
            self._meshes.cache(push.mesh, await asyncio.to_thread(self._keep, push, known, snapshot, step.record))
        if push.counted:
            self._news.notify(push.mesh)
        for stage, taken in watch.seconds.items():
            self._instruments.observe(STAGE, taken, stage=stage)
        self._instruments.count(PARTS_MISSING, step.missing)
        if push.counted and self._trainer is not None and adapts(step.mesh.state.sequence, self._options):
            self._aside(self._adapt(push.mesh, self._trainer))
        if push.counted and self._notifier is not None:
            self._aside(self._tell(self._notifier.accept_verdict, push.mesh, step.verdict))
        return step.judged(watch)

    def _aside(self, errand: Coroutine[Any, Any, None]) -> None:
        """What no request waits for."""
        task = asyncio.create_task(errand)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    async def _tell(self, method: Callable[P, Awaitable[None]], *args: P.args, **kwargs: P.kwargs) -> None:
        """Tell the notifier; if it cannot be told now, the next verdict tells it the same."""
        try:
            await Caller(time.time() + self._settings.serve.deadline_seconds).ask(method, *args, **kwargs)
        except ServeError as error:
            log.warning("the notifier was not told: %s", error)

    async def _adapt(self, mesh: str, trainer: Handle[Trainer]) -> None:
        """Have an adapter fitted, and take it into use between two snapshots if it is better; nobody waits for it."""
        until = time.time() + self._settings.adapt.deadline_seconds
        try:
            candidate = await Caller(until).ask(trainer.fit, mesh)
            outcome = "too_early" if candidate is None else await self._change(mesh, lambda s: taken(s, candidate))
        except Exception as error:  # nobody awaits this task who could be told
            outcome = "failed"
            log.warning("mesh %s keeps its adapter: %s", mesh, error, exc_info=not isinstance(error, ServeError))
        self._instruments.count(ADAPTERS, outcome=outcome)

    async def _judge(self, push: Push, laid: PreparedSnapshot, snapshot: MeshSnapshot, watch: Stopwatch) -> Step:
        """Score, weigh and combine what was laid; nothing is kept."""
        with watch.stage("score"):
            lost: Counter[str] = Counter()
            scored = await self._score(laid.tasks, push.expires_at, lost)
        with watch.stage("weigh"):
            case, deviations = await asyncio.to_thread(self._weigh, laid, scored, snapshot)
        with watch.stage("combine"):
            verdict, memory = await self._combine(case, push.expires_at, lost)
        push.in_time()
        verdict = explained(verdict, laid.mesh.state.window, push.events)
        after = commit(laid.mesh, memory, counted=push.counted)
        document = encode_verdict(verdict).model_dump_json().encode()
        record = Record(snapshot.num_nodes, document, deviations.pack(), sum(watch.seconds.values()))
        return Step(after, record, verdict, scored, len(case.when.missing_parts), lost)

    async def _combine(self, case: MetaInput, expires_at: float, lost: Counter[str]) -> tuple[Verdict, IncidentMemory]:
        """The meta-model's verdict; where no replica of it answers in time, the same function on the same weights here,
        since a lost snapshot is worse than a busy session."""
        until = time.time() + COMBINING_SHARE * remaining_seconds(expires_at)
        policy = self._options.policy
        try:
            answer = await Caller(until, lost).ask(self._meta.decide, case, policy)
        except (NoCapacity, DeadlineExceeded) as error:
            log.warning("a verdict is made in the session: %s", error)
            answer = await asyncio.to_thread(decide, self._checkpoint, case, policy)
        return answer

    def _begin(self, push: Push) -> Judged | tuple[CachedMesh, MeshSnapshot, PreparedSnapshot]:
        """The stored verdict of a snapshot judged before, or what is needed to judge it now."""
        snapshot = unpack_snapshot(push.packed)
        known = self._meshes.get(push.mesh)
        if not known.revision:
            self._meshes.check_room(push.mesh)
        newest = known.mesh.state.observed_at
        if push.counted and newest is not None and snapshot.observed_at <= newest:
            # What is held here may be of a mesh that another session has deleted or evicted since.
            known = self._meshes.reload(push.mesh)
            newest = known.mesh.state.observed_at
        if push.counted and newest is not None and snapshot.observed_at <= newest:
            return Judged(self._meshes.repeat_verdict(push.mesh, snapshot, newest.isoformat()))
        chosen = options(self._settings, push.mesh)
        laid = prepare(self._checkpoint, known.mesh, snapshot, chosen, counted=push.counted)
        return known, snapshot, laid

    async def _score(self, tasks: Sequence[PartitionTask], expires_at: float, lost: Counter[str]) -> list[Scored]:
        """What the scorers answered in time; what they did not is missing, never a lost snapshot."""
        until = time.time() + SCORING_SHARE * remaining_seconds(expires_at)
        groups = balanced(tasks, self._settings.partition.groups)
        caller = Caller(until, lost)
        calls = (caller.ask(self._scorer.score, group, until) for group in groups)
        scored = []
        for answer in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(answer, Overloaded):
                raise answer
            if isinstance(answer, Exception):
                log.warning("a group of parts was not scored: %s", answer, exc_info=not isinstance(answer, ServeError))
            elif isinstance(answer, BaseException):
                raise answer
            elif answer.model != self._checkpoint.digest:
                log.error("a group was scored by %s with other weights, %s: left out", answer.replica, answer.model)
            else:
                scored.append(answer)
        return scored

    def _weigh(
        self, laid: PreparedSnapshot, scored: list[Scored], snapshot: MeshSnapshot
    ) -> tuple[MetaInput, Deviations]:
        scores = sorted((s for answer in scored for s in answer.scores), key=lambda s: s.part)
        calibrated = calibrate(self._checkpoint, laid, scores)
        case = build_meta_input(self._checkpoint, laid, calibrated, snapshot, self._options)
        return case, deviations_of(laid, calibrated, snapshot)

    def _keep(self, push: Push, known: CachedMesh, snapshot: MeshSnapshot, record: Record) -> CachedMesh:
        """Write through; ``known`` has the mesh after the step and the revision before it."""
        if not push.counted:
            return self._meshes.replace(push.mesh, known)
        return self._meshes.append(push.mesh, known, snapshot, push.packed, record, keep=self._options.window_size)
