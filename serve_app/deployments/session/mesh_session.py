"""MeshSession: holds the state of meshes, and computes the verdict of each snapshot.

The store is authoritative: state is written with compare-and-set before the answer, so that two sessions cannot both
advance a mesh. Routing a mesh to the same session each time only saves a read.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from model.errors import ModelError
from model.incidents.memory import IncidentMemory
from model.mesh_weights import Weights, load_weights
from model.snapshot import MeshSnapshot
from model.verdict import ClusterEvent, Verdict
from serve_app.alerts.receiver_trials import ReceiverAdmin
from serve_app.api.codec import encode_verdict, pack_snapshot, unpack_snapshot
from serve_app.api.schemas.views import ScoringDocument
from serve_app.collect.otlp.decode import Point
from serve_app.deployments.load import RequestLoad
from serve_app.deployments.scoring.in_session import SessionBackend, SessionRunner
from serve_app.deployments.scoring.messages import ScorerInfo, SnapshotAnswer
from serve_app.deployments.scoring.replicas import ReplicaBackend, ReplicaRunner
from serve_app.deployments.session.api import SessionApi
from serve_app.deployments.session.reader import Reader, Reports, VerdictSignal
from serve_app.deployments.session.service_graphs import ServiceGraphs
from serve_app.errors import DeadlineExceeded, ServeError, StoreGone
from serve_app.mesh_steps import MeshSteps, NextSnapshot, PushResult
from serve_app.metrics import (
    CONFIDENCE,
    GPU_UNUSED,
    MESHES_HELD,
    MESHES_HELD_BYTES,
    PARTS_MISSING,
    PREDICTIONS,
    STAGE,
    STAGE_TIME,
    STORE_GONE,
)
from serve_app.models.admin import ModelAdmin
from serve_app.models.rollout import ALL_MESHES
from serve_app.models.served import ServedModel, open_models
from serve_app.models.shadow import JudgedSnapshot, Shadow
from serve_app.observability import spans
from serve_app.observability.logs import set_log_context
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
from serve_app.runtime import replica
from serve_app.runtime.replica import open_instruments, start_task
from serve_app.runtime.reporting import start_reporting
from serve_app.runtime.rpc import Caller, Deadline, Handle, connect, with_pickle
from serve_app.runtime.storage import history_limit, open_audit_log, open_store
from serve_app.settings import Settings
from serve_app.stores.cache import CachedMesh, MeshCache
from serve_app.stores.documents import Connections, EndedIds
from serve_app.stores.repository import MeshRepository
from serve_app.web.incidents import IncidentViews
from serve_app.web.past import PastQueries
from serve_app.web.queries import PageQueries

if TYPE_CHECKING:
    from serve_app.deployments.scoring.meta import MetaModel
    from serve_app.deployments.scoring.scorer import Scorer

MeshRunner = SessionRunner | ReplicaRunner
log = logging.getLogger(__name__)
NOT_STORED = "(not stored)"  # in place of a mesh name, where snapshots are only scored
SHADOW_SECONDS = 30.0  # time for a trial's other model to score a snapshot; no one waits for it
FIRST_LOAD_SECONDS = 10.0  # for which a starting session waits for the registry's weights


class MeshSession:
    """Owns some of the service's meshes.

    Args:
        scorer, meta: handles of the replicas that score; None: the session scores.
        gpu_unused: kind of the obstacle, if the session scores although this machine has a GPU.

    Raises:
        IncompatibleWeights: not even the shipped weights can be read.
        BadSettings: the registry of models cannot be opened.
        CorruptState, StoreFull: the store cannot be opened.
        StoreGone: this run had a store, and its files are gone.
    """

    def __init__(
        self,
        settings: Settings,
        scorer: Handle[Scorer] | None = None,
        meta: Handle[MetaModel] | None = None,
        gpu_unused: str = "",
    ) -> None:
        start_reporting(settings, "session")
        torch.set_num_threads(settings.model.threads)
        self._settings, self._gpu_unused = settings, gpu_unused
        weights = load_weights(settings.model.weights, settings.weights_by_mesh, network=settings.model.network)
        for refusal in weights.refused:
            log.error(refusal)
        self._store = store = open_store(settings)
        self._instruments = open_instruments()
        sidecar = platform.node() if replica.is_single() else None
        self._models = open_models(settings, weights, store, self._instruments, sidecar)
        with suppress(ServeError):  # the store logs why it is unavailable; the first snapshot reads the rollout then
            self._models.follow(FIRST_LOAD_SECONDS)
        budget = max(0, settings.serve.session_memory_bytes - weights.size_bytes())
        cache = MeshCache(budget, self._instruments)
        self._meshes = MeshRepository(store, cache, replayer(self._models.checkpoint, settings), self._instruments)
        self._options = options(settings)
        self._signal = VerdictSignal()
        self._steps = MeshSteps(store, self._meshes, history_limit(settings.history), self._signal.notify)
        self._service_graphs = ServiceGraphs(settings.collector.interval_seconds, settings.limits)
        self._load = RequestLoad()
        self._shadow = Shadow(self._models, self._judge_beside, store, lambda: self._load.is_busy, self._instruments)
        self._scorings: dict[str, ScoringDocument] = {}  # by mesh, of those that this session advanced
        pages = PageQueries(store, self._meshes, lambda mesh: settings.mesh(mesh).owner_patterns)
        incidents = IncidentViews(store, self._meshes)
        self.api = SessionApi(
            meshes=Reader(store, self._meshes, self._models, self._options, self._signal, self._scorings),
            pages=pages,
            past=PastQueries(store, self._meshes),
            incidents=incidents,
            reports=Reports(pages, incidents),
            changes=self._steps,
            connections=Connections(store),
            models=ModelAdmin(settings, self._models, store),
            audit=open_audit_log(store, settings),
            receivers=ReceiverAdmin(settings, store),
            sign_ins=EndedIds(store, time.time),
            page_thread=ThreadPoolExecutor(1, "viewing"),
        )
        self._background_tasks: set[asyncio.Task[None]] = set()  # the event loop holds tasks only weakly
        self._backend = self._open_backend(weights, scorer, meta)

    def _open_backend(
        self, weights: Weights, scorer: Handle[Scorer] | None, meta: Handle[MetaModel] | None
    ) -> SessionBackend | ReplicaBackend:
        if scorer is None or meta is None:
            return SessionBackend(weights, replica.name(), self._settings.model.threads, self._instruments)
        groups = self._settings.scorer.max_replicas or self._settings.scorer.num_replicas
        return ReplicaBackend(with_pickle(connect(scorer)), with_pickle(connect(meta)), groups)

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """The average number of running pushes. Serve calls this periodically if it scales the sessions."""
        return self._load.report()

    async def check_health(self) -> None:
        """Follow the rollout of models, export gauges about store and memory, and check that the session can score.
        Serve calls this every second.

        A missing store does not make the replica unhealthy: its replacement would not find the store either, and this
        replica resumes as soon as the files are back.
        """
        if self._models.is_following:  # in the background: a registry that hangs must not hold this check
            self._start(self._models.follow_once())
        if self.api.models.is_check_due():
            self._start(self.api.models.check(), "the trial of a model could not be judged")
        store_gone = 0.0
        try:
            await asyncio.to_thread(self._store.check)
        except StoreGone:  # was logged when it was first noticed
            store_gone = 1.0
        except ServeError as error:
            log.warning("the store could not be checked: %s", error)
        self._instruments.set(STORE_GONE, store_gone)
        cache = self._meshes.cached
        self._instruments.set(MESHES_HELD, len(cache))
        self._instruments.set(MESHES_HELD_BYTES, cache.bytes + self._models.size_bytes())
        self._models.measure()
        if self._gpu_unused:
            self._instruments.set(GPU_UNUSED, 1.0, reason=self._gpu_unused)
        if not self._models.has_trial:
            self._shadow.forget_all()
        await self._backend.check()

    async def call(self, subject: str, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the API (:class:`~serve_app.deployments.session.api.SessionApi`)."""
        return await self.api.call(subject, method, *args, **kwargs)

    async def push(
        self,
        mesh: str,
        content: bytes,
        deadline: Deadline,
        events: tuple[ClusterEvent, ...] = (),
        trace: str = "",
        *,
        is_replay: bool = False,
        is_connected: bool = False,
    ) -> SnapshotAnswer:
        """Compute the verdict of a snapshot and store both. A failed push changes nothing.

        Args:
            content, events, is_replay, is_connected: see :class:`NextSnapshot`.
            deadline: nothing is stored after it.
            trace: the caller's ``traceparent``, as in all methods.
        """
        push = NextSnapshot(mesh, content, events=events, is_replay=is_replay, is_connected=is_connected)
        runner = await self._runner(mesh, deadline)
        with set_log_context(mesh), spans.span("session.push", trace, mesh=mesh):
            try:
                result = await self._push(push, runner)
            except Exception as error:
                self._count_failure(mesh, runner.checkpoint.digest, error)
                raise
            if result.computation is None:
                return SnapshotAnswer(result.document)
            stage_results, entry = result.computation
            with set_log_context(mesh, stage_results.mesh.state.sequence):
                self._follow_up(mesh, stage_results, entry)
        self._scorings[mesh] = ScoringDocument(
            place=runner.place, parts=runner.parts_by_replica, missing_parts=runner.missing_parts
        )
        return runner.answer(result.document)

    async def add_metrics(self, mesh: str, points: Sequence[Point], deadline: Deadline, trace: str = "") -> None:
        """Count data points of a service graph, and push the snapshot of the interval that they end. Raises the errors
        of :meth:`push` and :meth:`ServiceGraphs.add`."""

        async def push(snapshot: MeshSnapshot) -> None:
            await self.push(mesh, pack_snapshot(snapshot), deadline, trace=trace)

        await self._service_graphs.add(mesh, points, push)

    async def baseline(self, mesh: str, content: bytes, deadline: Deadline, trace: str = "") -> None:
        """Learn baselines and calibration from a snapshot. Moves neither the mesh's clock nor its newest verdict."""
        with set_log_context(mesh), spans.span("session.baseline", trace, mesh=mesh):
            await self._push(NextSnapshot(mesh, content, is_counted=False), await self._runner(mesh, deadline))

    async def score(self, snapshots: Sequence[bytes], deadline: Deadline, trace: str = "") -> SnapshotAnswer:
        """Score a mesh's last snapshot against those before it, all in order of time. Stores nothing.

        Raises:
            ServeError: it could not be scored, or not in time.
        """
        runner, mesh = await self._runner(ALL_MESHES, deadline), Mesh()
        with spans.span("session.score", trace, snapshots=len(snapshots)), self._load.work():
            for snapshot in snapshots:  # one by one, so that pushes of other meshes have their turn in between
                results = await runner.run_all(partial(self._advance, runner, mesh, snapshot))
                mesh = results.mesh
        document = encode_verdict(results.verdict).model_dump_json().encode()
        return runner.answer(document)

    async def delete(self, mesh: str) -> None:
        """Delete a mesh.

        Raises:
            UnknownMesh: there is none.
        """
        async with self._steps.lock(mesh):
            self._scorings.pop(mesh, None)
            await asyncio.to_thread(self._meshes.delete, mesh)
            await self.api.call("pages", "forget", mesh)
            self._signal.notify(mesh)
        self._service_graphs.forget(mesh)
        try:
            await self._shadow.delete(mesh)
        except ServeError as error:  # it is never read again
            log.warning("mesh %s: its trial's data could not be deleted: %s", mesh, error)

    async def ready(self, deadline: Deadline) -> ScorerInfo:
        """The device and weights that score, which weights are not in use, and which receivers of notifications have a
        problem. Raises an error if the store, a scorer or the meta-model does not answer."""
        _, info, problems = await asyncio.gather(
            asyncio.to_thread(self._store.check),
            self._backend.info(Caller(deadline)),
            asyncio.to_thread(self.api.receivers.problems),
        )
        return replace(info, refusals=(*info.refusals, *self._models.missing), receivers=problems)

    async def _runner(self, mesh: str, deadline: Deadline) -> MeshRunner:
        """The runner of a snapshot, which keeps the model that its mesh has now."""
        model = self._models.get(mesh) or await self._models.of(mesh)
        return self._backend.runner(mesh or NOT_STORED, deadline, model)

    async def _advance(self, runner: MeshRunner, mesh: Mesh, content: bytes) -> StageResults:
        snapshot = await runner.run(PREPARE, unpack_snapshot, content, *mesh.state.window[-1:])
        return await run_stages(runner, mesh, snapshot, self._options)

    async def _push(self, push: NextSnapshot, runner: MeshRunner) -> PushResult:
        with self._load.work():
            result = await self._steps.push(push, options(self._settings, push.mesh), runner)
        if result.computation is not None:
            for stage, duration in runner.seconds.items():
                self._instruments.observe(STAGE, duration, stage=stage)
                self._instruments.count(STAGE_TIME, duration, stage=stage)
            self._instruments.count(PARTS_MISSING, runner.missing_parts)
            verdict = result.computation[0].verdict
            self._instruments.count(PREDICTIONS, model_version=verdict.model_digest, status=verdict.status.value)
            if verdict.confidence is not None:
                self._instruments.observe(CONFIDENCE, verdict.confidence, model_version=verdict.model_digest)
        return result

    def _count_failure(self, mesh: str, model: str, error: Exception) -> None:
        """Count a push that failed in the trial of its model, unless the snapshot or the store is to blame."""
        is_of_model = isinstance(error, DeadlineExceeded) or not isinstance(error, ServeError | ModelError)
        if is_of_model and self._models.has_trial:
            self._start(self._shadow.add_failure(mesh, model))

    def _follow_up(self, mesh: str, results: StageResults, entry: CachedMesh) -> None:
        self._signal.notify(mesh)
        # If that fails, a later push does it, or fails with the same error.
        self._start(self._steps.tidy(mesh, entry, self._options), f"mesh {mesh}: its store could not be tidied")
        if self._models.has_trial:  # the other model of the trial scores the snapshot, too
            memory, mesh_options = results.mesh.state.memory, options(self._settings, mesh)
            if self._shadow.offer(JudgedSnapshot(mesh, results.prepared, results.verdict, memory, mesh_options)):
                self._start(self._shadow.work())

    def _start(self, work: Coroutine[Any, Any, object], trouble: str = "") -> None:
        """Start work that no request waits for. ``trouble``: logged with its error; empty: the work logs it itself."""

        async def run() -> None:
            try:
                await work
            except ServeError as error:
                if trouble:
                    log.warning("%s: %s", trouble, error)

        task = start_task(run())
        self._background_tasks.add(task)
        task.add_done_callback(self._background_tasks.discard)

    async def _judge_beside(
        self, judged_snapshot: JudgedSnapshot, model: ServedModel, memory: IncidentMemory
    ) -> tuple[Verdict, IncidentMemory]:
        """Another model's verdict on a snapshot that has one, and the memory after it. Nothing is stored."""
        deadline = Deadline.after(SHADOW_SECONDS)
        runner = self._backend.runner(judged_snapshot.mesh, deadline, model, in_shadow=True)
        prepared = with_memory(judged_snapshot.prepared, memory)
        snapshot = prepared.mesh.state.window[-1]
        _, verdict, after = await runner.run_all(lambda: judge(runner, prepared, snapshot, judged_snapshot.options))
        return verdict, commit(prepared.mesh, after, counted=True).state.memory
