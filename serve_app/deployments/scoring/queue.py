"""The queue of a scorer: groups of parts wait here, and a task takes batches of them while there are any.

The earliest deadline goes first, and groups in the shadow go last, since no one waits for them. A group that cannot be
scored by its deadline is refused at once: its pass would only delay those that can. ``serve.batch`` is first in, first
out, so it can do neither.
"""

import asyncio
import contextvars
import time
from collections.abc import Awaitable, Callable, Sequence

from serve_app.deployments.scoring.groups import Outcome, ScoredGroup, WaitingGroup
from serve_app.deployments.scoring.pass_times import PassTimes
from serve_app.errors import DeadlineExceeded
from serve_app.metrics import BATCH_WAIT, GROUPS_REFUSED, GROUPS_WAITING, Instruments
from serve_app.settings.scorer import CPU_BATCH, GPU_BATCH

CONFIDENT_SHARE = 0.5  # of the expected duration of a pass; with less time left, a group is hopeless


class GroupQueue:
    """Groups that wait for a pass of one scorer.

    Args:
        device: of the scorer, ``cpu`` or ``cuda``.
        score_batch: scores some groups. Returns one outcome for each.

    Attributes:
        times: of the passes of this scorer, which adds them.
    """

    def __init__(
        self,
        device: str,
        score_batch: Callable[[Sequence[WaitingGroup]], Awaitable[Sequence[Outcome]]],
        instruments: Instruments,
        *,
        max_groups: int | None = None,
    ) -> None:
        self.times = PassTimes()
        self._score_batch, self._instruments = score_batch, instruments
        self._max_groups = max_groups or (GPU_BATCH if device == "cuda" else CPU_BATCH)
        self._waiting: list[WaitingGroup] = []
        self._runner: asyncio.Task[None] | None = None
        self._pass_ends_at: float | None = None  # of the batch in progress, as expected; s of the monotonic clock

    def __len__(self) -> int:
        """Number of groups that wait."""
        return len(self._waiting)

    async def score(self, waiting: WaitingGroup) -> ScoredGroup:
        """The scores of a group after its pass. If the caller leaves, the group gives up its place.

        Raises:
            DeadlineExceeded: it cannot be scored by its deadline.
            Exception: its pass failed.
        """
        if self._is_hopeless(waiting):
            self._refuse(waiting)
        else:
            self._waiting.append(waiting)
            self._run_batches()
        self._report()
        try:
            outcome = await waiting.outcome
        finally:  # even if the caller is gone
            if waiting in self._waiting:
                self._waiting.remove(waiting)
                self._report()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _run_batches(self) -> None:
        if self._runner is None or self._runner.done():
            # In a context of its own: the task outlives the request and the span in which it starts.
            context = contextvars.Context()
            self._runner = asyncio.get_running_loop().create_task(self._take_batches(), context=context)

    async def _take_batches(self) -> None:
        while self._waiting:
            batch = self._next_batch()
            self._report()
            if batch:
                self._pass_ends_at = time.monotonic() + self._expected_seconds(batch)
                await self._finish(batch)
                self._pass_ends_at = None

    def _next_batch(self) -> list[WaitingGroup]:
        """Take the most urgent groups from the queue: as many as a batch may have, and as meet all their deadlines."""
        now = time.monotonic()
        self._waiting.sort(key=lambda one: (one.in_shadow, one.deadline.at))
        for waiting in self._waiting[::-1]:  # so that the most urgent of hopeless ones is tried
            if self._is_hopeless(waiting):
                self._waiting.remove(waiting)
                self._refuse(waiting)
        batch: list[WaitingGroup] = []
        for waiting in self._waiting[: self._max_groups]:
            larger = [*batch, waiting]
            if batch and now + self._expected_seconds(larger) > min(one.deadline.at for one in larger):
                break
            batch = larger
        del self._waiting[: len(batch)]
        for waiting in batch:
            self._instruments.observe(BATCH_WAIT, now - waiting.arrived_at)
        return batch

    async def _finish(self, batch: Sequence[WaitingGroup]) -> None:
        try:
            outcomes = await self._score_batch(batch)
        except Exception as error:
            outcomes = [error for _ in batch]
        for waiting, outcome in zip(batch, outcomes, strict=True):
            _answer(waiting, outcome)

    def _is_hopeless(self, waiting: WaitingGroup) -> bool:
        """Whether a group surely cannot be scored by its deadline, even if its pass is the next one. A group that is
        alone is tried as long as its deadline has not passed: so an estimate that is too high is corrected."""
        now = time.monotonic()
        if waiting.deadline.at <= now:
            return True
        if self._pass_ends_at is None and all(other is waiting for other in self._waiting):
            return False
        least = CONFIDENT_SHARE * self._expected_seconds([waiting])
        return max(now, self._pass_ends_at or now) + least > waiting.deadline.at

    def _refuse(self, waiting: WaitingGroup) -> None:
        self._instruments.count(GROUPS_REFUSED)
        _answer(waiting, _late())

    def _expected_seconds(self, batch: Sequence[WaitingGroup]) -> float:
        return self.times.expect(sum(one.work for one in batch))

    def _report(self) -> None:
        self._instruments.set(GROUPS_WAITING, len(self._waiting))


def _answer(waiting: WaitingGroup, outcome: Outcome) -> None:
    if not waiting.outcome.done():  # its caller may be gone
        waiting.outcome.set_result(outcome)


def _late() -> DeadlineExceeded:
    return DeadlineExceeded(
        "Scorer: expected the scores of these parts before their deadline, got no turn in time; add replicas, or send "
        "fewer snapshots"
    )
