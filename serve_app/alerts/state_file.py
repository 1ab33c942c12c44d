"""The book of what was told, in memory and in one small file, which is written before anybody is told.

The file is replaced whole (written beside, synced, renamed), so that a crash leaves the one before or the one after.
Written before it is sent: an event has one id for ever, and a page the labels that it was first told with, however
often the process dies in between.
"""

import asyncio
import logging
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from serve_app.alerts.alert import AlertState, IncidentEvent
from serve_app.alerts.payloads import decode_book, encode_book
from serve_app.errors import BadSettings, CorruptState
from serve_app.metrics import NOTICES_FAILED, Instruments

FILE_NAME = "notifications.json"
PATIENCE_SECONDS = 2.0  # for a disk that hangs; then people are told all the same
log = logging.getLogger("ray.serve")


def read(directory: Path) -> AlertState:
    """What was kept; an empty book where there is none, or none that can be read: that one is moved aside.

    Raises:
        BadSettings: the directory cannot be made, read or written.
    """
    path = directory / FILE_NAME
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        content = path.read_bytes() if path.exists() else None
        if not os.access(directory, os.W_OK):
            raise PermissionError(f"no permission to write {directory}")
        return AlertState() if content is None else decode_book(content)
    except CorruptState as error:
        aside = path.with_name(f"{FILE_NAME}.corrupt-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
        path.rename(aside)
        log.error("%s; moved to %s; what is open is told anew with the next verdict", error, aside)
        return AlertState()
    except OSError as error:
        raise BadSettings(f"notify: expected a directory to write in, came {error}; correct notify.path") from error


def write(directory: Path, book: AlertState) -> None:
    """Replace what was kept.

    Raises:
        OSError: nothing changed.
    """
    path, fresh = directory / FILE_NAME, directory / f"{FILE_NAME}.new"
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(encode_book(book))
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    folder = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class StateFile:
    """The book of one process; of one event loop.

    Attributes:
        book: as it is now.
        published: as it was last written, and no less than that if the disk refuses: what may be sent.
    """

    def __init__(self, directory: Path, instruments: Instruments) -> None:
        self.book = self.published = read(directory)
        self._instruments = instruments
        self._directory = directory
        self._changed = asyncio.Event()
        self._owed = False  # something must be written before it is published
        self._publishing = asyncio.Lock()
        self._writing: asyncio.Task[None] | None = None
        self._readers: list[asyncio.Event] = []

    def reader(self) -> asyncio.Event:
        """Set whenever something was published."""
        news = asyncio.Event()
        self._readers.append(news)
        return news

    def change(self, book: AlertState, *, write: bool = True) -> None:
        """Replace the book; without ``write`` the change is not worth a write of its own."""
        self.book = book
        self._owed |= write
        self._changed.set()

    def acknowledged(self, webhook: str, event: str) -> None:
        """An event has arrived, or never will: it is at the head of its queue no more, from now on."""
        self.published = _without(self.published, webhook, event)
        self.change(_without(self.book, webhook, event))

    async def keep(self) -> None:
        """Write and publish what changes, for ever."""
        while True:
            await self._changed.wait()
            await self.publish()

    async def publish(self) -> None:
        """Write and publish what has changed until now."""
        async with self._publishing:  # in order
            self._changed.clear()
            book, owed, self._owed = self.book, self._owed, False
            if owed:
                await self._write(book)
            # What was acknowledged while the disk worked must not come back.
            self.published = replace(book, events=_still(book, self.book))
            for news in self._readers:
                news.set()

    async def flush(self) -> None:
        """Write and publish the book as it is now, whether it is worth it or not."""
        self._owed = True
        await self.publish()

    async def _write(self, book: AlertState) -> None:
        if self._writing is None or self._writing.done():  # one at a time
            self._writing = asyncio.create_task(self._attempt(book))
            await asyncio.wait({self._writing}, timeout=PATIENCE_SECONDS)
            if self._writing.done():
                return
        self._failed(f"no answer from the disk within {PATIENCE_SECONDS:g} s")

    async def _attempt(self, book: AlertState) -> None:
        try:
            await asyncio.to_thread(write, self._directory, book)
        except Exception as error:  # whatever it is, people are told
            self._failed(error)

    def _failed(self, why: object) -> None:
        self._owed = True  # with the next change, and there is one every minute while anything is open
        self._instruments.count(NOTICES_FAILED, receiver="state", reason="unwritable")
        log.error("notifications cannot be kept, and are sent all the same: %s", why)


def _without(book: AlertState, webhook: str, event: str) -> AlertState:
    waiting = tuple(one for one in book.events.get(webhook, ()) if one.id != event)
    return book.with_events({**book.events, webhook: waiting})


def _still(written: AlertState, now: AlertState) -> dict[str, tuple[IncidentEvent, ...]]:
    """Of the events that were written, those that still wait."""
    waiting = {key: {one.id for one in events} for key, events in now.events.items()}
    return {
        key: tuple(one for one in events if one.id in waiting.get(key, ())) for key, events in written.events.items()
    }
