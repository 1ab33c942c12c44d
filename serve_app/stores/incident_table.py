"""The archive of incidents in a local store's file: one row for each incident.

Times are µs since 1970. The checksums cover the whole row, so that a damaged row is left out of every answer. The
archive of a mesh shares its transactions: an incident is in the archive if, and only if, the verdict that opened it is
stored.
"""

import sqlite3
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from serve_app.stores.base import ArchivedIncident, ArchiveLimit, IncidentFilter
from serve_app.stores.incident_rows import incident_row, join_names, read_row
from serve_app.stores.rows import microseconds

_COLUMNS = "id, since, until, sequence, severity, kind, suspects, services, document"


def write(db: sqlite3.Connection, mesh: str, incidents: Iterable[ArchivedIncident]) -> None:
    """Add incidents to the archive of a mesh, or replace them."""
    db.executemany(
        "INSERT OR REPLACE INTO incidents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [incident_row(mesh, incident) for incident in incidents],
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
    conditions += [("instr(services, ?)", (join_names([service]),)) for service in wanted.services]
    if wanted.suspects is not None:
        any_of = " OR ".join("instr(suspects, ?)" for _ in wanted.suspects) or "0"
        conditions.append((f"({any_of})", tuple(join_names([suspect]) for suspect in wanted.suspects)))
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
    return [incident for row in rows if (incident := read_row(mesh, *row)) is not None]


def read_one(db: sqlite3.Connection, mesh: str, incident: str) -> ArchivedIncident | None:
    """An incident with its details; None if there is none, or it is damaged."""
    query = f"SELECT {_COLUMNS}, details FROM incidents WHERE mesh = ? AND id = ?"
    row = db.execute(query, (mesh, incident)).fetchone()
    return None if row is None else read_row(mesh, *row)


def read_all(db: sqlite3.Connection, mesh: str) -> tuple[ArchivedIncident, ...]:
    """All incidents with their details, in order of id, without damaged ones."""
    found = db.execute(f"SELECT {_COLUMNS}, details FROM incidents WHERE mesh = ? ORDER BY id", (mesh,))
    return tuple(incident for row in found if (incident := read_row(mesh, *row)) is not None)
