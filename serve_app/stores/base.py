"""The interface between sessions and the store of their state."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol


@dataclass(frozen=True, slots=True)
class MeshLimit:
    """How many meshes a store takes, and when an idle one makes room for a new one.

    Attributes:
        max_meshes: at most.
        evict_idle_seconds: if the store is full, a new mesh replaces the mesh with the oldest write, provided that this
            write was at least this many seconds ago. None: no mesh is ever deleted to make room.
    """

    max_meshes: int
    evict_idle_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ArchiveLimit:
    """How long and how much the archive of incidents keeps of each mesh.

    Attributes:
        keep: time after the end of an incident, by the clock of its mesh.
        max_bytes: of all incidents of one mesh. Beyond, ended incidents go first: of the lowest severity, the oldest.
    """

    keep: timedelta
    max_bytes: int


@dataclass(frozen=True, slots=True)
class ArchivedIncident:
    """An incident in the archive.

    Attributes:
        id: unique in its mesh.
        since: time of its first evidence.
        until: time of its end; None: it is open.
        sequence: of the snapshot with which it was written.
        severity: rank, 0 is the lowest.
        kind: what is wrong.
        suspects: the likely ones, best first.
        services: all suspects and affected services.
        document: opaque.
        details: opaque; empty in lists.
    """

    id: str
    since: datetime
    until: datetime | None
    sequence: int
    severity: int
    kind: str
    suspects: tuple[str, ...]
    services: tuple[str, ...]
    document: bytes
    details: bytes = b""


@dataclass(frozen=True, slots=True)
class IncidentFilter:
    """Which incidents of an archive to list; None: any.

    Attributes:
        since, until: it was open at some time from ``since`` to before ``until``.
        services: all of these are suspects or affected services; empty: any.
        suspects: one of its likely suspects is among these.
        kind: what is wrong.
        severity: rank.
        before: only incidents after this one (``since`` and ``id``) in the list, where the newest come first.
        limit: maximum number.
    """

    since: datetime | None = None
    until: datetime | None = None
    services: tuple[str, ...] = ()
    suspects: tuple[str, ...] | None = None
    kind: str | None = None
    severity: int | None = None
    before: tuple[datetime, str] | None = None
    limit: int = 1000


@dataclass(frozen=True, slots=True, order=True)
class ChunkKey:
    """Which chunk of a mesh's history.

    Attributes:
        step: seconds of one row.
        start: Unix time of its first row, s.
        part: 0: about the mesh; otherwise about some of its services.
    """

    step: int
    start: int
    part: int


@dataclass(frozen=True, slots=True)
class HistoryChunk:
    """A chunk of a mesh's history; ``content`` is opaque."""

    key: ChunkKey
    content: bytes


@dataclass(frozen=True, slots=True)
class StoredMesh:
    """One mesh in the store, without its state and its window of snapshots.

    Attributes:
        mesh: its name.
        revision: token for compare-and-set; grows with every write and never repeats in one store. It is the time of
            the write, µs since 1970, or one more than the last revision if the clock has not advanced.
        sequence: number of counted snapshots; 0 if only a baseline was set.
        observed_at: time of the newest snapshot; None before the first.
        digest: content digest of the newest snapshot; empty before the first.
        verdict: newest verdict, opaque; empty before the first.
    """

    mesh: str
    revision: int
    sequence: int
    observed_at: datetime | None
    digest: str
    verdict: bytes


@dataclass(frozen=True, slots=True)
class StoredState:
    """The state of a mesh: as it was last stored in full, and what is needed to bring it up to date.

    Attributes:
        revision: of the mesh.
        sequence: number of counted snapshots.
        state: after ``sequence - len(steps)`` of them, opaque.
        state_revision: of the mesh at that time.
        steps: of the snapshots since, oldest first, opaque.
    """

    revision: int
    sequence: int
    state: bytes
    state_revision: int
    steps: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class StoredVerdict:
    """The verdict of one counted snapshot and the digest of that snapshot's content."""

    digest: str
    verdict: bytes


@dataclass(frozen=True, slots=True)
class NewSnapshot:
    """A counted snapshot for the store, with the state and the verdict that it led to.

    Attributes:
        sequence: its number, counted from 1.
        observed_at: its time.
        snapshot: opaque.
        digest: of its content.
        state: of the mesh after it; if ``is_step``, only what is needed beyond the state before it and the snapshot.
            Opaque.
        verdict: opaque.
        incidents: to be written to the archive; each replaces the one with its id.
        is_step: whether ``state`` is such a step. A full state replaces all steps before it.
        history: chunks to be written; each replaces the one with its key.
        dropped: chunks of the history to be deleted.
    """

    sequence: int
    observed_at: datetime
    snapshot: bytes
    digest: str
    state: bytes
    verdict: bytes
    incidents: tuple[ArchivedIncident, ...] = ()
    is_step: bool = False
    history: tuple[HistoryChunk, ...] = ()
    dropped: tuple[ChunkKey, ...] = ()


@dataclass(frozen=True, slots=True)
class MeshSummary:
    """One stored mesh in a list; ``verdict`` is the newest verdict, opaque."""

    mesh: str
    sequence: int
    observed_at: datetime | None
    verdict: bytes


@dataclass(frozen=True, slots=True)
class WindowRow:
    """A kept snapshot with its verdict; for the fields see :class:`NewSnapshot`."""

    sequence: int
    observed_at: datetime
    digest: str
    verdict: bytes
    snapshot: bytes


@dataclass(frozen=True, slots=True)
class WholeMesh:
    """All that a store has of a mesh except for its history, to copy it into another store.

    Attributes:
        state: with its revisions.
        window: the kept snapshots, oldest first.
        incidents: of the archive, with details, in order of id.
    """

    state: StoredState
    window: tuple[WindowRow, ...]
    incidents: tuple[ArchivedIncident, ...]


ROLLOUT = "rollout"  # the document that says which mesh uses which model


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document of the service; ``revision`` is the token for compare-and-set, which never repeats."""

    revision: int
    content: bytes


class StateStore(Protocol):
    """State of meshes, stored before the verdict is sent. Blobs are opaque bytes.

    Threads may share an instance, and processes a store. A store needs these 24 methods and nothing else: its package
    adds it with a :class:`~serve_app.stores.plugin.StorePlugin`, and proves it with ``lab.contracts.stores``. A session
    calls them in threads, and each may block for as long as it must, below ``serve.deadline_seconds``.

    What each method costs, by when it is called and what goes through it:

    - ``append``: with each snapshot, before its answer; a snapshot, a verdict, and a step or a state.
    - ``open_incidents``: with each snapshot; a few ids.
    - ``load``: with each read of a mesh, and for a mesh that is not in memory; the newest verdict.
    - ``check_room``: before the first snapshot of a mesh.
    - ``load_state``, ``window``: for a mesh that is not in memory, and before a fit; all that is kept of it.
    - ``compact``, ``tidy``: in the background, between writes; a state.
    - ``replace``: when people or a fit change a mesh; a state.
    - ``verdict_at``: when a client repeats a snapshot; a verdict.
    - ``verdicts``: when an incident is archived, and when people view them; the verdicts of a window.
    - ``meshes``: for lists and metrics; the newest verdicts.
    - ``incidents``, ``incident``: when people view them, or an incident changes; incidents.
    - ``history_sizes``, ``history``: once in some ten minutes of a mesh, and when people view its past; up to some MB.
    - ``set_aside``, ``delete``: after damage, or by hand.
    - ``read_whole``, ``write_whole``, ``write_history``: by ``tagae store copy`` alone; all that is kept of a mesh.
    - ``read_document``: once a second in each session, if there is a registry of models; some KB.
    - ``write_document``: when people change a model, and twice in 20 snapshots of a mesh while a
      candidate is tried; up to 500 KB.
    - ``close``: once.

    Every method raises:
        BadMeshName: a name outside the alphabet.
        Overloaded: the store stayed busy.
        CorruptState: something cannot be read. If ``details["mesh"]`` is set, that mesh was set aside, and the next
            call finds it new.
        StoreGone: the store's files were deleted or replaced, or its server does not answer or has lost its data.
            Acknowledged writes are in those files; no further write is acknowledged. If ``details["stored"]`` is
            ``unknown``, this write may have been stored: repeating it is safe.

    Every write also raises:
        StoreFull: the disk or the memory is full; nothing changed.
        TooManyMeshes: the write would create a mesh beyond the store's limit.
    """

    def check_room(self, mesh: str) -> None:
        """Raise ``TooManyMeshes`` if ``mesh`` is new and there is no room for it. The write checks again; this saves
        the work before it."""

    def load(self, mesh: str) -> StoredMesh | None:
        """The mesh with its newest verdict, or None if nothing is stored."""

    def load_state(self, mesh: str) -> StoredState | None:
        """The newest state, or None if nothing is stored."""

    def append(self, mesh: str, new: NewSnapshot, *, keep: int, revision: int | None = None) -> int:
        """Count one snapshot in one transaction: append it with its verdict, replace the state or add a step to it,
        drop all snapshots but the last ``keep``, write its incidents to the archive, drop from the archive what is
        beyond its limit, and write and drop chunks of the history.

        Pass the ``revision`` that the state was computed from (0 for a new mesh), so that a baseline set in between is
        not overwritten. None compares only the sequence.

        Returns:
            The new revision.

        Raises:
            StoreConflict: the stored sequence is not ``new.sequence - 1`` (0 = none), or the stored revision differs.
            ValueError: ``keep`` is below 1, or a step is the first of a mesh.
        """

    def replace(self, mesh: str, state: bytes, *, revision: int, incidents: tuple[ArchivedIncident, ...] = ()) -> int:
        """Replace the state without counting a snapshot (a baseline), and write incidents to the archive, in one
        transaction; ``revision`` is 0 for a new mesh.

        Returns:
            The new revision.

        Raises:
            StoreConflict: the stored revision is another.
        """

    def compact(self, mesh: str, state: bytes, *, sequence: int, revision: int, state_revision: int) -> bool:
        """Store a state in full in place of the earlier one and of the steps up to it. The mesh stays the same, so its
        revision does, too.

        Args:
            mesh: name.
            state: after ``sequence`` snapshots, opaque.
            sequence: of a snapshot that was stored as a step.
            revision: of the mesh after that snapshot.
            state_revision: of the state that is replaced.

        Returns:
            False if the store has another state in full. Then nothing is written.
        """

    def tidy(self) -> None:
        """Do the work that writes leave for later. Call it between writes; the store works without it, in larger
        steps."""

    def verdict_at(self, mesh: str, observed_at: datetime) -> StoredVerdict | None:
        """The verdict of the kept snapshot of this time, or None."""

    def verdicts(self, mesh: str, since: datetime | None, limit: int) -> list[bytes]:
        """At most ``limit`` verdicts of kept snapshots after ``since`` (None: of all), oldest first. Empty if nothing
        is stored."""

    def window(self, mesh: str) -> Iterator[tuple[int, bytes]]:
        """Iterate over the kept snapshots with their sequence numbers, oldest first. The first ``next`` fixes the
        view."""

    def open_incidents(self, mesh: str) -> dict[str, int]:
        """The archived incidents that are open, by id, each with the sequence with which it was written."""

    def incidents(self, mesh: str, wanted: IncidentFilter) -> list[ArchivedIncident]:
        """The archived incidents that match, the newest first, without details. Leaves out damaged ones."""

    def incident(self, mesh: str, incident: str) -> ArchivedIncident | None:
        """An archived incident by its id, with details; None if there is none, or it is damaged."""

    def history_sizes(self, mesh: str) -> dict[ChunkKey, int]:
        """The chunks of the history of a mesh, each with the bytes that it takes. Empty if there is none."""

    def history(self, mesh: str, keys: Collection[ChunkKey]) -> dict[ChunkKey, bytes]:
        """The content of each of these chunks that is stored, in one view. Leaves out damaged ones."""

    def meshes(self) -> list[MeshSummary]:
        """All stored meshes, in order of name."""

    def set_aside(self, mesh: str, why: str, *, revision: int) -> bool:
        """Move a mesh with unusable state aside, so that it starts from the beginning. Its archive and its history
        stay. Replaces what was set aside before. Returns False if the stored revision is another."""

    def delete(self, mesh: str) -> bool:
        """Delete a mesh with its archive and its history. Returns False if nothing was stored."""

    def read_whole(self, mesh: str) -> WholeMesh | None:
        """All that is stored of a mesh, in one view; None if nothing is stored. Leaves out damaged incidents."""

    def write_whole(self, mesh: str, whole: WholeMesh, *, replace: bool = False) -> None:
        """Store a mesh that was read from another store, with its revisions, in one transaction. It has no history
        then. Limits do not apply.

        Raises:
            StoreConflict: the mesh is stored here already, and not to be replaced.
        """

    def write_history(self, mesh: str, chunks: Collection[HistoryChunk]) -> None:
        """Store chunks of the history of a stored mesh that were read from another store, in one transaction."""

    def read_document(self, name: str) -> StoredDocument | None:
        """A document that belongs to the service; None if there is none. A damaged one is logged and deleted."""

    def write_document(self, name: str, content: bytes, *, revision: int) -> int:
        """Replace a document; empty content deletes it. Limits on meshes do not apply.

        Args:
            name: 1 to 100 of a-z, 0-9, ``.``, ``_``, ``-`` and ``/``.
            content: opaque.
            revision: that the content was computed from; 0: there is no document yet.

        Returns:
            The new revision.

        Raises:
            StoreConflict: the stored revision is another.
        """

    def close(self) -> None:
        """Release files and connections; the store cannot be used afterwards."""
