"""Scorer: parts of any mesh in, scores out. It is pure: any replica can score any part, and repeats are safe."""

import asyncio
import heapq
import logging
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

import torch

from kernels import backend
from model.checkpoint import Checkpoint
from model.mesh_weights import Weights, load_weights
from model.network.contract import MeshNetwork
from model.scoring.joining import score_joined
from model.scoring.score import PartitionTask, score
from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot
from serve_app.api.schemas.models import ModelPin
from serve_app.deployments.scoring.gpu import measure_memory
from serve_app.deployments.scoring.groups import Group, Outcome, ScoredGroup, Scores, WaitingGroup
from serve_app.deployments.scoring.messages import ScorerInfo
from serve_app.deployments.scoring.passes import observe_pass
from serve_app.deployments.scoring.queue import GroupQueue
from serve_app.metrics import BATCH_GROUPS, BATCHES, PARTS_SCORED
from serve_app.models.loader import LONGEST_LOAD_SECONDS, open_loader
from serve_app.observability.spans import span
from serve_app.pipeline import Mesh, Options, prepare
from serve_app.runtime import devices, replica
from serve_app.runtime.deadline import Deadline
from serve_app.runtime.replica import open_instruments
from serve_app.runtime.reporting import start_reporting
from serve_app.settings import Settings

LOG = logging.getLogger(__name__)
LOADING_SHARE = 0.5  # of the time left, for which a group waits for its weights at most


class Scorer:
    """One scoring process; batches groups of parts across meshes.

    Args:
        settings: its ``model`` and ``scorer``.
        device: ``auto``, ``cpu`` or ``cuda``; with ``auto`` a GPU that Ray has given to this process, if it works.

    Raises:
        NoCapacity: ``cuda`` is configured, and this process has no GPU that works.
        BadSettings: the registry of models cannot be opened.
        IncompatibleWeights: not even the shipped weights can be read.
    """

    def __init__(self, settings: Settings, device: str) -> None:
        start_reporting(settings, "scorer")
        torch.set_num_threads(settings.model.threads)
        self._settings = settings.scorer
        # Always the same thread: OpenMP keeps a pool for each thread that calls it.
        self._thread = ThreadPoolExecutor(1, "score")
        is_promised = device == "auto" and replica.has_gpu()
        chosen = devices.choose_device(device, settings.scorer.num_gpus, is_promised=is_promised)
        self._weights, chosen = devices.place_weights(device, chosen, partial(self._load_weights, settings))
        self._device = chosen.torch
        self._checkpoint = self._weights.default
        self._probe = probe(self._checkpoint)
        self._replica = replica.name()
        self._instruments = open_instruments()
        devices.report(chosen, self._instruments)
        self._queue = GroupQueue(self._device.type, self._score_batch, self._instruments)
        self._loader = open_loader(settings, self._device, self._instruments)

    def _load_weights(self, settings: Settings, device: torch.device) -> Weights:
        """Load the weights of the settings onto a device, and warm up before the replica is ready."""
        model = settings.model
        weights = load_weights(model.weights, settings.weights_by_mesh, device, model.network)
        self._thread.submit(score, weights.default.network, probe(weights.default)).result()
        return weights

    async def check_health(self) -> None:
        """Serve calls this every second: score a small probe."""
        with suppress(torch.OutOfMemoryError):  # the CPU scores meanwhile
            await self._in_thread(score, self._checkpoint.network, self._probe)

    async def info(self) -> ScorerInfo:
        """The device, kernels and weights of this replica."""
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
        """Score a group of parts of a mesh, in one pass with other groups that wait.

        Args:
            deadline: after which they are not scored.
            trace: ``traceparent`` of the caller.
            pin: model of the mesh, which is loaded if it is not in memory; None: the weights of the settings.
            in_shadow: whether no one waits for it.

        Raises:
            DeadlineExceeded: they cannot be scored by the deadline.
            UnknownModel, RegistryGone, IncompatibleWeights: the model cannot be loaded, or not soon.
        """
        checkpoint = self._weights.of(mesh) if pin is None else await self._load_model(pin, deadline)
        waiting = WaitingGroup(group, deadline, time.monotonic(), checkpoint, in_shadow)
        with span("scorer.score", trace, parts=len(group), work=waiting.work) as recorded:
            scored = await self._queue.score(waiting)
            recorded.set(replica=self._replica, pass_seconds=scored.seconds)
        self._instruments.count(PARTS_SCORED, len(group), scorer=self._replica)
        return scored

    async def _load_model(self, pin: ModelPin, deadline: Deadline) -> Checkpoint:
        """The weights of a version. If they are late, the caller learns it while it can still score in time."""
        seconds = min(LONGEST_LOAD_SECONDS, LOADING_SHARE * deadline.remaining_seconds)
        return await self._loader.load(pin, seconds)

    async def _score_batch(self, batch: Sequence[WaitingGroup]) -> list[Outcome]:
        """One outcome for each group. Errors are returned, since raising one would fail the whole batch."""
        self._instruments.count(BATCHES)
        self._instruments.count(BATCH_GROUPS, len(batch))
        outcomes: dict[WaitingGroup, Outcome] = {}
        checkpoints = {waiting.checkpoint.digest: waiting.checkpoint for waiting in batch}
        for checkpoint in checkpoints.values():  # one pass for each
            together = [one for one in batch if one.checkpoint.digest == checkpoint.digest]
            outcomes |= await self._score_together(checkpoint, together)
        return [outcomes[waiting] for waiting in batch]

    async def _score_together(
        self, checkpoint: Checkpoint, batch: Sequence[WaitingGroup]
    ) -> dict[WaitingGroup, Outcome]:
        """Score groups of meshes with the same weights in one pass."""
        groups = [waiting.group for waiting in batch]
        started = time.perf_counter()
        outcomes = await self._in_thread(score_groups, checkpoint.network, groups)
        if self._device.type == "cuda":
            outcomes = await self._in_thread(self._repeat_on_cpu, checkpoint.network, groups, outcomes)
        seconds = time.perf_counter() - started
        observe_pass(self._instruments, [task for group in groups for task in group], seconds, checkpoint.digest)
        measure_memory(self._device, self._instruments)
        work = sum(waiting.work for waiting in batch)
        self._queue.times = self._queue.times.finish(work, seconds)
        digest = checkpoint.digest
        return {
            waiting: one if isinstance(one, Exception) else ScoredGroup(self._replica, digest, one, seconds)
            for waiting, one in zip(batch, outcomes, strict=True)
        }

    def _repeat_on_cpu(
        self, network: MeshNetwork, groups: Sequence[Group], outcomes: Sequence[Scores | Exception]
    ) -> list[Scores | Exception]:
        """Score the groups that failed on the GPU, each alone, on the CPU."""
        return [
            devices.score_on_cpu(partial(_score_group, group=group), network, outcome, self._instruments)
            if isinstance(outcome, Exception)
            else outcome
            for group, outcome in zip(groups, outcomes, strict=True)
        ]

    async def _in_thread(self, function: Any, *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)


def balance(tasks: Sequence[PartitionTask], count: int) -> list[Group]:
    """At most ``count`` groups of about equally many calls: the largest part first, each to the lightest group
    (Graham's LPT rule, within 4/3 of the best)."""
    groups: list[list[PartitionTask]] = [[] for _ in range(min(count, len(tasks)))]
    lightest = [(0, g) for g in range(len(groups))]
    for task in sorted(tasks, key=lambda t: (-len(t.edges), t.part)):
        load, g = lightest[0]
        groups[g].append(task)
        # A part without calls still costs its services.
        heapq.heapreplace(lightest, (load + len(task.edges) + 1, g))
    return [tuple(group) for group in groups]


def score_groups(network: MeshNetwork, groups: Sequence[Group]) -> list[Scores | Exception]:
    """Score all groups in one pass. If that fails, score each half alone: it needs less memory, and in the end a bad
    group affects no other."""
    if not groups:
        return []
    scores = _score_together(network, groups)
    if not isinstance(scores, Exception):
        return scores
    if len(groups) == 1:
        return [scores]
    LOG.warning("a pass over %d groups of parts failed, so each half is scored alone: %s", len(groups), scores)
    middle = len(groups) // 2
    return [*score_groups(network, groups[:middle]), *score_groups(network, groups[middle:])]


def _score_together(network: MeshNetwork, groups: Sequence[Group]) -> list[Scores | Exception] | Exception:
    try:
        scores = iter(score_joined(network, [task for group in groups for task in group]))
        return [tuple(next(scores) for _ in group) for group in groups]
    except Exception as error:
        traceback.clear_frames(error.__traceback__)  # they hold the tensors of this pass, while the next needs memory
        return error


def _score_group(network: MeshNetwork, group: Group) -> Scores:
    return tuple(score_joined(network, group))


def probe(checkpoint: Checkpoint) -> Group:
    """The smallest mesh with a call, ready to be scored."""
    snapshot = MeshSnapshot.create(
        node_ids=["probe/a", "probe/b"],
        edge_index=[[0], [1]],
        node_features=[[1.0] * len(NODE_METRICS)] * 2,
        edge_features=[[1.0] * len(EDGE_METRICS)],
        observed_at=datetime.fromtimestamp(0, UTC),
    )
    return (prepare(checkpoint, Mesh(), snapshot, Options()).whole,)
