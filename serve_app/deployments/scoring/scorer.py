"""Scorer: parts of any mesh in, scores out. It is pure: any replica can score any part, and repeats are safe."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import torch

from kernels import backend
from model.checkpoint import Checkpoint
from model.mesh_weights import Weights, load_weights
from model.network.contract import MeshNetwork
from model.scoring.score import score
from serve_app.api.schemas.models import ModelPin
from serve_app.deployments.scoring.messages import ScorerInfo
from serve_app.deployments.scoring.passes import measure_memory, observe_pass, probe, score_group, score_groups
from serve_app.deployments.scoring.queue import Group, GroupQueue, Outcome, ScoredGroup, Scores, WaitingGroup
from serve_app.metrics import BATCH_GROUPS, BATCHES, PARTS_SCORED
from serve_app.models.loader import MAX_WAIT_SECONDS, open_loader
from serve_app.observability.spans import span
from serve_app.runtime import devices, replica
from serve_app.runtime.replica import open_instruments
from serve_app.runtime.reporting import start_reporting
from serve_app.runtime.rpc import Deadline
from serve_app.settings import Settings
from serve_app.settings.scorer import CPU_BATCH, GPU_BATCH

MAX_GROUPS = {"cpu": CPU_BATCH, "cuda": GPU_BATCH}  # in a pass, by device
LOADING_SHARE = 0.5  # maximum share of the remaining time that a group waits for its weights


class Scorer:
    """One scoring process; batches groups of parts across meshes.

    Args:
        settings: ``model`` and ``scorer`` are used.
        device: ``auto``, ``cpu`` or ``cuda``; ``auto`` uses the GPU that Ray has given to this process, if it works.

    Raises:
        NoCapacity: ``cuda`` is configured, and this process has no working GPU.
        BadSettings: the model registry cannot be opened.
        IncompatibleWeights: not even the shipped weights can be read.
    """

    def __init__(self, settings: Settings, device: str) -> None:
        start_reporting(settings, "scorer")
        torch.set_num_threads(settings.model.threads)
        self._settings = settings.scorer
        # Always the same thread, because OpenMP keeps a pool for each calling thread.
        self._thread = ThreadPoolExecutor(1, "score")
        is_promised = device == "auto" and replica.has_gpu()
        placement = devices.choose_device(device, settings.scorer.num_gpus, is_promised=is_promised)
        self._weights, placement = devices.place_weights(device, placement, partial(self._load_weights, settings))
        self._placement, self._device = placement, placement.torch
        self._checkpoint = self._weights.default
        self._probe = probe(self._checkpoint)
        self._replica = replica.name()
        self._instruments = open_instruments()
        self._queue = GroupQueue(MAX_GROUPS[self._device.type], self._score_batch, self._instruments)
        self._loader = open_loader(settings, self._device, self._instruments)

    def _load_weights(self, settings: Settings, device: torch.device) -> Weights:
        """Load the configured weights onto a device, and warm up before the replica is ready."""
        model = settings.model
        weights = load_weights(model.weights, settings.weights_by_mesh, device, model.network)
        self._thread.submit(score, weights.default.network, probe(weights.default)).result()
        return weights

    async def check_health(self) -> None:
        """Serve calls this every second: set the gauges, and score a small probe."""
        devices.report(self._placement, self._instruments)
        self._loader.measure()
        self._queue.measure()
        with suppress(torch.OutOfMemoryError):  # the CPU scores meanwhile
            await self._in_thread(score, self._checkpoint.network, self._probe)

    async def info(self) -> ScorerInfo:
        """This replica's device, kernels and weights."""
        kind = self._device.type
        return ScorerInfo(kind, backend(kind), self._checkpoint.digest, self._weights.refused)

    async def score(
        self,
        group: Group,
        deadline: Deadline,
        mesh: str,
        trace: str = "",
        pin: ModelPin | None = None,
        in_shadow: bool = False,
    ) -> ScoredGroup:
        """Score a group of a mesh's parts, in one pass with other waiting groups.

        Args:
            deadline: they are not scored after this.
            trace: the caller's ``traceparent``.
            pin: the mesh's model, which is loaded if it is not in memory; None: the configured weights.
            in_shadow: whether no one waits for it.

        Raises:
            DeadlineExceeded: they cannot be scored by the deadline.
            UnknownModel, RegistryGone, IncompatibleWeights: the model cannot be loaded soon.
        """
        checkpoint = self._weights.of(mesh) if pin is None else await self._load_model(pin, deadline)
        waiting = WaitingGroup(group, deadline, checkpoint, in_shadow)
        with span("scorer.score", trace, parts=len(group)) as scorer_span:
            result = await self._queue.score(waiting)
            scorer_span.set(replica=self._replica, pass_seconds=result.seconds)
        self._instruments.count(PARTS_SCORED, len(group), scorer=self._replica)
        return result

    async def _load_model(self, pin: ModelPin, deadline: Deadline) -> Checkpoint:
        """Load a version's weights. If they are late, the caller learns this while it can still score in time."""
        seconds = min(MAX_WAIT_SECONDS, LOADING_SHARE * deadline.remaining_seconds)
        return await self._loader.load(pin, seconds)

    async def _score_batch(self, batch: Sequence[WaitingGroup]) -> list[Outcome]:
        """One outcome for each group. Errors are returned, since raising one would fail the whole batch."""
        self._instruments.count(BATCHES)
        self._instruments.count(BATCH_GROUPS, len(batch))
        outcomes: dict[WaitingGroup, Outcome] = {}
        checkpoints = {waiting.checkpoint.digest: waiting.checkpoint for waiting in batch}
        for checkpoint in checkpoints.values():  # one pass per checkpoint
            together = [waiting for waiting in batch if waiting.checkpoint.digest == checkpoint.digest]
            outcomes |= await self._score_together(checkpoint, together)
        return [outcomes[waiting] for waiting in batch]

    async def _score_together(
        self, checkpoint: Checkpoint, batch: Sequence[WaitingGroup]
    ) -> dict[WaitingGroup, Outcome]:
        groups = [waiting.group for waiting in batch]
        start = time.perf_counter()
        outcomes = await self._in_thread(score_groups, checkpoint.network, groups)
        if self._device.type == "cuda":
            outcomes = await self._in_thread(self._repeat_on_cpu, checkpoint.network, groups, outcomes)
        seconds = time.perf_counter() - start
        observe_pass(self._instruments, [task for group in groups for task in group], seconds, checkpoint.digest)
        measure_memory(self._device, self._instruments)
        digest = checkpoint.digest
        return {
            waiting: outcome if isinstance(outcome, Exception) else ScoredGroup(self._replica, digest, outcome, seconds)
            for waiting, outcome in zip(batch, outcomes, strict=True)
        }

    def _repeat_on_cpu(
        self, network: MeshNetwork, groups: Sequence[Group], outcomes: Sequence[Scores | Exception]
    ) -> list[Scores | Exception]:
        """On the CPU, score each group separately that failed on the GPU."""
        return [
            devices.score_on_cpu(partial(score_group, group=group), network, outcome, self._instruments)
            if isinstance(outcome, Exception)
            else outcome
            for group, outcome in zip(groups, outcomes, strict=True)
        ]

    async def _in_thread(self, function: Any, *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)
