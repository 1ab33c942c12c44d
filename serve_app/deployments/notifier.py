"""Notifier: verdicts in, alerts and events out. One replica, since the state of alerts has one owner."""

import asyncio
import logging
from datetime import UTC, datetime

from model.verdict import Verdict
from serve_app.alerts.notifier import AlertDelivery, receivers
from serve_app.deployments.instruments import RayInstruments
from serve_app.errors import StoreGone
from serve_app.settings import Settings
from serve_app.stores.opening import open_alert_storage

RETRY_SECONDS = 1.0
log = logging.getLogger(__name__)


class Notifier:
    """Notifies Alertmanagers and webhooks.

    A lost verdict does no harm: an alert is a state, and the next verdict has the same state. So a verdict is refused
    while the state of alerts is not here: if the Redis is away at the start, or after another notifier has taken over.
    The refused verdict takes it back. Thus of two clusters, as during an upgrade, the one with the traffic sends.

    Args:
        settings: its ``notify`` and ``store``.

    Raises:
        BadSettings: the directory cannot be written, or certificates cannot be read.
    """

    def __init__(self, settings: Settings) -> None:
        self._receivers, self._storage = receivers(settings), open_alert_storage(settings)
        self._delivery = self._open()
        self._verdict_came = asyncio.Event()
        self._delivering: asyncio.Task[None] | None = None

    async def check_health(self) -> None:
        """Serve calls this every second, and first before the replica is ready: delivery starts then.

        Raises:
            RuntimeError: delivery has ended, which is a bug.
        """
        if self._delivering is None:
            self._delivering = asyncio.create_task(self._deliver())
        if self._delivering.done():
            raise RuntimeError("delivery of alerts has ended")

    async def accept_verdict(self, mesh: str, verdict: Verdict) -> None:
        """Update the alerts of a mesh from its newest verdict.

        Raises:
            StoreGone: the state of alerts is not here yet; the next verdict has the same alerts.
        """
        self._ready().accept_verdict(mesh, verdict, datetime.now(UTC))

    async def forget_mesh(self, mesh: str) -> None:
        """Resolve the alerts of a mesh that was deleted. Errors as of :meth:`accept_verdict`."""
        self._ready().forget_mesh(mesh, datetime.now(UTC))

    async def __del__(self) -> None:  # Serve awaits it when a replica ends
        """Deliver waiting alerts, within their deadline."""
        if self._delivery is not None:
            await self._delivery.close()

    def _ready(self) -> AlertDelivery:
        if self._delivery is None:
            self._verdict_came.set()
            raise StoreGone(
                "notifier: expected the state of alerts, came none: the Redis is away, or another notifier had taken "
                "over; the next verdict has the same alerts"
            )
        return self._delivery

    def _open(self) -> AlertDelivery | None:
        """The delivery with the stored state; None while the Redis is away."""
        try:
            return AlertDelivery(self._receivers, self._storage, RayInstruments())
        except StoreGone as error:
            log.warning("alerts wait for the store: %s", error)
            return None

    async def _deliver(self) -> None:
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
