"""The archive of incidents as rows, and what its limits drop.

An incident has three rows: ``incident/ID`` with a line of its columns and its document, ``details/ID``, and
``index/ID`` with the columns again, which lists and limits need. While it is open, ``open/ID`` has the sequence with
which it was written. Checksums cover the columns, so that a damaged incident is left out of every answer.
"""

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Self

from serve_app.errors import CorruptState
from serve_app.stores.base import ArchivedIncident, ArchiveLimit, IncidentFilter
from serve_app.stores.primitives import Row
from serve_app.stores.rows import microseconds, time_of
from serve_app.stores.seal import seal, unseal

INCIDENT, DETAILS, INDEX, OPEN = "incident/", "details/", "index/", "open/"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """What is known of an archived incident without its document: fields of ``ArchivedIncident``, with times in µs
    since 1970, and the bytes of its rows."""

    id: str
    since: int
    until: int | None
    sequence: int
    severity: int
    kind: str
    suspects: tuple[str, ...]
    services: tuple[str, ...]
    size: int = 0

    @classmethod
    def of(cls, one: ArchivedIncident) -> Self:
        """The columns of an incident."""
        return cls(
            id=one.id,
            since=microseconds(one.since),
            until=None if one.until is None else microseconds(one.until),
            sequence=one.sequence,
            severity=one.severity,
            kind=one.kind,
            suspects=one.suspects,
            services=one.services,
        )

    def pack(self) -> bytes:
        """A line of JSON."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        """Inverse of :meth:`pack`; raises ``CorruptState`` if it is damaged."""
        try:
            found: dict[str, Any] = json.loads(packed)
            return cls(**found | {"suspects": tuple(found["suspects"]), "services": tuple(found["services"])})
        except (ValueError, TypeError, KeyError) as error:
            raise CorruptState(f"stored incident: expected its columns, got {packed[:40]!r} ({error})") from error

    def is_wanted(self, wanted: IncidentFilter) -> bool:
        """Whether a list has this incident."""
        return (
            (wanted.since is None or self.until is None or self.until > microseconds(wanted.since))
            and (wanted.until is None or self.since < microseconds(wanted.until))
            and set(wanted.services) <= set(self.services)
            and (wanted.suspects is None or not set(wanted.suspects).isdisjoint(self.suspects))
            and wanted.kind in (None, self.kind)
            and wanted.severity in (None, self.severity)
            and (wanted.before is None or (self.since, self.id) < (microseconds(wanted.before[0]), wanted.before[1]))
        )


def incident_rows(mesh: str, one: ArchivedIncident) -> list[Row]:
    """The rows of an incident."""
    columns = Columns.of(one)
    head = columns.pack()
    document = head + b"\n" + seal(one.document, mesh, INCIDENT + one.id, head)
    details = seal(one.details, mesh, DETAILS + one.id, one.sequence)
    index = Columns(**asdict(columns) | {"size": len(document) + len(details) + len(head)})
    rows = [(INCIDENT + one.id, document), (DETAILS + one.id, details), (INDEX + one.id, index.pack())]
    return rows if one.until is not None else [*rows, (OPEN + one.id, b"%d" % one.sequence)]


def dropped_keys(incident: str) -> list[str]:
    """The keys of the rows of an incident."""
    return [kind + incident for kind in (INCIDENT, DETAILS, INDEX, OPEN)]


def read_incident(mesh: str, row: Row, details: Row | None = None) -> ArchivedIncident | None:
    """The incident of its row, without details if they are None; None if it is damaged."""
    key, value = row
    head, _, document = value.partition(b"\n")
    try:
        columns = Columns.unpack(head)
        unsealed = unseal(document, mesh, key, head)
        inside = b"" if details is None else unseal(details[1], mesh, details[0], columns.sequence)
    except CorruptState as error:
        name = key.removeprefix(INCIDENT)
        log.error("archive of mesh %r: incident %r is damaged and left out: %s", mesh, name, error)
        return None
    return ArchivedIncident(
        columns.id,
        time_of(columns.since),
        None if columns.until is None else time_of(columns.until),
        columns.sequence,
        columns.severity,
        columns.kind,
        columns.suspects,
        columns.services,
        unsealed,
        inside,
    )


def read_index(rows: Iterable[Row]) -> dict[str, Columns]:
    """The columns of all incidents by id. A damaged row counts as an incident that ended long ago, so that it goes."""
    found = {}
    for key, value in rows:
        try:
            columns = Columns.unpack(value)
        except CorruptState:
            columns = Columns(
                id=key.removeprefix(INDEX),
                since=0,
                until=0,
                sequence=0,
                severity=0,
                kind="",
                suspects=(),
                services=(),
                size=len(value),
            )
        found[columns.id] = columns
    return found


def excess(archive: Mapping[str, Columns], limit: ArchiveLimit, now: datetime) -> list[str]:
    """The incidents that an archive drops at a time: those that ended too long ago, then those beyond its bytes."""
    oldest = microseconds(now) - round(limit.keep.total_seconds() * 1e6)
    dropped = [one.id for one in archive.values() if one.until is not None and one.until < oldest]
    kept = [one for one in archive.values() if one.until is None or one.until >= oldest]
    beyond = sum(one.size for one in kept) - limit.max_bytes
    for one in sorted(kept, key=lambda one: (one.until is None, one.severity, one.since, one.id)):
        if beyond <= 0:
            break
        dropped.append(one.id)
        beyond -= one.size
    return dropped
