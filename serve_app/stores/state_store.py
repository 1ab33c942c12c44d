"""The store of meshes: everything that is kept, as rows of a database.

The database provides the primitives of :mod:`serve_app.stores.row_store`. This module uses nothing else of it, so every
database has the same rows. ``rows.py`` lists them.

Every write of a mesh is one transaction, which compares the revision that it was computed from. The writer chooses the
new revision: the time in µs, but later than the previous one. The row also has a unique name of the write, by which a
store recognises a write that is sent again because its answer was lost.

Every blob has a checksum that covers its mesh and its key. Damaged rows are never used: their mesh is set aside and
starts from the beginning.
"""

import logging
import time
import uuid
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from threading import Lock

from serve_app.errors import CorruptState, StoreConflict, TooManyMeshes
from serve_app.settings.base import check_mesh_name
from serve_app.stores import rows
from serve_app.stores.records import (
    ArchivedIncident,
    ChunkKey,
    HistoryUpdate,
    IncidentFilter,
    NewSnapshot,
    Retention,
    StoredDocument,
    StoredMesh,
    StoredState,
)
from serve_app.stores.row_store import HEAD, SERVICE, Change, NoRoom, Range, Row, RowStore, only, under
from serve_app.stores.rows import INCIDENT, INDEX, OPEN, VerdictKey, sealed, unsealed

log = logging.getLogger(__name__)
_NEWEST = under(rows.VERDICT, limit=1, is_reverse=True)
_DOCUMENT, _REVISION = "document/", "revision/"  # rows of SERVICE, by the document's name


class StateStore:
    """State of meshes, stored before the verdict is sent. Blobs are opaque bytes.

    Threads may share an instance, and processes a database. Each call may block for as long as the database does.

    Args:
        max_meshes: maximum number of meshes; None: any number.
        archive: limits of each mesh's archive; None: it keeps everything.

    Every method raises the errors of :class:`~serve_app.stores.row_store.RowStore`, and:
        BadMeshName: a name outside the alphabet.
        CorruptState: another version wrote the store, or something cannot be read. If ``details["mesh"]`` is set, that
            mesh was set aside, and is new to the next call.

    Every write also raises:
        StoreConflict: the stored revision is not the one that it was computed from, 0 if there was none.
        TooManyMeshes: the write would create a mesh beyond the limit.
    """

    def __init__(self, database: RowStore, *, max_meshes: int | None = None, archive: Retention | None = None) -> None:
        self._database, self._max_meshes, self._archive = database, max_meshes, archive
        self._lock = Lock()
        self._last_revision = 0
        self._ends: dict[str, datetime] = {}  # by mesh: when the next incident of its archive becomes too old

    @cached_property
    def database(self) -> RowStore:
        """The rows. The first use checks their layout."""
        (layout,) = self._database.read(SERVICE, only(rows.LAYOUT_ROW))
        if not rows.check_layout(self.name, layout[0][1] if layout else b""):
            self._database.write(SERVICE, Change(puts=[(rows.LAYOUT_ROW, b"%d" % rows.LAYOUT)]))
        return self._database

    @property
    def name(self) -> str:
        return self._database.name

    def close(self) -> None:
        """Release files and connections; the store cannot be used afterwards."""
        self._database.close()

    def check(self) -> None:
        """Read once, to raise any error such as ``StoreGone``."""
        self.load("tagae-readiness")

    def tidy(self) -> None:
        """Do work that writes have deferred. Call it between writes."""
        self.database.tidy()

    def check_room(self, mesh: str) -> None:
        """Raise ``TooManyMeshes`` if ``mesh`` is new and there is no room for it. The write checks again; this saves
        the work before it."""
        if self._max_meshes is None or self.revision(mesh):
            return
        if len(self.database.survey()) >= self._max_meshes:
            raise self._too_many_meshes(mesh)

    def load(self, mesh: str) -> StoredMesh | None:
        """Return a mesh with its newest verdict, or None if nothing is stored."""
        head, newest = self._read(mesh, only(HEAD), _NEWEST)
        with self._setting_aside_damage(mesh):
            return _read_mesh(mesh, head, newest) if head else None

    def load_state(self, mesh: str) -> StoredState | None:
        """Return the newest state, or None if nothing is stored."""
        head, *state_rows = self._read(mesh, only(HEAD), *_STATE_RANGES)
        if not head:
            return None
        with self._setting_aside_damage(mesh):
            return _read_state(mesh, *_read_head(head), *state_rows)

    def append(self, mesh: str, new: NewSnapshot, *, keep: int, revision: int) -> int:
        """Count a snapshot in one transaction, and return the new revision. Append it with its verdict, keep only the
        last ``keep`` snapshots, replace the state or add a step, write its incidents to the archive, and delete from
        the archive what exceeds its limits.

        Raises:
            StoreConflict: also if the stored sequence is not ``new.sequence - 1``.
            ValueError: ``keep`` is below 1, or a step is the first of a mesh.
        """
        if keep < 1:
            raise ValueError(f"keep: expected at least 1 snapshot, got {keep}")
        if new.is_step and not revision:
            raise ValueError("is_step: expected the first state of a mesh in full, got a step")
        if new.sequence != 1 and not revision:
            raise self._conflict(mesh, f"snapshot {new.sequence}", revision)
        new_revision = self._draw_revision(revision)
        if new.is_step:
            state = [sealed(mesh, rows.sequence_key(rows.STEP, new.sequence), new.state)]
        else:
            state = _state_rows(mesh, new.sequence, new_revision, new.state)
        drops = [] if new.is_step else [rows.STEP] if revision else _REMAINS
        archive_drops, archive_puts = self._archive_changes(mesh, new.incidents, new.observed_at)
        change = Change(
            expects=_head_of(revision, new.sequence - 1),
            drops=[*drops, *archive_drops],
            puts=[
                _head(new_revision, new.sequence),
                *state,
                sealed(mesh, VerdictKey(new.observed_at, new.sequence, new.digest).text, new.verdict),
                sealed(mesh, rows.sequence_key(rows.SNAPSHOT, new.sequence), new.snapshot),
                *archive_puts,
            ],
            trims=[(rows.VERDICT, keep), (rows.SNAPSHOT, keep)],
        )
        self._write(mesh, f"snapshot {new.sequence}", revision, change)
        return new_revision

    def replace(self, mesh: str, state: bytes, *, revision: int, incidents: tuple[ArchivedIncident, ...] = ()) -> int:
        """Replace the state without counting a snapshot (a baseline) and write incidents to the archive, in one
        transaction. Returns the new revision."""
        new_revision = self._draw_revision(revision)
        sequence = self._position(mesh)[1] if revision else 0
        change = Change(
            expects=_head_of(revision, sequence),
            drops=[*([rows.STEP] if revision else _REMAINS), *(OPEN + incident.id for incident in incidents)],
            puts=[
                _head(new_revision, sequence),
                *_state_rows(mesh, sequence, new_revision, state),
                *(row for incident in incidents for row in rows.incident_rows(mesh, incident)),
            ],
        )
        self._write(mesh, "a baseline", revision, change)
        return new_revision

    def compact(self, mesh: str, state: bytes, *, sequence: int, revision: int, full: tuple[int, int]) -> bool:
        """Replace the full state and the steps up to ``sequence`` by a later full state. The mesh, and so its revision,
        stays the same.

        Args:
            state: after ``sequence`` snapshots, opaque.
            sequence: of a snapshot that was stored as a step.
            revision: of the mesh after that snapshot.
            full: sequence and revision of the state that is replaced.

        Returns:
            False, and nothing is written, if the store has another full state.
        """
        check_mesh_name(mesh)
        change = Change(
            expects={rows.FULL: _full(*full)},
            drops=[rows.sequence_key(rows.STEP, number) for number in range(full[0] + 1, sequence + 1)],
            puts=_state_rows(mesh, sequence, revision, state),
        )
        return self.database.write(mesh, change)

    def write_history(self, mesh: str, update: HistoryUpdate, *, full: tuple[int, int]) -> bool:
        """Write and delete files of a mesh's history in one transaction. The mesh's revision stays the same.

        Args:
            full: sequence and revision of the stored full state.

        Returns:
            False, and nothing is written, if the store has another full state, such as after another session deleted
            the mesh.
        """
        check_mesh_name(mesh)
        drop_keys = [rows.chunk_key(key) for key, content in update.items() if content is None]
        change = Change(
            expects={rows.FULL: _full(*full)},
            drops=[kind + key for key in drop_keys for kind in (rows.CHUNK, rows.SIZE)],
            puts=list(_chunk_rows(mesh, update)),
        )
        return self.database.write(mesh, change)

    def verdict_at(self, mesh: str, observed_at: datetime) -> tuple[str, bytes] | None:
        """Return the content digest and the verdict of the snapshot at this time, or None."""
        (verdict_rows,) = self._read(mesh, under(f"{rows.VERDICT}{rows.time_key(observed_at)}/"))
        with self._setting_aside_damage(mesh):
            return next(((key.digest, verdict) for key, verdict in _read_verdicts(mesh, verdict_rows)), None)

    def verdicts(self, mesh: str, since: datetime | None, limit: int) -> list[bytes]:
        """Return at most ``limit`` verdicts of snapshots after ``since`` (None: of all), oldest first."""
        begin = "" if since is None else rows.time_key(since + rows.ONE_STEP)
        (verdict_rows,) = self._read(mesh, under(rows.VERDICT, since=begin, limit=limit))
        with self._setting_aside_damage(mesh):
            return [verdict for _, verdict in _read_verdicts(mesh, verdict_rows)]

    def window(self, mesh: str) -> Iterator[tuple[int, bytes]]:
        """Iterate over the snapshots with their sequence numbers, oldest first, all as of the first ``next``."""
        check_mesh_name(mesh)  # now, and not with the first ``next``
        return self._window(mesh)

    def meshes(self) -> list[StoredMesh]:
        """Return all stored meshes, in order of name."""
        return [mesh for entry in self.database.survey(_NEWEST) if (mesh := self._summarize(*entry)) is not None]

    def revision(self, mesh: str) -> int:
        """Return a mesh's revision; 0: nothing is stored."""
        return self._position(mesh)[0]

    def revisions(self) -> dict[str, int]:
        """Return the revision of each stored mesh by name: a cheap way to find the meshes that have changed."""
        return {mesh: _read_head([(HEAD, head)])[0] for mesh, head, _ in self.database.survey()}

    def was_set_aside(self, mesh: str) -> bool:
        """Return whether the store has rows of this mesh that were set aside."""
        (aside_rows,) = self._read(mesh, under(rows.ASIDE, limit=1))
        return bool(aside_rows)

    def set_aside(self, mesh: str, reason: str, *, revision: int) -> bool:
        """Set a mesh with unusable state aside, so that it starts from the beginning. Its archive and its history stay;
        rows that were set aside earlier are replaced. Returns False if the mesh has another revision."""
        head, *results = self._read(mesh, *_LIVE)
        if _read_head(head)[0] != revision or not head:
            return False
        live = [*head, *(row for result in results for row in result)]
        change = Change(
            expects=dict(head),
            drops=[rows.ASIDE, *rows.LIVE],
            puts=[
                (rows.ASIDE + "why", f"{uuid.uuid4().hex} {reason}".encode()),
                *((rows.ASIDE + key, value) for key, value in live),
            ],
        )
        is_done = self.database.write(mesh, change)
        if is_done:
            log.error("state store %s: mesh %r was set aside and starts learning again: %s", self.name, mesh, reason)
        return is_done

    def delete(self, mesh: str) -> bool:
        """Delete a mesh with its archive and its history. Returns False if nothing was stored."""
        (head,) = self._read(mesh, only(HEAD))
        if not head:
            was_set_aside = self.was_set_aside(mesh)
            self.database.write(mesh, Change(expects={HEAD: None}, drops=[""]))
            return was_set_aside
        while head and not self.database.write(mesh, Change(expects=dict(head), drops=[""])):
            (head,) = self._read(mesh, only(HEAD))  # empty: another call, or this one, has deleted it
        self._ends.pop(mesh, None)
        return True

    def open_incidents(self, mesh: str) -> dict[str, int]:
        """Return the archive's open incidents by id, each with the sequence with which it was written."""
        (open_rows,) = self._read(mesh, under(OPEN))
        return {row[0].removeprefix(OPEN): rows.unsealed_number(mesh, row) for row in open_rows}

    def incidents(self, mesh: str, query: IncidentFilter) -> list[ArchivedIncident]:
        """Return the matching incidents of the archive, newest first, without details and without damaged ones."""
        (index,) = self._read(mesh, under(INDEX))
        matches = [incident for incident in rows.read_index(index).values() if query.has(incident)]
        matches.sort(key=lambda incident: (incident.since, incident.id), reverse=True)
        index_rows = {row[0].removeprefix(INDEX): row for row in index}
        documents = self._read_all(mesh, [INCIDENT + incident.id for incident in matches[: query.limit]])
        incidents = (rows.read_incident(mesh, index_rows[row[0].removeprefix(INCIDENT)], row) for row in documents)
        return [incident for incident in incidents if incident is not None]

    def incident(self, mesh: str, incident: str, *, details: bool = True) -> ArchivedIncident | None:
        """Return an archived incident, with its details or without; None if there is none, or it is damaged."""
        kinds = (INDEX, INCIDENT, *((rows.DETAILS,) if details else ()))
        index, *results = self._read(mesh, *(only(kind + incident) for kind in kinds))
        return (
            rows.read_incident(mesh, index[0], *(result[0] if result else ("", b"") for result in results))
            if index
            else None
        )

    def history_sizes(self, mesh: str) -> dict[ChunkKey, int]:
        """Return each chunk of a mesh's history with its size, bytes."""
        (size_rows,) = self._read(mesh, under(rows.SIZE))
        sizes = {}
        for row in size_rows:
            try:
                sizes[rows.read_chunk_key(row[0])] = rows.unsealed_number(mesh, row)
            except CorruptState as error:
                log.error("history of mesh %r: a chunk is left out: %s", mesh, error)
        return sizes

    def history(self, mesh: str, keys: Collection[ChunkKey]) -> dict[ChunkKey, bytes]:
        """Return the content of these chunks, without missing and damaged ones."""
        chunks = {}
        for row in self._read_all(mesh, [rows.CHUNK + rows.chunk_key(key) for key in keys]):
            try:
                chunks[rows.read_chunk_key(row[0])] = unsealed(mesh, row)
            except CorruptState as error:
                log.error("history of mesh %r: a chunk is damaged and left out: %s", mesh, error)
        return chunks

    def read_document(self, name: str) -> StoredDocument:
        """Return a document of the service; revision 0 if there is none. A damaged one is logged and deleted."""
        head, content = self.database.read(SERVICE, only(_REVISION + name), only(_DOCUMENT + name))
        if not head:
            return StoredDocument()
        revision, _ = _read_head(head)
        try:
            return StoredDocument(revision, unsealed(SERVICE, content[0] if content else ("", b""), revision))
        except CorruptState as error:
            damaged = {_REVISION + name: head[0][1]}  # another process may have replaced it since
            self.database.write(SERVICE, Change(damaged, drops=[_REVISION + name, _DOCUMENT + name]))
            log.error("state store %s: %s; the document was deleted", self.name, error)
            return StoredDocument()

    def write_document(self, name: str, content: bytes, *, revision: int) -> int:
        """Replace a document; empty content deletes it. Limits on meshes do not apply.

        Args:
            name: 1 to 100 of a-z, 0-9, ``.``, ``_``, ``-`` and ``/``.
            content: opaque.

        Returns:
            The new revision.
        """
        new_revision, head = self._draw_revision(revision), _REVISION + name
        expects = {head: b"%d " % revision if revision else None}
        if content:
            puts = [(head, _head(new_revision, 0)[1]), sealed(SERVICE, _DOCUMENT + name, content, new_revision)]
            change = Change(expects, puts=puts)
        else:
            change = Change(expects, drops=[head, _DOCUMENT + name])
        if not self.database.write(SERVICE, change):
            (current_head,) = self.database.read(SERVICE, only(head))
            if current_head or content:  # otherwise, this call has deleted it, and its answer was lost
                current = _read_head(current_head)[0]
                raise StoreConflict(
                    f"document {name!r}: expected the stored revision {current}, got one made from {revision}; read it "
                    "again and repeat",
                    revision=current,
                )
        return new_revision

    def verify(self, mesh: str) -> None:
        """Check all rows of a mesh except its archive and its history. A damaged mesh is set aside."""
        with self._setting_aside_damage(mesh):
            self._verify(mesh)

    def _verify(self, mesh: str) -> None:
        """Raise ``CorruptState`` if a row of a mesh is damaged or missing."""
        head, *of_the_state = self._read(mesh, only(HEAD), *_STATE_RANGES)
        if not head:
            return
        state = _read_state(mesh, *_read_head(head), *of_the_state)
        (verdicts,) = self._read(mesh, under(rows.VERDICT))
        verdict_numbers = [key.sequence for key, _ in _read_verdicts(mesh, verdicts)]
        snapshot_numbers = [
            rows.number_of(row[0]) for row in self.database.scan(mesh, under(rows.SNAPSHOT)) if unsealed(mesh, row)
        ]
        for kind, numbers in (("verdicts", verdict_numbers), ("snapshots", snapshot_numbers)):
            rows.check_window(mesh, kind, state.sequence, numbers)

    def _window(self, mesh: str) -> Iterator[tuple[int, bytes]]:
        sequence, numbers = 0, []
        with self._setting_aside_damage(mesh):
            for row in self.database.scan(mesh, only(HEAD), under(rows.SNAPSHOT)):
                if row[0] == HEAD:
                    _, sequence = _read_head([row])
                    continue
                numbers.append(rows.number_of(row[0]))
                yield numbers[-1], unsealed(mesh, row)
            rows.check_window(mesh, "snapshots", sequence, numbers)

    def _read_all(self, mesh: str, keys: list[str]) -> Iterator[Row]:
        return (row for result in self._read(mesh, *map(only, keys)) for row in result) if keys else iter(())

    def _read(self, mesh: str, *ranges: Range) -> list[list[Row]]:
        check_mesh_name(mesh)
        return self.database.read(mesh, *ranges)

    def _position(self, mesh: str) -> tuple[int, int]:
        (head,) = self._read(mesh, only(HEAD))
        return _read_head(head)

    def _draw_revision(self, before: int) -> int:
        """Return a revision that was never used before."""
        with self._lock:
            self._last_revision = max(time.time_ns() // 1000, before + 1, self._last_revision + 1)
            return self._last_revision

    def _write(self, mesh: str, subject: str, revision: int, change: Change) -> None:
        """Write a change of a mesh that was computed from this revision."""
        check_mesh_name(mesh)
        try:
            is_done = self.database.write(mesh, change, max_meshes=self._max_meshes)
        except NoRoom:
            raise self._too_many_meshes(mesh) from None
        if not is_done:
            raise self._conflict(mesh, subject, revision)

    def _conflict(self, mesh: str, subject: str, revision: int) -> StoreConflict:
        current, sequence = self._position(mesh)
        if 0 < current < revision:
            log.error(
                "state store %s: mesh %r is at revision %d, but %d was acknowledged: the store has lost writes, as "
                "after a power failure or a failover; the mesh continues from what is left",
                self.name, mesh, current, revision,
            )  # fmt: skip
        return StoreConflict(
            f"mesh {mesh!r}: {subject} made from revision {revision} does not follow the stored sequence {sequence}, "
            f"revision {current}; load the mesh again and repeat",
            sequence=sequence,
            revision=current,
        )

    def _too_many_meshes(self, mesh: str) -> TooManyMeshes:
        return TooManyMeshes(
            f"mesh {mesh!r}: expected at most {self._max_meshes} meshes in the store, got one more; nothing was "
            "changed; delete unused meshes (DELETE /v1/meshes/NAME), or raise limits.max_meshes"
        )

    def _archive_changes(
        self, mesh: str, incidents: tuple[ArchivedIncident, ...], now: datetime
    ) -> tuple[list[str], list[Row]]:
        """Return the keys that a snapshot deletes from the archive, and the rows that it writes. The index is read only
        if something may change."""
        puts = [row for incident in incidents for row in rows.incident_rows(mesh, incident)]
        drops = [OPEN + incident.id for incident in incidents]
        if self._archive is None or not (incidents or now >= self._ends.get(mesh, now)):
            return drops, puts
        (index_rows,) = self._read(mesh, under(INDEX))
        index = rows.read_index([*index_rows, *(row for row in puts if row[0].startswith(INDEX))])
        excess = rows.excess(index, self._archive, now)
        ends = [incident.until for name, incident in index.items() if incident.until and name not in set(excess)]
        last = datetime.max.replace(tzinfo=now.tzinfo)
        self._ends[mesh] = min((end + self._archive.keep for end in ends), default=last)
        excess_keys = {kind + name for name in excess for kind in rows.ARCHIVE}
        return [*drops, *sorted(excess_keys)], [row for row in puts if row[0] not in excess_keys]

    @contextmanager
    def _setting_aside_damage(self, mesh: str) -> Iterator[None]:
        """Set a mesh aside if its rows turn out to be damaged, and raise the error again."""
        try:
            yield
        except CorruptState as error:
            revision = self.revision(mesh)
            try:
                self._verify(mesh)  # another process may have set it aside already
            except CorruptState:
                self.set_aside(mesh, str(error), revision=revision)
            raise CorruptState(
                f"state store {self.name}: mesh {mesh!r}: {error}; the mesh was set aside and starts learning again "
                "with its next snapshot",
                mesh=mesh,
            ) from error

    def _summarize(self, mesh: str, head: bytes, newest: list[Row]) -> StoredMesh | None:
        """Return a mesh of a list; None if it had to be set aside, so that the others are still listed."""
        try:
            return _read_mesh(mesh, [(HEAD, head)], newest)
        except CorruptState:  # damaged, or written while it was read
            try:
                return self.load(mesh)
            except CorruptState:  # logged when it was set aside
                return None


_STATE_RANGES = (only(rows.FULL), only(rows.STATE), under(rows.STEP))
_REMAINS = [rows.STEP, rows.VERDICT, rows.SNAPSHOT]  # rows that a damaged file may have left under a new mesh's name
_LIVE = tuple(under(key) if key.endswith("/") else only(key) for key in rows.LIVE)


def _head(revision: int, sequence: int) -> Row:
    """Return the first row of a mesh's write. No other write has the same."""
    return HEAD, f"{revision} {sequence} {uuid.uuid4().hex}".encode()


def _head_of(revision: int, *sequence: int) -> dict[str, bytes | None]:
    """Return the expected head of a mesh at this revision, 0: nothing is stored, and perhaps with this sequence."""
    return {HEAD: b"".join(b"%d " % number for number in (revision, *sequence)) if revision else None}


def _read_head(head: list[Row]) -> tuple[int, int]:
    """Return a mesh's revision and sequence; 0 and 0 if nothing is stored."""
    if not head:
        return 0, 0
    revision, sequence, *_ = (*head[0][1].split(b" "), b"")
    # If it is damaged, the state does not match this sequence, and the mesh is set aside.
    return int(revision) if revision.isdigit() else 1, int(sequence) if sequence.isdigit() else -1


def _full(sequence: int, revision: int) -> bytes:
    return b"%d %d" % (sequence, revision)


def _state_rows(mesh: str, sequence: int, revision: int, state: bytes) -> list[Row]:
    return [
        (rows.FULL, _full(sequence, revision)),
        sealed(mesh, rows.STATE, state, sequence, revision),
    ]


def _read_state(
    mesh: str, revision: int, sequence: int, full: list[Row], state: list[Row], steps: list[Row]
) -> StoredState:
    """Return the state in these rows; raise ``CorruptState`` if one is damaged or missing."""
    if not full or not state:
        raise CorruptState(f"stored state {mesh}: no full state is stored")
    try:
        begin, of_full = map(int, full[0][1].split())
    except ValueError:
        raise CorruptState(f"stored state {mesh}: expected its sequence, got {full[0][1][:40]!r}") from None
    content = unsealed(mesh, state[0], begin, of_full)
    numbers = [rows.number_of(key) for key, _ in steps]
    if numbers != list(range(begin + 1, sequence + 1)):
        raise CorruptState(f"stored state {mesh}: expected steps from {begin + 1} to {sequence}, got {numbers}")
    return StoredState(revision, sequence, content, of_full, tuple(unsealed(mesh, step) for step in steps))


def _read_mesh(mesh: str, head: list[Row], newest: list[Row]) -> StoredMesh:
    """Return a mesh with its newest verdict; raise ``CorruptState`` if it is damaged."""
    revision, sequence = _read_head(head)
    if not newest and not sequence:
        return StoredMesh(mesh, revision, 0, None, "", b"")
    newest_entry = next(_read_verdicts(mesh, newest), None)
    if newest_entry is None or newest_entry[0].sequence != sequence:
        raise CorruptState(
            f"stored verdict {mesh}: expected the one of snapshot {sequence}, got {newest_entry and newest_entry[0]}"
        )
    key, verdict = newest_entry
    return StoredMesh(mesh, revision, sequence, key.observed_at, key.digest, verdict)


def _read_verdicts(mesh: str, verdict_rows: Iterable[Row]) -> Iterator[tuple[VerdictKey, bytes]]:
    return ((VerdictKey.read(row[0]), unsealed(mesh, row)) for row in verdict_rows)


def _chunk_rows(mesh: str, history: HistoryUpdate) -> Iterator[Row]:
    for chunk, content in history.items():
        if content is not None:
            key = rows.chunk_key(chunk)
            row = sealed(mesh, rows.CHUNK + key, content)
            yield row
            yield rows.sealed_number(mesh, rows.SIZE + key, len(row[1]))
