"""Notifier: reads verdicts from the store, and sends alerts and events. There is one replica, since their state has one
owner. No other deployment calls it.
"""

import asyncio
from functools import partial

from serve_app.alerts.delivery import AlertDelivery, receivers
from serve_app.alerts.leader import Leader
from serve_app.runtime.replica import open_instruments
from serve_app.runtime.reporting import start_reporting
from serve_app.runtime.storage import open_store
from serve_app.settings import Settings
from serve_app.stores.scored_snapshot import StoredVerdict, match_verdicts, unpack_window
from serve_app.stores.state_store import StateStore


class Notifier:
    """Notifies the configured receivers.

    Args:
        settings: ``notify`` and ``store`` are used.

    Raises:
        BadSettings: certificates cannot be read.
        CorruptState, StoreFull: the store cannot be opened.
        StoreGone: this run had a store, and its files are gone.
    """

    def __init__(self, settings: Settings) -> None:
        start_reporting(settings, "notifier")
        to, store = receivers(settings), open_store(settings)
        draw = partial(_draw, store)
        self._leader = Leader(store, lambda: AlertDelivery(to, store, open_instruments(), draw=draw))
        self._delivery: asyncio.Task[None] | None = None
        self.__del__ = self.close  # for Serve; Python itself would call the class's method, and await nothing

    async def check_health(self) -> None:
        """Serve calls this every second, and first before the replica is ready: delivery starts then.

        Raises:
            RuntimeError: delivery has ended, which is a bug.
        """
        if self._delivery is None:
            self._delivery = asyncio.create_task(self._leader.run())
        if self._delivery.done():
            raise RuntimeError("delivery of alerts has ended") from self._delivery.exception()

    async def close(self) -> None:
        """Deliver waiting alerts within their deadline. Serve awaits this when a replica ends."""
        await self._leader.close()


def _draw(store: StateStore, mesh: str, incident: str) -> str:
    """Draw an incident from its mesh's stored snapshots, as SVG."""
    from serve_app.web.report.picture import incident_picture  # only receivers with pictures need it

    window = [snapshot for _, snapshot in unpack_window(store.window(mesh))]
    verdicts = [StoredVerdict.unpack(verdict) for verdict in store.verdicts(mesh, None, limit=-1)]
    return incident_picture(mesh, match_verdicts(window, verdicts), incident)
