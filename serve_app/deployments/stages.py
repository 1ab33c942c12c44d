"""Runs the stages of one snapshot of a session: scoring on other replicas, deciding too where there are several parts,
and the rest in threads here."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

from model.checkpoint import Checkpoint
from model.incidents.tracking import AlertPolicy, IncidentMemory
from model.scoring.score import PartitionScore, PartitionTask
from model.verdict import Verdict
from serve_app.deployments.messages import SnapshotAnswer
from serve_app.deployments.rpc import RETRY_AFTER_SECONDS, Caller, Handle, P, T, remaining_seconds
from serve_app.deployments.scorer import Scored, Scorer, balance
from serve_app.errors import DeadlineExceeded, NoCapacity, Overloaded, ServeError
from serve_app.pipeline import DECIDE, SCORE, MetaInput, decide

if TYPE_CHECKING:
    from serve_app.deployments.meta import MetaModel

SCORING_SHARE = 0.8  # of the time left; parts without an answer by then are left out, so that the verdict is in time
DECIDING_SHARE = 0.8  # of the time left then
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Replicas:
    """Where stages can run.

    Attributes:
        checkpoint: the weights of the session.
        scorer: handle.
        meta: handle.
        groups: of parts, scored with one call each.
    """

    checkpoint: Checkpoint
    scorer: Handle[Scorer]
    meta: Handle[MetaModel]
    groups: int


class RemoteRunner:
    """A :class:`~serve_app.pipeline.StageRunner` with a deadline.

    Args:
        replicas: where stages can run.
        mesh: name, for messages.
        expires_at: deadline, Unix time.

    Attributes:
        seconds: duration of each stage.
        missing_parts: number of parts without a score.
    """

    def __init__(self, replicas: Replicas, mesh: str, expires_at: float) -> None:
        self._replicas, self._mesh, self._expires_at = replicas, mesh, expires_at
        self._scored: list[Scored] = []
        self._retries: Counter[str] = Counter()
        self.seconds: dict[str, float] = {}
        self.missing_parts = 0

    async def run(self, stage: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in a thread.

        Raises:
            DeadlineExceeded: no time is left.
        """
        self._require_time()
        with self._measure(stage):
            return await asyncio.to_thread(function, *args, **kwargs)

    async def score(self, tasks: Sequence[PartitionTask]) -> Sequence[PartitionScore]:
        """Have the parts scored by the scorers. A part that is not scored in time is left out of the answer.

        Raises:
            Overloaded: the queue of the scorers is full.
        """
        with self._measure(SCORE):
            caller = Caller(self._share_of_time(SCORING_SHARE), self._retries)
            groups = balance(tasks, self._replicas.groups)
            calls = (caller.ask(self._replicas.scorer.score, group, caller.expires_at) for group in groups)
            answers = await asyncio.gather(*calls, return_exceptions=True)
            self._scored = [answer for answer in answers if self._is_usable(answer)]
        scores = sorted((score for answer in self._scored for score in answer.scores), key=lambda score: score.part)
        self.missing_parts = len(tasks) - len(scores)
        return scores

    async def decide(self, meta_input: MetaInput, policy: AlertPolicy) -> tuple[Verdict, IncidentMemory]:
        """Decide here if no call crosses parts, since a call of a replica takes longer than to decide. Else have the
        meta-model decide; if none of its replicas answers in time, decide here with the same weights."""
        if meta_input.crossing is None:
            return await self.run(DECIDE, decide, self._replicas.checkpoint, meta_input, policy)
        with self._measure(DECIDE):
            try:
                caller = Caller(self._share_of_time(DECIDING_SHARE), self._retries)
                return await caller.ask(self._replicas.meta.decide, meta_input, policy)
            except (NoCapacity, DeadlineExceeded) as error:
                log.warning("mesh %s: the session decides, since the meta-model does not answer: %s", self._mesh, error)
                return await asyncio.to_thread(decide, self._replicas.checkpoint, meta_input, policy)

    def answer(self, document: bytes, verdict: Verdict) -> SnapshotAnswer:
        """The answer to the ingress."""
        parts: Counter[str] = Counter()
        for answer in self._scored:
            parts[answer.replica] += len(answer.scores)
        inference = max((answer.seconds for answer in self._scored), default=0.0)
        return SnapshotAnswer(
            document,
            verdict.status.value,
            verdict.model_digest,
            {**self.seconds, "inference": inference},
            dict(parts),
            self.missing_parts,
            dict(self._retries),
        )

    def _is_usable(self, answer: Scored | BaseException) -> TypeGuard[Scored]:
        if isinstance(answer, Overloaded):
            raise answer
        if isinstance(answer, Exception):
            is_unknown = not isinstance(answer, ServeError)
            log.warning("mesh %s: a group of parts was not scored: %s", self._mesh, answer, exc_info=is_unknown)
            return False
        if isinstance(answer, BaseException):
            raise answer
        if answer.model != self._replicas.checkpoint.digest:
            log.error(
                "mesh %s: left out a group of parts, since scorer %s has other weights, %s",
                self._mesh,
                answer.replica,
                answer.model,
            )
            return False
        return True

    def _share_of_time(self, share: float) -> float:
        return time.time() + share * remaining_seconds(self._expires_at)

    def _require_time(self) -> None:
        if remaining_seconds(self._expires_at) <= 0:
            raise DeadlineExceeded(
                f"mesh {self._mesh!r}: the deadline passed before the verdict was ready; nothing was changed; try "
                "again, or raise serve.deadline_seconds",
                retry_after_seconds=RETRY_AFTER_SECONDS,
                stored="no",
            )

    @contextmanager
    def _measure(self, stage: str) -> Iterator[None]:
        """Add the duration of the block to the stage."""
        started = time.perf_counter()
        yield
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - started
