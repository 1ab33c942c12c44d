"""Which device, kernels and weights the scorers work with: asked once for many probes."""

import asyncio
import math
import time
from contextlib import suppress

from serve_app.deployments.http.backend import Backend
from serve_app.deployments.messages import Equipment
from serve_app.deployments.rpc import Caller
from serve_app.deployments.single_flight import SingleFlight
from serve_app.errors import ServeError

PROBE_SECONDS = 0.5  # that a probe of liveness waits for the replicas behind the ingress
READY_SECONDS = 2.0  # for which an answer of the replicas is reused, so that many probes cost little


class Health:
    """Answers probes of one ingress replica.

    Args:
        backend: the replicas that are asked.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._equipment: Equipment | None = None  # the newest answer
        self._answered_at = -math.inf  # s of the monotonic clock
        self._shared: SingleFlight[Equipment] = SingleFlight()
        self._refreshing: asyncio.Task[None] | None = None

    async def last_equipment(self) -> Equipment | None:
        """The newest answer of the scorers, and a fresh one if it comes at once. None if they have never answered."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh())
        if self._equipment is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._refreshing), PROBE_SECONDS)
        return self._equipment

    async def ready_equipment(self) -> Equipment:
        """An answer of the scorers that is at most ``READY_SECONDS`` old.

        Raises:
            ServeError: the store, a session, a scorer or the meta-model does not answer.
        """
        if self._equipment is not None and time.monotonic() - self._answered_at < READY_SECONDS:
            return self._equipment
        return await self._ask()

    async def _ask(self) -> Equipment:
        """Ask the scorers; probes that come at the same time share the call."""

        async def ask() -> Equipment:
            caller = Caller(self._backend.deadline())
            found = await caller.ask(self._backend.sessions.ready, caller.deadline)
            self._equipment, self._answered_at = found, time.monotonic()
            return found

        return await self._shared.do("equipment", ask)

    async def _refresh(self) -> None:
        with suppress(ServeError):  # liveness does not depend on other replicas
            await self._ask()
