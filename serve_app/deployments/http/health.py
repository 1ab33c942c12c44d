"""Answers probes: the scorers' device, kernels and weights, and the meshes whose past is being read. Many probes share
one call to the replicas."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Generic

from serve_app.deployments.http.backend import PROBE_SECONDS, Backend, SingleFlight
from serve_app.deployments.scoring.messages import ScorerInfo
from serve_app.errors import ServeError
from serve_app.runtime.rpc import Caller, T

READY_SECONDS = 2.0  # how long the replicas' answer is reused, so that many probes cost little


class SharedAnswer(Generic[T]):
    """A cached answer from other replicas.

    Attributes:
        newest: None: they have never answered.
    """

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self.newest: T | None = None
        self._ask = ask
        self._answered_at = -math.inf  # s of the monotonic clock
        self._shared: SingleFlight[T] = SingleFlight()

    async def recent_answer(self) -> T:
        """An answer that is at most ``READY_SECONDS`` old. Raises the errors of ``ask``."""
        if self.newest is not None and time.monotonic() - self._answered_at < READY_SECONDS:
            return self.newest

        async def ask() -> T:
            self.newest, self._answered_at = await self._ask(), time.monotonic()
            return self.newest

        return await self._shared.do("answer", ask)

    async def newest_answer(self) -> T | None:
        """The newest answer, or a fresh one if it arrives at once. Liveness does not depend on other replicas."""
        with suppress(ServeError, TimeoutError):
            await asyncio.wait_for(self.recent_answer(), PROBE_SECONDS)
        return self.newest


class Health:
    """Answers probes of one ingress replica.

    Attributes:
        scorers: raises ``ServeError`` if the store, a session, a scorer or the meta-model does not answer.
        replays: the share of the past that has been read, 0 to 1, by new mesh.
    """

    def __init__(self, backend: Backend) -> None:
        async def ask_scorers() -> ScorerInfo:
            caller = Caller(backend.deadline())
            return await caller.ask(backend.sessions.ready, caller.deadline)

        async def ask_replays() -> dict[str, float]:
            states = await backend.collector_states()
            return {state.mesh: state.replayed_share for state in states if state.replayed_share is not None}

        self.scorers, self.replays = SharedAnswer(ask_scorers), SharedAnswer(ask_replays)
