"""Where the state of notifications is stored: in a file of one node, or in the store's Redis (``stores``)."""

import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from serve_app.alerts.alert import AlertState
from serve_app.alerts.payloads import decode_state, encode_state
from serve_app.errors import BadSettings, CorruptState
from serve_app.settings import Settings

FILE_NAME = "notifications.json"
DIRECTORY = "notify"
log = logging.getLogger(__name__)


class AlertStorage(Protocol):
    """Stores the state of one process that sends notifications. It needs two methods: ``read`` is called once, at the
    start, and ``write`` whenever an alert begins, changes or ends, with a few KB; it may block its thread."""

    def read(self) -> AlertState:
        """The stored state; an empty one if there is none, or if it is damaged: it is then set aside.

        Raises:
            BadSettings: there is no access to it.
            StoreGone: Redis is unreachable.
        """

    def write(self, state: AlertState) -> None:
        """Replace the stored state.

        Raises:
            StoreConflict: another process has taken over. Send nothing more.
            OSError, ServeError: nothing changed, or it is unknown whether anything did.
        """


def open_file(settings: Settings) -> "FileStorage":
    """A file beside the local store."""
    return FileStorage(settings.store.path / DIRECTORY)


class FileStorage:
    """A small file, replaced as a whole (written to a new file, synced, renamed): a crash leaves the old content or the
    new content, never a mixture.

    Args:
        directory: for the file. No other process may use it.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self) -> AlertState:
        path = self._directory / FILE_NAME
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            content = path.read_bytes() if path.exists() else None
            if not os.access(self._directory, os.W_OK):
                raise PermissionError(f"no permission to write {self._directory}")
            return AlertState() if content is None else decode_state(content)
        except CorruptState as error:
            aside = path.with_name(f"{FILE_NAME}.corrupt-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
            path.rename(aside)
            log.error("%s; renamed to %s; the next verdict sends open incidents again", error, aside)
            return AlertState()
        except OSError as error:
            raise BadSettings(
                f"store.path: the state of notifications cannot be written: {error}; make the directory writable"
            ) from error

    def write(self, state: AlertState) -> None:
        path, new = self._directory / FILE_NAME, self._directory / f"{FILE_NAME}.new"
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(encode_state(state))
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        folder = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
