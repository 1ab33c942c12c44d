"""The file of a local store: SQLite in WAL mode, from the standard library.

Durability: an acknowledged write survives the death of any process (kill -9), since the operating system has it in its
cache. ``synchronous=NORMAL`` differs from ``FULL`` only in a power failure: NORMAL then loses the last commits, but
stays consistent. A store on one node cannot survive the loss of the node anyway. FULL waits for the disk at every
snapshot: 0.65 instead of 0.36 ms for 250 KB on a disk that flushes quickly. Pages of 16 KiB instead of 4 KiB halve the
time for large blobs (5.8 MB: 14 instead of 31 ms).

Damage: if SQLite cannot read the file, or its layout is unknown, the file is renamed ``state.sqlite.corrupt-TIME``, and
every mesh that can be read completely is copied into a new file.

A full disk raises ``StoreFull``: nothing changes, reads still work, and meshes can be deleted, since ``reserve.py``
keeps space for it. The file then shrinks as far as pushes of other meshes need space. Deleted content may stay in free
pages of the file until they are used again (``secure_delete = FAST``: SQLite overwrites it only where this needs no
extra write; overwriting all of it took a fifth of each write of 250 KB).

Deleted or replaced files raise ``StoreGone`` on reads and writes, until the same files are back or the process
restarts; ``file_identity.py`` detects this. The one exception is a damaged file that another process has set aside: its
replacement is opened.
"""

import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from fcntl import LOCK_EX, flock
from pathlib import Path
from threading import Lock
from typing import TypeVar
from urllib.parse import quote

from serve_app.errors import CorruptState, Overloaded, StoreFull, StoreGone
from serve_app.stores.file_identity import MARKER_NAME, StoreFiles, find_files, read_last_run, write_last_run
from serve_app.stores.sqlite_errors import is_damage, translate
from serve_app.stores.sqlite_space import LOG_PAGES, PAGE_BYTES, WAL_BYTES, FileSpace, pages

FILE_NAME = "state.sqlite"
LOCK_NAME = "lock"
log = logging.getLogger(__name__)
T = TypeVar("T")
_RETRY_GONE_SECONDS = 5.0


class SqliteFile:
    """The open file of a store. Threads may share it: it does one transaction at a time.

    Args:
        directory: on a disk of this node; it is created if it does not exist.
        run: name of the service's run that this process belongs to. If the store's files are missing and a process of
            the same run had them open, no empty store is created in their place. None: one is created.
        busy_timeout_seconds: how long a call waits for another process's write before it raises ``Overloaded``.
        prepare: creates the tables in a new file; raises ``CorruptState`` for a layout that it does not know.
        rescue: copies what can be read of a damaged file into a new one, and returns the names of what was saved and
            of what was lost.

    Raises:
        CorruptState: the file cannot be read or created because of its permissions or the disk.
        StoreFull: no space on the disk.
        StoreGone: this run had a store here, and its files are gone.

    Attributes:
        path: of the database.
    """

    def __init__(
        self,
        directory: Path,
        *,
        run: str | None,
        busy_timeout_seconds: float,
        prepare: Callable[[sqlite3.Connection, Path], None],
        rescue: Callable[[sqlite3.Connection, sqlite3.Connection], tuple[list[str], list[str]]],
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path = directory / FILE_NAME
        self._directory, self._path_text = directory, str(self.path)
        self._run, self._busy_timeout_seconds = run, busy_timeout_seconds
        self._prepare, self._rescue = prepare, rescue
        self._space = FileSpace(self.path, self._translate)
        self._lock = Lock()  # one transaction at a time on the shared connection
        self._gone = False
        try:
            self.connection, self._files = self._open(create=True)
        except StoreFull:  # the log and its index need some space
            self._space.reserve.release()
            self.connection, self._files = self._open(create=True)
        self._space.reserve.restore()

    def close(self) -> None:
        """Close the file; it cannot be used afterwards."""
        with self._lock:
            self.connection.close()

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """The shared connection, to read from in the block."""
        with self._lock:
            if not self._has_its_files():
                self._reopen_replaced()
            with self._replacing_damage(), self._noticing_gone():
                yield self.connection

    @contextmanager
    def read_at_leisure(self) -> Iterator[sqlite3.Connection]:
        """A connection of its own for a long read. It blocks neither other readers nor a writer."""
        with self._lock:
            if not self._has_its_files():
                self._reopen_replaced()
        with self._noticing_gone(), closing(self._connect()) as db:
            yield db

    def add(self, change: Callable[[sqlite3.Connection], T]) -> T:
        """Commit a change in one transaction, and return its result. On a full disk, it is retried with what an emptied
        log frees."""
        with self._lock:
            try:
                result = self._commit(change)
            except StoreFull:
                if not self._space.empty_log(self.connection):  # truncating the log may free enough space
                    raise
                result = self._commit(change)
            self._space.reserve.restore()
        return result

    def remove(self, change: Callable[[sqlite3.Connection], T]) -> T:
        """As :meth:`add`, for a change that frees space, even on a full disk. The file shrinks if space is short."""
        with self._lock:
            try:
                result = self._commit(change)
            except StoreFull:
                self._space.reserve.release()
                result = self._commit(change)
            if not self._space.has_free_disk():
                self._space.shrink(self.connection)
                if pages(self.connection, "freelist_count"):  # no space for the log
                    self._space.reserve.release()
                    self._space.shrink(self.connection)
            self._space.reserve.restore()
        return result

    def tidy(self) -> None:
        """Move a long log into the file. On a separate connection, neither the lock nor another connection's write
        waits for the disk."""
        try:
            log_bytes = self.path.with_name(f"{FILE_NAME}-wal").stat().st_size
        except FileNotFoundError:  # the next write reports it
            return
        if log_bytes > WAL_BYTES:  # a truncated log has just this size
            with self._translating_errors(), closing(self._connect()) as db:
                db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def _connect(self, mode: str = "rw") -> sqlite3.Connection:
        """Connect to the file; ``rwc`` may create it, ``rw`` never does."""
        return sqlite3.connect(
            f"file:{quote(self._path_text)}?mode={mode}",
            uri=True,
            timeout=self._busy_timeout_seconds,
            isolation_level=None,
            check_same_thread=False,
        )

    def _commit(self, change: Callable[[sqlite3.Connection], T]) -> T:
        """Commit a change in one transaction. IMMEDIATE, so that nothing changes between compare and set. The caller
        holds the lock.

        The files are checked under the write lock, so that nothing is written to a file that was set aside, and again
        after the commit: a write to files that were deleted meanwhile is not acknowledged.
        """
        with self._replacing_damage(), self._noticing_gone():
            self.connection.execute("BEGIN IMMEDIATE")
            while not self._has_its_files():
                self.connection.execute("ROLLBACK")
                self._reopen_replaced()
                self.connection.execute("BEGIN IMMEDIATE")
            with self.connection:
                result = change(self.connection)
            if not self._has_its_files():
                raise self._report_gone()
            return result

    def _open(self, *, create: bool) -> tuple[sqlite3.Connection, StoreFiles]:
        """Connect to the file, and identify its files. A damaged file is replaced first.

        Args:
            create: create a store if there is none.
        """
        # SQLite's busy timeout does not cover two processes that both switch a new file to WAL mode.
        with self._directory_lock(create=create):
            fresh = self._replacement_path()
            if fresh.exists() and not self.path.exists():  # killed between the two renames of _replace
                fresh.rename(self.path)
            if not self.path.exists() or not self.path.stat().st_size:
                if not create:
                    raise self._report_gone()
                self._check_first_start()
            try:
                connection = self._create_connection()
            except CorruptState as error:
                if not is_damage(error):
                    raise
                self._replace(error)
                connection = self._create_connection()
            files = find_files(self._path_text)
            try:
                if self._run is not None:
                    write_last_run(self._directory, self._run)
            except OSError as error:  # a full disk; the store itself works
                log.warning("state store %s: %s was not written: %s", self.path, MARKER_NAME, error)
            return connection, files

    def _check_first_start(self) -> None:
        """Refuse to create an empty store if another process of this run had one here."""
        last_run = read_last_run(self._directory)
        if last_run is None:
            return
        if last_run == self._run:
            raise StoreGone(
                f"state store {self.path}: expected the store that this run of the service had open, got no file; "
                "put the files back, or restart the service to start with an empty store",
                retry_after_seconds=_RETRY_GONE_SECONDS,
            )
        log.error(
            "state store %s: the files of the store that was here are missing; created an empty store, so every mesh "
            "starts from the beginning. If this is a mistake, stop the service and put the files back",
            self.path,
        )

    @contextmanager
    def _directory_lock(self, *, create: bool) -> Iterator[None]:
        """Hold the lock under which processes create or replace the file.

        Raises:
            StoreGone: the lock file is missing, and must not be created again.
        """
        try:
            descriptor = os.open(self.path.with_name(LOCK_NAME), os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
        except (FileNotFoundError, NotADirectoryError):
            raise self._report_gone() from None
        try:
            flock(descriptor, LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _create_connection(self) -> sqlite3.Connection:
        with self._translating_errors():
            db = self._connect("rwc")
            try:
                _shape(db)
                db.execute("PRAGMA journal_mode = WAL")
                db.execute("PRAGMA synchronous = NORMAL")
                db.execute("PRAGMA secure_delete = FAST")
                db.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
                db.execute(f"PRAGMA wal_autocheckpoint = {2 * LOG_PAGES}")
                self._prepare(db, self.path)
            except BaseException:
                db.close()
                raise
            return db

    def _replacement_path(self) -> Path:
        """The file that will replace a damaged one. It is complete before the damaged one is renamed."""
        return self.path.with_name(f"{FILE_NAME}.fresh")

    def _replace(self, why: CorruptState) -> None:
        """Rename a damaged file, and put a file with its readable meshes in its place. The caller holds the directory's
        lock."""
        with closing(self._connect()) as old:
            try:
                old.execute("BEGIN IMMEDIATE")  # no other process may write while it is copied and renamed
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                    raise self._translate(error) from error
                log.warning("state store %s: cannot be locked (%s), so no process writes to it", self.path, error)
            self._rename(why)

    def _rename(self, why: CorruptState) -> None:
        fresh = self._replacement_path()
        fresh.unlink(missing_ok=True)
        with (
            closing(sqlite3.connect(fresh, isolation_level=None)) as new,
            closing(sqlite3.connect(self.path, isolation_level=None)) as old,
        ):
            _shape(new)
            self._prepare(new, fresh)
            saved, lost = self._rescue(old, new)
        aside = self.path.with_name(f"{FILE_NAME}.corrupt-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
        for suffix in ("-wal", "-shm", ""):  # the log belongs to its file
            part = self.path.with_name(FILE_NAME + suffix)
            if part.exists():
                part.rename(f"{aside}{suffix}")
        fresh.rename(self.path)
        log.error(
            "%s; the file was set aside as %s; saved meshes: %s; meshes that start learning again: %s",
            why, aside, ", ".join(saved) or "none", ", ".join(lost) or "all others",
        )  # fmt: skip

    def _replace_damaged(self, why: CorruptState) -> None:
        """Replace a damaged file, unless another process did so already."""
        with self._directory_lock(create=False):
            found = find_files(self._path_text)
            if found == self._files:
                self._replace(why)
            elif not self._is_set_aside():
                raise self._report_gone()
        self._reopen()

    def _reopen_replaced(self) -> None:
        """Open the file that another process created in place of a damaged one.

        Raises:
            StoreGone: the files are missing, or something else replaced them.
        """
        with self._directory_lock(create=False):  # waits for a replacement in progress
            found = find_files(self._path_text)
            if found == self._files:
                return
            if not self._is_set_aside():
                raise self._report_gone()
        self._reopen()

    def _reopen(self) -> None:
        self.connection.close()
        self.connection, self._files = self._open(create=False)

    def _is_set_aside(self) -> bool:
        """Whether another process of the service renamed the open file because it was damaged."""
        return any(
            find_files(str(aside)).database == self._files.database
            for aside in self._directory.glob(f"{FILE_NAME}.corrupt-*")
        )

    def _has_its_files(self) -> bool:
        """Whether the open files are at their paths. Logs their return."""
        if find_files(self._path_text) != self._files:
            return False
        if self._gone:
            self._gone = False
            log.warning("state store %s: its files are back and in use again", self.path)
        return True

    def _report_gone(self) -> StoreGone:
        """The error that lists the missing files. Logs the first one, and marks the directory, so that no process of
        this run creates an empty store there."""
        changes = self._files.describe_changes(find_files(self._path_text), FILE_NAME)
        error = StoreGone(
            f"state store {self.path}: expected the files that were opened, but {changes or 'they changed'}; "
            "nothing can be read or stored; put the same files back (moved, not copied), or restart the service to "
            "continue with the current files",
            retry_after_seconds=_RETRY_GONE_SECONDS,
        )
        if not self._gone:
            self._gone = True
            log.error("%s", error)
        if self._run is not None and self._directory.is_dir() and read_last_run(self._directory) != self._run:
            try:
                write_last_run(self._directory, self._run)
            except OSError as failed:
                log.warning("state store %s: %s was not written: %s", self.path, MARKER_NAME, failed)
        return error

    @contextmanager
    def _replacing_damage(self) -> Iterator[None]:
        try:
            yield
        except CorruptState as error:
            if is_damage(error):
                self._replace_damaged(error)
            raise

    @contextmanager
    def _translating_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise self._translate(error) from error

    @contextmanager
    def _noticing_gone(self) -> Iterator[None]:
        """As :meth:`_translating_errors`, but a failure because the files are missing is ``StoreGone``."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if find_files(self._path_text) != self._files and not self._is_set_aside():
                raise self._report_gone() from error
            raise self._translate(error) from error

    def _translate(self, error: sqlite3.DatabaseError) -> CorruptState | Overloaded | StoreFull:
        return translate(error, self.path, self._busy_timeout_seconds)


def _shape(db: sqlite3.Connection) -> None:
    """Set what only a new file takes over. Without ``auto_vacuum``, it would never shrink."""
    db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")
