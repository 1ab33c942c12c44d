"""A local store's disk space: its write-ahead log, its free pages, and a reserve for a full disk.

SQLite writes a change to its write-ahead log first, so even a deletion needs space. The reserve is a file of zeros
next to the database. A deletion that finds no space removes the file, and creates it again when there is space.
"""

import logging
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from serve_app.errors import Overloaded, ServeError, StoreFull

PAGE_BYTES = 2**14
LOG_PAGES = 1000  # of the write-ahead log, before ``tidy`` moves it into the file; a commit does so at twice as many
WAL_BYTES = LOG_PAGES * PAGE_BYTES  # to which a long write-ahead log is truncated
RESERVE_NAME = "reserve"
# The log of a deletion holds the pages that change, not those that become free: 0.4 MiB for a mesh of 120 snapshots,
# 0.6 MiB for one of 10,000. Shrinking the file afterwards needs the same space, in steps of 1 MiB.
RESERVE_BYTES = 4 * 2**20
_VACUUM_PAGES = 64  # moved in one transaction when the file shrinks: 1 MiB, whose log fits into the reserve
log = logging.getLogger(__name__)


class FileSpace:
    """Frees space. The caller holds the lock of the connection. Several processes may share the reserve.

    Args:
        path: of the database.
        translate: returns the store's error for one of SQLite.
    """

    def __init__(self, path: Path, translate: Callable[[sqlite3.DatabaseError], ServeError]) -> None:
        self._path, self._translate = path, translate
        self._reserve = path.with_name(RESERVE_NAME)
        self._warned = False

    def release_reserve(self) -> bool:
        """Delete the reserve to free its space, and return whether there was one."""
        try:
            self._reserve.unlink()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def restore_reserve(self) -> None:
        """Allocate the reserve if it is missing. Call it after each write: without a reserve, deleting a mesh could not
        free a full disk."""
        if self._reserve.exists():
            return
        partial_file = self._reserve.with_suffix(".part")
        try:
            _allocate(partial_file)
            partial_file.replace(self._reserve)
        except OSError as error:  # a full disk, a quota, a limit of the process, or a missing directory
            partial_file.unlink(missing_ok=True)
            if not self._warned:
                log.warning(
                    "state store %s: could not reserve %d MiB on the disk (%s); deleting a mesh may fail when the disk "
                    "is full",
                    self._path.parent,
                    RESERVE_BYTES >> 20,
                    error,
                )
        self._warned = not self._reserve.exists()

    def empty_log(self, db: sqlite3.Connection) -> bool:
        """Truncate the log; if there is no space, again with the space of the reserve. Returns False if readers or the
        disk prevent it."""
        if self._truncate_log(db):
            return True
        if not self.release_reserve():
            return False
        is_empty = self._truncate_log(db)
        self.restore_reserve()
        return is_empty

    def free_disk(self, db: sqlite3.Connection) -> None:
        """Shrink the file after a deletion, if the disk is short of space; with the space of the reserve if needed."""
        if self._has_free_disk():
            return
        self._shrink(db)
        if pages(db, "freelist_count"):  # no space for the log
            self.release_reserve()
            self._shrink(db)

    def _shrink(self, db: sqlite3.Connection) -> None:
        """Return free pages at the end of the file to the disk, until there is space for a push and the reserve.

        The file is first cut in the log: pages beyond the new end are then not copied when the log is emptied, which
        may be what makes the copy fit.
        """
        try:
            while not self._truncate_log(db) or not self._has_free_disk():
                free_pages = pages(db, "freelist_count")
                db.execute(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})").fetchall()
                if pages(db, "freelist_count") == free_pages:
                    return
        except sqlite3.DatabaseError as error:
            self._tolerate(error, "it cannot shrink now")

    def _has_free_disk(self) -> bool:
        """Whether the disk has space for a push and the reserve."""
        disk = os.statvfs(self._path.parent)
        return disk.f_bavail * disk.f_frsize >= WAL_BYTES + 2 * RESERVE_BYTES

    def _truncate_log(self, db: sqlite3.Connection) -> bool:
        """Move the log's content into the file, and truncate the log. Returns False if readers or the disk prevent
        it."""
        try:
            (busy, _, _) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.DatabaseError as error:
            self._tolerate(error, "its log cannot be truncated")
            return False
        return not busy

    def _tolerate(self, error: sqlite3.DatabaseError, problem: str) -> None:
        """Log a full disk or another writer; raise any other error."""
        own_error = self._translate(error)
        if not isinstance(own_error, StoreFull | Overloaded):
            raise own_error from error
        log.info("state store %s: %s: %s", self._path, problem, error)


def pages(db: sqlite3.Connection, pragma: str) -> int:
    """Return a number of pages from a pragma of SQLite."""
    return int(db.execute(f"PRAGMA {pragma}").fetchone()[0])


def _allocate(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
        else:  # macOS
            os.write(descriptor, bytes(RESERVE_BYTES))
    finally:
        os.close(descriptor)
