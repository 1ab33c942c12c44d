"""A scorer's queue: groups of a snapshot's parts wait here, and a task takes batches of groups while there are any.

The earliest deadline comes first, and shadow groups come last, since no one waits for them. A group whose deadline has
passed is refused: its pass would only delay the others. ``serve.batch`` is first in, first out, so it can do neither.
"""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic

from model.checkpoint import Checkpoint
from model.scoring.score import PartitionScore, PartitionTask
from serve_app.errors import DeadlineExceeded
from serve_app.metrics import BATCH_WAIT, GROUPS_REFUSED, GROUPS_WAITING, Instruments
from serve_app.runtime.rpc import Deadline

Group = tuple[PartitionTask, ...]
Scores = tuple[PartitionScore, ...]


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """A group's scores.

    Attributes:
        model: digest of the weights that scored it.
        seconds: duration of the pass, which may include other groups.
    """

    replica: str
    model: str
    scores: Scores
    seconds: float


Outcome = ScoredGroup | Exception


@dataclass(frozen=True, slots=True, eq=False)
class WaitingGroup:
    """A group that waits for its pass.

    Attributes:
        deadline: it is not scored after this.
        in_shadow: whether no one waits for it.
        arrived_at: arrival time, s of the monotonic clock.
    """

    group: Group
    deadline: Deadline
    checkpoint: Checkpoint
    in_shadow: bool = False
    arrived_at: float = field(default_factory=monotonic)
    outcome: asyncio.Future[Outcome] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def answer(self, outcome: Outcome) -> None:
        """Give the outcome to the caller if it is still waiting."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class GroupQueue:
    """Groups that wait for one scorer.

    Args:
        score_batch: scores some groups. Returns one outcome for each.
    """

    def __init__(
        self,
        max_groups: int,
        score_batch: Callable[[Sequence[WaitingGroup]], Awaitable[Sequence[Outcome]]],
        instruments: Instruments,
    ) -> None:
        self._max_groups, self._score_batch, self._instruments = max_groups, score_batch, instruments
        self._waiting: list[WaitingGroup] = []
        self._runner: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    async def score(self, waiting: WaitingGroup) -> ScoredGroup:
        """Wait for a group's scores. If the caller leaves, the group is removed.

        Raises:
            DeadlineExceeded: it was not scored before its deadline.
            Exception: its pass failed.
        """
        self._waiting.append(waiting)
        if self._runner is None or self._runner.done():
            # In its own context, because the task outlives the request and the span in which it starts.
            context = contextvars.Context()
            self._runner = asyncio.get_running_loop().create_task(self._take_batches(), context=context)
        self.measure()
        try:
            outcome = await waiting.outcome
        finally:  # even if the caller is gone
            if waiting in self._waiting:
                self._waiting.remove(waiting)
                self.measure()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _take_batches(self) -> None:
        while self._waiting:
            batch = self._next_batch()
            self.measure()
            if not batch:
                continue
            try:
                outcomes = await self._score_batch(batch)
            except Exception as error:
                outcomes = [error for _ in batch]
            for waiting, outcome in zip(batch, outcomes, strict=True):
                waiting.answer(outcome)

    def _next_batch(self) -> list[WaitingGroup]:
        """Take the most urgent groups from the queue, and refuse those that are too late."""
        now = monotonic()
        by_urgency = sorted(self._waiting, key=lambda waiting: (waiting.in_shadow, waiting.deadline.at))
        for waiting in by_urgency:
            if waiting.deadline.at <= now:
                self._instruments.count(GROUPS_REFUSED)
                waiting.answer(_late())
        by_urgency = [waiting for waiting in by_urgency if waiting.deadline.at > now]
        batch, self._waiting = by_urgency[: self._max_groups], by_urgency[self._max_groups :]
        for waiting in batch:
            self._instruments.observe(BATCH_WAIT, now - waiting.arrived_at)
        return batch

    def measure(self) -> None:
        """Set the gauge for waiting groups. Call it every few seconds, because Ray drops a gauge that is not set
        again."""
        self._instruments.set(GROUPS_WAITING, len(self._waiting))


def _late() -> DeadlineExceeded:
    return DeadlineExceeded(
        "Scorer: expected the scores of these parts before their deadline, got no turn in time; add replicas, or send "
        "fewer snapshots"
    )
