"""A state store in one directory of one node: SQLite in WAL mode, from the standard library.

Several processes of one node may use it at once; a network file system may not carry it (WAL needs shared memory).

What survives: an acknowledged write survives the death of any process (kill -9), since it is in the operating
system's cache by then. ``synchronous=NORMAL`` is chosen over ``FULL`` because only a power cut of the node can tell
them apart (NORMAL then loses the last commits, never consistency), and a store on one node is no answer to losing
that node; FULL waits for the disk at every snapshot: 0.65 against 0.36 ms for 250 KB on a disk that flushes quickly.
Pages of 16 KiB instead of 4 halve the time of large blobs (5.8 MB: 14 against 31 ms).

What is damaged is set aside, and never served: a mesh with a row that fails its checksum moves into tables beside and
starts anew; a file that SQLite cannot read, or of a layout unknown here, is renamed ``state.sqlite.corrupt-TIME``, and
every mesh of it that can be read whole comes over into a new one. A full disk is ``StoreFull``: nothing changes, and
what is stored is still read.
"""

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from fcntl import LOCK_EX, flock
from pathlib import Path
from threading import Lock

from serve_app.errors import CorruptState, Overloaded, StoreConflict, StoreFull
from serve_app.stores import tables
from serve_app.stores.base import MeshSummary, StoredMesh, StoredVerdict, check_mesh_name

FILE_NAME = "state.sqlite"
_WAL_BYTES = 16 * 2**20  # what a long write-ahead log is cut back to
_FULL = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_TRUNCATE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}  # the last: a table is missing
log = logging.getLogger("ray.serve")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BEGINNING = -(2**63)  # before any time, as the column holds it
_NEWEST = "LEFT JOIN snapshots AS s ON s.mesh = m.mesh AND s.sequence = m.sequence"


class LocalStore:
    """A :class:`~serve_app.stores.base.StateStore` in ``directory``, which is created if it is not there.

    Args:
        directory: on a disk of this node.
        busy_timeout_seconds: how long a call waits for another process's write before it raises ``Overloaded``.

    Raises:
        CorruptState: the file cannot be read or made, for its permissions or the disk.
        StoreFull: no room on the disk.
    """

    def __init__(self, directory: Path, *, busy_timeout_seconds: float = 2.0) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path = directory / FILE_NAME
        self._busy_timeout_seconds = busy_timeout_seconds
        self._lock = Lock()  # one transaction at a time on the shared connection
        self._connection, self._inode = self._open()

    def close(self) -> None:
        """Close the file; the store cannot be used afterwards."""
        with self._lock:
            self._connection.close()

    def load(self, mesh: str) -> StoredMesh | None:
        check_mesh_name(mesh)
        with self._read() as db:
            row = db.execute(
                "SELECT m.revision, m.sequence, s.observed_at, s.digest, m.state, s.verdict "
                f"FROM meshes AS m {_NEWEST} WHERE m.mesh = ?",
                (mesh,),
            ).fetchone()
        if row is None:
            return None
        revision, sequence, at, digest, state, verdict = row
        with self._unsealing(mesh):
            state = tables.opened_state(mesh, revision, sequence, state)
            if sequence:
                verdict = tables.opened_verdict(mesh, sequence, at, digest, verdict or b"")
        return StoredMesh(mesh, revision, sequence, _time(at), digest or "", state, verdict or b"")

    def append(
        self,
        mesh: str,
        *,
        sequence: int,
        observed_at: datetime,
        snapshot: bytes,
        digest: str,
        state: bytes,
        verdict: bytes,
        keep: int,
        revision: int | None = None,
    ) -> int:
        if keep < 1:
            raise ValueError(f"keep: expected at least 1 snapshot, came {keep}")
        check_mesh_name(mesh)
        at = _microseconds(observed_at)
        with self._write() as db:
            stored_sequence, stored_revision = _position(db, mesh)
            if stored_sequence != sequence - 1 or revision not in (None, stored_revision):
                raise _conflict(mesh, f"snapshot {sequence}", revision, stored_sequence, stored_revision)
            new = _put_state(db, mesh, sequence, state)
            db.execute(
                "INSERT INTO snapshots VALUES (?, ?, ?, ?, ?, ?)",
                (
                    mesh,
                    sequence,
                    at,
                    digest,
                    tables.sealed_verdict(mesh, sequence, at, digest, verdict),
                    tables.sealed_snapshot(mesh, sequence, snapshot),
                ),
            )
            db.execute("DELETE FROM snapshots WHERE mesh = ? AND sequence <= ?", (mesh, sequence - keep))
        return new

    def replace(self, mesh: str, state: bytes, *, revision: int) -> int:
        check_mesh_name(mesh)
        with self._write() as db:
            stored_sequence, stored_revision = _position(db, mesh)
            if stored_revision != revision:
                raise _conflict(mesh, "a baseline", revision, stored_sequence, stored_revision)
            return _put_state(db, mesh, stored_sequence, state)

    def verdict_at(self, mesh: str, observed_at: datetime) -> StoredVerdict | None:
        check_mesh_name(mesh)
        with self._read() as db:
            row = db.execute(
                "SELECT sequence, digest, verdict FROM snapshots WHERE mesh = ? AND observed_at = ? "
                "ORDER BY sequence DESC LIMIT 1",
                (mesh, _microseconds(observed_at)),
            ).fetchone()
        if row is None:
            return None
        sequence, digest, verdict = row
        with self._unsealing(mesh):
            return StoredVerdict(
                digest, tables.opened_verdict(mesh, sequence, _microseconds(observed_at), digest, verdict)
            )

    def verdicts(self, mesh: str, since: datetime | None, limit: int) -> list[bytes]:
        check_mesh_name(mesh)
        after = _BEGINNING if since is None else _microseconds(since)
        with self._read() as db:
            rows = db.execute(
                "SELECT sequence, observed_at, digest, verdict FROM snapshots WHERE mesh = ? AND observed_at > ? "
                "ORDER BY sequence LIMIT ?",
                (mesh, after, limit),
            ).fetchall()
        with self._unsealing(mesh):
            return [tables.opened_verdict(mesh, *row) for row in rows]

    def window(self, mesh: str) -> Iterator[bytes]:
        check_mesh_name(mesh)
        return self._window(mesh)

    def _window(self, mesh: str) -> Iterator[bytes]:
        # A connection of its own: one SELECT is one consistent view, however long the reader takes, and it holds
        # neither the lock nor any writer.
        with self._unsealing(mesh), self._translated(), closing(self._connect()) as db:
            rows = db.execute("SELECT sequence, snapshot FROM snapshots WHERE mesh = ? ORDER BY sequence", (mesh,))
            yield from (tables.opened_snapshot(mesh, sequence, snapshot) for sequence, snapshot in rows)

    def meshes(self) -> list[MeshSummary]:
        with self._read() as db:
            rows = db.execute(
                "SELECT m.mesh, m.sequence, s.observed_at, s.digest, s.verdict "
                f"FROM meshes AS m {_NEWEST} ORDER BY m.mesh"
            ).fetchall()
        return [summary for row in rows if (summary := self._summary(*row)) is not None]

    def _summary(
        self, mesh: str, sequence: int, at: int | None, digest: str | None, verdict: bytes | None
    ) -> MeshSummary | None:
        """None for a mesh that had to be set aside: it does not take the others down."""
        if not sequence:
            return MeshSummary(mesh, 0, None, b"")
        try:
            with self._unsealing(mesh):
                opened = tables.opened_verdict(mesh, sequence, at or 0, digest or "", verdict or b"")
        except CorruptState:  # said in the log where it was set aside
            return None
        return MeshSummary(mesh, sequence, _time(at), opened)

    def set_aside(self, mesh: str, why: str, *, revision: int) -> bool:
        check_mesh_name(mesh)
        with self._write() as db:
            if _position(db, mesh)[1] != revision:
                return False
            tables.set_aside(db, mesh, why)
        log.error("state store %s: mesh %r was set aside and starts anew: %s", self._path, mesh, why)
        return True

    def delete(self, mesh: str) -> bool:
        check_mesh_name(mesh)
        with self._write() as db:
            db.execute("DELETE FROM snapshots WHERE mesh = ?", (mesh,))
            return db.execute("DELETE FROM meshes WHERE mesh = ?", (mesh,)).rowcount > 0

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(
            self._path, timeout=self._busy_timeout_seconds, isolation_level=None, check_same_thread=False
        )

    def _open(self) -> tuple[sqlite3.Connection, int]:
        """A connection to the file and the file's inode; a file that is no store of ours is replaced first."""
        # SQLite's busy timeout does not cover two processes that both turn a new file into WAL mode.
        with open(self._path.with_name("lock"), "w") as lock:
            flock(lock, LOCK_EX)
            fresh = self._fresh()
            if fresh.exists() and not self._path.exists():  # killed between the two renames of _replace
                fresh.rename(self._path)
            try:
                connection = self._prepared()
            except CorruptState as error:
                if not _is_damage(error):
                    raise
                self._replace(error)
                connection = self._prepared()
            return connection, os.stat(self._path).st_ino

    def _prepared(self) -> sqlite3.Connection:
        with self._translated():
            db = self._connect()
            try:
                db.execute("PRAGMA page_size = 16384")  # has an effect on a new file only
                db.execute("PRAGMA journal_mode = WAL")
                db.execute("PRAGMA synchronous = NORMAL")
                db.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
                tables.prepare(db, self._path)
            except BaseException:
                db.close()
                raise
            return db

    def _fresh(self) -> Path:
        """The file that is to follow a damaged one; it is whole whenever the damaged one has gone."""
        return self._path.with_name(f"{FILE_NAME}.fresh")

    def _replace(self, why: CorruptState) -> None:
        """Rename a damaged file, and put what can be read of it in its place; under the directory's lock."""
        with closing(self._connect()) as old:
            try:
                old.execute("BEGIN IMMEDIATE")  # so that nobody writes to it while it is copied and renamed
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                    raise self._translation(error) from error
                log.warning("state store %s: cannot be locked (%s), so nobody writes to it", self._path, error)
            self._rename(why)

    def _rename(self, why: CorruptState) -> None:
        fresh = self._fresh()
        saved, lost = tables.rescue(self._path, fresh)
        aside = self._path.with_name(f"{FILE_NAME}.corrupt-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
        for suffix in ("-wal", "-shm", ""):  # the log belongs to its file
            part = self._path.with_name(FILE_NAME + suffix)
            if part.exists():
                part.rename(f"{aside}{suffix}")
        fresh.rename(self._path)
        log.error(
            "%s; the file was set aside as %s; meshes that came over: %s; that start anew: %s",
            why, aside, ", ".join(saved) or "none", ", ".join(lost) or "all others",
        )  # fmt: skip

    def _reopen(self, why: CorruptState | None = None) -> None:
        """Follow the file that another process put here; or replace a damaged one, unless another already did."""
        if why is not None and not self._moved():
            with open(self._path.with_name("lock"), "w") as lock:
                flock(lock, LOCK_EX)
                if not self._moved():
                    self._replace(why)
        self._connection.close()
        self._connection, self._inode = self._open()

    def _moved(self) -> bool:
        try:
            return os.stat(self._path).st_ino != self._inode
        except FileNotFoundError:
            return True

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._moved():
                self._reopen()
            with self._damage_replaced(), self._translated():
                yield self._connection

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        """One transaction; IMMEDIATE, so that what is compared cannot change before it is set."""
        with self._lock, self._damage_replaced(), self._translated():
            self._connection.execute("BEGIN IMMEDIATE")
            while self._moved():  # looked at under the write lock: nothing is written to a file that was set aside
                self._connection.execute("ROLLBACK")
                self._reopen()
                self._connection.execute("BEGIN IMMEDIATE")
            with self._connection:
                yield self._connection

    @contextmanager
    def _damage_replaced(self) -> Iterator[None]:
        try:
            yield
        except CorruptState as error:
            if _is_damage(error):
                self._reopen(error)
            raise

    @contextmanager
    def _unsealing(self, mesh: str) -> Iterator[None]:
        """Set a mesh aside whose rows turn out to be damaged; the error goes on."""
        try:
            yield
        except CorruptState as error:
            with self._write() as db:
                try:
                    tables.verify(db, mesh)  # another process may have set it aside by now
                except CorruptState:
                    tables.set_aside(db, mesh, str(error))
                    log.error("state store %s: mesh %r was set aside and starts anew: %s", self._path, mesh, error)
            raise CorruptState(
                f"state store {self._path}: {error}; the mesh was set aside and starts anew with its next snapshot",
                mesh=mesh,
            ) from error

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise self._translation(error) from error

    def _translation(self, error: sqlite3.DatabaseError) -> CorruptState | Overloaded | StoreFull:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        if code & 0xFF == sqlite3.SQLITE_BUSY:
            return Overloaded(
                f"state store {self._path}: other writers held it for {self._busy_timeout_seconds:g} s; try again",
                retry_after_seconds=1.0,
            )
        if code in _FULL:
            return StoreFull(
                f"state store {self._path}: expected room to write, came {error}; nothing was changed; free space on "
                "the disk, or delete meshes that are gone, and send the snapshot again"
            )
        return CorruptState(f"state store {self._path}: {error}; check the disk and the permissions")


def _is_damage(error: CorruptState) -> bool:
    """Whether the file itself is at fault: SQLite says so, or its layout is not known here."""
    cause = error.__cause__
    if cause is None:
        return "mesh" not in error.details
    return isinstance(cause, sqlite3.DatabaseError) and getattr(cause, "sqlite_errorcode", 1) & 0xFF in _DAMAGED


def _position(db: sqlite3.Connection, mesh: str) -> tuple[int, int]:
    """(sequence, revision) of a mesh, (0, 0) where nothing is stored."""
    row = db.execute("SELECT sequence, revision FROM meshes WHERE mesh = ?", (mesh,)).fetchone()
    return (0, 0) if row is None else (int(row[0]), int(row[1]))


def _put_state(db: sqlite3.Connection, mesh: str, sequence: int, state: bytes) -> int:
    db.execute("UPDATE clock SET revision = revision + 1")
    (revision,) = db.execute("SELECT revision FROM clock").fetchone()
    db.execute(
        "INSERT OR REPLACE INTO meshes VALUES (?, ?, ?, ?)",
        (mesh, revision, sequence, tables.sealed_state(mesh, revision, sequence, state)),
    )
    return int(revision)


def _conflict(mesh: str, what: str, revision: int | None, stored_sequence: int, stored_revision: int) -> StoreConflict:
    given = "" if revision is None else f" made from revision {revision}"
    return StoreConflict(
        f"mesh {mesh!r}: {what}{given} does not follow the stored sequence {stored_sequence}, revision "
        f"{stored_revision}; load the mesh again and repeat",
        sequence=stored_sequence,
        revision=stored_revision,
    )


def _microseconds(instant: datetime) -> int:
    return (instant - _EPOCH) // timedelta(microseconds=1)


def _time(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else _EPOCH + timedelta(microseconds=microseconds)
