"""The alert state of a process, in memory and in one small file.

The file is written before anything is sent. So an event keeps its id and an alert its labels, however often the process
dies in between. The file is replaced as a whole (written to a new file, synced, renamed): a crash leaves the old
content or the new content, never a mixture.
"""

import asyncio
import logging
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from serve_app.alerts.alert import AlertState, IncidentEvent
from serve_app.alerts.payloads import decode_state, encode_state
from serve_app.errors import BadSettings, CorruptState
from serve_app.metrics import NOTICES_FAILED, Instruments

FILE_NAME = "notifications.json"
PATIENCE_SECONDS = 2.0  # for a disk that hangs; then notifications are sent without being saved first
log = logging.getLogger(__name__)


def read(directory: Path) -> AlertState:
    """Read the state. Returns an empty one if there is no file, or if the file is damaged: it is then renamed.

    Raises:
        BadSettings: the directory cannot be created, read or written.
    """
    path = directory / FILE_NAME
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        content = path.read_bytes() if path.exists() else None
        if not os.access(directory, os.W_OK):
            raise PermissionError(f"no permission to write {directory}")
        return AlertState() if content is None else decode_state(content)
    except CorruptState as error:
        aside = path.with_name(f"{FILE_NAME}.corrupt-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
        path.rename(aside)
        log.error("%s; renamed to %s; the next verdict sends open incidents again", error, aside)
        return AlertState()
    except OSError as error:
        raise BadSettings(f"notify: expected a directory to write in, came {error}; correct notify.path") from error


def write(directory: Path, state: AlertState) -> None:
    """Replace the file.

    Raises:
        OSError: nothing changed.
    """
    path, new = directory / FILE_NAME, directory / f"{FILE_NAME}.new"
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(encode_state(state))
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    folder = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class StateFile:
    """The state of one process. Use it from one event loop.

    Args:
        directory: for the file.
        instruments: counters.

    Attributes:
        state: current.
        published: the last state that was saved, or that the disk failed to save; senders send this one.

    Raises:
        BadSettings: the directory cannot be used.
    """

    def __init__(self, directory: Path, instruments: Instruments) -> None:
        self.state = self.published = read(directory)
        self._instruments = instruments
        self._directory = directory
        self._changed = asyncio.Event()
        self._is_write_due = False
        self._publish_lock = asyncio.Lock()
        self._write_task: asyncio.Task[None] | None = None
        self._subscribers: list[asyncio.Event] = []

    def subscribe(self) -> asyncio.Event:
        """An event that is set whenever a state is published."""
        news = asyncio.Event()
        self._subscribers.append(news)
        return news

    def update(self, state: AlertState, *, write: bool = True) -> None:
        """Replace the state. Without ``write``, it is saved with the next change that asks for it."""
        self.state = state
        self._is_write_due |= write
        self._changed.set()

    def acknowledge(self, webhook: str, event: str) -> None:
        """Remove an event from a webhook's queue, effective at once."""
        self.published = _remove_event(self.published, webhook, event)
        self.update(_remove_event(self.state, webhook, event))

    async def run(self) -> None:
        """Save and publish changes until cancelled."""
        while True:
            await self._changed.wait()
            await self.publish()

    async def publish(self) -> None:
        """Save and publish the changes up to now."""
        async with self._publish_lock:  # in order
            self._changed.clear()
            state, is_write_due, self._is_write_due = self.state, self._is_write_due, False
            if is_write_due:
                await self._write(state)
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
            await asyncio.wait({self._write_task}, timeout=PATIENCE_SECONDS)
            if self._write_task.done():
                return
        self._record_failure(f"no answer from the disk within {PATIENCE_SECONDS:g} s")

    async def _try_write(self, state: AlertState) -> None:
        try:
            await asyncio.to_thread(write, self._directory, state)
        except Exception as error:  # no failure may keep notifications from being sent
            self._record_failure(error)

    def _record_failure(self, why: object) -> None:
        self._is_write_due = True  # with the next change; one comes every minute while an incident is open
        self._instruments.count(NOTICES_FAILED, receiver="state", reason="unwritable")
        log.error("notifications cannot be saved, but are still sent: %s", why)


def _remove_event(state: AlertState, webhook: str, event: str) -> AlertState:
    pending = tuple(one for one in state.events.get(webhook, ()) if one.id != event)
    return state.with_events({**state.events, webhook: pending})


def _select_pending(written: AlertState, current: AlertState) -> dict[str, tuple[IncidentEvent, ...]]:
    """The events of the written state that are still pending in the current one."""
    pending = {key: {one.id for one in events} for key, events in current.events.items()}
    return {
        key: tuple(one for one in events if one.id in pending.get(key, ())) for key, events in written.events.items()
    }
