"""Do work once that several requests need at the same time."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from serve_app.runtime.replica import start_task

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Calls under way, by key: a second caller with the same key waits for the first call. Use it from one event
    loop."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, asyncio.Task[T]] = {}

    async def do(self, key: Hashable, call: Callable[[], Awaitable[T]]) -> T:
        """The result of ``call``. The call continues if one caller is cancelled, since others may wait for it."""
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = start_task(_run(call))
            task.add_done_callback(lambda _: self._end(key))
        return await asyncio.shield(task)

    def _end(self, key: Hashable) -> None:
        task = self._under_way.pop(key)
        if not task.cancelled():
            task.exception()  # retrieve it, in case no caller is left to do so


async def _run(call: Callable[[], Awaitable[T]]) -> T:
    return await call()
