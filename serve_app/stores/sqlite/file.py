"""The file of a local store: SQLite in WAL mode, from the standard library.

Durability: an acknowledged write survives the death of any process (kill -9), since the operating system has it in its
cache. ``synchronous=NORMAL`` differs from ``FULL`` only in a power failure: NORMAL then loses the last commits, but
stays consistent. A store on one node cannot survive the loss of the node anyway. FULL waits for the disk at every
snapshot: 0.65 instead of 0.36 ms for 250 KB on a disk that flushes quickly. Pages of 16 KiB instead of 4 KiB halve the
time for large blobs (5.8 MB: 14 instead of 31 ms).

Damage: if SQLite cannot read the file, or its table is missing, the file is renamed ``state.sqlite.corrupt-TIME``, and
every mesh that can be read completely is copied into a new file.

A full disk raises ``StoreFull``: nothing changes, reads still work, and meshes can be deleted, since ``space.py`` keeps
space for it. The file then shrinks until there is space for pushes of other meshes. Deleted content may stay in free
pages of the file until they are used again (``secure_delete = FAST``: SQLite overwrites it only where this needs no
extra write; overwriting all of it took a fifth of a 250 KB write).

Deleted or replaced files raise ``StoreGone`` on reads and writes, until the same files are back or the process
restarts. A process can keep writing to a deleted file; its data is lost when the process ends. So each call compares
the device and inode at each path with the open file's: three calls of ``os.stat``, about 4 µs. If another process has
set a damaged file aside, its replacement is opened instead.
"""

import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from fcntl import LOCK_EX, flock
from pathlib import Path
from threading import Lock
from typing import TypeVar
from urllib.parse import quote

from serve_app.errors import CorruptState, Overloaded, StoreFull, StoreGone
from serve_app.stores.row_store import HEAD, SERVICE
from serve_app.stores.rows import LAYOUT_ROW, check_layout
from serve_app.stores.sqlite.space import LOG_PAGES, PAGE_BYTES, WAL_BYTES, FileSpace, pages

FILE_NAME, LOCK_NAME, MARKER_NAME = "state.sqlite", "lock", "last-run"
SUFFIXES = ("", "-wal", "-shm")  # database, write-ahead log, and the log's index, which processes share
# A row of some MB stays out of the index, whose pages therefore have many keys.
_TABLES = (
    "CREATE TABLE rows (space TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL)",
    "CREATE UNIQUE INDEX rows_by_key ON rows (space, key)",
    f"CREATE INDEX meshes ON rows (space, value) WHERE key = '{HEAD}'",
)
_MARKER_TEXT = (
    "The last run of TAGAE that had a state store in this directory. If the store's files disappear during a run,\n"
    "this file keeps replicas of the same run from creating an empty store in their place. Restart the service to\n"
    "start with an empty store.\n"
)
_FULL = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_TRUNCATE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}  # ERROR: a table is missing
_RETRY_GONE_SECONDS = 5.0
FileIds = tuple[tuple[int, int] | None, ...]  # device and inode of each of SUFFIXES; None: it is missing
T = TypeVar("T")
log = logging.getLogger(__name__)


class DamagedFile(CorruptState):
    """The file itself is damaged: SQLite reports it, or its table is missing."""


class SqliteFile:
    """The open file of a store. Threads may share it: it does one transaction at a time.
    :class:`~serve_app.stores.sqlite.store.SqliteRows` describes arguments and errors.

    Attributes:
        connection: shared by all transactions.
    """

    def __init__(self, directory: Path, *, run: str | None, busy_timeout_seconds: float) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path, self._path_text = directory / FILE_NAME, str(directory / FILE_NAME)
        self._marker = directory / MARKER_NAME
        self._fresh = directory / f"{FILE_NAME}.fresh"  # complete before it replaces a damaged file
        self._run, self._busy_timeout_seconds = run, busy_timeout_seconds
        self._space = FileSpace(self.path, self._translate)
        self._lock = Lock()  # one transaction at a time on the shared connection
        self._gone = False
        try:
            self.connection, self._files = self._open(create=True)
        except StoreFull:  # the log and its index need some space
            self._space.release_reserve()
            self.connection, self._files = self._open(create=True)
        self._space.restore_reserve()

    def close(self) -> None:
        """Close the file; it cannot be used afterwards."""
        with self._lock:
            self.connection.close()

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Hold the shared connection for a read."""
        with self._lock:
            self._open_replacement()
            with self._replacing_damage(), self._translating_errors():
                yield self.connection

    @contextmanager
    def read_at_leisure(self) -> Iterator[sqlite3.Connection]:
        """Open a separate connection for a long read. It blocks neither other readers nor a writer."""
        with self._lock:
            self._open_replacement()
        with self._translating_errors(), closing(self._connect()) as db:
            yield db

    def write(self, change: Callable[[sqlite3.Connection], T], *, frees_space: bool) -> T:
        """Commit a change in one transaction, and return its result. On a full disk, retry with the space of an emptied
        log, or of the reserve if the change ``frees_space``."""
        with self._lock:
            try:
                result = self._commit(change)
            except StoreFull:
                if frees_space:
                    self._space.release_reserve()
                elif not self._space.empty_log(self.connection):
                    raise
                result = self._commit(change)
            if frees_space:
                self._space.free_disk(self.connection)
            self._space.restore_reserve()
        return result

    def tidy(self) -> None:
        """Move a long log into the file, on a separate connection, so that no other call waits for the disk."""
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
        """Commit a change in one transaction, IMMEDIATE so that nothing changes between compare and set. The caller
        holds the lock.

        The files are checked under the write lock, so that nothing is written to a file that was set aside, and again
        after the commit: a write to files that were deleted meanwhile is not acknowledged.
        """
        with self._replacing_damage(), self._translating_errors():
            self.connection.execute("BEGIN IMMEDIATE")
            while not self._has_its_files():
                self.connection.execute("ROLLBACK")
                self._open_replacement()
                self.connection.execute("BEGIN IMMEDIATE")
            with self.connection:
                result = change(self.connection)
            if not self._has_its_files():
                raise self._report_gone()
            return result

    # Opening

    def _open(self, *, create: bool) -> tuple[sqlite3.Connection, FileIds]:
        """Connect, and identify the files. A damaged file is replaced first. With ``create``, a store is created if
        there is none."""
        # SQLite's busy timeout does not cover two processes that both switch a new file to WAL mode.
        with self._directory_lock(create=create):
            if self._fresh.exists() and not self.path.exists():  # killed between the two renames of _replace
                self._fresh.rename(self.path)
            if not self.path.exists() or not self.path.stat().st_size:
                if not create:
                    raise self._report_gone()
                self._check_first_start()
            try:
                connection = self._create_connection()
            except DamagedFile as error:
                self._replace(error)
                connection = self._create_connection()
            files = find_files(self._path_text)
            self._mark_run()
            return connection, files

    def _check_first_start(self) -> None:
        """Refuse to create an empty store if another process of this run had one here."""
        last_run = self._last_run()
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

    def _last_run(self) -> str | None:
        """Return the last run that had a store in this directory; None if unknown."""
        try:
            return self._marker.read_text(encoding="utf-8").partition("\n")[0]
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _mark_run(self) -> None:
        """Write the name of this run into the directory."""
        try:
            if self._run is not None and self._last_run() != self._run:
                self._marker.write_text(f"{self._run}\n\n{_MARKER_TEXT}", encoding="utf-8")
        except OSError as error:  # a full disk; the store itself works
            log.warning("state store %s: %s was not written: %s", self.path, MARKER_NAME, error)

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
        try:
            db = self._connect("rwc")
            try:
                _shape(db)
                db.execute("PRAGMA journal_mode = WAL")
                db.execute("PRAGMA synchronous = NORMAL")
                db.execute("PRAGMA secure_delete = FAST")
                db.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
                db.execute(f"PRAGMA wal_autocheckpoint = {2 * LOG_PAGES}")
                _prepare(db)
            except BaseException:
                db.close()
                raise
            return db
        except sqlite3.DatabaseError as error:
            raise self._translate(error) from error

    # Damage

    @contextmanager
    def _replacing_damage(self) -> Iterator[None]:
        """Replace a file that turns out to be damaged, unless another process has done so, and raise the error."""
        try:
            yield
        except DamagedFile as error:
            with self._directory_lock(create=False):
                if self._is_in_place_or_set_aside():
                    self._replace(error)
            self._reopen()
            raise

    def _open_replacement(self) -> None:
        """Open the file that another process created in place of a damaged one.

        Raises:
            StoreGone: the files are missing, or something else replaced them.
        """
        if self._has_its_files():
            return
        with self._directory_lock(create=False):  # waits for a replacement in progress
            if self._is_in_place_or_set_aside():
                return
        self._reopen()

    def _reopen(self) -> None:
        self.connection.close()
        self.connection, self._files = self._open(create=False)

    def _is_in_place_or_set_aside(self) -> bool:
        """Return whether the open file is at its path, not set aside. The caller holds the directory's lock.

        Raises:
            StoreGone: neither.
        """
        is_in_place = find_files(self._path_text) == self._files
        if not is_in_place and not self._is_set_aside():
            raise self._report_gone()
        return is_in_place

    def _is_set_aside(self) -> bool:
        """Return whether another process renamed the open file because it was damaged."""
        paths = self.path.parent.glob(f"{FILE_NAME}.corrupt-*")
        return any(find_files(str(path))[0] == self._files[0] for path in paths)

    def _replace(self, damage: DamagedFile) -> None:
        """Replace a damaged file by one with its readable meshes, and rename it. The caller holds the directory's
        lock."""
        with closing(self._connect()) as locked_db:
            try:
                locked_db.execute("BEGIN IMMEDIATE")  # no other process may write while it is copied and renamed
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                    raise self._translate(error) from error
                log.warning("state store %s: cannot be locked (%s), so no process writes to it", self.path, error)
            self._fresh.unlink(missing_ok=True)
            with (
                closing(sqlite3.connect(self._fresh, isolation_level=None)) as new,
                closing(sqlite3.connect(self.path, isolation_level=None)) as old,
            ):
                _shape(new)
                _prepare(new)
                saved, lost = _rescue(old, new)
            aside = self.path.with_name(f"{FILE_NAME}.corrupt-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
            for suffix in reversed(SUFFIXES):  # the log belongs to its file
                part = self.path.with_name(FILE_NAME + suffix)
                if part.exists():
                    part.rename(f"{aside}{suffix}")
            self._fresh.rename(self.path)
        log.error(
            "%s; the file was set aside as %s; saved meshes: %s; meshes that start learning again: %s",
            damage, aside, ", ".join(saved) or "none", ", ".join(lost) or "all others",
        )  # fmt: skip

    # Disappearance

    def _has_its_files(self) -> bool:
        """Return whether the open files are at their paths. Log their return."""
        if find_files(self._path_text) != self._files:
            return False
        if self._gone:
            self._gone = False
            log.warning("state store %s: its files are back and in use again", self.path)
        return True

    def _report_gone(self) -> StoreGone:
        """Return the error that lists the missing files. Log the first one, and mark the directory, so that no process
        of this run creates an empty store there."""
        changes = ", ".join(
            f"{FILE_NAME}{suffix} {'is missing' if actual is None else 'is another file'}"
            for suffix, expected, actual in zip(SUFFIXES, self._files, find_files(self._path_text), strict=True)
            if expected != actual
        )
        error = StoreGone(
            f"state store {self.path}: expected the files that were opened, but {changes or 'they changed'}; "
            "nothing can be read or stored; put the same files back (moved, not copied), or restart the service to "
            "continue with the current files",
            retry_after_seconds=_RETRY_GONE_SECONDS,
        )
        if not self._gone:
            self._gone = True
            log.error("%s", error)
        if self.path.parent.is_dir():
            self._mark_run()
        return error

    @contextmanager
    def _translating_errors(self) -> Iterator[None]:
        """Raise the store's error for one of SQLite; ``StoreGone`` if its cause is that the files are missing."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if find_files(self._path_text) != self._files and not self._is_set_aside():
                raise self._report_gone() from error
            raise self._translate(error) from error

    def _translate(self, error: sqlite3.DatabaseError) -> CorruptState | Overloaded | StoreFull:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        if code & 0xFF == sqlite3.SQLITE_BUSY:
            return Overloaded(
                f"state store {self.path}: other writers locked it for {self._busy_timeout_seconds:g} s; try again",
                retry_after_seconds=1.0,
            )
        if code in _FULL:
            return StoreFull(
                f"state store {self.path}: expected space to write, got {error}; nothing was changed; free space on "
                "the disk, or delete unused meshes, and send the snapshot again"
            )
        kind = DamagedFile if code & 0xFF in _DAMAGED else CorruptState
        return kind(f"state store {self.path}: {error}; check the disk and the permissions")


def find_files(path: str) -> FileIds:
    """Identify the files at a database's paths."""
    ids: list[tuple[int, int] | None] = []
    for suffix in SUFFIXES:
        try:
            file = os.stat(path + suffix)
        except (FileNotFoundError, NotADirectoryError):
            ids.append(None)
        else:
            ids.append((file.st_dev, file.st_ino))
    return tuple(ids)


def _shape(db: sqlite3.Connection) -> None:
    """Set the options that only a new file accepts. Without ``auto_vacuum``, it would never shrink."""
    db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")


def _prepare(db: sqlite3.Connection) -> None:
    """Create the table in a new file; raise an error if an old file has none."""
    db.execute("BEGIN IMMEDIATE")
    with db:
        if not pages(db, "schema_version"):
            for statement in _TABLES:
                db.execute(statement)
        for index in ("rows_by_key WHERE space = ''", f"meshes WHERE key = '{HEAD}'"):
            db.execute(f"SELECT space, key, value FROM rows INDEXED BY {index} LIMIT 1").fetchone()


def count_meshes(path: Path) -> int:
    """Count the meshes of a file without writing to it.

    Raises:
        CorruptState: another version wrote it.
        sqlite3.Error: the file is damaged.
    """
    with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as db:
        layout = "SELECT CAST(value AS BLOB) FROM rows WHERE space = ? AND key = ?"  # damage may change its type
        row = db.execute(layout, (SERVICE, LAYOUT_ROW)).fetchone()
        check_layout(str(path), row[0] if row else b"")
        return int(db.execute("SELECT COUNT(*) FROM rows WHERE key = ?", (HEAD,)).fetchone()[0])


def _rescue(old: sqlite3.Connection, new: sqlite3.Connection) -> tuple[list[str], list[str]]:
    """Copy every space of a damaged file that can be read completely. Damaged values are detected when they are read
    later.

    Returns:
        Names of the saved spaces, and of the lost ones as far as names could be read.
    """
    saved: list[str] = []
    lost: list[str] = []
    with suppress(sqlite3.DatabaseError):  # no more names can be read
        for (space,) in old.execute("SELECT DISTINCT space FROM rows ORDER BY space").fetchall():
            (saved if _copy(old, new, space) else lost).append(str(space))
    return saved, lost


def _copy(old: sqlite3.Connection, new: sqlite3.Connection, space: str) -> bool:
    try:
        new.execute("BEGIN")
        with new:
            for row in old.execute("SELECT space, key, value FROM rows WHERE space = ?", (space,)):
                new.execute("INSERT INTO rows VALUES (?, ?, ?)", row)
    except sqlite3.DatabaseError:
        return False
    return True
