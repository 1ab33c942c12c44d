"""The one mesh of this process: computes the verdict of each snapshot with the steps of the service, without replicas.

State is written before a verdict is sent, so that a process that is killed resumes where it was.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial

import torch

from model.checkpoint import Checkpoint
from model.mesh_weights import Weights, load_weights
from model.scoring.score import PartitionScore
from model.snapshot import MeshSnapshot
from serve_app.alerts import delivery
from serve_app.alerts.storage import open_file
from serve_app.api.codec import pack_snapshot
from serve_app.errors import CorruptState, NoCapacity, Overloaded, ServeError, StoreGone, UnknownMesh
from serve_app.exporter import PrometheusInstruments
from serve_app.mesh_steps import MeshSteps, NextSnapshot
from serve_app.metrics import CONFIDENCE, PREDICTIONS, STAGE, STORE_GONE, Instruments, MeshGauges
from serve_app.observability.log_context import set_log_context
from serve_app.observability.spans import span
from serve_app.pipeline import PreparedSnapshot, ThreadRunner, options, replayer, score_whole
from serve_app.runtime import devices
from serve_app.settings import Settings
from serve_app.settings.base import check_mesh_name
from serve_app.sidecar.generated import verdicts_pb2
from serve_app.sidecar.messages import verdict_message
from serve_app.sidecar.newest import Newest
from serve_app.stores.cache import MeshCache
from serve_app.stores.opening import open_store
from serve_app.stores.record import Record
from serve_app.stores.repository import MeshRepository

MOST_WAITING = 16  # snapshots that wait for their turn; a mesh has one every few seconds
log = logging.getLogger(__name__)


class Detector:
    """Computes the verdicts of one mesh's snapshots, one at a time, outside the event loop.

    Args:
        mesh: its name.
        settings: all of them.

    Raises:
        BadMeshName: no mesh can have this name.
        BadSettings: the state of alerts cannot be stored.
        NoCapacity: ``scorer.device`` is ``cuda``, and there is no GPU that works.
        IncompatibleWeights: not even the shipped weights can be read.
        CorruptState: the store cannot be read.
    """

    def __init__(self, mesh: str, settings: Settings) -> None:
        torch.set_num_threads(settings.model.threads)
        self.mesh = check_mesh_name(mesh)
        self.newest = Newest()
        self.instruments = PrometheusInstruments()
        self._options = options(settings, mesh)
        # A GPU beside the sidecar belongs to the workload, so `auto` leaves it alone.
        wanted = "cuda" if settings.scorer.device == "cuda" else "cpu"
        chosen = devices.choose_device(wanted, settings.scorer.num_gpus, is_promised=True)
        weights, chosen = devices.place_weights(wanted, chosen, partial(_load_weights, settings))
        for refusal in weights.refused:
            log.error(refusal)
        self._store = open_store(settings.store)
        self._meshes = MeshRepository(
            self._store, MeshCache(settings.serve.session_memory_bytes), replayer(weights.of, settings)
        )
        self._steps = MeshSteps(self._meshes, keep_details=False)
        self._thread = ThreadPoolExecutor(1, "score")  # always the same: OpenMP keeps a pool for each thread
        self._runner = _Runner(weights.of(mesh), self._thread, self.instruments if chosen.is_gpu else None)
        self._pushes: set[asyncio.Task[bytes]] = set()
        self._tidying: set[asyncio.Task[None]] = set()
        self._closing = False
        self._delivery: delivery.AlertDelivery | None = None
        self._delivering: asyncio.Task[None] | None = None
        if settings.notify.has_receivers:
            self._delivery = delivery.AlertDelivery(delivery.receivers(settings), open_file(settings), self.instruments)

    async def begin(self) -> float | None:
        """Resume from the store. Returns the Unix time of the newest snapshot, or None if there is none."""
        if self._delivery is not None:
            self._delivering = asyncio.create_task(self._delivery.run())
        found = await asyncio.get_running_loop().run_in_executor(self._thread, self._load)
        if found is None:
            log.info("mesh %s: nothing is stored; learning starts from zero", self.mesh)
            return None
        verdict = verdict_message(found)
        self.newest.put(verdict)
        log.info("mesh %s: resumes after %s, snapshot %d", self.mesh, _time(verdict), verdict.sequence)
        return float(verdict.observed_at.ToMicroseconds() / 1e6)

    async def push(self, snapshot: MeshSnapshot, trace: str = "") -> bytes:
        """Compute and store the verdict of a snapshot; returns it as JSON. A repeated snapshot counts once. ``trace``
        is the ``traceparent`` of the caller.

        The push continues if its caller is cancelled. A failed push changes nothing.

        Raises:
            SameTimeOtherContent: another snapshot of this instant has a verdict.
            StaleSnapshot: it is older than the newest one.
            Overloaded: too many snapshots wait.
            NoCapacity: the process is ending.
            ServeError: it could not be scored or stored.
        """
        if self._closing:
            raise NoCapacity("sidecar: it is shutting down; send the snapshot again after its restart")
        if len(self._pushes) >= MOST_WAITING:
            raise Overloaded(
                f"sidecar: {MOST_WAITING} snapshots are already queued; send one every few seconds",
                retry_after_seconds=1.0,
            )
        push = asyncio.create_task(self._push(snapshot, trace))
        self._pushes.add(push)
        push.add_done_callback(self._pushes.discard)
        return await asyncio.shield(push)

    def gauges(self) -> list[MeshGauges]:
        """The mesh as in its stored verdict; an empty list while the store is gone. Can be called from any thread."""
        try:
            found = self._meshes.gauges()
        except StoreGone:  # was logged when it was first noticed
            self.instruments.set(STORE_GONE, 1.0)
            return []
        self.instruments.set(STORE_GONE, 0.0)
        return [one for one in found if one.mesh == self.mesh]

    async def close(self) -> None:
        """Finish pushes under way, deliver waiting alerts (``notify.drain_seconds``), close the store."""
        self._closing = True
        self.newest.end()
        await asyncio.gather(*self._pushes, return_exceptions=True)
        await asyncio.gather(*self._tidying, return_exceptions=True)
        if self._delivery is not None:
            await self._delivery.close()
        self._thread.shutdown()
        self._store.close()

    async def _push(self, snapshot: MeshSnapshot, trace: str) -> bytes:
        began = time.perf_counter()
        push = NextSnapshot(self.mesh, pack_snapshot(snapshot))
        with set_log_context(self.mesh), span("sidecar.push", trace, "server", mesh=self.mesh):
            stored = await self._steps.push(push, self._options, self._runner)
        if stored.advanced is None:
            return stored.document
        verdict, message, before = stored.advanced.verdict, verdict_message(stored.document), self.newest.verdict
        if before is None or before.status != message.status:
            log.info("mesh %s: %s as of %s", self.mesh, message.status, _time(message))
        self.newest.put(message)
        tidying = asyncio.create_task(self._tidy())
        self._tidying.add(tidying)
        tidying.add_done_callback(self._tidying.discard)
        self.instruments.count(PREDICTIONS, model_version=verdict.model_digest, status=message.status)
        if verdict.confidence is not None:
            self.instruments.observe(CONFIDENCE, verdict.confidence, model_version=verdict.model_digest)
        self.instruments.observe(STAGE, time.perf_counter() - began, stage="total")
        if self._delivery is not None:
            self._delivery.accept_verdict(self.mesh, verdict, delivery.utc_now())
        return stored.document

    async def _tidy(self) -> None:
        try:
            await self._steps.tidy(self.mesh, self._options)
        except ServeError as error:  # the next push does it, or fails with the same error
            log.warning("mesh %s: its state could not be stored in full: %s", self.mesh, error)

    def _load(self) -> bytes | None:
        """Load the state of the mesh. Returns its newest verdict as JSON; None if there is none, or it is damaged."""
        try:
            stored = self._meshes.load_stored(self.mesh)
            known = self._meshes.refresh(stored)
        except (UnknownMesh, CorruptState):
            return None
        self._meshes.cache(self.mesh, known)
        return Record.unpack(stored.verdict).document if known.revision else None


class _Runner(ThreadRunner):
    """Runs the stages in one thread, and repeats a pass that fails on a GPU on the CPU.

    Args:
        checkpoint: the weights of the mesh.
        pool: with the thread.
        instruments: count the passes that are repeated; None: the weights are on the CPU.
    """

    def __init__(self, checkpoint: Checkpoint, pool: Executor, instruments: Instruments | None) -> None:
        super().__init__(checkpoint, pool)
        self._instruments = instruments

    async def score(self, prepared: PreparedSnapshot) -> Sequence[PartitionScore]:
        try:
            return await super().score(prepared)
        except RuntimeError as error:
            if self._instruments is None:
                raise
            run = partial(score_whole, prepared=prepared)
            scores = devices.score_on_cpu(run, self.checkpoint.network, error, self._instruments)
            if isinstance(scores, Exception):
                raise scores from error
            return scores


def _load_weights(settings: Settings, device: torch.device) -> Weights:
    model = settings.model
    return load_weights(model.weights, settings.weights_by_mesh, device, model.network)


def _time(verdict: verdicts_pb2.Verdict) -> str:
    said: str = verdict.observed_at.ToJsonString()
    return said
