"""The tables of a local store's file: creation, migration, verification and rescue."""

import sqlite3
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from serve_app.errors import CorruptState
from serve_app.stores import history_table, rows
from serve_app.stores.base import StoredState, WholeMesh, WindowRow

# PRAGMA user_version; 2 seals every blob, 3 adds the archive of incidents, 4 the steps of a state, 5 compresses blobs.
LAYOUT = 5
_TABLES = """
CREATE TABLE clock (revision INTEGER NOT NULL);
CREATE TABLE states (mesh TEXT PRIMARY KEY, revision INTEGER NOT NULL, sequence INTEGER NOT NULL, state BLOB NOT NULL);
CREATE TABLE snapshots (
    mesh TEXT NOT NULL, sequence INTEGER NOT NULL, observed_at INTEGER NOT NULL, digest TEXT NOT NULL,
    verdict BLOB NOT NULL, snapshot BLOB NOT NULL, PRIMARY KEY (mesh, sequence));
CREATE INDEX snapshots_by_time ON snapshots (mesh, observed_at);
"""
_ASIDE = """
CREATE TABLE meshes_aside (mesh TEXT PRIMARY KEY, why TEXT, at INTEGER, revision INTEGER, sequence INTEGER, state BLOB);
CREATE TABLE snapshots_aside (
    mesh TEXT, sequence INTEGER, observed_at INTEGER, digest TEXT, verdict BLOB, snapshot BLOB);
"""
_STEPS = """
CREATE TABLE meshes (mesh TEXT PRIMARY KEY, revision INTEGER NOT NULL, sequence INTEGER NOT NULL);
CREATE TABLE steps (mesh TEXT NOT NULL, sequence INTEGER NOT NULL, step BLOB NOT NULL, PRIMARY KEY (mesh, sequence));
"""
# A row of states is what a row of meshes was up to layout 3.
_SPLIT = f"""
ALTER TABLE meshes RENAME TO states;
{_STEPS}
INSERT INTO meshes SELECT mesh, revision, sequence FROM states;
"""
_ARCHIVE = """
CREATE TABLE incidents (
    mesh TEXT NOT NULL, id TEXT NOT NULL, since INTEGER NOT NULL, until INTEGER, sequence INTEGER NOT NULL,
    severity INTEGER NOT NULL, kind TEXT NOT NULL, suspects TEXT NOT NULL, services TEXT NOT NULL,
    bytes INTEGER NOT NULL, document BLOB NOT NULL, details BLOB NOT NULL, PRIMARY KEY (mesh, id));
CREATE INDEX incidents_by_time ON incidents (mesh, since, id);
CREATE INDEX incidents_by_end ON incidents (mesh, until, severity, since, bytes);
"""
# Not part of the layout: an earlier version works without this table, and leaves it unchanged.
_DOCUMENTS = """
CREATE TABLE IF NOT EXISTS documents (name TEXT PRIMARY KEY, revision INTEGER NOT NULL, content BLOB NOT NULL);
"""


def prepare(db: sqlite3.Connection, path: Path) -> None:
    """Create the tables in a new file, or migrate an earlier layout, in one transaction.

    Raises:
        CorruptState: this version does not know the layout.
    """
    db.execute("BEGIN IMMEDIATE")
    with db:
        (layout,) = db.execute("PRAGMA user_version").fetchone()
        if layout == LAYOUT:
            db.execute("SELECT revision FROM clock").fetchone()
            _run(db, _DOCUMENTS + history_table.CREATE)
            return
        if layout == 0:
            _run(db, _TABLES + _STEPS + _ASIDE + _ARCHIVE)
            # Starting from the time keeps a new file from repeating revisions of the file before it.
            db.execute("INSERT INTO clock VALUES (?)", (time.time_ns() // 1000,))
        elif layout == 1:
            _run(db, _ASIDE + _ARCHIVE)
            _seal_all(db)
            _run(db, _SPLIT)
        elif layout == 2:
            _run(db, _ARCHIVE + _SPLIT)
        elif layout == 3:
            _run(db, _SPLIT)
        elif layout != 4:  # only blobs that are written from now on are compressed
            raise CorruptState(
                f"state store {path}: expected layout {LAYOUT}, got {layout}; it was written by another version of "
                "tagae: use that version or another directory"
            )
        _run(db, _DOCUMENTS + history_table.CREATE)
        db.execute(f"PRAGMA user_version = {LAYOUT}")


def put_state(db: sqlite3.Connection, mesh: str, revision: int, sequence: int, state: bytes) -> None:
    """Store a state in full, in place of the one before and its steps."""
    sealed = rows.seal_state(mesh, revision, sequence, state)
    db.execute("INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?)", (mesh, revision, sequence, sealed))
    db.execute("DELETE FROM steps WHERE mesh = ?", (mesh,))


def compact(db: sqlite3.Connection, mesh: str, state: bytes, sequence: int, revision: int, state_revision: int) -> bool:
    """Store a state in full in place of the one of ``state_revision`` and of the steps up to it. Returns False if that
    one is not stored."""
    sealed = rows.seal_state(mesh, revision, sequence, state)
    changed = db.execute(
        "UPDATE states SET revision = ?, sequence = ?, state = ? WHERE mesh = ? AND revision = ?",
        (revision, sequence, sealed, mesh, state_revision),
    ).rowcount
    if changed:
        db.execute("DELETE FROM steps WHERE mesh = ? AND sequence <= ?", (mesh, sequence))
    return changed > 0


def put_step(db: sqlite3.Connection, mesh: str, sequence: int, step: bytes) -> None:
    """Store a step of a state."""
    db.execute("INSERT INTO steps VALUES (?, ?, ?)", (mesh, sequence, rows.seal_step(mesh, sequence, step)))


@dataclass(frozen=True, slots=True)
class StateRows:
    """The rows of a mesh's state, sealed: its revision and sequence, the state in full, and the steps since."""

    position: tuple[int, int]
    full: tuple[int, int, bytes] | None
    steps: list[tuple[int, bytes]]


def select_state(db: sqlite3.Connection, mesh: str) -> StateRows | None:
    """Read the rows of a mesh's state; None if nothing is stored. Call it in a transaction."""
    position = db.execute("SELECT revision, sequence FROM meshes WHERE mesh = ?", (mesh,)).fetchone()
    if position is None:
        return None
    full = db.execute("SELECT revision, sequence, state FROM states WHERE mesh = ?", (mesh,)).fetchone()
    steps = db.execute("SELECT sequence, step FROM steps WHERE mesh = ? ORDER BY sequence", (mesh,)).fetchall()
    return StateRows(position, full, steps)


def unseal_rows(mesh: str, found: StateRows) -> StoredState:
    """The state of these rows.

    Raises:
        CorruptState: a row is damaged or missing.
    """
    (revision, sequence), full = found.position, found.full
    if full is None:
        raise CorruptState(f"stored state {mesh}: expected it in full, got none")
    state = rows.unseal_state(mesh, *full)
    rows.check_steps(mesh, full[1], sequence, [number for number, _ in found.steps])
    return StoredState(revision, sequence, state, full[0], tuple(rows.unseal_step(mesh, *step) for step in found.steps))


SealedRow = tuple[int, int, str, bytes, bytes]  # sequence, time in µs, digest, verdict, snapshot


def select_window(db: sqlite3.Connection, mesh: str) -> list[SealedRow]:
    """Read the kept snapshots with their verdicts, oldest first."""
    return db.execute(
        "SELECT sequence, observed_at, digest, verdict, snapshot FROM snapshots WHERE mesh = ? ORDER BY sequence",
        (mesh,),
    ).fetchall()


def unseal_window_row(mesh: str, row: SealedRow) -> WindowRow:
    """The snapshot of such a row; raises ``CorruptState`` if it is damaged."""
    sequence, at, digest, verdict, snapshot = row
    return WindowRow(
        sequence,
        rows.time_of(at),
        digest,
        rows.unseal_verdict(mesh, sequence, at, digest, verdict),
        rows.unseal_snapshot(mesh, sequence, snapshot),
    )


def insert_whole(db: sqlite3.Connection, mesh: str, whole: WholeMesh) -> None:
    """Insert a mesh that is not stored, except for its archive, with the revisions that it has."""
    state = whole.state
    db.execute("UPDATE clock SET revision = max(revision, ?)", (state.revision,))
    db.execute("INSERT INTO meshes VALUES (?, ?, ?)", (mesh, state.revision, state.sequence))
    begin = state.sequence - len(state.steps)
    put_state(db, mesh, state.state_revision, begin, state.state)
    for number, step in enumerate(state.steps, begin + 1):
        put_step(db, mesh, number, step)
    for one in whole.window:
        at = rows.microseconds(one.observed_at)
        verdict = rows.seal_verdict(mesh, one.sequence, at, one.digest, one.verdict)
        snapshot = rows.seal_snapshot(mesh, one.sequence, one.snapshot)
        db.execute(
            "INSERT INTO snapshots VALUES (?, ?, ?, ?, ?, ?)", (mesh, one.sequence, at, one.digest, verdict, snapshot)
        )


def select_document(db: sqlite3.Connection, name: str) -> tuple[int, bytes] | None:
    """Read the revision of a document and its content, sealed; None if there is none."""
    found: tuple[int, bytes] | None = db.execute(
        "SELECT revision, content FROM documents WHERE name = ?", (name,)
    ).fetchone()
    return found


def put_document(db: sqlite3.Connection, name: str, revision: int, content: bytes) -> None:
    """Replace a document; empty content deletes it."""
    db.execute("DELETE FROM documents WHERE name = ?", (name,))
    if content:
        sealed = rows.seal_document(name, revision, content)
        db.execute("INSERT INTO documents VALUES (?, ?, ?)", (name, revision, sealed))


def next_revision(db: sqlite3.Connection) -> int:
    """A revision that was never used before in this file."""
    db.execute("UPDATE clock SET revision = max(revision + 1, ?)", (time.time_ns() // 1000,))
    (revision,) = db.execute("SELECT revision FROM clock").fetchone()
    return int(revision)


def verify(db: sqlite3.Connection, mesh: str) -> None:
    """Check all rows of a mesh.

    Raises:
        CorruptState: a row is damaged, or the newest snapshot is missing.
    """
    state = select_state(db, mesh)
    if state is None:
        return
    sequence = unseal_rows(mesh, state).sequence
    rows.check_window(mesh, sequence, [unseal_window_row(mesh, row).sequence for row in select_window(db, mesh)])


def set_aside(db: sqlite3.Connection, mesh: str, why: str) -> None:
    """Move the rows of a mesh aside; its archive and its history stay. Replaces what was set aside before, so that the
    file stays bounded."""
    for table in ("meshes", "snapshots"):
        db.execute(f"DELETE FROM {table}_aside WHERE mesh = ?", (mesh,))
    db.execute(
        "INSERT INTO meshes_aside SELECT mesh, ?, ?, revision, sequence, state FROM states WHERE mesh = ?",
        (why, time.time_ns() // 1000, mesh),
    )
    db.execute("INSERT INTO snapshots_aside SELECT * FROM snapshots WHERE mesh = ?", (mesh,))
    for table in ("meshes", "states", "steps", "snapshots"):
        db.execute(f"DELETE FROM {table} WHERE mesh = ?", (mesh,))


def delete(db: sqlite3.Connection, mesh: str) -> bool:
    """Delete the rows of a mesh, including its archive, its history and those set aside. Returns False if it was not
    stored."""
    for table in ("states", "steps", "snapshots", "snapshots_aside", "meshes_aside", "incidents", "history"):
        db.execute(f"DELETE FROM {table} WHERE mesh = ?", (mesh,))
    return db.execute("DELETE FROM meshes WHERE mesh = ?", (mesh,)).rowcount > 0


def rescue(damaged: Path, fresh: Path) -> tuple[list[str], list[str]]:
    """Create ``fresh`` from every mesh of ``damaged`` that can be read completely.

    Returns:
        Names of the meshes that were saved, and of those that were lost (as far as names could be read).
    """
    fresh.unlink(missing_ok=True)
    saved: list[str] = []
    lost: list[str] = []
    with closing(sqlite3.connect(fresh, isolation_level=None)) as new:
        new.execute("PRAGMA page_size = 16384")
        new.execute("PRAGMA auto_vacuum = INCREMENTAL")
        prepare(new, fresh)
        try:
            with closing(sqlite3.connect(damaged, isolation_level=None)) as old:
                if old.execute("PRAGMA user_version").fetchone() != (LAYOUT,):
                    return saved, lost
                for (mesh,) in old.execute("SELECT mesh FROM meshes ORDER BY mesh"):
                    (saved if _copy_mesh(old, new, mesh) else lost).append(str(mesh))
                _copy_history(old, new, saved)
                _copy_documents(old, new)
        except sqlite3.DatabaseError:  # no more names can be read
            return saved, lost
    return saved, lost


def _copy_documents(old: sqlite3.Connection, new: sqlite3.Connection) -> None:
    """Copy the documents, as far as they can be read; damaged ones are found when they are read next."""
    for row in old.execute("SELECT name, revision, content FROM documents"):
        new.execute("INSERT INTO documents VALUES (?, ?, ?)", row)


def _copy_history(old: sqlite3.Connection, new: sqlite3.Connection, meshes: list[str]) -> None:
    """Copy the history of meshes, as far as it can be read: files of earlier versions have none, and damaged chunks are
    left out when they are read next."""
    for mesh in meshes:
        with suppress(sqlite3.DatabaseError):
            for row in old.execute("SELECT * FROM history WHERE mesh = ?", (mesh,)):
                new.execute("INSERT OR REPLACE INTO history VALUES (?, ?, ?, ?, ?, ?)", row)


def _copy_mesh(old: sqlite3.Connection, new: sqlite3.Connection, mesh: str) -> bool:
    try:
        verify(old, mesh)
        new.execute("BEGIN")
        with new:
            for table, columns in (("meshes", 3), ("states", 4), ("steps", 3), ("snapshots", 6), ("incidents", 12)):
                found = old.execute(f"SELECT * FROM {table} WHERE mesh = ?", (mesh,))
                new.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * columns)})", found)
    except (CorruptState, sqlite3.DatabaseError, TypeError):
        return False
    return True


def _seal_all(db: sqlite3.Connection) -> None:
    for name, count, function in (("s", 4, rows.seal_state), ("v", 5, rows.seal_verdict), ("p", 3, rows.seal_snapshot)):
        db.create_function(f"seal_{name}", count, function, deterministic=True)
    db.execute("UPDATE meshes SET state = seal_s(mesh, revision, sequence, state)")
    db.execute(
        "UPDATE snapshots SET verdict = seal_v(mesh, sequence, observed_at, digest, verdict), "
        "snapshot = seal_p(mesh, sequence, snapshot)"
    )


def _run(db: sqlite3.Connection, statements: str) -> None:
    for statement in filter(str.strip, statements.split(";")):
        db.execute(statement)
