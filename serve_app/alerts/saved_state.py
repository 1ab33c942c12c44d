"""One process's alert state, in memory and in storage.

The state is stored before anything is sent. So an event keeps its id, and an alert its labels, however often the
process dies.
"""

import asyncio
import logging
from dataclasses import replace

from serve_app.alerts.alert import AlertState, IncidentEvent
from serve_app.alerts.storage import AlertStorage
from serve_app.errors import StoreConflict
from serve_app.metrics import NOTIFICATIONS_FAILED, Instruments

WRITE_TIMEOUT_SECONDS = 2.0  # if storage hangs longer, notifications are sent without being saved first
log = logging.getLogger(__name__)


class SavedState:
    """One process's alert state. Use it from one event loop.

    Attributes:
        published: the last state that was saved or could not be saved; senders use it.
        is_taken_over: whether another process owns the storage. Nothing more is published.

    Raises:
        BadSettings, StoreGone: the storage cannot be read.
    """

    def __init__(self, storage: AlertStorage, instruments: Instruments) -> None:
        self.state = self.published = storage.read()
        self.is_taken_over = False
        self._instruments = instruments
        self._storage = storage
        self._changed = asyncio.Event()
        self._is_write_due = False
        self._publish_lock = asyncio.Lock()
        self._write_task: asyncio.Task[None] | None = None
        self._subscribers: list[asyncio.Event] = []

    def subscribe(self) -> asyncio.Event:
        """Return an event that is set whenever a state is published."""
        news = asyncio.Event()
        self._subscribers.append(news)
        return news

    def update(self, state: AlertState, *, write: bool = True) -> None:
        """Replace the state. Without ``write``, it is saved with the next change that does write."""
        self.state = state
        self._is_write_due |= write
        self._changed.set()

    def acknowledge(self, receiver: str, event: str) -> None:
        """Remove an event from a receiver's queue, effective at once."""
        self.published = _remove_event(self.published, receiver, event)
        self.update(_remove_event(self.state, receiver, event))

    async def run(self) -> None:
        """Save and publish changes, until cancelled or taken over."""
        while not self.is_taken_over:
            await self._changed.wait()
            await self.publish()

    async def publish(self) -> None:
        """Save and publish the changes up to now; does nothing once another process has taken over."""
        async with self._publish_lock:  # in order
            if self.is_taken_over:
                return
            self._changed.clear()
            state, is_write_due, self._is_write_due = self.state, self._is_write_due, False
            if is_write_due:
                await self._write(state)
            if self.is_taken_over:
                return
            # Events that were acknowledged during the write must not come back.
            self.published = replace(state, events=_select_pending(state, self.state))
            for news in self._subscribers:
                news.set()

    async def flush(self) -> None:
        """Save and publish the current state."""
        self._is_write_due = True
        await self.publish()

    async def _write(self, state: AlertState) -> None:
        if self._write_task is None or self._write_task.done():  # one at a time
            self._write_task = asyncio.create_task(self._try_write(state))
            await asyncio.wait({self._write_task}, timeout=WRITE_TIMEOUT_SECONDS)
            if self._write_task.done():
                return
        self._record_failure(f"no answer from the storage within {WRITE_TIMEOUT_SECONDS:g} s")

    async def _try_write(self, state: AlertState) -> None:
        try:
            await asyncio.to_thread(self._storage.write, state)
        except StoreConflict as error:
            self.is_taken_over = True
            log.error("another process sends the notifications from now on: %s", error)
        except Exception as error:  # no failure may prevent notifications
            self._record_failure(error)

    def _record_failure(self, reason: object) -> None:
        self._is_write_due = True  # with the next change; one comes every minute while an incident is open
        self._instruments.count(NOTIFICATIONS_FAILED, receiver="state", reason="unwritable")
        log.error("notifications cannot be saved, but are still sent: %s", reason)


def _remove_event(state: AlertState, receiver: str, event: str) -> AlertState:
    pending = tuple(other for other in state.events.get(receiver, ()) if other.id != event)
    return replace(state, events={**state.events, receiver: pending})


def _select_pending(before: AlertState, current: AlertState) -> dict[str, tuple[IncidentEvent, ...]]:
    """Return the events of a state that are still pending in the current one."""
    pending = {key: {event.id for event in events} for key, events in current.events.items()}
    return {
        key: tuple(event for event in events if event.id in pending.get(key, ()))
        for key, events in before.events.items()
    }
