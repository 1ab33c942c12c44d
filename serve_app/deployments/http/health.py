"""Which device, kernels and weights the scorers work with: asked once for many probes."""

import asyncio
import math
import time
from contextlib import suppress

from serve_app.deployments.http.backend import PROBE_SECONDS, Backend, SingleFlight
from serve_app.deployments.scoring.messages import ScorerInfo
from serve_app.errors import ServeError
from serve_app.runtime.rpc import Caller

READY_SECONDS = 2.0  # for which an answer of the replicas is reused, so that many probes cost little


class Health:
    """Answers probes of one ingress replica."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._newest: ScorerInfo | None = None  # the newest answer
        self._answered_at = -math.inf  # s of the monotonic clock
        self._shared: SingleFlight[ScorerInfo] = SingleFlight()

    async def last_scorer_info(self) -> ScorerInfo | None:
        """The newest answer of the scorers, or a fresh one if it arrives at once. None if they have never answered.
        Liveness does not depend on other replicas."""
        with suppress(ServeError, TimeoutError):
            await asyncio.wait_for(self.ready_scorer_info(), PROBE_SECONDS)
        return self._newest

    async def ready_scorer_info(self) -> ScorerInfo:
        """An answer of the scorers that is at most ``READY_SECONDS`` old.

        Raises:
            ServeError: the store, a session, a scorer or the meta-model does not answer.
        """
        if self._newest is not None and time.monotonic() - self._answered_at < READY_SECONDS:
            return self._newest

        async def ask() -> ScorerInfo:
            caller = Caller(self._backend.deadline())
            found = await caller.ask(self._backend.sessions.ready, caller.deadline)
            self._newest, self._answered_at = found, time.monotonic()
            return found

        return await self._shared.do("ready", ask)
