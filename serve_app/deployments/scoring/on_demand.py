"""Scores small meshes in the session that holds them, and meshes of several parts on replicas, which start when the
first such mesh comes and end when none has come for a while."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from serve_app.deployments.scoring.in_session import InSession
from serve_app.deployments.scoring.messages import RunnerPlace, ScorerInfo
from serve_app.deployments.scoring.replicas import Replicas
from serve_app.deployments.scoring.stages import Progress, SnapshotRunner
from serve_app.errors import ServeError
from serve_app.models.served import ServedModel
from serve_app.runtime.background import start_task
from serve_app.runtime.deadline import Deadline
from serve_app.runtime.rpc import Caller

log = logging.getLogger(__name__)
START_SECONDS = 120.0  # for which the replicas may take to start
USED_SHARE = 0.5  # of the time after which unused replicas end, for which they count as running


class OnDemand:
    """A :class:`~serve_app.deployments.scoring.stages.ScoringBackend`: the session for meshes of one part, replicas for
    others. While the replicas start or restart, the session scores those as well, so that no snapshot waits for them.

    Args:
        session: scores small meshes.
        replicas: score large ones.
        idle_seconds: after which Serve ends unused replicas.
        clock: s.
    """

    def __init__(
        self,
        session: InSession,
        replicas: Replicas,
        idle_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session, self._replicas = session, replicas
        self._running_seconds = USED_SHARE * idle_seconds
        self._clock = clock
        self._divided: set[str] = set()  # meshes of several parts
        self._answered_at = float("-inf")  # when the replicas last answered
        self._starting: asyncio.Task[None] | None = None

    def runner(
        self, mesh: str, deadline: Deadline, model: ServedModel, weight: float = 1.0, *, in_shadow: bool = False
    ) -> SnapshotRunner:
        place = self._place(mesh)
        backend = self._replicas if place == "replicas" else self._session
        runner = backend.runner(mesh, deadline, model, weight, in_shadow=in_shadow)
        runner.progress.on_scored = self._follow_replicas if place == "replicas" else self._learn_parts
        if place == "session" and mesh in self._divided:
            self._start()
        return runner

    async def check(self) -> None:
        await self._session.check()

    async def info(self, caller: Caller) -> ScorerInfo:
        """The session's own, since asking replicas would start them."""
        return await self._session.info(caller)

    def _place(self, mesh: str) -> RunnerPlace:
        is_running = self._clock() - self._answered_at < self._running_seconds
        return "replicas" if mesh in self._divided and is_running else "session"

    def _learn_parts(self, progress: Progress) -> None:
        """Learn from a scored snapshot whether its mesh is divided."""
        if progress.parts > 1:
            self._divided.add(progress.mesh)
        else:
            self._divided.discard(progress.mesh)

    def _follow_replicas(self, progress: Progress) -> None:
        """Have the session score the next snapshots if the replicas left out a part of this one."""
        self._learn_parts(progress)
        self._answered_at = float("-inf") if progress.missing_parts else self._clock()

    def _start(self) -> None:
        """Have Serve start the replicas, in the background."""
        if self._starting is None or self._starting.done():
            self._starting = start_task(self._wait_for_replicas())

    async def _wait_for_replicas(self) -> None:
        try:
            await self._replicas.info(Caller(Deadline.after(START_SECONDS)))
        except ServeError as error:
            log.warning("the session scores meshes of several parts, since the replicas do not start: %s", error)
        else:
            self._answered_at = self._clock()
