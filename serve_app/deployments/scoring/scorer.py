"""Scorer: parts of any mesh in, scores out. It is pure: any replica can score any part, and repeats are safe."""

import asyncio
import heapq
import logging
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import ray
import torch
from ray import serve

from kernels import backend
from model.checkpoint import Checkpoint
from model.mesh_weights import Weights, load_weights
from model.network.contract import MeshNetwork
from model.scoring.score import PartitionScore, PartitionTask, score
from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot
from serve_app.api.schemas.models import ModelPin
from serve_app.deployments.scaling import LastUse
from serve_app.deployments.scoring.batching import Load, batch_limits
from serve_app.deployments.scoring.gpu import measure_memory, watch_gpu
from serve_app.deployments.scoring.messages import ScorerInfo
from serve_app.deployments.scoring.passes import observe_pass
from serve_app.errors import DeadlineExceeded
from serve_app.metrics import BATCH_SIZE, BATCH_WAIT, GROUPS_WAITING, PARTS_SCORED
from serve_app.models.loader import LONGEST_LOAD_SECONDS, checkpoint_of
from serve_app.models.opening import open_loader
from serve_app.observability.spans import clear, span
from serve_app.pipeline import Mesh, Options, prepare
from serve_app.runtime import devices
from serve_app.runtime.deadline import Deadline
from serve_app.runtime.instruments import RayInstruments
from serve_app.runtime.reporting import start_reporting
from serve_app.settings import Settings

LOG = logging.getLogger(__name__)
LOADING_SHARE = 0.5  # of the time left, for which a group waits for its weights at most
SLACK_SECONDS = 0.1  # by which a group of normal priority lets more urgent ones pass
Group = tuple[PartitionTask, ...]
Scores = tuple[PartitionScore, ...]


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """The scores of one group of parts.

    Attributes:
        replica: that scored it.
        model: digest of the weights it was scored with.
        scores: of its parts, in order.
        seconds: duration of the pass that scored it, with other groups.
        cost: duration of a pass for it alone, s.
    """

    replica: str
    model: str
    scores: Scores
    seconds: float
    cost: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class WaitingGroup:
    """A group that waits for its pass.

    Attributes:
        group: its parts.
        deadline: after which it is not scored.
        arrived_at: of the monotonic clock, s.
        checkpoint: the weights of its mesh.
        weight: of the priority of its mesh.
        outcome: its scores, or the error, when it had its pass; None: no one waits.
    """

    group: Group
    deadline: Deadline
    arrived_at: float
    checkpoint: Checkpoint
    weight: float = 1.0
    outcome: asyncio.Future[ScoredGroup | Exception] | None = None

    @property
    def due(self) -> float:
        """When it should have its pass; the earliest goes first. So a mesh of high priority overtakes others, and one
        of low priority waits for later ones only for a while."""
        return self.arrived_at + SLACK_SECONDS / self.weight


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
        is_promised = device == "auto" and bool(ray.get_gpu_ids())
        chosen = devices.choose_device(device, settings.scorer.num_gpus, is_promised=is_promised)
        self._weights, chosen = devices.place_weights(device, chosen, partial(self._load_weights, settings))
        self._device = chosen.torch
        self._checkpoint = self._weights.default
        self._probe = probe(self._checkpoint)
        self._replica: str = serve.get_replica_context().replica_id.unique_id
        self._instruments = RayInstruments()
        devices.report(chosen, self._instruments)
        self._gpu = watch_gpu(self._device, self._instruments)
        self._load, self._batch_size = Load(), settings.scorer.max_batch_size
        self._loader = open_loader(settings, self._device, self._instruments)
        self._use = LastUse(settings.scorer.idle_seconds)
        self._waiting: set[WaitingGroup] = set()
        self._turns: set[asyncio.Future[None]] = set()  # the event loop holds tasks only weakly
        self._batched = serve.batch(
            self._take_turns, max_batch_size=settings.scorer.max_batch_size, batch_wait_timeout_s=0.0
        )

    def _load_weights(self, settings: Settings, device: torch.device) -> Weights:
        """Load the weights of the settings onto a device, and warm up before the replica is ready."""
        model = settings.model
        weights = load_weights(model.weights, settings.weights_by_mesh, device, model.network)
        self._thread.submit(score, weights.default.network, probe(weights.default)).result()
        return weights

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Serve calls this periodically if it starts the scorers on demand: whether this one is in use."""
        return self._use.report()

    async def check_health(self) -> None:
        """Serve calls this every second: score a small probe, and look at the GPU."""
        with suppress(torch.OutOfMemoryError):  # the CPU scores meanwhile
            await self._in_thread(score, self._checkpoint.network, self._probe)
        await asyncio.to_thread(self._gpu.observe)

    async def info(self) -> ScorerInfo:
        """The device, kernels and weights of this replica."""
        kind = self._device.type
        return ScorerInfo(kind, backend(kind), self._checkpoint.digest, self._weights.refused, self._gpu.headroom)

    async def score(
        self,
        group: Group,
        deadline: Deadline,
        mesh: str,
        trace: str = "",
        pin: ModelPin | None = None,
        weight: float = 1.0,
    ) -> ScoredGroup:
        """Score a group of parts of a mesh, in one pass with other groups that wait.

        Args:
            group: the parts.
            deadline: after which they are not scored.
            mesh: name.
            trace: ``traceparent`` of the caller.
            pin: model of the mesh, which is loaded if it is not in memory; None: the weights of the settings.
            weight: of the priority of the mesh. More urgent groups go first.

        Raises:
            DeadlineExceeded: its turn came after the deadline.
            UnknownModel, RegistryGone, IncompatibleWeights: the model cannot be loaded, or not soon.
        """
        self._use.note()
        checkpoint = self._weights.of(mesh) if pin is None else await self._load_model(pin, weight, deadline)
        outcome_of: asyncio.Future[ScoredGroup | Exception] = asyncio.get_running_loop().create_future()
        request = WaitingGroup(group, deadline, time.monotonic(), checkpoint, weight, outcome_of)
        self._load = self._load.arrive(request.arrived_at, _work(group))
        self._follow_load()
        try:
            self._set_waiting(self._waiting | {request})
            with span("scorer.score", trace, parts=len(group), work=_work(group)) as recorded:
                self._ask_for_a_turn(outcome_of)
                outcome = await outcome_of
                if isinstance(outcome, Exception):
                    raise outcome
                recorded.set(replica=self._replica, pass_seconds=outcome.seconds)
        finally:  # even if the caller is gone
            self._set_waiting(self._waiting - {request})
        self._instruments.count(PARTS_SCORED, len(group), scorer=self._replica)
        return outcome

    async def _load_model(self, pin: ModelPin, weight: float, deadline: Deadline) -> Checkpoint:
        """The weights of a version. If they are late, the caller learns it while it can still score in time."""
        seconds = min(LONGEST_LOAD_SECONDS, LOADING_SHARE * deadline.remaining_seconds)
        return await checkpoint_of(pin, self._loader, weight, seconds)

    def _ask_for_a_turn(self, outcome: asyncio.Future[ScoredGroup | Exception]) -> None:
        """Ask for one more place in a batch. It may go to a more urgent group; then the turn of that one is left, so
        a turn is never taken back."""

        def fail(turn: asyncio.Future[None]) -> None:
            self._turns.discard(turn)
            error = None if turn.cancelled() else turn.exception()
            if error is not None and not outcome.done():
                outcome.set_exception(error)

        turn: asyncio.Future[None] = asyncio.ensure_future(self._batched(None))
        self._turns.add(turn)
        turn.add_done_callback(fail)

    async def _take_turns(self, turns: list[None]) -> list[None]:
        """Score as many groups as have a turn, the most urgent ones."""
        clear()  # the task of all batches was started by the first request
        chosen = sorted(self._waiting, key=lambda one: one.due)[: len(turns)]
        if not chosen:  # their callers are gone
            return turns
        self._set_waiting(self._waiting - set(chosen))
        outcomes: list[ScoredGroup | Exception]
        try:
            outcomes = await self._score_batch(chosen)
        except Exception as error:
            outcomes = [error for _ in chosen]
        for request, outcome in zip(chosen, outcomes, strict=True):
            if request.outcome is not None and not request.outcome.done():
                request.outcome.set_result(outcome)
        return turns

    async def _score_batch(self, requests: list[WaitingGroup]) -> list[ScoredGroup | Exception]:
        """One outcome for each request. Errors are returned, since raising one would fail the whole batch."""
        for request in requests:
            self._instruments.observe(BATCH_WAIT, time.monotonic() - request.arrived_at)
        in_time = [request.deadline.remaining_seconds > 0 for request in requests]
        live = [request for request, alive in zip(requests, in_time, strict=True) if alive]
        results: dict[WaitingGroup, ScoredGroup | Exception] = {}
        for checkpoint in {one.checkpoint.digest: one.checkpoint for one in live}.values():  # one pass for each weights
            together = [one for one in live if one.checkpoint.digest == checkpoint.digest]
            results |= await self._score_together(checkpoint, together)
        self._instruments.observe(BATCH_SIZE, len(live))
        return [results.get(request, _late()) for request in requests]

    async def _score_together(
        self, checkpoint: Checkpoint, requests: list[WaitingGroup]
    ) -> dict[WaitingGroup, ScoredGroup | Exception]:
        """Score groups of meshes with the same weights in one pass."""
        groups = [request.group for request in requests]
        started = time.perf_counter()
        outcomes = await self._in_thread(score_groups, checkpoint.network, groups)
        if self._device.type == "cuda":
            outcomes = await self._in_thread(self._repeat_on_cpu, checkpoint.network, groups, outcomes)
        seconds = time.perf_counter() - started
        observe_pass(self._instruments, [task for group in groups for task in group], seconds, checkpoint.digest)
        measure_memory(self._device, self._instruments)
        work = sum(map(_work, groups))
        self._load = self._load.finish(work, seconds)

        def outcome_of(group: Group, scores: Scores) -> ScoredGroup:
            cost = self._load.cost(_work(group), work, seconds)
            return ScoredGroup(self._replica, checkpoint.digest, scores, seconds, cost)

        return {
            request: one if isinstance(one, Exception) else outcome_of(request.group, one)
            for request, one in zip(requests, outcomes, strict=True)
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

    def _follow_load(self) -> None:
        """Set wait and size of the next batch."""
        chosen = self._settings
        wait, size = batch_limits(
            self._load, chosen.latency_target_ms / 1000, chosen.batch_wait_seconds, chosen.max_batch_size
        )
        self._batched.set_batch_wait_timeout_s(wait)
        if size != self._batch_size:
            self._batched.set_max_batch_size(size)
            self._batch_size = size

    def _set_waiting(self, requests: set[WaitingGroup]) -> None:
        self._waiting = requests
        self._instruments.set(GROUPS_WAITING, len(requests))

    async def _in_thread(self, function: Any, *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)


def _work(group: Group) -> int:
    """Services and calls of a group."""
    return sum(len(task.nodes) + len(task.edges) for task in group)


def _late() -> DeadlineExceeded:
    return DeadlineExceeded("Scorer: the parts waited past their deadline; add replicas, or send fewer snapshots")


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
        scores = iter(score(network, [task for group in groups for task in group]))
        return [tuple(next(scores) for _ in group) for group in groups]
    except Exception as error:
        traceback.clear_frames(error.__traceback__)  # they hold the tensors of this pass, while the next needs memory
        return error


def _score_group(network: MeshNetwork, group: Group) -> Scores:
    return tuple(score(network, group))


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
