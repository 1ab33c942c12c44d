"""The space that the file of a local store takes: its write-ahead log, its free pages, and the reserve beside it."""

import logging
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from serve_app.errors import Overloaded, ServeError, StoreFull
from serve_app.stores.reserve import RESERVE_BYTES, Reserve

PAGE_BYTES = 2**14
# Of the write-ahead log: ``tidy`` moves more pages than these into the file, a commit twice as many.
LOG_PAGES = 1000
WAL_BYTES = LOG_PAGES * PAGE_BYTES  # to which a long write-ahead log is truncated
_VACUUM_PAGES = 64  # moved in one transaction when the file shrinks: 1 MiB, whose log fits into the reserve
log = logging.getLogger(__name__)


class FileSpace:
    """Frees space. The caller holds the lock of the connection.

    Args:
        path: of the database.
        translate: the error of the store for one of SQLite.

    Attributes:
        reserve: of the directory.
    """

    def __init__(self, path: Path, translate: Callable[[sqlite3.DatabaseError], ServeError]) -> None:
        self._path, self._translate = path, translate
        self.reserve = Reserve(path.parent)

    def empty_log(self, db: sqlite3.Connection) -> bool:
        """Truncate the log; if there is no space, once more with the space of the reserve. Returns False if readers or
        the disk prevent it."""
        if self._truncate_log(db):
            return True
        if not self.reserve.release():
            return False
        emptied = self._truncate_log(db)
        self.reserve.restore()
        return emptied

    def shrink(self, db: sqlite3.Connection) -> None:
        """Return free pages at the end of the file to the disk, until there is space for a push and the reserve.

        The file is first cut in the log: pages beyond the new end are then not copied when the log is emptied, which
        may be what makes the copy fit.
        """
        try:
            while not self._truncate_log(db) or not self.has_free_disk():
                free_pages = pages(db, "freelist_count")
                db.execute(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})").fetchall()
                if pages(db, "freelist_count") == free_pages:
                    return
        except sqlite3.DatabaseError as error:
            translated = self._translate(error)
            if not isinstance(translated, StoreFull | Overloaded):
                raise translated from error
            log.info("state store %s: it cannot shrink now: %s", self._path, error)

    def has_free_disk(self) -> bool:
        """Whether the disk has space for a push and the reserve."""
        disk = os.statvfs(self._path.parent)
        return disk.f_bavail * disk.f_frsize >= WAL_BYTES + 2 * RESERVE_BYTES

    def _truncate_log(self, db: sqlite3.Connection) -> bool:
        """Move the write-ahead log's content into the file, and truncate the log. Returns False if readers or the disk
        prevent it."""
        try:
            (busy, _, _) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.DatabaseError as error:
            if isinstance(translated := self._translate(error), StoreFull | Overloaded):
                log.info("state store %s: its log cannot be truncated: %s", self._path, error)
                return False
            raise translated from error
        return not busy


def pages(db: sqlite3.Connection, pragma: str) -> int:
    """A number of pages, as a pragma of SQLite counts them."""
    return int(db.execute(f"PRAGMA {pragma}").fetchone()[0])
