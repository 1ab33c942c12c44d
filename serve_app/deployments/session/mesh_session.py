"""MeshSession: holds the state of meshes, and computes the verdict of each snapshot.

The store is authoritative: state is written with compare-and-set before the answer, so that two sessions cannot both
advance a mesh. Routing a mesh to the same session each time only saves a read.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from ray import serve

from model.errors import ModelError
from model.incidents.memory import IncidentMemory
from model.mesh_weights import Weights, load_weights
from model.snapshot import MeshSnapshot
from model.state.mesh_state import MeshState
from model.verdict import ClusterEvent, Verdict
from serve_app.access.audit import AuditFilter, AuditPage, AuditRecord
from serve_app.access.ended import EndedIds
from serve_app.actions.mutes import add_mute, encode_mute, remove_mute
from serve_app.api.codec import encode_verdict, pack_snapshot, unpack_snapshot
from serve_app.api.schemas.actions import (
    AcceptanceDocument,
    FeedbackDocument,
    KeptMuteDocument,
    MissedDocument,
    MuteDocument,
)
from serve_app.api.schemas.models import RolloutDocument
from serve_app.api.schemas.saved_views import SavedViewDocument
from serve_app.collect.otlp.decode import Point
from serve_app.deployments.scaling import RequestLoad
from serve_app.deployments.scoring.in_session import InSession
from serve_app.deployments.scoring.messages import ScoredMesh, ScorerInfo, SnapshotAnswer
from serve_app.deployments.scoring.on_demand import OnDemand
from serve_app.deployments.scoring.replicas import Replicas
from serve_app.deployments.scoring.stages import ScoringBackend, SnapshotRunner
from serve_app.deployments.session.queries import SessionQuery
from serve_app.deployments.session.reader import Reader
from serve_app.deployments.session.service_graphs import ServiceGraphs
from serve_app.deployments.session.verdict_signal import VerdictSignal
from serve_app.deployments.sla.counts import Report
from serve_app.deployments.sla.levels import ServiceLevels
from serve_app.errors import DeadlineExceeded, Overloaded, ServeError, StoreGone
from serve_app.mesh_steps import MeshSteps, NextSnapshot, PushResult
from serve_app.metrics import (
    CONFIDENCE,
    MESHES_HELD,
    MESHES_HELD_BYTES,
    NOTICES_FAILED,
    PARTS_MISSING,
    PREDICTIONS,
    STAGE,
    STORE_GONE,
    WEIGHTS,
    ServiceLevel,
)
from serve_app.models.opening import open_models
from serve_app.models.rollout import ALL_MESHES, promote, promote_for_mesh, roll_back, roll_back_mesh, start_canary
from serve_app.models.served import ServedModel
from serve_app.models.shadow import JudgedSnapshot, Shadow
from serve_app.models.trials import Trials
from serve_app.observability import spans
from serve_app.observability.log_context import set_log_context
from serve_app.pipeline import (
    PREPARE,
    Mesh,
    StageResults,
    commit,
    judge,
    options,
    replayer,
    run_stages,
    with_memory,
)
from serve_app.runtime.background import start_task
from serve_app.runtime.deadline import Deadline
from serve_app.runtime.instruments import RayInstruments
from serve_app.runtime.reporting import start_reporting
from serve_app.runtime.rpc import RETRY_AFTER_SECONDS, Caller, Handle, P, connect, with_pickle
from serve_app.runtime.storage import history_limit, open_audit_log, open_store
from serve_app.settings import ScoringPlace, Settings
from serve_app.stores.cache import MeshCache
from serve_app.stores.repository import MeshRepository
from serve_app.web.saved_views import Meshes, SavedViews

if TYPE_CHECKING:
    from serve_app.deployments.notifier import Notifier
    from serve_app.deployments.scoring.meta import MetaModel
    from serve_app.deployments.scoring.scorer import Scorer

log = logging.getLogger(__name__)
T = TypeVar("T")
FIRST_LOAD_SECONDS = 10.0  # for which a session that starts waits for weights of the registry
NOT_STORED = "(not stored)"  # in place of the name of a mesh whose snapshots are only scored


class MeshSession:
    """Owner of some of the meshes.

    Args:
        settings: all of them.
        place: where snapshots are scored; ``auto``: meshes of one part here, others by replicas.
        scorer, meta: handles; None: the session scores.
        notifier: handle; None: no alert is sent.

    Raises:
        IncompatibleWeights: not even the shipped weights can be read.
        BadSettings: the registry of models cannot be opened.
        CorruptState, StoreFull: the store cannot be opened.
        StoreGone: this run had a store, and its files are gone.
    """

    def __init__(
        self,
        settings: Settings,
        place: ScoringPlace = "session",
        scorer: Handle[Scorer] | None = None,
        meta: Handle[MetaModel] | None = None,
        notifier: Handle[Notifier] | None = None,
    ) -> None:
        start_reporting(settings, "session")
        torch.set_num_threads(settings.model.threads)
        self._settings = settings
        weights = load_weights(settings.model.weights, settings.weights_by_mesh, network=settings.model.network)
        for refusal in weights.refused:
            log.error(refusal)
        self._evicted: deque[str] = deque()  # meshes that writing threads deleted to make room
        store = open_store(settings, on_evicted=self._evicted.append)
        self._instruments = RayInstruments()
        self._models = open_models(settings, weights, store, self._instruments)
        with suppress(ServeError):  # the store logs why it is away; the first snapshot reads the rollout then
            self._models.follow(FIRST_LOAD_SECONDS)
        budget = max(0, settings.serve.session_memory_bytes - weights.size_bytes())
        cache = MeshCache(budget, lambda mesh: settings.priority(mesh).weight, self._instruments)
        replay, history = replayer(self._models.checkpoint, settings), history_limit(settings.history)
        self._meshes = MeshRepository(store, cache, replay, self._instruments, history)
        self._options = options(settings)
        self._ended = EndedIds(store, time.time)
        self._audit = open_audit_log(store, settings)
        self._steps = MeshSteps(self._meshes, keep_details=True)
        self._signal = VerdictSignal()
        self._service_graphs = ServiceGraphs(settings.collector.interval_seconds, settings.limits)
        self._levels = ServiceLevels(settings.sla)
        self._scores = asyncio.Semaphore(settings.serve.max_ongoing_scores)
        self._notifier = connect(notifier)
        self._load = RequestLoad()
        share = settings.models.shadow_share
        shadow = Shadow(self._models, self._judge_beside, store, lambda: self._load.is_busy, share, self._instruments)
        self._saved_views = SavedViews(store, settings.limits.max_saved_views)
        self._trials = Trials(settings, self._models, store, shadow)
        self._scored: dict[str, ScoredMesh] = {}  # by mesh, of those that this session advanced
        self._reader = Reader(
            self._meshes,
            self._models,
            self._options,
            self._signal,
            self._trials,
            lambda mesh: settings.mesh(mesh).owner_patterns,
            self._scored,
        )
        self._background: set[asyncio.Task[None]] = set()  # the event loop holds tasks only weakly
        self._backend = self._open_backend(place, weights, scorer, meta)

    def _open_backend(
        self, place: ScoringPlace, weights: Weights, scorer: Handle[Scorer] | None, meta: Handle[MetaModel] | None
    ) -> ScoringBackend:
        chosen = self._settings.scorer
        if scorer is None or meta is None:
            return self._in_session(weights)
        groups = self._settings.partition.groups or chosen.max_replicas or chosen.num_replicas
        replicas = Replicas(with_pickle(connect(scorer)), with_pickle(connect(meta)), groups)
        return replicas if place == "replicas" else OnDemand(self._in_session(weights), replicas, chosen.idle_seconds)

    def _in_session(self, weights: Weights) -> InSession:
        replica = serve.get_replica_context().replica_id.unique_id
        return InSession(weights, replica, self._settings.model.threads, self._instruments)

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Serve calls this periodically if it scales the sessions: how many snapshots are under way, on average."""
        return self._load.report()

    async def check_health(self) -> None:
        """Serve calls this every second: follow the rollout of models, measure whether the store is available, what is
        in memory, and whether the session can score.

        A missing store does not make the replica unhealthy: its replacement would not find the store either, and this
        replica resumes as soon as the files are back.
        """
        self._follow_rollout()
        if self._trials.is_check_due():
            self._start(self._check_trial())
        gone = 0.0
        try:
            await asyncio.to_thread(self._meshes.check)
        except StoreGone:  # was logged when it was first noticed
            gone = 1.0
        except ServeError as error:
            log.warning("the store could not be checked: %s", error)
        self._instruments.set(STORE_GONE, gone)
        meshes, size = self._meshes.memory
        self._instruments.set(MESHES_HELD, meshes)
        self._instruments.set(MESHES_HELD_BYTES, size + self._models.size_bytes())
        self._instruments.set(WEIGHTS, len(self._models.versions))
        if not self._models.has_trial:
            self._trials.shadow.forget_all()
        await self._backend.check()

    async def read(self, query: SessionQuery[T]) -> T:
        """The answer to a question, which changes nothing. It describes the answer and the errors."""
        return await query.answer(self._reader)

    async def push(
        self, mesh: str, packed: bytes, deadline: Deadline, events: tuple[ClusterEvent, ...] = (), trace: str = ""
    ) -> SnapshotAnswer:
        """Compute the verdict of a snapshot and store both. A failed push changes nothing.

        Args:
            mesh: name.
            packed: the snapshot as the store keeps it.
            deadline: after which nothing is stored.
            events: recent Kubernetes events of the mesh, newest first; shown with incidents.
            trace: ``traceparent`` of the caller; so in all methods.

        Raises:
            SameTimeOtherContent: another snapshot of this instant has a verdict.
            StaleSnapshot: it is older than the newest one.
            ServeError: it could not be scored or stored, or not in time.
        """
        runner = await self._runner(mesh, deadline)
        with set_log_context(mesh), spans.span("session.push", trace, mesh=mesh):
            try:
                stored = await self._push(mesh, packed, runner, events=events)
            except Exception as error:
                self._count_failure(mesh, runner.checkpoint.digest, error)
                raise
            if stored.advanced is None:
                return SnapshotAnswer(stored.document)
            with set_log_context(mesh, stored.advanced.mesh.state.sequence):
                self._follow_up(mesh, stored.advanced, runner.progress.cost)
        answer = runner.progress.answer(stored.document, stored.advanced.verdict)
        self._scored[mesh] = ScoredMesh(runner.place, answer.parts, answer.missing_parts)
        return answer

    async def add_metrics(self, mesh: str, points: Sequence[Point], deadline: Deadline, trace: str = "") -> None:
        """Count data points of a service graph, and push the snapshot of the interval that they end. Errors as of
        :meth:`push` and :meth:`ServiceGraphs.add`."""

        async def push(snapshot: MeshSnapshot) -> None:
            await self.push(mesh, pack_snapshot(snapshot), deadline, trace=trace)

        await self._service_graphs.add(mesh, points, push)

    async def baseline(self, mesh: str, packed: bytes, deadline: Deadline, trace: str = "") -> None:
        """Learn baselines and calibration from a snapshot. Moves neither the mesh's clock nor its newest verdict."""
        with set_log_context(mesh), spans.span("session.baseline", trace, mesh=mesh):
            await self._push(mesh, packed, await self._runner(mesh, deadline), counted=False)

    async def score(self, packed: Sequence[bytes], deadline: Deadline, trace: str = "") -> SnapshotAnswer:
        """Score the last of several snapshots of one mesh, in order of time, against those before it. Stores nothing.

        Raises:
            Overloaded: too many such requests are in progress.
            ServeError: it could not be scored, or not in time.
        """
        if self._scores.locked():
            raise Overloaded(
                "MeshSession: the limit of concurrent scoring requests is reached; try again later, or raise "
                "serve.max_ongoing_scores",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        async with self._scores:
            with spans.span("session.score_snapshots", trace, snapshots=len(packed)):
                return await self._score(packed, await self._runner(ALL_MESHES, deadline))

    async def _score(self, packed: Sequence[bytes], runner: SnapshotRunner) -> SnapshotAnswer:
        mesh = Mesh()
        with self._load.work():
            for one in packed:  # one by one, so that pushes of other meshes have their turn in between
                advanced = await runner.run_all(partial(self._advance, runner, mesh, one))
                mesh = advanced.mesh
        document = encode_verdict(advanced.verdict).model_dump_json().encode()
        return runner.progress.answer(document, advanced.verdict)

    async def delete(self, mesh: str) -> None:
        """Delete a mesh.

        Raises:
            UnknownMesh: there is none.
        """
        async with self._steps.lock(mesh):
            self._meshes.evict(mesh)
            self._scored.pop(mesh, None)
            await asyncio.to_thread(self._meshes.delete, mesh)
            await self._reader.forget(mesh)
            self._signal.notify(mesh)
        self._service_graphs.forget(mesh)
        self._resolve_alerts(mesh)
        await self._forget_trial(mesh)

    async def add_feedback(self, mesh: str, document: FeedbackDocument | MissedDocument, by: str = "") -> bytes:
        """Store feedback of a user on an incident. Returns it as JSON.

        It applies from the next snapshot on, unless only the archive has the incident.

        Raises:
            UnknownMesh, UnknownIncident: there is none.
            InvalidDocument: it names a service that the mesh does not have.
            TooMuchFeedback: the mesh has the maximum.
        """
        most = self._settings.limits.max_feedback
        kept = await self._with_room(self._steps.add_feedback(mesh, document, most, by))
        return kept.model_dump_json().encode()

    async def withdraw_feedback(self, mesh: str, incident: str) -> None:
        """Withdraw the feedback on an incident from the next snapshot on.

        Raises:
            UnknownMesh, UnknownIncident: there is none, or it has no feedback.
        """
        await self._with_room(self._steps.withdraw_feedback(mesh, incident))

    async def accept_incident(self, mesh: str, incident: str, document: AcceptanceDocument, by: str = "") -> bytes:
        """Make the present level of an open incident normal from the next snapshot on, which ends it. Returns what is
        kept of the decision, as JSON.

        Raises:
            UnknownMesh: there is none.
            UnknownIncident: no open incident has this id.
        """
        kept = await self._with_room(self._steps.accept_incident(mesh, incident, document, by))
        return kept.model_dump_json().encode()

    async def add_mute(self, mesh: str, document: MuteDocument, by: str = "") -> bytes:
        """Store a mute of a user, which applies from the next snapshot of its time on. Returns it as JSON.

        Raises:
            UnknownMesh: there is none.
            InvalidDocument: it names a service that the mesh does not have, is over, or is too long.
            TooManyMutes: the mesh has the maximum.
        """

        def change(state: MeshState) -> tuple[MeshState, KeptMuteDocument]:
            after, kept = add_mute(state, document, self._settings.limits, by)
            return after, encode_mute(kept, after.observed_at)

        return (await self._change(mesh, change)).model_dump_json().encode()

    async def remove_mute(self, mesh: str, mute: str) -> None:
        """Remove a mute from the next snapshot on.

        Raises:
            UnknownMesh, UnknownMute: there is none.
        """
        await self._change(mesh, lambda state: remove_mute(state, mute))

    async def saved_views(self, meshes: Meshes) -> bytes:
        """The saved views for a caller who may see these meshes, as JSON. Errors as of :meth:`SavedViews.read`."""
        return (await asyncio.to_thread(self._saved_views.read, meshes)).model_dump_json().encode()

    async def save_view(self, document: SavedViewDocument, meshes: Meshes, by: str = "") -> bytes:
        """Save a view. Returns it as JSON. Arguments and errors as of :meth:`SavedViews.save`."""
        return (await asyncio.to_thread(self._saved_views.save, document, meshes, by)).model_dump_json().encode()

    async def delete_view(self, view: str, meshes: Meshes) -> None:
        """Delete a saved view. Arguments and errors as of :meth:`SavedViews.delete`."""
        await asyncio.to_thread(self._saved_views.delete, view, meshes)

    async def try_model(self, version: str, share: float | None, by: str = "") -> bytes:
        """Try a model on a share of the meshes; None: on ``models.canary_share``. Returns the rollout, as JSON.

        Raises:
            UnknownModel, RegistryGone, IncompatibleWeights: it cannot be loaded.
            UnfitModel: meshes cannot change to it now.
            StoreConflict: other processes changed the rollout again and again.
        """
        share = self._settings.models.canary_share if share is None else share
        pin = await self._models.pin(version, None)
        return await self._change_rollout(lambda rollout: start_canary(rollout, pin, share, by))

    async def promote_model(self, version: str, mesh: str | None, by: str = "") -> bytes:
        """Have all meshes use a model, or one; otherwise as :meth:`try_model`."""
        pin = await self._models.pin(version, mesh)
        if mesh is None:
            return await self._change_rollout(lambda rollout: promote(rollout, pin, by))
        return await self._change_rollout(lambda rollout: promote_for_mesh(rollout, pin, mesh, by))

    async def roll_back_model(self, mesh: str | None, reason: str, by: str = "") -> bytes:
        """End the trial of a model, or go back to the model before; with a mesh, take its own model away. Returns the
        rollout, as JSON.

        Raises:
            UnfitModel: there is nothing to go back to.
            StoreConflict: other processes changed the rollout again and again.
        """
        if mesh is None:
            return await self._change_rollout(lambda rollout: roll_back(rollout, by, reason))
        return await self._change_rollout(lambda rollout: roll_back_mesh(rollout, mesh, by, reason))

    async def end_sign_in(self, id: str, until: float) -> bool:
        """Add an id to those that cannot be used again; arguments, result and errors as of :meth:`EndedIds.add`."""
        return await asyncio.to_thread(self._ended.add, id, until)

    async def ended_sign_ins(self) -> frozenset[str]:
        """The ids that cannot be used again; errors as of :meth:`EndedIds.all`."""
        return await asyncio.to_thread(self._ended.all)

    async def append_audit(self, record: AuditRecord) -> None:
        """Add a record to the audit log; errors as of :meth:`AuditLog.append`."""
        await asyncio.to_thread(self._audit.append, record)

    async def finish_audit(self, record: AuditRecord) -> None:
        """Add the outcome of a record; errors as of :meth:`AuditLog.finish`."""
        await asyncio.to_thread(self._audit.finish, record)

    async def count_audit(self, counts: Sequence[AuditRecord]) -> None:
        """Add counts to the audit log, and delete what is too old; errors as of :meth:`AuditLog.count`."""
        await asyncio.to_thread(self._audit.count, counts)
        await asyncio.to_thread(self._audit.tidy)

    async def audit_page(self, wanted: AuditFilter) -> AuditPage:
        """The newest records of the audit log that match; errors as of :meth:`AuditLog.page`."""
        return await asyncio.to_thread(self._audit.page, wanted)

    async def ready(self, deadline: Deadline) -> ScorerInfo:
        """The device and weights that score, and which weights are not in use. Raises an error if the store, a scorer
        or the meta-model does not answer."""
        _, info = await asyncio.gather(asyncio.to_thread(self._meshes.check), self._backend.info(Caller(deadline)))
        return replace(info, refused=(*info.refused, *self._models.missing))

    async def take_counts(self, report: Report) -> float:
        """Add the requests that a gate or the collector counted to the service level, and return the factor of its
        limit of admission."""
        return self._levels.take(report)

    async def service_level(self) -> ServiceLevel:
        """The service level, if the counts are sent to this session."""
        return self._levels.level()

    async def _runner(self, mesh: str, deadline: Deadline) -> SnapshotRunner:
        """The runner of a snapshot, which keeps the model that its mesh has now."""
        model = self._models.get(mesh) or await self._models.of(mesh)
        return self._backend.runner(mesh or NOT_STORED, deadline, model, self._settings.priority(mesh).weight)

    def _follow_rollout(self) -> None:
        """Follow the rollout in the background. A store or a registry that hangs must not hold the check of health."""
        if self._models.is_following:

            async def follow() -> None:
                with suppress(ServeError):  # the store logs why it is away
                    await self._models.follow_once()

            self._start(follow())

    async def _check_trial(self) -> None:
        """Look whether the trial of a model breaks a limit, or is over."""
        try:
            await self._trials.check(self._levels.level())
        except ServeError as error:
            log.warning("the trial of a model could not be judged: %s", error)

    async def _change_rollout(self, change: Callable[[RolloutDocument], RolloutDocument]) -> bytes:
        rollout = await asyncio.to_thread(self._models.change, change)
        return rollout.model_dump_json().encode()

    async def _advance(self, runner: SnapshotRunner, mesh: Mesh, packed: bytes) -> StageResults:
        snapshot = await runner.run(PREPARE, unpack_snapshot, packed)
        return await run_stages(runner, mesh, snapshot, self._options)

    async def _push(
        self,
        mesh: str,
        packed: bytes,
        runner: SnapshotRunner,
        *,
        counted: bool = True,
        events: tuple[ClusterEvent, ...] = (),
    ) -> PushResult:
        push = NextSnapshot(mesh, packed, counted, events)
        try:
            with self._load.work():
                stored = await self._steps.push(push, options(self._settings, mesh), runner)
        finally:
            self._forget_evicted()
        if stored.advanced is not None:
            for stage, duration in runner.progress.seconds.items():
                self._instruments.observe(STAGE, duration, stage=stage)
            self._instruments.count(PARTS_MISSING, runner.progress.missing_parts)
            verdict = stored.advanced.verdict
            self._instruments.count(PREDICTIONS, model_version=verdict.model_digest, status=verdict.status.value)
            if verdict.confidence is not None:
                self._instruments.observe(CONFIDENCE, verdict.confidence, model_version=verdict.model_digest)
        return stored

    async def _change(self, mesh: str, change: Callable[[MeshState], tuple[MeshState, T]]) -> T:
        return await self._with_room(self._steps.change(mesh, change))

    async def _with_room(self, step: Awaitable[T]) -> T:
        """The result of a step that writes, for which the store may have deleted other meshes."""
        try:
            return await step
        finally:
            self._forget_evicted()

    def _forget_evicted(self) -> None:
        """Forget meshes that the store has deleted to make room for new ones, and resolve their alerts."""
        while self._evicted:
            mesh = self._evicted.popleft()
            self._meshes.evict(mesh)
            self._scored.pop(mesh, None)
            self._signal.notify(mesh)
            self._resolve_alerts(mesh)
            self._start(self._forget_trial(mesh))

    async def _forget_trial(self, mesh: str) -> None:
        """Delete what the trial of a model stored of a mesh that is deleted."""
        try:
            await self._trials.forget(mesh)
        except ServeError as error:  # what is left is never read
            log.warning("mesh %s: what its trial stored could not be deleted: %s", mesh, error)

    def _count_failure(self, mesh: str, model: str, error: Exception) -> None:
        """Count a push that failed in the trial of its model, unless the snapshot or the store is to blame."""
        is_of_model = isinstance(error, DeadlineExceeded) or not isinstance(error, ServeError | ModelError)
        if is_of_model and self._models.has_trial:
            self._start(self._trials.shadow.add_failure(mesh, model))

    def _follow_up(self, mesh: str, advanced: StageResults, cost: float) -> None:
        """Start what follows a new verdict."""
        self._signal.notify(mesh)
        self._start(self._tidy(mesh))
        if self._models.has_trial:
            self._score_in_shadow(mesh, advanced, cost)
        if self._notifier is not None:
            trace = spans.traceparent()
            self._start(self._alert(self._notifier, mesh, advanced.verdict, trace))

    def _score_in_shadow(self, mesh: str, advanced: StageResults, cost: float) -> None:
        """Have the other model of the trial score a snapshot that has its verdict."""
        memory, chosen = advanced.mesh.state.memory, options(self._settings, mesh)
        judged = JudgedSnapshot(mesh, advanced.prepared, advanced.verdict, memory, cost, chosen)
        if self._trials.shadow.offer(judged):
            self._start(self._trials.shadow.work())

    def _resolve_alerts(self, mesh: str) -> None:
        if self._notifier is not None:
            self._start(self._notify(self._notifier.forget_mesh, mesh))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start work that no request waits for."""
        task = start_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _alert(self, notifier: Handle[Notifier], mesh: str, verdict: Verdict, trace: str) -> None:
        """Send a verdict to the notifier, and then the pictures that its messages show."""
        for incident in await self._notify(notifier.accept_verdict, mesh, verdict, trace) or ():
            try:
                svg = await self._reader.view(self._reader.picture, mesh, incident)
            except Exception as error:  # no one awaits this task, and a message without a picture is still a message
                log.warning("mesh %s: no picture of incident %s: %s", mesh, incident, error)
            else:
                await self._notify(notifier.accept_picture, mesh, incident, svg)

    async def _notify(self, method: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Call the notifier. If it cannot be reached now, it gets the same state with the next verdict."""
        try:
            return await Caller(Deadline.after(self._settings.serve.deadline_seconds)).ask(method, *args, **kwargs)
        except ServeError as error:
            log.warning("the notifier could not be reached: %s", error)
            self._instruments.count(NOTICES_FAILED, receiver="notifier", reason="unreachable")
            return None

    async def _tidy(self, mesh: str) -> None:
        """Do what pushes leave for later."""
        try:
            await self._steps.tidy(mesh, self._options)
        except ServeError as error:  # the next push does it, or fails with the same error
            log.warning("mesh %s: its state could not be stored in full: %s", mesh, error)

    async def _judge_beside(
        self, judged: JudgedSnapshot, model: ServedModel, memory: IncidentMemory
    ) -> tuple[Verdict, IncidentMemory, float]:
        """What another model makes of a snapshot that has its verdict. Nothing is stored."""
        deadline = Deadline.after(self._settings.serve.score_deadline_seconds)
        runner = self._backend.runner(judged.mesh, deadline, model, in_shadow=True)
        prepared = with_memory(judged.prepared, memory)
        snapshot = prepared.mesh.state.window[-1]
        _, verdict, after = await runner.run_all(lambda: judge(runner, prepared, snapshot, judged.options))
        remembered = commit(prepared.mesh, after, counted=True).state.memory
        return verdict, remembered, runner.progress.cost
