"""Replays the last hours of a new mesh from its Prometheus.

The snapshots of the past go through the same pipeline as live ones, so the first live snapshot meets baselines with a
time of day, a history, and incidents that people can compare with what they know of that day. Their verdicts are marked
as replayed, and no notification is sent.

Prometheus answers one range while the previous range's snapshots are scored. A range's length depends on the number of
its samples. After a restart, the replay continues after the newest replayed verdict.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Executor
from contextlib import aclosing, closing
from dataclasses import dataclass
from math import floor

from model.snapshot import MeshSnapshot
from serve_app.collect.base import Poll
from serve_app.collect.loop import ALREADY_PUSHED, RETRYABLE, Push
from serve_app.collect.prometheus.client import Instants
from serve_app.collect.prometheus.past import PastSource, range_length
from serve_app.errors import ServeError

STEP_SECONDS = 60.0  # minimum time between two replayed snapshots
ATTEMPTS, PAUSE_SECONDS = 5, 10.0  # for a range or a snapshot; wait between two attempts
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Replay:
    """Replays the past of one mesh.

    Attributes:
        push: sends a snapshot to the service; raises the service's error if it is refused.
        newest: Unix time of the newest instant that can be polled.
        note: gets the share of the past that has verdicts, from 0 to 1.
        is_owner: whether this process collects the mesh now; another one may.
        thread: reads all meshes' ranges. That may take a minute, and live polls and leases must not wait for it.
    """

    mesh: str
    open_past: Callable[[], PastSource]
    push: Push
    newest: Callable[[], float]
    note: Callable[[float], None]
    is_owner: Callable[[], bool]
    thread: Executor
    step_seconds: float = STEP_SECONDS

    async def run(self, begin: float) -> float | None:
        """Push the snapshots from ``begin``, Unix time, to the present.

        Returns:
            Unix time of the newest pushed snapshot; None: none was pushed.
        """
        first = begin // self.step_seconds * self.step_seconds
        newest_pushed: float | None = None
        logged_quarters = 0  # number of quarters
        log.info("mesh %s: its last %.1f hours are read from Prometheus", self.mesh, (self.newest() - first) / 3600)
        async with aclosing(self._ranges(first)) as ranges:
            async for polls in ranges:
                for poll in polls:
                    if poll.snapshot is not None and not await self._push(poll.snapshot):
                        return newest_pushed
                    at = poll.at.timestamp()
                    newest_pushed = at if poll.snapshot is not None else newest_pushed
                    share = min((at - first) / max(self.newest() - first, self.step_seconds), 1.0)
                    self.note(share)
                if (quarters := int(4 * share)) > logged_quarters:
                    logged_quarters = quarters
                    log.info("mesh %s: %d%% of its past has been read", self.mesh, 25 * quarters)
        log.info("mesh %s: its past has been read; live snapshots follow", self.mesh)
        return newest_pushed

    async def _ranges(self, begin: float) -> AsyncGenerator[Sequence[Poll], None]:
        """Yield one range's polls after the other, up to the present. The next range is read meanwhile."""
        step = self.step_seconds

        def read_next(count: int) -> asyncio.Task[Sequence[Poll] | None] | None:
            if not self.is_owner() or begin > self.newest():
                return None
            remaining = floor((self.newest() - begin) / step) + 1
            return asyncio.create_task(self._read(source, Instants(begin, step, min(count, remaining))))

        with closing(self.open_past()) as source:
            reading = read_next(1)
            try:
                while reading is not None and (polls := await reading) is not None:
                    begin += len(polls) * step
                    reading = read_next(range_length(polls, step))
                    yield polls
            finally:
                if reading is not None:
                    reading.cancel()

    async def _read(self, source: PastSource, instants: Instants) -> Sequence[Poll] | None:
        """Return a range's polls; None if Prometheus answers none of the attempts."""
        reason = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(PAUSE_SECONDS)
            polls = await asyncio.get_running_loop().run_in_executor(self.thread, lambda: list(source.read(instants)))
            failed_answers = [
                answer for poll in polls if poll.snapshot is None for answer in poll.answers.values() if answer.failed
            ]
            if not failed_answers:
                return polls
            reason = failed_answers[0].detail
        log.warning("mesh %s: a part of its past cannot be read: %s", self.mesh, reason)
        return None

    async def _push(self, snapshot: MeshSnapshot) -> bool:
        """Push one snapshot. Returns whether the replay can continue."""
        for _ in range(ATTEMPTS):
            try:
                await self.push(snapshot)
            except ALREADY_PUSHED:
                return True
            except RETRYABLE as error:
                log.warning("mesh %s: a snapshot of its past waits: %s", self.mesh, error)
                await asyncio.sleep(PAUSE_SECONDS)
            except ServeError as error:
                log.warning("mesh %s: a snapshot of its past is left out: %s", self.mesh, error)
                return True
            else:
                return True
        log.warning("mesh %s: its past is left out from %s on", self.mesh, snapshot.observed_at.isoformat())
        return False
