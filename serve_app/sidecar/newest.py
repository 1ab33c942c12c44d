"""The newest verdict, for readers and for watchers that wait for the next one."""

import asyncio

from serve_app.errors import NoCapacity
from serve_app.sidecar.generated.verdicts_pb2 import Verdict


class Newest:
    """Holds one verdict, without a queue: a slow watcher gets the newest. Use it from one event loop."""

    def __init__(self) -> None:
        self.verdict: Verdict | None = None
        self._number = 0
        self._ended = False
        self._changed = asyncio.Event()

    def put(self, verdict: Verdict) -> None:
        """Replace the verdict, and wake the watchers without waiting for them."""
        self.verdict = verdict
        self._number += 1
        self._wake()

    def end(self) -> None:
        """Wake the watchers for the last time: no verdict will follow."""
        self._ended = True
        self._wake()

    async def after(self, number: int) -> tuple[int, Verdict]:
        """The newest verdict and its number, as soon as that is not ``number``; 0 is before the first.

        Raises:
            NoCapacity: no verdict will follow.
        """
        while self.verdict is None or self._number == number:
            if self._ended:
                raise NoCapacity("sidecar: it is shutting down; watch again after its restart")
            await self._changed.wait()
        return self._number, self.verdict

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
