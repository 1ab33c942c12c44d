"""Notifier: verdicts in, alerts and events out. One replica, since the state of alerts is in one file."""

import asyncio
import logging
from datetime import UTC, datetime

from model.verdict import Verdict
from serve_app.alerts import notifier
from serve_app.deployments.instruments import RayInstruments
from serve_app.settings import Settings

log = logging.getLogger(__name__)


class Notifier:
    """Notifies Alertmanagers and webhooks.

    A lost verdict does no harm: an alert is a state, and the next verdict has the same state.

    Args:
        settings: its ``notify`` and ``store``.

    Raises:
        BadSettings: the directory cannot be written, or certificates cannot be read.
    """

    def __init__(self, settings: Settings) -> None:
        self._notifier = notifier.AlertDelivery(
            notifier.receivers(settings), notifier.directory(settings), RayInstruments()
        )
        self._delivering: asyncio.Task[None] | None = None

    async def check_health(self) -> None:
        """Serve calls this every second, and first before the replica is ready: delivery starts then.

        Raises:
            RuntimeError: delivery has ended, which is a bug.
        """
        if self._delivering is None:
            self._delivering = asyncio.create_task(self._notifier.run())
        if self._delivering.done():
            raise RuntimeError("delivery of alerts has ended")

    async def accept_verdict(self, mesh: str, verdict: Verdict) -> None:
        """Update the alerts of a mesh from its newest verdict."""
        self._notifier.accept_verdict(mesh, verdict, datetime.now(UTC))

    async def forget_mesh(self, mesh: str) -> None:
        """Resolve the alerts of a mesh that was deleted."""
        self._notifier.forget_mesh(mesh, datetime.now(UTC))

    async def __del__(self) -> None:  # Serve awaits it when a replica ends
        """Deliver waiting alerts, within their deadline."""
        await self._notifier.close()
