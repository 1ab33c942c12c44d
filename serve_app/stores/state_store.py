"""The store of the state of meshes: everything that is kept, as rows of a database.

The database provides the primitives of :mod:`serve_app.stores.row_store`; this module has no other way to it, so every
database keeps the same rows. ``rows.py`` lists them.

Every write of a mesh is one transaction, which compares the revision that it was computed from. A revision is drawn by
the writer: the time in µs, but later than the revision before it. Beside it stands a name of the write: by it,
a store recognises a write whose answer was lost, and which is sent again.

Every blob has a checksum that covers its mesh and its key. Damaged rows are never used: their mesh is set aside, and
starts from the beginning.
"""

import logging
import time
import uuid
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
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
_DOCUMENT, _REVISION = "document/", "revision/"  # rows of SERVICE, by name of the document


class StateStore:
    """State of meshes, stored before the verdict is sent. Blobs are opaque bytes.

    Threads may share an instance, and processes a database. Each call may block for as long as the database does.

    Args:
        database: with the rows.
        max_meshes: that it may hold; None: any number.
        archive: what the archive of each mesh keeps; None: everything.

    Every method raises what :class:`~serve_app.stores.row_store.RowStore` does, and:
        BadMeshName: a name outside the alphabet.
        CorruptState: another version wrote the store, or something cannot be read. If ``details["mesh"]`` is set, that
            mesh was set aside, and the next call finds it new.

    Every write also raises:
        StoreConflict: the stored revision is not the one that it was computed from, 0 if there was none.
        TooManyMeshes: the write would create a mesh beyond the store's limit.
    """

    def __init__(self, database: RowStore, *, max_meshes: int | None = None, archive: Retention | None = None) -> None:
        self._database, self._is_of_this_version = database, False
        self._max_meshes, self._archive = max_meshes, archive
        self._lock = Lock()
        self._last_revision = 0
        self._ends: dict[str, datetime] = {}  # of each mesh: when an incident of its archive becomes too old

    @property
    def database(self) -> RowStore:
        """The rows, of which the first use checks the layout."""
        if not self._is_of_this_version:
            self._check_layout()
            self._is_of_this_version = True
        return self._database

    @property
    def name(self) -> str:
        return self._database.name

    def close(self) -> None:
        """Release files and connections; the store cannot be used afterwards."""
        self._database.close()

    def tidy(self) -> None:
        """Do the work that writes leave for later. Call it between writes."""
        self.database.tidy()

    def check_room(self, mesh: str) -> None:
        """Raise ``TooManyMeshes`` if ``mesh`` is new and there is no room for it. The write checks again; this saves
        the work before it."""
        if self._max_meshes is None or self._position(mesh)[0]:
            return
        if len(self.database.survey()) >= self._max_meshes:
            raise self._too_many_meshes(mesh)

    def load(self, mesh: str) -> StoredMesh | None:
        """The mesh with its newest verdict, or None if nothing is stored."""
        head, newest = self._read(mesh, only(HEAD), _NEWEST)
        with self._setting_aside_damage(mesh):
            return _read_mesh(mesh, head, newest) if head else None

    def load_state(self, mesh: str) -> StoredState | None:
        """The newest state, or None if nothing is stored."""
        head, *found = self._read(mesh, only(HEAD), *_OF_THE_STATE)
        if not head:
            return None
        with self._setting_aside_damage(mesh):
            return _read_state(mesh, *_read_head(head), *found)

    def append(self, mesh: str, new: NewSnapshot, *, keep: int, revision: int) -> int:
        """Count one snapshot in one transaction: append it with its verdict, replace the state or add a step to it,
        drop all snapshots but the last ``keep``, write its incidents to the archive, and drop from the archive what is
        beyond its limit. Returns the new revision.

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
        now = self._draw_revision(revision)
        if new.is_step:
            state = [sealed(mesh, rows.sequence_key(rows.STEP, new.sequence), new.state)]
        else:
            state = _state_rows(mesh, new.sequence, now, new.state)
        drops = [] if new.is_step else [rows.STEP] if revision else _REMAINS
        archived, written = self._archive_changes(mesh, new.incidents, new.observed_at)
        change = Change(
            expects=_head_of(revision, new.sequence - 1),
            drops=[*drops, *archived],
            puts=[
                _head(now, new.sequence),
                *state,
                sealed(mesh, VerdictKey(new.observed_at, new.sequence, new.digest).text, new.verdict),
                sealed(mesh, rows.sequence_key(rows.SNAPSHOT, new.sequence), new.snapshot),
                *written,
            ],
            trims=[(rows.VERDICT, keep), (rows.SNAPSHOT, keep)],
        )
        self._write(mesh, f"snapshot {new.sequence}", revision, change)
        return now

    def replace(self, mesh: str, state: bytes, *, revision: int, incidents: tuple[ArchivedIncident, ...] = ()) -> int:
        """Replace the state without counting a snapshot (a baseline), and write incidents to the archive, in one
        transaction. Returns the new revision."""
        now = self._draw_revision(revision)
        sequence = self._position(mesh)[1] if revision else 0
        change = Change(
            expects=_head_of(revision, sequence),
            drops=[*([rows.STEP] if revision else _REMAINS), *(OPEN + one.id for one in incidents)],
            puts=[
                _head(now, sequence),
                *_state_rows(mesh, sequence, now, state),
                *(row for one in incidents for row in rows.incident_rows(mesh, one)),
            ],
        )
        self._write(mesh, "a baseline", revision, change)
        return now

    def compact(self, mesh: str, state: bytes, *, sequence: int, revision: int, full: tuple[int, int]) -> bool:
        """Store a state in full in place of the earlier one and of the steps up to it. The mesh stays the same, so its
        revision does, too.

        Args:
            state: after ``sequence`` snapshots, opaque.
            sequence: of a snapshot that was stored as a step.
            revision: of the mesh after that snapshot.
            full: sequence and revision of the state that is replaced.

        Returns:
            False if the store has another state in full. Then nothing is written.
        """
        check_mesh_name(mesh)
        change = Change(
            expects={rows.FULL: _full(*full)},
            drops=[rows.sequence_key(rows.STEP, number) for number in range(full[0] + 1, sequence + 1)],
            puts=_state_rows(mesh, sequence, revision, state),
        )
        return self.database.write(mesh, change)

    def write_history(self, mesh: str, update: HistoryUpdate, *, full: tuple[int, int]) -> bool:
        """Write and drop files of the history of a mesh in one transaction. Its revision stays the same.

        Args:
            full: sequence and revision of the state that the store has in full.

        Returns:
            False if it has another one, such as after another session deleted the mesh. Then nothing is written.
        """
        check_mesh_name(mesh)
        dropped = [rows.chunk_key(key) for key, content in update.items() if content is None]
        change = Change(
            expects={rows.FULL: _full(*full)},
            drops=[kind + key for key in dropped for kind in (rows.CHUNK, rows.SIZE)],
            puts=list(_chunk_rows(mesh, update)),
        )
        return self.database.write(mesh, change)

    def verdict_at(self, mesh: str, observed_at: datetime) -> tuple[str, bytes] | None:
        """The content digest and the verdict of the kept snapshot of this time, or None."""
        (found,) = self._read(mesh, under(f"{rows.VERDICT}{rows.time_key(observed_at)}/"))
        with self._setting_aside_damage(mesh):
            return next(((key.digest, one) for key, one in _read_verdicts(mesh, found)), None)

    def verdicts(self, mesh: str, since: datetime | None, limit: int) -> list[bytes]:
        """At most ``limit`` verdicts of kept snapshots after ``since`` (None: of all), oldest first. Empty if nothing
        is stored."""
        begin = "" if since is None else rows.time_key(since + rows.ONE_STEP)
        (found,) = self._read(mesh, under(rows.VERDICT, since=begin, limit=limit))
        with self._setting_aside_damage(mesh):
            return [verdict for _, verdict in _read_verdicts(mesh, found)]

    def window(self, mesh: str) -> Iterator[tuple[int, bytes]]:
        """Iterate over the kept snapshots with their sequence numbers, oldest first. The first ``next`` fixes the
        view."""
        check_mesh_name(mesh)  # now, and not with the first ``next``
        return self._window(mesh)

    def meshes(self) -> list[StoredMesh]:
        """All stored meshes, in order of name."""
        return [one for found in self.database.survey(_NEWEST) if (one := self._summarize(*found)) is not None]

    def revision(self, mesh: str) -> int:
        """The revision of a mesh; 0: nothing is stored."""
        return self._position(mesh)[0]

    def revisions(self) -> dict[str, int]:
        """The revision of each stored mesh, by name. It reads little, so it shows cheaply which meshes have changed."""
        return {mesh: _read_head([(HEAD, head)])[0] for mesh, head, _ in self.database.survey()}

    def was_set_aside(self, mesh: str) -> bool:
        """Whether the store has rows of a mesh that was set aside."""
        (found,) = self._read(mesh, under(rows.ASIDE, limit=1))
        return bool(found)

    def set_aside(self, mesh: str, why: str, *, revision: int) -> bool:
        """Move a mesh with unusable state aside, so that it starts from the beginning. Its archive and its history
        stay. Replaces what was set aside before. Returns False if the stored revision is another."""
        head, *found = self._read(mesh, *_LIVE)
        if _read_head(head)[0] != revision or not head:
            return False
        live = [*head, *(row for some in found for row in some)]
        change = Change(
            expects=dict(head),
            drops=[rows.ASIDE, *rows.LIVE],
            puts=[
                (rows.ASIDE + "why", f"{uuid.uuid4().hex} {why}".encode()),
                *((rows.ASIDE + key, value) for key, value in live),
            ],
        )
        is_done = self.database.write(mesh, change)
        if is_done:
            log.error("state store %s: mesh %r was set aside and starts learning again: %s", self.name, mesh, why)
        return is_done

    def delete(self, mesh: str) -> bool:
        """Delete a mesh with its archive and its history. Returns False if nothing was stored."""
        (head,) = self._read(mesh, only(HEAD))
        if not head:  # what was set aside goes, too
            self.database.write(mesh, Change(expects={HEAD: None}, drops=[""]))
            return False
        while head and not self.database.write(mesh, Change(expects=dict(head), drops=[""])):
            (head,) = self._read(mesh, only(HEAD))  # none: another call, or this one, has deleted it
        self._ends.pop(mesh, None)
        return True

    def open_incidents(self, mesh: str) -> dict[str, int]:
        """The archived incidents that are open, by id, each with the sequence with which it was written."""
        (found,) = self._read(mesh, under(OPEN))
        return {row[0].removeprefix(OPEN): rows.unsealed_number(mesh, row) for row in found}

    def incidents(self, mesh: str, wanted: IncidentFilter) -> list[ArchivedIncident]:
        """The archived incidents that match, the newest first, without details. Leaves out damaged ones."""
        (index,) = self._read(mesh, under(INDEX))
        some = [one for one in rows.read_index(index).values() if wanted.has(one)]
        some.sort(key=lambda one: (one.since, one.id), reverse=True)
        ids, of = [one.id for one in some[: wanted.limit]], {key.removeprefix(INDEX): (key, row) for key, row in index}
        documents = self._read_all(mesh, [INCIDENT + one for one in ids])
        found = (rows.read_incident(mesh, of[row[0].removeprefix(INCIDENT)], row) for row in documents)
        return [one for one in found if one is not None]

    def incident(self, mesh: str, incident: str, *, details: bool = True) -> ArchivedIncident | None:
        """An archived incident by its id; None if there is none, or it is damaged. Its details are read if asked."""
        kinds = (INDEX, INCIDENT, *((rows.DETAILS,) if details else ()))
        index, *found = self._read(mesh, *(only(kind + incident) for kind in kinds))
        return rows.read_incident(mesh, index[0], *(one[0] if one else ("", b"") for one in found)) if index else None

    def history_sizes(self, mesh: str) -> dict[ChunkKey, int]:
        """The chunks of the history of a mesh, each with the bytes that it takes. Empty if there is none."""
        (found,) = self._read(mesh, under(rows.SIZE))
        sizes = {}
        for row in found:
            try:
                sizes[rows.read_chunk_key(row[0])] = rows.unsealed_number(mesh, row)
            except CorruptState as error:
                log.error("history of mesh %r: a chunk is left out: %s", mesh, error)
        return sizes

    def history(self, mesh: str, keys: Collection[ChunkKey]) -> dict[ChunkKey, bytes]:
        """The content of each of these chunks that is stored. Leaves out damaged ones."""
        found = {}
        for row in self._read_all(mesh, [rows.CHUNK + rows.chunk_key(key) for key in keys]):
            try:
                found[rows.read_chunk_key(row[0])] = unsealed(mesh, row)
            except CorruptState as error:
                log.error("history of mesh %r: a chunk is damaged and left out: %s", mesh, error)
        return found

    def read_document(self, name: str) -> StoredDocument:
        """A document that belongs to the service; revision 0 if there is none. A damaged one is logged and deleted."""
        head, content = self.database.read(SERVICE, only(_REVISION + name), only(_DOCUMENT + name))
        if not head:
            return StoredDocument()
        revision, _ = _read_head(head)
        try:
            return StoredDocument(revision, unsealed(SERVICE, content[0] if content else ("", b""), revision))
        except CorruptState as error:
            self.database.write(SERVICE, Change(drops=[_REVISION + name, _DOCUMENT + name]))
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
        now, head = self._draw_revision(revision), _REVISION + name
        expects = {head: b"%d " % revision if revision else None}
        if content:
            puts = [(head, _head(now, 0)[1]), sealed(SERVICE, _DOCUMENT + name, content, now)]
            change = Change(expects, puts=puts)
        else:
            change = Change(expects, drops=[head, _DOCUMENT + name])
        if not self.database.write(SERVICE, change):
            (found,) = self.database.read(SERVICE, only(head))
            if found or content:  # otherwise this call, whose answer was lost, has deleted it
                stored = _read_head(found)[0]
                raise StoreConflict(
                    f"document {name!r}: expected the stored revision {stored}, got one made from {revision}; read it "
                    "again and repeat",
                    revision=stored,
                )
        return now

    def verify(self, mesh: str) -> None:
        """Check all rows of a mesh except for its archive and its history. A damaged mesh is set aside."""
        with self._setting_aside_damage(mesh):
            self._verify(mesh)

    def _verify(self, mesh: str) -> None:
        """Raise ``CorruptState`` if a row of a mesh is damaged or missing."""
        head, *of_the_state = self._read(mesh, only(HEAD), *_OF_THE_STATE)
        if not head:
            return
        state = _read_state(mesh, *_read_head(head), *of_the_state)
        (verdicts,) = self._read(mesh, under(rows.VERDICT))
        judged = [key.sequence for key, _ in _read_verdicts(mesh, verdicts)]
        seen = [rows.number_of(row[0]) for row in self.database.scan(mesh, under(rows.SNAPSHOT)) if unsealed(mesh, row)]
        for what, numbers in (("verdicts", judged), ("snapshots", seen)):
            rows.check_window(mesh, what, state.sequence, numbers)

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
        return (row for found in self._read(mesh, *map(only, keys)) for row in found) if keys else iter(())

    def _read(self, mesh: str, *ranges: Range) -> list[list[Row]]:
        check_mesh_name(mesh)
        return self.database.read(mesh, *ranges)

    def _check_layout(self) -> None:
        (found,) = self._database.read(SERVICE, only(rows.LAYOUT_ROW))
        if not rows.check_layout(self.name, found[0][1] if found else b""):
            self._database.write(SERVICE, Change(puts=[(rows.LAYOUT_ROW, b"%d" % rows.LAYOUT)]))

    def _position(self, mesh: str) -> tuple[int, int]:
        (head,) = self._read(mesh, only(HEAD))
        return _read_head(head)

    def _draw_revision(self, before: int) -> int:
        """A revision that was never used before."""
        with self._lock:
            self._last_revision = max(time.time_ns() // 1000, before + 1, self._last_revision + 1)
            return self._last_revision

    def _write(self, mesh: str, what: str, revision: int, change: Change) -> None:
        """Write a change of a mesh that was computed from this revision."""
        check_mesh_name(mesh)
        try:
            is_done = self.database.write(mesh, change, max_meshes=self._max_meshes)
        except NoRoom:
            raise self._too_many_meshes(mesh) from None
        if not is_done:
            raise self._conflict(mesh, what, revision)

    def _conflict(self, mesh: str, what: str, revision: int) -> StoreConflict:
        stored, sequence = self._position(mesh)
        if 0 < stored < revision:
            log.error(
                "state store %s: mesh %r is at revision %d, but %d was acknowledged: the store has lost writes, as "
                "after a power failure or a failover; the mesh continues from what is left",
                self.name, mesh, stored, revision,
            )  # fmt: skip
        return StoreConflict(
            f"mesh {mesh!r}: {what} made from revision {revision} does not follow the stored sequence {sequence}, "
            f"revision {stored}; load the mesh again and repeat",
            sequence=sequence,
            revision=stored,
        )

    def _too_many_meshes(self, mesh: str) -> TooManyMeshes:
        return TooManyMeshes(
            f"mesh {mesh!r}: expected at most {self._max_meshes} meshes in the store, got one more; nothing was "
            "changed; delete unused meshes (DELETE /v1/meshes/NAME), or raise limits.max_meshes"
        )

    def _archive_changes(
        self, mesh: str, incidents: tuple[ArchivedIncident, ...], now: datetime
    ) -> tuple[list[str], list[Row]]:
        """What a snapshot drops from the archive and writes to it. The index is read only if something may change."""
        written = [row for one in incidents for row in rows.incident_rows(mesh, one)]
        drops = [OPEN + one.id for one in incidents]
        if self._archive is None or not (incidents or now >= self._ends.get(mesh, now)):
            return drops, written
        (known,) = self._read(mesh, under(INDEX))
        index = rows.read_index(known)
        index |= rows.read_index(row for row in written if row[0].startswith(INDEX))
        gone = rows.excess(index, self._archive, now)
        ends = [one.until for name, one in index.items() if one.until is not None and name not in set(gone)]
        last = datetime.max.replace(tzinfo=now.tzinfo)
        self._ends[mesh] = min((end + self._archive.keep for end in ends), default=last)
        dropped = {key for name in gone for key in rows.dropped_keys(name)}
        return [*drops, *sorted(dropped)], [row for row in written if row[0] not in dropped]

    @contextmanager
    def _setting_aside_damage(self, mesh: str) -> Iterator[None]:
        """Set a mesh aside if its rows turn out to be damaged, and raise the error again."""
        try:
            yield
        except CorruptState as error:
            revision, _ = self._position(mesh)
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
        """One mesh of a list; None if it had to be set aside, so that the others are still listed."""
        try:
            return _read_mesh(mesh, [(HEAD, head)], newest)
        except CorruptState:  # damaged, or written while it was read
            try:
                return self.load(mesh)
            except CorruptState:  # logged when it was set aside
                return None


_OF_THE_STATE = (only(rows.FULL), only(rows.STATE), under(rows.STEP))
_REMAINS = [rows.STEP, rows.VERDICT, rows.SNAPSHOT]  # rows that a damaged file may have left under a new mesh's name
_LIVE = tuple(under(key) if key.endswith("/") else only(key) for key in rows.LIVE)


def _head(revision: int, sequence: int) -> Row:
    """The row that a write of a mesh begins with. No other write has the same."""
    return HEAD, f"{revision} {sequence} {uuid.uuid4().hex}".encode()


def _head_of(revision: int, *sequence: int) -> dict[str, bytes | None]:
    """What is expected of a mesh at this revision, and with this sequence; 0: nothing is stored."""
    return {HEAD: b"".join(b"%d " % number for number in (revision, *sequence)) if revision else None}


def _read_head(head: list[Row]) -> tuple[int, int]:
    """Revision and sequence of a mesh; 0 and 0 if nothing is stored."""
    if not head:
        return 0, 0
    revision, sequence, *_ = (*head[0][1].split(b" "), b"")
    # If it is damaged, the state is not of this sequence, and the mesh is set aside.
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
    """The state of these rows; raises ``CorruptState`` if one is damaged or missing."""
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
    """A mesh with the verdict of its newest snapshot; raises ``CorruptState`` if it is damaged."""
    revision, sequence = _read_head(head)
    if not newest and not sequence:
        return StoredMesh(mesh, revision, 0, None, "", b"")
    found = next(_read_verdicts(mesh, newest), None)
    if found is None or found[0].sequence != sequence:
        raise CorruptState(f"stored verdict {mesh}: expected the one of snapshot {sequence}, got {found and found[0]}")
    key, verdict = found
    return StoredMesh(mesh, revision, sequence, key.observed_at, key.digest, verdict)


def _read_verdicts(mesh: str, found: Iterable[Row]) -> Iterator[tuple[VerdictKey, bytes]]:
    return ((VerdictKey.read(row[0]), unsealed(mesh, row)) for row in found)


def _chunk_rows(mesh: str, history: HistoryUpdate) -> Iterator[Row]:
    for chunk, content in history.items():
        if content is not None:
            key = rows.chunk_key(chunk)
            row = sealed(mesh, rows.CHUNK + key, content)
            yield row
            yield rows.sealed_number(mesh, rows.SIZE + key, len(row[1]))
