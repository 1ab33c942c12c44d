"""The loop that sends to one endpoint, and repeats what failed."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from serve_app.alerts.event_queue import EventQueue
from serve_app.alerts.receiver_status import ReceiverStatus
from serve_app.alerts.receivers.alertmanager import AlertmanagerReceiver
from serve_app.metrics import NOTIFICATIONS_FAILED, Instruments
from serve_app.net.backoff import Backoff
from serve_app.net.http import Reply

CHECK_SECONDS = 30.0  # between two checks of an endpoint to which nothing is sent
log = logging.getLogger(__name__)
_PERSISTENT = frozenset({"forbidden", "refused", "secret"})  # a person must act: retried at the maximum interval


class SendLoop:
    """Serves one Alertmanager or one receiver's queue, so that a slow endpoint does not delay the others.

    Args:
        news: set when something may be due.
    """

    def __init__(
        self,
        receiver: AlertmanagerReceiver | EventQueue,
        news: asyncio.Event,
        backoff: Backoff,
        instruments: Instruments,
    ) -> None:
        self.receiver = receiver
        self._news = news
        self._backoff = backoff
        self._instruments = instruments
        self._closing = asyncio.Event()
        self._failures = 0
        self._newest = Reply()
        self._fails_since: datetime | None = None
        self._check_due = 0.0  # monotonic; at once

    async def run(self) -> None:
        """Send until :meth:`close` is called and nothing is waiting."""
        while True:
            self._news.clear()
            reply = await self._try(self.receiver.send)
            if reply is not None and reply.failed:
                self._instruments.count(NOTIFICATIONS_FAILED, receiver=self.receiver.kind, reason=reply.failed)
                await self._pause(reply)
            elif reply is None or not self.receiver.count_waiting():
                if self._closing.is_set() and not self.receiver.count_waiting():
                    return
                if time.monotonic() < self._check_due:
                    await self._idle()
                else:
                    await self._try(self.receiver.check)

    def status(self) -> ReceiverStatus:
        newest, receiver = self._newest, self.receiver
        return ReceiverStatus(
            receiver.kind, receiver.name, newest.failed, newest.detail, self._fails_since, receiver.dropped
        )

    def close(self) -> None:
        """Send what is waiting, then end. Cuts one pause short."""
        self._closing.set()
        self._news.set()

    async def _try(self, request: Callable[[], Awaitable[Reply | None]]) -> Reply | None:
        try:
            reply = await request()
        except Exception as error:  # a bug with one endpoint must stop neither its loop nor the others
            log.exception("%s: unexpected error", self.receiver.name)
            reply = Reply("broken", detail=type(error).__name__)
        if reply is not None:
            self._note(reply)
        return reply

    async def _idle(self) -> None:
        seconds = min(self.receiver.next_in(), self._check_due - time.monotonic())
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return

    async def _pause(self, reply: Reply) -> None:
        seconds = self._backoff.seconds(self._failures, reply.retry_after_seconds)
        if reply.failed in _PERSISTENT:
            seconds = max(seconds, self._backoff.max_seconds)
        closing = self._closing.is_set()
        try:
            async with asyncio.timeout(seconds):
                await (asyncio.Event() if closing else self._closing).wait()
        except TimeoutError:
            return

    def _note(self, reply: Reply) -> None:
        """Log the first failure of a kind in a row, and the recovery."""
        name = self.receiver.name
        if reply.failed:
            self._failures += 1
            self._fails_since = self._fails_since or datetime.now(UTC)
            if self._newest.failed != reply.failed:
                log.warning("%s %s: %s: %s", self.receiver.kind, name, reply.failed, reply.detail)
        elif self._newest.failed:
            log.warning(
                "%s %s: accepts notifications again after %d failures", self.receiver.kind, name, self._failures
            )
        if not reply.failed:
            self._failures, self._fails_since = 0, None
        self._newest, self._check_due = reply, time.monotonic() + CHECK_SECONDS
