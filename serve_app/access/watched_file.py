"""A secret file that is read again when it changes, so that secrets can be rotated without a restart."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from serve_app.errors import BadSettings

RELOAD_SECONDS = 1.0  # between two checks of the file
T = TypeVar("T")
log = logging.getLogger(__name__)


class WatchedFile(Generic[T]):
    """A file's content. If the file becomes unreadable or invalid, the old content stays in use, and one error is
    logged.

    Raises:
        BadSettings: raised by ``read``.
    """

    def __init__(self, path: Path, read: Callable[[Path], T], clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._read, self._clock = path, read, clock
        self._checked_at, self._identity = clock(), _identify(path)
        self._content = read(path)

    def content(self, *, check_now: bool = False) -> T:
        """The file's content. The file is checked at most once in ``RELOAD_SECONDS``, unless ``check_now``."""
        now = self._clock()
        if check_now or now - self._checked_at >= RELOAD_SECONDS:
            self._checked_at, before, self._identity = now, self._identity, _identify(self._path)
            if self._identity != before:
                self._reload()
        return self._content

    def _reload(self) -> None:
        try:
            self._content = self._read(self._path)
            log.info("%s: reloaded", self._path)
        except BadSettings as error:
            log.error("%s; the old content stays in use", error.message)


def _identify(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
