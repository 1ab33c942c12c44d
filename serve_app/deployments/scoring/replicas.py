"""Scores snapshots on other replicas: scorers score parts, the meta-model scores calls between parts, and threads do
the rest."""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from model.incidents.memory import IncidentMemory
from model.incidents.policy import AlertPolicy
from model.scoring.score import PartitionScore, PartitionTask
from model.verdict import Verdict
from serve_app.deployments.scoring.messages import RunnerPlace, ScorerInfo
from serve_app.deployments.scoring.passes import score_groups
from serve_app.deployments.scoring.queue import Group, ScoredGroup
from serve_app.deployments.scoring.runner import SnapshotRunner
from serve_app.errors import DeadlineExceeded, NoCapacity, Overloaded
from serve_app.models.loader import NOT_LOADED
from serve_app.models.served import ServedModel
from serve_app.observability.spans import traceparent
from serve_app.pipeline import DECIDE, PREPARE, SCORE, MetaInput, PreparedSnapshot, cut_tasks, decide
from serve_app.runtime.rpc import Caller, Deadline, Handle, P, T

if TYPE_CHECKING:
    from serve_app.deployments.scoring.meta import MetaModel
    from serve_app.deployments.scoring.scorer import Scorer

SCORING_SHARE = 0.8  # of the remaining time; later parts are left out, so that the verdict is in time
DECIDING_SHARE = 0.8  # of the then remaining time
HERE = "session"  # replica name for a group that no scorer could score
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReplicaBackend:
    """Scores on replicas; see :class:`~serve_app.deployments.scoring.in_session.SessionBackend`.

    Attributes:
        groups: groups of parts, each scored with one call.
    """

    scorer: Handle[Scorer]
    meta: Handle[MetaModel]
    groups: int

    def runner(self, mesh: str, deadline: Deadline, model: ServedModel, *, in_shadow: bool = False) -> ReplicaRunner:
        return ReplicaRunner(self, mesh, deadline, model, in_shadow=in_shadow)

    async def check(self) -> None:
        """Serve checks the replicas itself."""

    async def info(self, caller: Caller) -> ScorerInfo:
        info, _ = await asyncio.gather(caller.ask(self.scorer.info), caller.ask(self.meta.digest))
        return info


class ReplicaRunner(SnapshotRunner):
    """A runner that calls replicas.

    Args:
        in_shadow: whether no one waits for it.
    """

    place: ClassVar[RunnerPlace] = "replicas"

    def __init__(
        self, replicas: ReplicaBackend, mesh: str, deadline: Deadline, model: ServedModel, *, in_shadow: bool = False
    ) -> None:
        super().__init__(mesh, deadline, model.checkpoint)
        self._replicas, self._pin, self._in_shadow = replicas, model.pin, in_shadow

    async def run_all(self, stages: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return await stages()

    async def run(self, stage: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in a thread.

        Raises:
            DeadlineExceeded: no time is left.
        """
        self.require_time()
        with self.measure(stage, function):
            return await asyncio.to_thread(function, *args, **kwargs)

    async def score(self, prepared: PreparedSnapshot) -> Sequence[PartitionScore]:
        """Let the scorers score the parts. A part that is not scored in time is left out of the answer.

        Raises:
            Overloaded: the scorers' queue is full.
        """
        tasks = await self.run(PREPARE, cut_tasks, prepared)
        with self.measure(SCORE):
            caller = Caller(self.deadline.take_share(SCORING_SHARE), self.retries)
            groups = balance(tasks, self._replicas.groups)
            answers = await asyncio.gather(*(self._ask(caller, group) for group in groups), return_exceptions=True)
            outcomes = [_outcome(answer) for answer in answers]
            outcomes = await asyncio.gather(*map(self._score_again, groups, outcomes))
        return self.accept_scores(len(tasks), outcomes)

    async def decide(self, meta_input: MetaInput, policy: AlertPolicy) -> tuple[Verdict, IncidentMemory]:
        """Decide here about a mesh with one part, since a call takes longer than the decision. Otherwise, the
        meta-model decides; if no replica answers in time, or it has other weights, decide here."""
        if meta_input.parts == 1:
            return await self.run(DECIDE, decide, self.checkpoint, meta_input, policy)
        with self.measure(DECIDE):
            try:
                caller = Caller(self.deadline.take_share(DECIDING_SHARE), self.retries)
                ask, mesh = self._replicas.meta.decide, self.mesh
                decision = await caller.ask(ask, meta_input, policy, mesh, traceparent(), self._pin)
                if decision[0].model_digest == self.checkpoint.digest:
                    return decision
                reason = f"it has other weights, {decision[0].model_digest}"
            except (NoCapacity, DeadlineExceeded, *NOT_LOADED) as error:
                reason = f"it does not answer: {error}"
            log.warning("mesh %s: the session decides in place of the meta-model: %s", self.mesh, reason)
            return await asyncio.to_thread(decide, self.checkpoint, meta_input, policy)

    async def _ask(self, caller: Caller, group: Group) -> ScoredGroup:
        ask, mesh = self._replicas.scorer.score, self.mesh
        return await caller.ask(ask, group, caller.deadline, mesh, traceparent(), self._pin, self._in_shadow)

    async def _score_again(self, group: Group, outcome: ScoredGroup | Exception) -> ScoredGroup | Exception:
        """Return a group's scores. If its scorer has other weights, as during a rollout of settings, or cannot load the
        group's weights, score it here."""
        checkpoint, replica = self.checkpoint, HERE
        if isinstance(outcome, NOT_LOADED):
            log.warning("mesh %s: the session scores in place of a scorer: %s", self.mesh, outcome)
        elif isinstance(outcome, Exception) or outcome.model == checkpoint.digest:
            return outcome
        else:
            replica = outcome.replica
            log.warning(
                "mesh %s: the session scores in place of scorer %s, which has other weights, %s",
                self.mesh,
                replica,
                outcome.model,
            )
        start = time.perf_counter()
        (scores,) = await asyncio.to_thread(score_groups, checkpoint.network, [group])
        if isinstance(scores, Exception):
            return scores
        return ScoredGroup(replica, checkpoint.digest, scores, time.perf_counter() - start)


def _outcome(answer: ScoredGroup | BaseException) -> ScoredGroup | Exception:
    if isinstance(answer, Overloaded) or (isinstance(answer, BaseException) and not isinstance(answer, Exception)):
        raise answer
    return answer


def balance(tasks: Sequence[PartitionTask], count: int) -> list[Group]:
    """At most ``count`` groups with about the same number of calls: the largest part first, each to the lightest group
    (Graham's LPT rule, within 4/3 of the optimum)."""
    groups: list[list[PartitionTask]] = [[] for _ in range(min(count, len(tasks)))]
    lightest = [(0, i) for i in range(len(groups))]
    for task in sorted(tasks, key=lambda task: (-len(task.edges), task.part)):
        load, i = lightest[0]
        groups[i].append(task)
        # A part without calls still has services to score.
        heapq.heapreplace(lightest, (load + len(task.edges) + 1, i))
    return [tuple(group) for group in groups]
