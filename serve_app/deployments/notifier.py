"""Notifier: verdicts in, alerts and events out. One replica, since the state of alerts has one owner."""

import asyncio
from datetime import UTC, datetime

from model.verdict import Verdict
from serve_app.alerts.delivery import AlertDelivery, receivers
from serve_app.alerts.owner import Owner
from serve_app.observability.log_context import set_log_context
from serve_app.observability.spans import span
from serve_app.runtime.replica import open_instruments
from serve_app.runtime.reporting import start_reporting
from serve_app.settings import Settings
from serve_app.stores.opening import open_alert_storage


class Notifier:
    """Notifies Alertmanagers and webhooks.

    Losing a verdict does no harm: an alert is a state, and the next verdict has the same state.

    Args:
        settings: its ``notify`` and ``store``.

    Raises:
        BadSettings: the directory cannot be written, or certificates cannot be read.
    """

    def __init__(self, settings: Settings) -> None:
        start_reporting(settings, "notifier")
        to, storage = receivers(settings), open_alert_storage(settings)
        self._owner = Owner(lambda: AlertDelivery(to, storage, open_instruments()))
        self._delivering: asyncio.Task[None] | None = None

    async def check_health(self) -> None:
        """Serve calls this every second, and first before the replica is ready: delivery starts then.

        Raises:
            RuntimeError: delivery has ended, which is a bug.
        """
        if self._delivering is None:
            self._delivering = asyncio.create_task(self._owner.run())
        if self._delivering.done():
            raise RuntimeError("delivery of alerts has ended")

    async def accept_verdict(self, mesh: str, verdict: Verdict, trace: str = "") -> list[str]:
        """Update the alerts of a mesh from its newest verdict. ``trace`` is the ``traceparent`` of the caller.

        Returns:
            Ids of the incidents whose pictures a message shows: send them with :meth:`accept_picture`.

        Raises:
            StoreGone: the state of alerts is not here yet; the next verdict has the same alerts.
        """
        with set_log_context(mesh), span("notifier.accept_verdict", trace, mesh=mesh):
            return self._owner.delivery().accept_verdict(mesh, verdict, datetime.now(UTC))

    async def accept_picture(self, mesh: str, incident: str, svg: str) -> None:
        """Show the picture of an incident in its message. Errors as in :meth:`accept_verdict`."""
        await self._owner.delivery().accept_picture(mesh, incident, svg)

    async def forget_mesh(self, mesh: str) -> None:
        """Resolve the alerts of a mesh that was deleted. Errors as in :meth:`accept_verdict`."""
        self._owner.delivery().forget_mesh(mesh, datetime.now(UTC))

    async def __del__(self) -> None:  # Serve awaits it when a replica ends
        """Deliver waiting alerts, within their deadline."""
        await self._owner.close()
