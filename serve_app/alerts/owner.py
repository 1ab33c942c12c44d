"""Delivers alerts in one of several candidate processes: the one that owns their state."""

import asyncio
import logging
from collections.abc import Callable

from serve_app.alerts.delivery import AlertDelivery
from serve_app.errors import StoreGone

RETRY_SECONDS = 0.5
log = logging.getLogger(__name__)


class Owner:
    """Opens the delivery, and opens it again when a verdict arrives after another process took over the state.

    So if there are two clusters, as during an upgrade, the one with the traffic sends. A verdict is refused while this
    process does not own the state; the next one has the same alerts.

    Args:
        open_delivery: reads the state and becomes its owner; :class:`AlertDelivery` raises its errors.

    Raises:
        BadSettings: see :class:`AlertDelivery`.
    """

    def __init__(self, open_delivery: Callable[[], AlertDelivery]) -> None:
        self._open_delivery = open_delivery
        self._verdict_came = asyncio.Event()
        self._delivery = self._open()

    def delivery(self) -> AlertDelivery:
        """The delivery.

        Raises:
            StoreGone: this process does not own the state.
        """
        if self._delivery is None or self._delivery.is_taken_over:
            self._verdict_came.set()
            raise StoreGone(
                "notifier: expected the saved state of alerts, got none: Redis is unreachable, or another notifier has "
                "taken over; the next verdict repeats these alerts"
            )
        return self._delivery

    async def run(self) -> None:
        """Deliver until :meth:`close`."""
        while True:
            while self._delivery is None:
                await asyncio.sleep(RETRY_SECONDS)
                self._delivery = await asyncio.to_thread(self._open)
            await self._delivery.run()
            if not self._delivery.is_taken_over:
                return
            self._delivery = None
            self._verdict_came.clear()
            await self._verdict_came.wait()

    async def close(self) -> None:
        """Deliver waiting alerts, within their deadline."""
        if self._delivery is not None:
            await self._delivery.close()

    def _open(self) -> AlertDelivery | None:
        """The delivery with the stored state; None while the storage is unavailable."""
        try:
            return self._open_delivery()
        except StoreGone as error:
            log.warning("alerts wait for the store: %s", error)
            return None
