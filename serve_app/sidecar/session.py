"""The one mesh of this process: a snapshot's way to its verdict, as a session of the service goes it, without replicas.

State is written through by the same compare-and-set before anybody is told, so that a process that is killed goes on
where it was.
"""

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch

from model.checkpoint import load_or_shipped
from model.snapshot import MeshSnapshot
from model.verdict import Verdict
from serve_app.alerts import notifier
from serve_app.api.codec import encode_verdict, pack_snapshot
from serve_app.errors import BadSettings, CorruptState, NoCapacity, Overloaded, StoreConflict, StoreGone, UnknownMesh
from serve_app.exporter import PrometheusInstruments
from serve_app.metrics import PREDICTIONS, STAGE, STORE_GONE, MeshGauges
from serve_app.pipeline import advance, options
from serve_app.settings import Settings
from serve_app.settings.base import check_mesh_name
from serve_app.sidecar import verdicts_pb2
from serve_app.sidecar.messages import verdict_message
from serve_app.sidecar.newest import Newest
from serve_app.stores.cache import CachedMesh, MeshCache
from serve_app.stores.record import Record
from serve_app.stores.repository import MeshRepository
from serve_app.stores.sqlite import LocalStore

MOST_WAITING = 16  # snapshots that wait for their turn; a mesh has one every few seconds
log = logging.getLogger("ray.serve")


@dataclass(frozen=True, slots=True)
class SessionAnswer:
    """JSON of a verdict; ``verdict`` is None where it was made before."""

    document: bytes
    verdict: Verdict | None = None


class Session:
    """Judges snapshots of one mesh, one at a time, off the event loop that it belongs to.

    Args:
        mesh: its name.
        settings: all of them.

    Raises:
        BadMeshName: it cannot be stored under this name.
        BadSettings: it is to score where it cannot, or what is told of alerts cannot be kept.
        IncompatibleWeights: not even the shipped weights can be read.
        CorruptState: nor the store.
    """

    def __init__(self, mesh: str, settings: Settings) -> None:
        if settings.scorer.device == "cuda":
            raise BadSettings(
                "scorer.device: expected cpu or auto, since the sidecar scores on the CPU beside its workload, came "
                "cuda; set it to cpu, or run the service (`tagae serve`)"
            )
        torch.set_num_threads(settings.model.threads)
        self.mesh = check_mesh_name(mesh)
        self.newest = Newest()
        self.instruments = PrometheusInstruments()
        self._options = options(settings, mesh)
        self._checkpoint = load_or_shipped(settings.model.weights)
        if self._checkpoint.refused:
            log.error("model.weights: refused, and the shipped weights are in use: %s", self._checkpoint.refused)
        self._store = LocalStore(settings.store.path)
        self._meshes = MeshRepository(self._store, MeshCache(settings.serve.session_memory_bytes))
        # One thread, so that snapshots take their turns, and OpenMP's threads are those of one caller.
        self._thread = ThreadPoolExecutor(1, "score")
        self._pushes: set[asyncio.Task[bytes]] = set()
        self._closing = False
        self._notifier: notifier.AlertDelivery | None = None
        self._delivering: asyncio.Task[None] | None = None
        if settings.notify.alertmanagers or settings.notify.webhooks:
            self._notifier = notifier.AlertDelivery(
                notifier.receivers(settings.notify), notifier.directory(settings), self.instruments
            )

    async def begin(self) -> float | None:
        """Go on where the store says; the Unix time of the newest snapshot, None where there is none."""
        if self._notifier is not None:
            self._delivering = asyncio.create_task(self._notifier.run())
        found = await asyncio.get_running_loop().run_in_executor(self._thread, self._found)
        if found is None:
            log.info("mesh %s: nothing is stored, it is learned anew", self.mesh)
            return None
        verdict = verdict_message(found)
        self.newest.put(verdict)
        log.info("mesh %s: goes on after %s, snapshot %d", self.mesh, _time(verdict), verdict.sequence)
        return float(verdict.observed_at.ToMicroseconds() / 1e6)

    async def push(self, snapshot: MeshSnapshot) -> bytes:
        """Count a snapshot and judge it: JSON of the verdict. The same again gets the same, and counts once.

        A caller who leaves meanwhile does not stop it. A failed push changes nothing.

        Raises:
            SameTimeOtherContent: another snapshot of this instant was judged.
            StaleSnapshot: it is older than the newest one.
            Overloaded: too many wait for their turn.
            NoCapacity: the process ends.
            ServeError: it could not be judged or kept.
        """
        if self._closing:
            raise NoCapacity("sidecar: it ends; send the snapshot again when it is back")
        if len(self._pushes) >= MOST_WAITING:
            raise Overloaded(
                f"sidecar: {MOST_WAITING} snapshots wait for their turn; send one every few seconds",
                retry_after_seconds=1.0,
            )
        push = asyncio.create_task(self._pushed(snapshot))
        self._pushes.add(push)
        push.add_done_callback(self._pushes.discard)
        return await asyncio.shield(push)

    def gauges(self) -> list[MeshGauges]:
        """The mesh as its stored verdict shows it, none while the store is gone; from any thread."""
        try:
            found = self._meshes.gauges()
        except StoreGone:  # in the log since it was first found
            self.instruments.set(STORE_GONE, 1.0)
            return []
        self.instruments.set(STORE_GONE, 0.0)
        return [one for one in found if one.mesh == self.mesh]

    async def close(self) -> None:
        """End what is under way, tell what waits (``notify.drain_seconds``), close the store."""
        self._closing = True
        self.newest.end()
        await asyncio.gather(*self._pushes, return_exceptions=True)
        if self._notifier is not None:
            await self._notifier.close()
        self._thread.shutdown()
        self._store.close()

    async def _pushed(self, snapshot: MeshSnapshot) -> bytes:
        began = time.perf_counter()
        judged = await asyncio.get_running_loop().run_in_executor(self._thread, self._counted, snapshot)
        if judged.verdict is None:
            return judged.document
        message, before = verdict_message(judged.document), self.newest.verdict
        if before is None or before.status != message.status:
            log.info("mesh %s: %s as of %s", self.mesh, message.status, _time(message))
        self.newest.put(message)
        self.instruments.count(PREDICTIONS, model_version=judged.verdict.model_digest, status=message.status)
        self.instruments.observe(STAGE, time.perf_counter() - began, stage="total")
        if self._notifier is not None:
            self._notifier.accept_verdict(self.mesh, judged.verdict, notifier.utc_now())
        return judged.document

    def _counted(self, snapshot: MeshSnapshot) -> SessionAnswer:
        try:
            return self._step(snapshot)
        # Somebody else wrote, or what was damaged has been set aside: what is held here is of the past.
        except (StoreConflict, CorruptState):
            self._meshes.evict(self.mesh)
            return self._step(snapshot)

    def _step(self, snapshot: MeshSnapshot) -> SessionAnswer:
        known = self._meshes.get(self.mesh)
        newest = known.mesh.state.observed_at
        if newest is not None and snapshot.observed_at <= newest:
            return SessionAnswer(self._meshes.repeat_verdict(self.mesh, snapshot, newest.isoformat()))
        verdict, after = advance(self._checkpoint, known.mesh, snapshot, self._options)
        document = encode_verdict(verdict).model_dump_json().encode()
        kept = self._meshes.append(
            self.mesh,
            CachedMesh(after, known.revision),
            snapshot,
            pack_snapshot(snapshot),
            Record(snapshot.num_nodes, document),
            keep=self._options.window_size,
        )
        self._meshes.cache(self.mesh, kept)
        return SessionAnswer(document, verdict)

    def _found(self) -> bytes | None:
        """JSON of the newest verdict, with its state in memory; one that is damaged is set aside, as the log says."""
        try:
            stored = self._meshes.load_stored(self.mesh)
            known = self._meshes.refresh(stored)
        except (UnknownMesh, CorruptState):
            return None
        self._meshes.cache(self.mesh, known)
        return Record.unpack(stored.verdict).document if known.revision else None


def _time(verdict: verdicts_pb2.Verdict) -> str:
    said: str = verdict.observed_at.ToJsonString()
    return said
