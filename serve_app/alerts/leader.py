"""Delivers alerts in one of several processes: the leader, which owns their state."""

import asyncio
import logging
import time
from collections.abc import Callable

from serve_app.alerts.delivery import AlertDelivery
from serve_app.alerts.storage import AlertStorage
from serve_app.alerts.verdict_feed import VerdictFeed
from serve_app.errors import Overloaded, ServeError, StoreGone
from serve_app.stores.state_store import StateStore

RETRY_SECONDS = 0.5
# The leader writes every minute. Another process takes over after this time without a write: before the alerts in
# Alertmanager expire, 4 minutes after the last post.
SILENCE_SECONDS, WATCH_SECONDS = 150.0, 5.0
log = logging.getLogger(__name__)


class Leader:
    """Delivers a store's verdicts while this process is the leader.

    The process that starts last sends. During an upgrade with two clusters, that is the new one. The old one takes over
    again if the new one writes nothing for a while.

    Args:
        open_delivery: reads the state and becomes its only writer. It raises the errors of :class:`AlertDelivery`.

    Raises:
        BadSettings: see :class:`AlertDelivery`.
    """

    def __init__(self, store: StateStore, open_delivery: Callable[[], AlertDelivery]) -> None:
        self._storage, self._feed = AlertStorage(store), VerdictFeed(store)
        self._open_delivery = open_delivery
        self._delivery = self._open()

    async def run(self) -> None:
        """Deliver until :meth:`close`. An error of the feed also ends delivery, since without verdicts it would be
        silent."""
        while True:
            while self._delivery is None:
                await asyncio.sleep(RETRY_SECONDS)
                self._delivery = await asyncio.to_thread(self._open)
            try:
                async with asyncio.TaskGroup() as tasks:
                    following = tasks.create_task(self._feed.follow(self._delivery))
                    await self._delivery.run()
                    following.cancel()
            except Exception:
                log.exception("notifications end by an unexpected error")
                raise
            if not self._delivery.is_taken_over:
                return
            self._delivery = None
            await self._wait_for_silence()

    async def close(self) -> None:
        """Deliver waiting alerts within their deadline."""
        if self._delivery is not None:
            await self._delivery.close()

    def _open(self) -> AlertDelivery | None:
        """Open the delivery with the stored state; None while the storage is unavailable."""
        try:
            return self._open_delivery()
        except (StoreGone, Overloaded) as error:
            log.warning("alerts wait for the store: %s", error)
            return None

    async def _wait_for_silence(self) -> None:
        """Wait until the leader has written nothing for ``SILENCE_SECONDS``, by this process's own clock, or there is
        no state to own."""
        last_revision, since = 0, time.monotonic()
        while time.monotonic() - since < SILENCE_SECONDS:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                revision = await asyncio.to_thread(self._storage.revision)
            except ServeError:  # an unavailable store says nothing about the leader
                since = time.monotonic()
                continue
            if not revision:
                break
            if revision != last_revision:
                last_revision, since = revision, time.monotonic()
        log.warning("no other process sends notifications any more; this one does again")
