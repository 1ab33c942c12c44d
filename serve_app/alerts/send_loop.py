"""Goes to one endpoint for as long as the service lives: when something is due, and again when it failed."""

import asyncio
import logging
from typing import Protocol

from serve_app.metrics import NOTICES_FAILED, Instruments
from serve_app.net.http import Backoff, HttpSender, Reply

log = logging.getLogger("ray.serve")
_NO_USE = frozenset({"forbidden", "refused", "secret"})  # does not pass by itself: tried at the longest interval


class Receiver(Protocol):
    """What is sent to one endpoint."""

    poster: HttpSender
    receiver: str  # label of the counters

    def waiting(self) -> int:
        """How much it has not acknowledged."""

    def next_in(self) -> float:
        """Seconds until something is due though nothing changes."""

    async def send(self) -> Reply | None:
        """Try once; None: nothing is due."""


class SendLoop:
    """One endpoint's own loop: what it does holds up nobody else.

    Args:
        errand: what is sent.
        news: set when there may be something to send.
        backoff: after failures.
        instruments: counts.
    """

    def __init__(self, errand: Receiver, news: asyncio.Event, backoff: Backoff, instruments: Instruments) -> None:
        self.errand = errand
        self._news = news
        self._backoff = backoff
        self._instruments = instruments
        self._closing = asyncio.Event()
        self._failures = 0
        self._told: str = ""

    async def run(self) -> None:
        """Until it is told to close and nothing waits."""
        while True:
            self._news.clear()
            reply = await self._try()
            if reply is not None and reply.failed:
                await self._pause(reply)
            elif reply is None or not self.errand.waiting():
                if self._closing.is_set() and not self.errand.waiting():
                    return
                await self._idle()

    def close(self) -> None:
        """Send what waits and end; a pause is cut short once."""
        self._closing.set()
        self._news.set()

    async def _try(self) -> Reply | None:
        try:
            reply = await self.errand.send()
        except Exception as error:  # a fault of ours at one endpoint must not silence it, nor the others
            log.exception("%s: unexpected error while sending", self.errand.poster.endpoint.origin)
            reply = Reply("broken", detail=type(error).__name__)
        self._note(reply)
        return reply

    async def _idle(self) -> None:
        seconds = self.errand.next_in()
        try:
            async with asyncio.timeout(None if seconds == float("inf") else seconds):
                await self._news.wait()
        except TimeoutError:
            return

    async def _pause(self, reply: Reply) -> None:
        seconds = self._backoff.seconds(self._failures, reply.retry_after_seconds)
        if reply.failed in _NO_USE:
            seconds = max(seconds, self._backoff.longest_seconds)
        closing = self._closing.is_set()
        try:
            async with asyncio.timeout(seconds):
                await (asyncio.Event() if closing else self._closing).wait()
        except TimeoutError:
            return

    def _note(self, reply: Reply | None) -> None:
        """Count failures; log the first of its kind in a row, and when it is over."""
        if reply is None:
            return
        place = self.errand.poster.endpoint.origin
        if reply.failed:
            self._failures += 1
            self._instruments.count(NOTICES_FAILED, receiver=self.errand.receiver, reason=reply.failed)
            if self._told != reply.failed:
                log.warning("%s %s: %s: %s", self.errand.receiver, place, reply.failed, reply.detail)
        elif self._told:
            log.warning("%s %s: takes notices again after %d failures", self.errand.receiver, place, self._failures)
        self._told = reply.failed
        self._failures = self._failures if reply.failed else 0
