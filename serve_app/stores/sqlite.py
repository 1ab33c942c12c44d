"""A state store in one directory of one node, for several processes of this node at once.

It does not work on a network file system: SQLite's write-ahead log needs shared memory. ``sqlite_file.py`` has the
file: durability, damage, a full disk, files that disappear.

A mesh's state is large, so it is stored in full only now and then, in a table of its own, and in steps in between. With
a full state at every snapshot, packing and writing it took a quarter of the CPU time of a push (2,000 services).

Damaged rows are never used: if one fails its checksum, its mesh moves into separate tables and starts from the
beginning.
"""

import logging
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from serve_app.errors import CorruptState
from serve_app.settings import StoreSettings
from serve_app.settings.base import check_mesh_name
from serve_app.stores import history_table, incident_table, rows, tables
from serve_app.stores.base import (
    ArchivedIncident,
    ArchiveLimit,
    ChunkKey,
    HistoryChunk,
    IncidentFilter,
    MeshLimit,
    NewSnapshot,
    StoredDocument,
    StoredState,
    WholeMesh,
)
from serve_app.stores.plugin import Opening, StorePlugin
from serve_app.stores.refusals import conflict, document_conflict, first_step, require_keep, too_many_meshes
from serve_app.stores.rows import microseconds, time_of
from serve_app.stores.sealed_store import SealedStore
from serve_app.stores.sqlite_file import SqliteFile

log = logging.getLogger(__name__)
_BEGINNING = -(2**63)  # before any time, µs
_NEWEST = "LEFT JOIN snapshots AS s ON s.mesh = m.mesh AND s.sequence = m.sequence"
_Verdict = tuple[int | None, str | None, bytes | None]  # time in µs, digest, sealed; None: the row is missing


@dataclass(frozen=True, slots=True)
class MeshRows:
    """All rows of a mesh: of its state and its window, and its archived incidents."""

    state: tables.StateRows
    window: list[tables.SealedRow]
    incidents: tuple[ArchivedIncident, ...]


class LocalStore(SealedStore[_Verdict, tables.StateRows, MeshRows]):
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
        self._file = SqliteFile(directory, run=run, busy_timeout_seconds=busy_timeout_seconds)
        super().__init__(str(self._file.path), limit, archive, on_evicted)

    def close(self) -> None:
        """Close the file; the store cannot be used afterwards."""
        self._file.close()

    def check_room(self, mesh: str) -> None:
        check_mesh_name(mesh)
        with self._file.read() as db:
            if self._limit is not None and _position(db, mesh)[1] == 0:
                _find_room(db, mesh, self._limit)

    def append(self, mesh: str, new: NewSnapshot, *, keep: int, revision: int | None = None) -> int:
        require_keep(keep)
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
                    raise first_step()
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
            if new.history or new.dropped:
                history_table.write(db, mesh, new.history)
                history_table.drop(db, mesh, new.dropped)
            return new_revision, evicted

        return self._add(change)

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

        return self._add(change)

    def compact(self, mesh: str, state: bytes, *, sequence: int, revision: int, state_revision: int) -> bool:
        check_mesh_name(mesh)
        return self._file.change(lambda db: tables.compact(db, mesh, state, sequence, revision, state_revision))

    def tidy(self) -> None:
        self._file.tidy()

    def open_incidents(self, mesh: str) -> dict[str, int]:
        check_mesh_name(mesh)
        with self._file.read() as db:
            return incident_table.read_open(db, mesh)

    def incidents(self, mesh: str, wanted: IncidentFilter) -> list[ArchivedIncident]:
        check_mesh_name(mesh)
        with self._file.read() as db:
            return incident_table.read_some(db, mesh, wanted)

    def incident(self, mesh: str, incident: str) -> ArchivedIncident | None:
        check_mesh_name(mesh)
        with self._file.read() as db:
            return incident_table.read_one(db, mesh, incident)

    def history_sizes(self, mesh: str) -> dict[ChunkKey, int]:
        check_mesh_name(mesh)
        with self._file.read() as db:
            return history_table.read_sizes(db, mesh)

    def history(self, mesh: str, keys: Collection[ChunkKey]) -> dict[ChunkKey, bytes]:
        check_mesh_name(mesh)
        with self._file.read_at_leisure() as db:  # a long read, for which no push should wait
            db.execute("BEGIN")
            return history_table.read(db, mesh, keys)

    def write_history(self, mesh: str, chunks: Collection[HistoryChunk]) -> None:
        check_mesh_name(mesh)
        self._file.change(lambda db: history_table.write(db, mesh, chunks))

    def delete(self, mesh: str) -> bool:
        check_mesh_name(mesh)
        return self._file.remove(lambda db: tables.delete(db, mesh))

    def write_whole(self, mesh: str, whole: WholeMesh, *, replace: bool = False) -> None:
        check_mesh_name(mesh)

        def change(db: sqlite3.Connection) -> None:
            if (stored := _position(db, mesh))[1]:
                if not replace:
                    raise conflict(mesh, "a copy", 0, *stored)
                tables.delete(db, mesh)
            tables.insert_whole(db, mesh, whole)
            incident_table.write(db, mesh, whole.incidents)

        self._file.change(change)

    def read_document(self, name: str) -> StoredDocument | None:
        with self._file.read() as db:
            found = tables.select_document(db, name)
        if found is None:
            return None
        try:
            return StoredDocument(found[0], rows.unseal_document(name, *found))
        except CorruptState as error:
            self._file.change(lambda db: tables.put_document(db, name, 0, b""))
            log.error("state store %s: %s; the document was deleted", self.name, error)
            return None

    def write_document(self, name: str, content: bytes, *, revision: int) -> int:
        def change(db: sqlite3.Connection) -> int:
            found = tables.select_document(db, name)
            stored = 0 if found is None else found[0]
            if stored != revision:
                raise document_conflict(name, revision, stored)
            new_revision = tables.next_revision(db)
            tables.put_document(db, name, new_revision, content)
            return new_revision

        return self._file.add(change)

    def _fetch_newest(self, mesh: str) -> tuple[int, int, _Verdict] | None:
        with self._file.read() as db:
            row = db.execute(
                "SELECT m.revision, m.sequence, s.observed_at, s.digest, s.verdict "
                f"FROM meshes AS m {_NEWEST} WHERE m.mesh = ?",
                (mesh,),
            ).fetchone()
        return row and (row[0], row[1], row[2:])

    def _fetch_all_newest(self) -> list[tuple[str, int, _Verdict]]:
        with self._file.read() as db:
            found = db.execute(
                "SELECT m.mesh, m.sequence, s.observed_at, s.digest, s.verdict "
                f"FROM meshes AS m {_NEWEST} ORDER BY m.mesh"
            ).fetchall()
        return [(row[0], row[1], row[2:]) for row in found]

    def _fetch_verdicts(self, mesh: str, since: datetime | None, limit: int) -> list[tuple[int, _Verdict]]:
        return self._select_verdicts(mesh, "> ?", _BEGINNING if since is None else microseconds(since), limit)

    def _fetch_verdicts_of(self, mesh: str, observed_at: datetime) -> list[tuple[int, _Verdict]]:
        return self._select_verdicts(mesh, "= ?", microseconds(observed_at), -1)

    def _select_verdicts(self, mesh: str, condition: str, at: int, limit: int) -> list[tuple[int, _Verdict]]:
        with self._file.read() as db:
            found = db.execute(
                "SELECT sequence, observed_at, digest, verdict FROM snapshots "
                f"WHERE mesh = ? AND observed_at {condition} ORDER BY sequence LIMIT ?",
                (mesh, at, limit),
            ).fetchall()
        return [(row[0], row[1:]) for row in found]

    def _fetch_window(self, mesh: str) -> Iterator[tuple[int, bytes]]:
        with self._file.read_at_leisure() as db:
            yield from db.execute("SELECT sequence, snapshot FROM snapshots WHERE mesh = ? ORDER BY sequence", (mesh,))

    def _fetch_state(self, mesh: str) -> tables.StateRows | None:
        with self._file.read_in_one_view() as db:
            return tables.select_state(db, mesh)

    def _fetch_whole(self, mesh: str) -> MeshRows | None:
        with self._file.read_in_one_view() as db:
            state, window = tables.select_state(db, mesh), tables.select_window(db, mesh)
            incidents = incident_table.read_all(db, mesh)
        return None if state is None else MeshRows(state, window, incidents)

    def _unseal_verdict(self, mesh: str, sequence: int, sealed: _Verdict) -> tuple[datetime, str, bytes]:
        at, digest, verdict = sealed[0] or 0, sealed[1] or "", sealed[2] or b""
        return time_of(at), digest, rows.unseal_verdict(mesh, sequence, at, digest, verdict)

    def _unseal_state(self, mesh: str, found: tables.StateRows) -> StoredState:
        return tables.unseal_rows(mesh, found)

    def _unseal_whole(self, mesh: str, found: MeshRows) -> WholeMesh:
        window = tuple(tables.unseal_window_row(mesh, row) for row in found.window)
        return WholeMesh(self._unseal_state(mesh, found.state), window, found.incidents)

    def _move_aside(self, mesh: str, why: str, revision: int) -> bool:
        def change(db: sqlite3.Connection) -> bool:
            if _position(db, mesh)[1] != revision:
                return False
            tables.set_aside(db, mesh, why)
            return True

        return self._file.change(change)

    def _move_aside_if_damaged(self, mesh: str, why: str) -> bool:
        def change(db: sqlite3.Connection) -> bool:
            try:
                tables.verify(db, mesh)
            except CorruptState:
                tables.set_aside(db, mesh, why)
                return True
            return False

        return self._file.change(change)

    def _make_room(self, db: sqlite3.Connection, mesh: str, stored_revision: int) -> str | None:
        """Make room for ``mesh``. Returns the name of the mesh that was deleted for it, if any."""
        if stored_revision or self._limit is None:
            return None
        evicted = _find_room(db, mesh, self._limit)
        if evicted is not None:
            tables.delete(db, evicted)
        return evicted

    def _add(self, change: Callable[[sqlite3.Connection], tuple[int, str | None]]) -> int:
        """Commit a change of one mesh. Returns the new revision."""
        revision, evicted = self._file.add(change)
        if evicted is not None:
            self._report_evicted(evicted)
        return revision


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
    revision = tables.next_revision(db)
    db.execute("INSERT OR REPLACE INTO meshes VALUES (?, ?, ?)", (mesh, revision, sequence))
    return revision


def _open(settings: StoreSettings, how: Opening) -> LocalStore:
    return LocalStore(settings.path, limit=how.limit, archive=how.archive, on_evicted=how.on_evicted, run=how.run)


LOCAL = StorePlugin(options=StoreSettings, open=_open)
