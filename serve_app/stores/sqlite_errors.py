"""What errors of SQLite mean to a store."""

import sqlite3
from pathlib import Path

from serve_app.errors import CorruptState, Overloaded, StoreFull

_FULL = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_TRUNCATE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}  # the last: a table is missing


def translate(error: sqlite3.DatabaseError, path: Path, busy_seconds: float) -> CorruptState | Overloaded | StoreFull:
    """The error of a store at this path for one of SQLite, which waited ``busy_seconds`` for other writers."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    if code & 0xFF == sqlite3.SQLITE_BUSY:
        return Overloaded(
            f"state store {path}: other writers locked it for {busy_seconds:g} s; try again", retry_after_seconds=1.0
        )
    if code in _FULL:
        return StoreFull(
            f"state store {path}: expected space to write, got {error}; nothing was changed; free space on the disk, "
            "or delete unused meshes, and send the snapshot again"
        )
    return CorruptState(f"state store {path}: {error}; check the disk and the permissions")


def is_damage(error: CorruptState) -> bool:
    """Whether the file itself is damaged: SQLite says so, or its layout is unknown."""
    cause = error.__cause__
    if cause is None:
        return "mesh" not in error.details
    return isinstance(cause, sqlite3.DatabaseError) and getattr(cause, "sqlite_errorcode", 1) & 0xFF in _DAMAGED
