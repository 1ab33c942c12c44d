"""A state store in one directory of one node: SQLite in WAL mode, from the standard library.

Several processes of one node may use it at once. It does not work on a network file system: WAL needs shared memory.

Durability: an acknowledged write survives the death of any process (kill -9), since the operating system has it in its
cache. ``synchronous=NORMAL`` differs from ``FULL`` only in a power failure: NORMAL then loses the last commits, but
stays consistent. A store on one node cannot survive the loss of the node anyway. FULL waits for the disk at every
snapshot: 0.65 instead of 0.36 ms for 250 KB on a disk that flushes quickly. Pages of 16 KiB instead of 4 KiB halve the
time for large blobs (5.8 MB: 14 instead of 31 ms).

A mesh's state is large, so it is stored in full only now and then, in a table of its own, and in steps in between. With
a full state at every snapshot, packing and writing it took a quarter of the CPU time of a push (2,000 services).

Damage: damaged data is set aside and never used. If a row fails its checksum, its mesh moves into separate tables and
starts from the beginning. If SQLite cannot read the file, or its layout is unknown, the file is renamed
``state.sqlite.corrupt-TIME``, and every mesh that can be read completely is copied into a new file.

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
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from fcntl import LOCK_EX, flock
from pathlib import Path
from threading import Lock
from typing import TypeVar
from urllib.parse import quote

from serve_app.errors import CorruptState, Overloaded, StoreFull, StoreGone
from serve_app.settings.base import check_mesh_name
from serve_app.stores import incident_table, rows, tables
from serve_app.stores.base import (
    ArchivedIncident,
    ArchiveLimit,
    IncidentFilter,
    MeshLimit,
    MeshSummary,
    NewSnapshot,
    StoredMesh,
    StoredState,
    StoredVerdict,
    WholeMesh,
)
from serve_app.stores.file_identity import MARKER_NAME, StoreFiles, find_files, read_last_run, write_last_run
from serve_app.stores.refusals import conflict, too_many_meshes
from serve_app.stores.reserve import RESERVE_BYTES, Reserve
from serve_app.stores.rows import microseconds, time_of

FILE_NAME = "state.sqlite"
LOCK_NAME = "lock"
_PAGE_BYTES = 2**14
# Of the write-ahead log: ``tidy`` moves more pages than these into the file, a commit twice as many.
_LOG_PAGES = 1000
_WAL_BYTES = _LOG_PAGES * _PAGE_BYTES  # to which a long write-ahead log is truncated
_FULL = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_TRUNCATE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}  # the last: a table is missing
log = logging.getLogger(__name__)
T = TypeVar("T")
_VACUUM_PAGES = 64  # moved in one transaction when the file shrinks: 1 MiB, whose log fits into the reserve
_RETRY_GONE_SECONDS = 5.0
_BEGINNING = -(2**63)  # before any time, µs
_NEWEST = "LEFT JOIN snapshots AS s ON s.mesh = m.mesh AND s.sequence = m.sequence"


class LocalStore:
    """A :class:`~serve_app.stores.base.StateStore` in ``directory``, which is created if it does not exist.

    Args:
        directory: on a disk of this node.
        limit: how many meshes it may hold; None: any number.
        archive: what the archive of each mesh keeps; None: everything.
        on_evicted: called with the name of a mesh that was deleted to make room for another, in the writing thread,
            after the write.
        run: name of the service's run that this process belongs to. If the store's files are missing and a process of
            the same run had them open, no empty store is created in their place. None: one is created.
        busy_timeout_seconds: how long a call waits for another process's write before it raises ``Overloaded``.

    Raises:
        CorruptState: the file cannot be read or created because of its permissions or the disk.
        StoreFull: no space on the disk.
        StoreGone: this run had a store here, and its files are gone.
    """

    def __init__(
        self,
        directory: Path,
        *,
        limit: MeshLimit | None = None,
        archive: ArchiveLimit | None = None,
        on_evicted: Callable[[str], None] | None = None,
        run: str | None = None,
        busy_timeout_seconds: float = 2.0,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._directory = directory
        self._path = directory / FILE_NAME
        self._path_text = str(self._path)
        self._limit, self._archive, self._on_evicted, self._run = limit, archive, on_evicted, run
        self._busy_timeout_seconds = busy_timeout_seconds
        self._reserve = Reserve(directory)
        self._lock = Lock()  # one transaction at a time on the shared connection
        self._gone = False
        try:
            self._connection, self._files = self._open(create=True)
        except StoreFull:  # the log and its index need some space
            self._reserve.release()
            self._connection, self._files = self._open(create=True)
        self._reserve.restore()

    def close(self) -> None:
        """Close the file; the store cannot be used afterwards."""
        with self._lock:
            self._connection.close()

    def check_room(self, mesh: str) -> None:
        check_mesh_name(mesh)
        with self._read() as db:
            if self._limit is not None and _position(db, mesh)[1] == 0:
                _find_room(db, mesh, self._limit)

    def load(self, mesh: str) -> StoredMesh | None:
        check_mesh_name(mesh)
        with self._read() as db:
            row = db.execute(
                "SELECT m.revision, m.sequence, s.observed_at, s.digest, s.verdict "
                f"FROM meshes AS m {_NEWEST} WHERE m.mesh = ?",
                (mesh,),
            ).fetchone()
        if row is None:
            return None
        revision, sequence, at, digest, verdict = row
        if sequence:
            with self._setting_aside_damage(mesh):
                verdict = rows.unseal_verdict(mesh, sequence, at or 0, digest or "", verdict or b"")
        return StoredMesh(mesh, revision, sequence, _time(at), digest or "", verdict or b"")

    def load_state(self, mesh: str) -> StoredState | None:
        check_mesh_name(mesh)
        with self._read() as db:
            db.execute("BEGIN")  # one view for all rows
            with db:
                found = tables.select_state(db, mesh)
        if found is None:
            return None
        with self._setting_aside_damage(mesh):
            return tables.unseal_rows(mesh, found)

    def append(self, mesh: str, new: NewSnapshot, *, keep: int, revision: int | None = None) -> int:
        if keep < 1:
            raise ValueError(f"keep: expected at least 1 snapshot, came {keep}")
        check_mesh_name(mesh)
        sequence, at = new.sequence, microseconds(new.observed_at)

        def change(db: sqlite3.Connection) -> tuple[int, str | None]:
            stored_sequence, stored_revision = _position(db, mesh)
            if stored_sequence != sequence - 1 or revision not in (None, stored_revision):
                raise conflict(mesh, f"snapshot {sequence}", revision, stored_sequence, stored_revision)
            evicted = self._make_room(db, mesh, stored_revision)
            new_revision = _put_position(db, mesh, sequence)
            if new.is_step:
                if not stored_revision:
                    raise ValueError("is_step: expected the first state of a mesh in full, came a step")
                tables.put_step(db, mesh, sequence, new.state)
            else:
                tables.put_state(db, mesh, new_revision, sequence, new.state)
            verdict = rows.seal_verdict(mesh, sequence, at, new.digest, new.verdict)
            snapshot = rows.seal_snapshot(mesh, sequence, new.snapshot)
            row = (mesh, sequence, at, new.digest, verdict, snapshot)
            db.execute("INSERT INTO snapshots VALUES (?, ?, ?, ?, ?, ?)", row)
            db.execute("DELETE FROM snapshots WHERE mesh = ? AND sequence <= ?", (mesh, sequence - keep))
            if new.incidents:
                incident_table.write(db, mesh, new.incidents)
            if self._archive is not None:
                incident_table.drop_excess(db, mesh, self._archive, new.observed_at, grew=bool(new.incidents))
            return new_revision, evicted

        return self._write_mesh(change)

    def replace(self, mesh: str, state: bytes, *, revision: int, incidents: tuple[ArchivedIncident, ...] = ()) -> int:
        check_mesh_name(mesh)

        def change(db: sqlite3.Connection) -> tuple[int, str | None]:
            stored_sequence, stored_revision = _position(db, mesh)
            if stored_revision != revision:
                raise conflict(mesh, "a baseline", revision, stored_sequence, stored_revision)
            evicted = self._make_room(db, mesh, stored_revision)
            incident_table.write(db, mesh, incidents)
            new_revision = _put_position(db, mesh, stored_sequence)
            tables.put_state(db, mesh, new_revision, stored_sequence, state)
            return new_revision, evicted

        return self._write_mesh(change)

    def compact(self, mesh: str, state: bytes, *, sequence: int, revision: int, state_revision: int) -> bool:
        check_mesh_name(mesh)
        with self._lock:
            return self._commit(lambda db: tables.compact(db, mesh, state, sequence, revision, state_revision))

    def tidy(self) -> None:
        # On a separate connection, neither the lock nor another connection's write waits for the disk.
        try:
            log_bytes = self._path.with_name(f"{FILE_NAME}-wal").stat().st_size
        except FileNotFoundError:  # the next write reports it
            return
        if log_bytes > _WAL_BYTES:  # a truncated log has just this size
            with self._translating_errors(), closing(self._connect()) as db:
                db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def verdict_at(self, mesh: str, observed_at: datetime) -> StoredVerdict | None:
        check_mesh_name(mesh)
        with self._read() as db:
            row = db.execute(
                "SELECT sequence, digest, verdict FROM snapshots WHERE mesh = ? AND observed_at = ? "
                "ORDER BY sequence DESC LIMIT 1",
                (mesh, microseconds(observed_at)),
            ).fetchone()
        if row is None:
            return None
        sequence, digest, verdict = row
        with self._setting_aside_damage(mesh):
            return StoredVerdict(
                digest, rows.unseal_verdict(mesh, sequence, microseconds(observed_at), digest, verdict)
            )

    def verdicts(self, mesh: str, since: datetime | None, limit: int) -> list[bytes]:
        check_mesh_name(mesh)
        after = _BEGINNING if since is None else microseconds(since)
        with self._read() as db:
            found = db.execute(
                "SELECT sequence, observed_at, digest, verdict FROM snapshots WHERE mesh = ? AND observed_at > ? "
                "ORDER BY sequence LIMIT ?",
                (mesh, after, limit),
            ).fetchall()
        with self._setting_aside_damage(mesh):
            return [rows.unseal_verdict(mesh, *row) for row in found]

    def window(self, mesh: str) -> Iterator[tuple[int, bytes]]:
        check_mesh_name(mesh)
        return self._window(mesh)

    def _window(self, mesh: str) -> Iterator[tuple[int, bytes]]:
        # On a separate connection, one SELECT is one consistent view, however long the reader takes, and it blocks
        # neither the lock nor a writer.
        with self._lock:
            if not self._has_its_files():
                self._reopen_replaced()
        with self._setting_aside_damage(mesh), self._noticing_gone(), closing(self._connect()) as db:
            found = db.execute("SELECT sequence, snapshot FROM snapshots WHERE mesh = ? ORDER BY sequence", (mesh,))
            yield from ((sequence, rows.unseal_snapshot(mesh, sequence, snapshot)) for sequence, snapshot in found)

    def open_incidents(self, mesh: str) -> dict[str, int]:
        check_mesh_name(mesh)
        with self._read() as db:
            return incident_table.read_open(db, mesh)

    def incidents(self, mesh: str, wanted: IncidentFilter) -> list[ArchivedIncident]:
        check_mesh_name(mesh)
        with self._read() as db:
            return incident_table.read_some(db, mesh, wanted)

    def incident(self, mesh: str, incident: str) -> ArchivedIncident | None:
        check_mesh_name(mesh)
        with self._read() as db:
            return incident_table.read_one(db, mesh, incident)

    def meshes(self) -> list[MeshSummary]:
        with self._read() as db:
            found = db.execute(
                "SELECT m.mesh, m.sequence, s.observed_at, s.digest, s.verdict "
                f"FROM meshes AS m {_NEWEST} ORDER BY m.mesh"
            ).fetchall()
        return [summary for row in found if (summary := self._summary(*row)) is not None]

    def _summary(
        self, mesh: str, sequence: int, at: int | None, digest: str | None, verdict: bytes | None
    ) -> MeshSummary | None:
        """The summary of one mesh; None if it had to be set aside, so that the others are still listed."""
        if not sequence:
            return MeshSummary(mesh, 0, None, b"")
        try:
            with self._setting_aside_damage(mesh):
                unsealed = rows.unseal_verdict(mesh, sequence, at or 0, digest or "", verdict or b"")
        except CorruptState:  # logged when it was set aside
            return None
        return MeshSummary(mesh, sequence, _time(at), unsealed)

    def set_aside(self, mesh: str, why: str, *, revision: int) -> bool:
        check_mesh_name(mesh)

        def change(db: sqlite3.Connection) -> bool:
            if _position(db, mesh)[1] != revision:
                return False
            tables.set_aside(db, mesh, why)
            return True

        with self._lock:
            changed = self._commit(change)
        if changed:
            log.error("state store %s: mesh %r was set aside and starts learning again: %s", self._path, mesh, why)
        return changed

    def delete(self, mesh: str) -> bool:
        check_mesh_name(mesh)
        with self._lock:
            try:
                deleted = self._commit(lambda db: tables.delete(db, mesh))
            except StoreFull:
                self._reserve.release()
                deleted = self._commit(lambda db: tables.delete(db, mesh))
            if not self._has_free_disk():
                self._shrink()
                if self._pages("freelist_count"):  # no space for the log
                    self._reserve.release()
                    self._shrink()
            self._reserve.restore()
        return deleted

    def read_whole(self, mesh: str) -> WholeMesh | None:
        check_mesh_name(mesh)
        with self._read() as db:
            db.execute("BEGIN")  # one view for all rows
            with db:
                state, window = tables.select_state(db, mesh), tables.select_window(db, mesh)
                incidents = incident_table.read_all(db, mesh)
        if state is None:
            return None
        with self._setting_aside_damage(mesh):
            read = tables.unseal_rows(mesh, state)
            return WholeMesh(read, tuple(tables.unseal_window_row(mesh, row) for row in window), incidents)

    def write_whole(self, mesh: str, whole: WholeMesh, *, replace: bool = False) -> None:
        check_mesh_name(mesh)

        def change(db: sqlite3.Connection) -> None:
            if (stored := _position(db, mesh))[1]:
                if not replace:
                    raise conflict(mesh, "a copy", 0, *stored)
                tables.delete(db, mesh)
            tables.insert_whole(db, mesh, whole)
            incident_table.write(db, mesh, whole.incidents)

        with self._lock:
            self._commit(change)

    def _make_room(self, db: sqlite3.Connection, mesh: str, stored_revision: int) -> str | None:
        """Make room for ``mesh``. Returns the name of the mesh that was deleted for it, if any."""
        if stored_revision or self._limit is None:
            return None
        evicted = _find_room(db, mesh, self._limit)
        if evicted is not None:
            tables.delete(db, evicted)
        return evicted

    def _write_mesh(self, change: Callable[[sqlite3.Connection], tuple[int, str | None]]) -> int:
        """Commit a change of one mesh. Returns the new revision."""
        with self._lock:
            try:
                revision, evicted = self._commit(change)
            except StoreFull:
                if not self._empty_log():  # truncating the log may free enough space
                    raise
                revision, evicted = self._commit(change)
            self._reserve.restore_if_due()
        if evicted is not None:
            log.warning("state store %s: mesh %r was idle and was deleted to make room", self._path, evicted)
            if self._on_evicted is not None:
                self._on_evicted(evicted)
        return revision

    def _connect(self, mode: str = "rw") -> sqlite3.Connection:
        """Connect to the file; ``rwc`` may create it, ``rw`` never does."""
        return sqlite3.connect(
            f"file:{quote(self._path_text)}?mode={mode}",
            uri=True,
            timeout=self._busy_timeout_seconds,
            isolation_level=None,
            check_same_thread=False,
        )

    def _open(self, *, create: bool) -> tuple[sqlite3.Connection, StoreFiles]:
        """Connect to the file, and identify its files. A damaged file is replaced first.

        Args:
            create: create a store if there is none.
        """
        # SQLite's busy timeout does not cover two processes that both switch a new file to WAL mode.
        with self._directory_lock(create=create):
            fresh = self._replacement_path()
            if fresh.exists() and not self._path.exists():  # killed between the two renames of _replace
                fresh.rename(self._path)
            if not self._path.exists() or not self._path.stat().st_size:
                if not create:
                    raise self._report_gone()
                self._check_first_start()
            try:
                connection = self._create_connection()
            except CorruptState as error:
                if not _is_damage(error):
                    raise
                self._replace(error)
                connection = self._create_connection()
            files = find_files(self._path_text)
            try:
                if self._run is not None:
                    write_last_run(self._directory, self._run)
            except OSError as error:  # a full disk; the store itself works
                log.warning("state store %s: %s was not written: %s", self._path, MARKER_NAME, error)
            return connection, files

    def _check_first_start(self) -> None:
        """Refuse to create an empty store if another process of this run had one here."""
        last_run = read_last_run(self._directory)
        if last_run is None:
            return
        if last_run == self._run:
            raise StoreGone(
                f"state store {self._path}: expected the store that this run of the service had open, came no file; "
                "put the files back, or restart the service to start with an empty store",
                retry_after_seconds=_RETRY_GONE_SECONDS,
            )
        log.error(
            "state store %s: the files of the store that was here are missing; created an empty store, so every mesh "
            "starts from the beginning. If this is a mistake, stop the service and put the files back",
            self._path,
        )

    @contextmanager
    def _directory_lock(self, *, create: bool) -> Iterator[None]:
        """Hold the lock under which processes create or replace the file.

        Raises:
            StoreGone: the lock file is missing, and must not be created again.
        """
        try:
            descriptor = os.open(self._path.with_name(LOCK_NAME), os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
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
                db.execute(f"PRAGMA page_size = {_PAGE_BYTES}")  # affects only a new file
                db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # likewise; a file without it never shrinks
                db.execute("PRAGMA journal_mode = WAL")
                db.execute("PRAGMA synchronous = NORMAL")
                db.execute("PRAGMA secure_delete = FAST")
                db.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
                db.execute(f"PRAGMA wal_autocheckpoint = {2 * _LOG_PAGES}")
                tables.prepare(db, self._path)
            except BaseException:
                db.close()
                raise
            return db

    def _replacement_path(self) -> Path:
        """The file that will replace a damaged one. It is complete before the damaged one is renamed."""
        return self._path.with_name(f"{FILE_NAME}.fresh")

    def _replace(self, why: CorruptState) -> None:
        """Rename a damaged file, and put a file with its readable meshes in its place. The caller holds the directory's
        lock."""
        with closing(self._connect()) as old:
            try:
                old.execute("BEGIN IMMEDIATE")  # no other process may write while it is copied and renamed
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                    raise self._translate(error) from error
                log.warning("state store %s: cannot be locked (%s), so no process writes to it", self._path, error)
            self._rename(why)

    def _rename(self, why: CorruptState) -> None:
        fresh = self._replacement_path()
        saved, lost = tables.rescue(self._path, fresh)
        aside = self._path.with_name(f"{FILE_NAME}.corrupt-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
        for suffix in ("-wal", "-shm", ""):  # the log belongs to its file
            part = self._path.with_name(FILE_NAME + suffix)
            if part.exists():
                part.rename(f"{aside}{suffix}")
        fresh.rename(self._path)
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
        self._connection.close()
        self._connection, self._files = self._open(create=False)

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
            log.warning("state store %s: its files are back and in use again", self._path)
        return True

    def _report_gone(self) -> StoreGone:
        """The error that lists the missing files. Logs the first one, and marks the directory, so that no process of
        this run creates an empty store there."""
        changes = self._files.describe_changes(find_files(self._path_text), FILE_NAME)
        error = StoreGone(
            f"state store {self._path}: expected the files that were opened, but {changes or 'they changed'}; "
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
                log.warning("state store %s: %s was not written: %s", self._path, MARKER_NAME, failed)
        return error

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if not self._has_its_files():
                self._reopen_replaced()
            with self._replacing_damage(), self._noticing_gone():
                yield self._connection

    def _commit(self, change: Callable[[sqlite3.Connection], T]) -> T:
        """Commit a change in one transaction. IMMEDIATE, so that nothing changes between compare and set. The caller
        holds the lock.

        The files are checked under the write lock, so that nothing is written to a file that was set aside, and again
        after the commit: a write to files that were deleted meanwhile is not acknowledged.
        """
        with self._replacing_damage(), self._noticing_gone():
            self._connection.execute("BEGIN IMMEDIATE")
            while not self._has_its_files():
                self._connection.execute("ROLLBACK")
                self._reopen_replaced()
                self._connection.execute("BEGIN IMMEDIATE")
            with self._connection:
                result = change(self._connection)
            if not self._has_its_files():
                raise self._report_gone()
            return result

    def _truncate_log(self) -> bool:
        """Move the write-ahead log's content into the file, and truncate the log. Returns False if readers or the disk
        prevent it."""
        try:
            (busy, _, _) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.DatabaseError as error:
            if isinstance(translated := self._translate(error), StoreFull | Overloaded):
                log.info("state store %s: its log cannot be truncated: %s", self._path, error)
                return False
            raise translated from error
        return not busy

    def _empty_log(self) -> bool:
        """Call :meth:`_truncate_log`; if there is no space, once more with the space of the reserve."""
        if self._truncate_log():
            return True
        if not self._reserve.size_bytes():
            return False
        self._reserve.release()
        emptied = self._truncate_log()
        self._reserve.restore()
        return emptied

    def _shrink(self) -> None:
        """Return free pages at the end of the file to the disk, until there is space for a push and the reserve.

        The file is first cut in the log: pages beyond the new end are then not copied when the log is emptied, which
        may be what makes the copy fit.
        """
        try:
            while not self._truncate_log() or not self._has_free_disk():
                free_pages = self._pages("freelist_count")
                self._connection.execute(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})").fetchall()
                if self._pages("freelist_count") == free_pages:
                    return
        except sqlite3.DatabaseError as error:
            translated = self._translate(error)
            if not isinstance(translated, StoreFull | Overloaded):
                raise translated from error
            log.info("state store %s: it cannot shrink now: %s", self._path, error)

    def _has_free_disk(self) -> bool:
        disk = os.statvfs(self._directory)
        return disk.f_bavail * disk.f_frsize >= _WAL_BYTES + 2 * RESERVE_BYTES

    def _pages(self, pragma: str) -> int:
        return int(self._connection.execute(f"PRAGMA {pragma}").fetchone()[0])

    @contextmanager
    def _replacing_damage(self) -> Iterator[None]:
        try:
            yield
        except CorruptState as error:
            if _is_damage(error):
                self._replace_damaged(error)
            raise

    @contextmanager
    def _setting_aside_damage(self, mesh: str) -> Iterator[None]:
        """Set a mesh aside if its rows turn out to be damaged, and raise the error again."""
        try:
            yield
        except CorruptState as error:
            why = str(error)

            def change(db: sqlite3.Connection) -> None:
                try:
                    tables.verify(db, mesh)  # another process may have set it aside already
                except CorruptState:
                    tables.set_aside(db, mesh, why)
                    log.error(
                        "state store %s: mesh %r was set aside and starts learning again: %s", self._path, mesh, why
                    )

            with self._lock:
                self._commit(change)
            raise CorruptState(
                f"state store {self._path}: {error}; the mesh was set aside and starts learning again with "
                "its next snapshot",
                mesh=mesh,
            ) from error

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
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        if code & 0xFF == sqlite3.SQLITE_BUSY:
            return Overloaded(
                f"state store {self._path}: other writers held it for {self._busy_timeout_seconds:g} s; try again",
                retry_after_seconds=1.0,
            )
        if code in _FULL:
            return StoreFull(
                f"state store {self._path}: expected space to write, came {error}; nothing was changed; free space on "
                "the disk, or delete unused meshes, and send the snapshot again"
            )
        return CorruptState(f"state store {self._path}: {error}; check the disk and the permissions")


def _is_damage(error: CorruptState) -> bool:
    """Whether the file itself is damaged: SQLite says so, or its layout is unknown."""
    cause = error.__cause__
    if cause is None:
        return "mesh" not in error.details
    return isinstance(cause, sqlite3.DatabaseError) and getattr(cause, "sqlite_errorcode", 1) & 0xFF in _DAMAGED


def _position(db: sqlite3.Connection, mesh: str) -> tuple[int, int]:
    """(sequence, revision) of a mesh; (0, 0) if nothing is stored."""
    row = db.execute("SELECT sequence, revision FROM meshes WHERE mesh = ?", (mesh,)).fetchone()
    return (0, 0) if row is None else (int(row[0]), int(row[1]))


def _find_room(db: sqlite3.Connection, mesh: str, limit: MeshLimit) -> str | None:
    """The idle mesh that a new one may replace; None if there is room.

    Raises:
        TooManyMeshes: the store is full, and no mesh has been idle for long enough.
    """
    (stored,) = db.execute("SELECT count(*) FROM meshes").fetchone()
    if stored < limit.max_meshes:
        return None
    if limit.evict_idle_seconds is not None:  # a revision is the time of its write, µs
        name, revision = db.execute("SELECT mesh, min(revision) FROM meshes").fetchone()
        if time.time() - revision / 1e6 >= limit.evict_idle_seconds:
            return str(name)
    raise too_many_meshes(mesh, limit)


def _put_position(db: sqlite3.Connection, mesh: str, sequence: int) -> int:
    """Write the mesh's sequence with a new revision, and return the revision."""
    db.execute("UPDATE clock SET revision = max(revision + 1, ?)", (time.time_ns() // 1000,))
    (revision,) = db.execute("SELECT revision FROM clock").fetchone()
    db.execute("INSERT OR REPLACE INTO meshes VALUES (?, ?, ?)", (mesh, revision, sequence))
    return int(revision)


def _time(at: int | None) -> datetime | None:
    return None if at is None else time_of(at)
