"""The archive of incidents in a local store's file: one row for each incident.

Times are µs since 1970. The checksums cover the whole row, so that a damaged row is left out of every answer. The
archive of a mesh shares its transactions: an incident is in the archive if, and only if, the verdict that opened it is
stored.
"""

import logging
import sqlite3
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from serve_app.errors import CorruptState
from serve_app.stores.base import ArchivedIncident, ArchiveLimit, IncidentFilter
from serve_app.stores.seal import seal, unseal
from serve_app.stores.tables import microseconds, time_of

log = logging.getLogger(__name__)
_COLUMNS = "id, since, until, sequence, severity, kind, suspects, services, document"


def write(db: sqlite3.Connection, mesh: str, incidents: Iterable[ArchivedIncident]) -> None:
    """Add incidents to the archive of a mesh, or replace them."""
    db.executemany(
        "INSERT OR REPLACE INTO incidents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [_row(mesh, incident) for incident in incidents],
    )


def drop_excess(db: sqlite3.Connection, mesh: str, limit: ArchiveLimit, now: datetime, *, grew: bool) -> None:
    """Drop incidents that ended too long before ``now``; if the archive ``grew``, also those beyond its bytes."""
    oldest = microseconds(now) - round(limit.keep.total_seconds() * 1e6)
    db.execute("DELETE FROM incidents WHERE mesh = ? AND until < ?", (mesh, oldest))
    if not grew:
        return
    (total,) = db.execute("SELECT coalesce(sum(bytes), 0) FROM incidents WHERE mesh = ?", (mesh,)).fetchone()
    excess = total - limit.max_bytes
    if excess <= 0:
        return
    dropped = []
    order = "SELECT rowid, bytes FROM incidents WHERE mesh = ? ORDER BY until IS NULL, severity, since, rowid"
    for row, size in db.execute(order, (mesh,)):
        dropped.append((row,))
        excess -= size
        if excess <= 0:
            break
    db.executemany("DELETE FROM incidents WHERE rowid = ?", dropped)


def read_open(db: sqlite3.Connection, mesh: str) -> dict[str, int]:
    """The open incidents by id, each with the sequence with which it was written."""
    return dict(db.execute("SELECT id, sequence FROM incidents WHERE mesh = ? AND until IS NULL", (mesh,)))


def read_some(db: sqlite3.Connection, mesh: str, wanted: IncidentFilter) -> list[ArchivedIncident]:
    """The incidents that match, the newest first, without details and without damaged ones."""
    conditions: list[tuple[str, tuple[Any, ...]]] = [("mesh = ?", (mesh,))]
    if wanted.since is not None:
        conditions.append(("(until IS NULL OR until > ?)", (microseconds(wanted.since),)))
    if wanted.until is not None:
        conditions.append(("since < ?", (microseconds(wanted.until),)))
    conditions += [("instr(services, ?)", (_join([service]),)) for service in wanted.services]
    if wanted.suspects is not None:
        any_of = " OR ".join("instr(suspects, ?)" for _ in wanted.suspects) or "0"
        conditions.append((f"({any_of})", tuple(_join([suspect]) for suspect in wanted.suspects)))
    if wanted.kind is not None:
        conditions.append(("kind = ?", (wanted.kind,)))
    if wanted.severity is not None:
        conditions.append(("severity = ?", (wanted.severity,)))
    if wanted.before is not None:
        conditions.append(("(since, id) < (?, ?)", (microseconds(wanted.before[0]), wanted.before[1])))
    where = " AND ".join(condition for condition, _ in conditions)
    values = [value for _, given in conditions for value in given]
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM incidents WHERE {where} ORDER BY since DESC, id DESC LIMIT ?", (*values, wanted.limit)
    )
    return [incident for row in rows if (incident := _incident(mesh, *row)) is not None]


def read_one(db: sqlite3.Connection, mesh: str, incident: str) -> ArchivedIncident | None:
    """An incident with its details; None if there is none, or it is damaged."""
    query = f"SELECT {_COLUMNS}, details FROM incidents WHERE mesh = ? AND id = ?"
    row = db.execute(query, (mesh, incident)).fetchone()
    return None if row is None else _incident(mesh, *row)


def _row(mesh: str, one: ArchivedIncident) -> tuple[Any, ...]:
    since, until = microseconds(one.since), None if one.until is None else microseconds(one.until)
    suspects, services = _join(one.suspects), _join(one.services)
    columns = (one.id, since, until, one.sequence, one.severity, one.kind, suspects, services)
    document = seal(one.document, "incident", mesh, *columns)
    details = seal(one.details, "details", mesh, one.id, one.sequence)
    size = (
        len(document) + len(details) + sum(len(text.encode()) for text in (mesh, one.id, one.kind, suspects, services))
    )
    return (mesh, *columns, size, document, details)


def _incident(
    mesh: str,
    name: str,
    since: int,
    until: int | None,
    sequence: int,
    severity: int,
    kind: str,
    suspects: str,
    services: str,
    document: bytes,
    details: bytes | None = None,
) -> ArchivedIncident | None:
    columns = (name, since, until, sequence, severity, kind, suspects, services)
    try:
        unsealed = unseal(document, "incident", mesh, *columns)
        inside = b"" if details is None else unseal(details, "details", mesh, name, sequence)
    except CorruptState as error:
        log.error("archive of mesh %r: incident %r is damaged and left out: %s", mesh, name, error)
        return None
    began = time_of(since)
    ended = None if until is None else time_of(until)
    return ArchivedIncident(
        name, began, ended, sequence, severity, kind, _split(suspects), _split(services), unsealed, inside
    )


def _join(names: Iterable[str]) -> str:
    """Names with a line break before and after each, so that a whole name can be found in the text."""
    return "".join(f"\n{name}" for name in names) + "\n"


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split("\n")[1:-1])
