"""Scores snapshots in their mesh's session: all stages run in one thread, without a copy or a call."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, ClassVar

from kernels import backend
from model.checkpoint import Checkpoint
from model.incidents.memory import IncidentMemory
from model.incidents.policy import AlertPolicy
from model.mesh_weights import Weights
from model.network.contract import MeshNetwork
from model.scoring.score import PartitionScore, score
from model.verdict import Verdict
from serve_app.deployments.scoring.messages import RunnerPlace, ScorerInfo
from serve_app.deployments.scoring.passes import observe_pass, probe, score_groups, warm_up
from serve_app.deployments.scoring.queue import ScoredGroup, Scores
from serve_app.deployments.scoring.runner import SnapshotRunner
from serve_app.metrics import PARTS_SCORED, Instruments
from serve_app.models.served import ServedModel
from serve_app.pipeline import DECIDE, SCORE, MetaInput, PreparedSnapshot, cut_tasks, decide, run_in_pool, score_whole
from serve_app.runtime.rpc import Caller, Deadline, P, T

log = logging.getLogger(__name__)


class SessionBackend:
    """Scores in this process, on its CPU. Another backend with the same methods is
    :class:`~serve_app.deployments.scoring.replicas.ReplicaBackend`.

    Snapshots of all meshes wait in one queue, in order of arrival. Each mesh has only one snapshot in progress, so that
    none takes another mesh's turn.

    Args:
        weights: the configured weights, on the CPU.
        replica: name of this replica, for metrics.
        threads: number of threads of a network pass.
    """

    def __init__(self, weights: Weights, replica: str, threads: int, instruments: Instruments) -> None:
        self.weights, self.replica, self.instruments = weights, replica, instruments
        self._checkpoint = checkpoint = weights.default
        self.pool = ThreadPoolExecutor(max(1, count_cores() // threads), "score")
        # Separate, so that shadow scoring never delays a live snapshot.
        self.spare_pool = ThreadPoolExecutor(1, "shadow")
        self._probe = probe(checkpoint)
        self.pool.submit(warm_up, checkpoint).result()  # before the replica is ready

    def runner(self, mesh: str, deadline: Deadline, model: ServedModel, *, in_shadow: bool = False) -> SessionRunner:
        """A runner for one snapshot of a mesh.

        Args:
            deadline: no stage begins after it.
            in_shadow: whether no one waits for it.
        """
        return SessionRunner(self, self.spare_pool if in_shadow else self.pool, mesh, deadline, model.checkpoint)

    async def check(self) -> None:
        """Raise an error if this process can no longer score."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self.pool, score, self._checkpoint.network, self._probe)

    async def info(self, caller: Caller) -> ScorerInfo:
        """The device and weights that score. Raises an error if they do not answer."""
        device = next(self._checkpoint.network.parameters()).device
        return ScorerInfo(device.type, backend(), self._checkpoint.digest, self.weights.refused)


class SessionRunner(SnapshotRunner):
    """A runner whose stages all run in one thread."""

    place: ClassVar[RunnerPlace] = "session"

    def __init__(
        self, backend: SessionBackend, pool: Executor, mesh: str, deadline: Deadline, checkpoint: Checkpoint
    ) -> None:
        super().__init__(mesh, deadline, checkpoint)
        self._backend, self._pool = backend, pool

    async def run_all(self, stages: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return await run_in_pool(self._pool, stages)

    async def run(self, stage: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in this thread.

        Raises:
            DeadlineExceeded: no time is left.
        """
        self.require_time()
        with self.measure(stage, function):
            return function(*args, **kwargs)

    async def score(self, prepared: PreparedSnapshot) -> Sequence[PartitionScore]:
        """Score all parts in one pass. A part that cannot be scored is left out of the answer.

        Raises:
            DeadlineExceeded: no time is left.
        """
        backend = self._backend
        start = time.perf_counter()
        outcomes = await self.run(SCORE, score_parts, self.checkpoint.network, prepared)
        seconds = time.perf_counter() - start
        model = self.checkpoint.digest
        observe_pass(backend.instruments, [prepared.whole], seconds, model)
        groups = [
            scores if isinstance(scores, Exception) else ScoredGroup(backend.replica, model, scores, seconds)
            for scores in outcomes
        ]
        scores = self.accept_scores(len(outcomes), groups)
        backend.instruments.count(PARTS_SCORED, len(scores), scorer=backend.replica)
        return scores

    async def decide(self, meta_input: MetaInput, policy: AlertPolicy) -> tuple[Verdict, IncidentMemory]:
        return await self.run(DECIDE, decide, self.checkpoint, meta_input, policy)


def score_parts(network: MeshNetwork, prepared: PreparedSnapshot) -> list[Scores | Exception]:
    """Score the parts in one pass over the uncut mesh. If that fails, score them separately, which needs less
    memory."""
    try:
        return [(part_score,) for part_score in score_whole(network, prepared)]
    except Exception as error:
        tasks = cut_tasks(prepared)
        if len(tasks) == 1:
            return [error]
        log.warning("a pass over an uncut mesh failed, so its %d parts are scored separately: %s", len(tasks), error)
        return score_groups(network, [(task,) for task in tasks])


def count_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
