"""The values that the store of meshes takes and returns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Retention:
    """How long, and up to how many bytes, something is kept.

    In a mesh's archive, the time begins with the end of an incident, by the mesh's clock. Beyond the bytes, ended
    incidents are deleted first: the least severe, then the oldest. The audit log deletes its oldest records.
    """

    keep: timedelta
    max_bytes: int


@dataclass(frozen=True, slots=True)
class HistoryLimit:
    """How long each mesh's history keeps rows of each length. Beyond ``max_bytes``, the oldest files are deleted."""

    minutes: timedelta
    ten_minutes: timedelta
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
        suspects: the likely ones, best first.
        services: all suspects and affected services.
        document: opaque.
        details: opaque; empty in lists.
        size: bytes of document and details, according to the index.
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
    size: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class IncidentFilter:
    """Which incidents of an archive to list; None: any.

    Attributes:
        since, until: it was open at some time from ``since`` to before ``until``.
        services: all of these are suspects or affected services; empty: any.
        suspects: one of its likely suspects is among these.
        severity: rank.
        before: only incidents that follow this one (``since`` and ``id``) in the list, which begins with the newest.
    """

    since: datetime | None = None
    until: datetime | None = None
    services: tuple[str, ...] = ()
    suspects: tuple[str, ...] | None = None
    kind: str | None = None
    severity: int | None = None
    before: tuple[datetime, str] | None = None
    limit: int = 1000

    def has(self, incident: ArchivedIncident) -> bool:
        return (
            (self.since is None or incident.until is None or incident.until > self.since)
            and (self.until is None or incident.since < self.until)
            and set(self.services) <= set(incident.services)
            and (self.suspects is None or not set(self.suspects).isdisjoint(incident.suspects))
            and self.kind in (None, incident.kind)
            and self.severity in (None, incident.severity)
            and (self.before is None or (incident.since, incident.id) < self.before)
        )


@dataclass(frozen=True, slots=True, order=True)
class ChunkKey:
    """The key of a history file.

    Attributes:
        step: seconds of one row.
        start: Unix time of its first row, s.
        part: 0: about the mesh; above, about some of its services.
    """

    step: int
    start: int
    part: int


HistoryUpdate = Mapping[ChunkKey, bytes | None]  # content to be written; None: to be deleted


@dataclass(frozen=True, slots=True)
class StoredMesh:
    """One mesh in the store, without its state and its window of snapshots.

    Attributes:
        revision: token for compare-and-set; grows with every write and never repeats in one store. It is the time of
            the write, µs since 1970, or one more than the last revision if the clock has not advanced. With several
            nodes, it is the time of the node that writes.
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
    """A mesh's state as it was last stored in full, with the steps that bring it up to date.

    Attributes:
        revision, sequence: of the mesh.
        state: after ``sequence - len(steps)`` snapshots, opaque.
        state_revision: the mesh's revision with that state.
        steps: one for each snapshot since, oldest first, opaque.
    """

    revision: int
    sequence: int
    state: bytes
    state_revision: int
    steps: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class NewSnapshot:
    """A counted snapshot for the store, with the resulting state and verdict.

    Attributes:
        sequence: its number, counted from 1.
        digest: of its content.
        state: of the mesh after it, in full or as a step.
        incidents: to be written to the archive; each replaces the one with its id.
        is_step: whether ``state`` is a step: only what the previous state and the snapshot lack. A full state replaces
            all earlier steps.
    """

    sequence: int
    observed_at: datetime
    snapshot: bytes
    digest: str
    state: bytes
    verdict: bytes
    incidents: tuple[ArchivedIncident, ...] = ()
    is_step: bool = False


ROLLOUT = "rollout"  # the document that says which mesh uses which model


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document of the service. Its ``revision``, the token for compare-and-set, never repeats; 0: there is none."""

    revision: int = 0
    content: bytes = b""
