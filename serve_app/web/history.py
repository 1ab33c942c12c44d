"""The timeline of a mesh and the series of a service or call. Returns JSON."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
import numpy as np

from model.snapshot import EDGE_METRICS, NODE_METRICS, FloatArray, MeshSnapshot
from serve_app.errors import InvalidParameter
from serve_app.stores.record import Record


class _Suspect(msgspec.Struct):
    service: str


class _Incident(msgspec.Struct):
    id: str
    since: str
    severity: str
    score: float
    suspects: list[_Suspect]
    affected: list[str]


class _Verdict(msgspec.Struct):
    """The fields of a verdict that the timeline needs."""

    observed_at: str
    sequence: int
    status: str
    mesh_score: float
    threshold: float | None
    probability: float
    coverage: float
    missing_parts: list[int]
    incidents: list[_Incident]


_read = msgspec.json.Decoder(_Verdict).decode


def timeline(records: Sequence[Record], window: Sequence[MeshSnapshot]) -> bytes:
    """Return JSON of a ``TimelineDocument``.

    Args:
        records: of the verdicts to return, oldest first.
        window: all kept snapshots, at least one; they hold the planned changes.
    """
    verdicts = [_read(record.document) for record in records]
    times = {verdict.observed_at for verdict in verdicts}
    columns: dict[str, Any] = {
        name: [getattr(verdict, name) for verdict in verdicts]
        for name in ("observed_at", "sequence", "status", "mesh_score", "threshold", "probability", "coverage")
    }
    columns["missing_parts"] = [len(verdict.missing_parts) for verdict in verdicts]
    columns["milliseconds"] = [r.seconds if r.seconds is None else round(1e3 * r.seconds, 2) for r in records]
    columns["incidents"] = _incidents(verdicts)
    columns["changes"] = [
        {"at": at, "kind": change.kind, "service": change.service, "reason": change.reason}
        for snapshot in window
        if snapshot.changes and (at := instant(snapshot.observed_at)) in times
        for change in snapshot.changes
    ]
    columns["kept_from"] = instant(window[0].observed_at)
    return msgspec.json.encode(columns)


def instant(at: datetime) -> str:
    """Return a time as verdicts write it."""
    return at.isoformat().replace("+00:00", "Z")


def series(window: Sequence[MeshSnapshot], service: str, source: str | None = None) -> bytes:
    """Return JSON of a ``SeriesDocument``: of a service, or of the calls from ``source`` to it.

    Raises:
        InvalidParameter: no snapshot has it.
    """
    if source is None:
        names: Sequence[str] = NODE_METRICS
        rows = [_service_row(snapshot, service) for snapshot in window]
        what = f"service {service!r}"
    else:
        names, what = EDGE_METRICS, f"calls {source!r} -> {service!r}"
        rows = [_call_row(snapshot, source, service) for snapshot in window]
    if all(row is None for row in rows):
        raise InvalidParameter(
            f"{what}: expected in one of the {len(window)} kept snapshots, came none; take a name from the graph"
        )
    nothing = np.full(len(names), np.nan, np.float32)
    table = np.stack([nothing if row is None else row for row in rows])
    return msgspec.json.encode(
        {
            "observed_at": [instant(snapshot.observed_at) for snapshot in window],
            "metrics": {name: _plain(table[:, i]) for i, name in enumerate(names)},
        }
    )


def _incidents(verdicts: Sequence[_Verdict]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for verdict in verdicts:
        for incident in verdict.incidents:
            services = [*(suspect.service for suspect in incident.suspects), *incident.affected, None]
            row = found.setdefault(incident.id, {"id": incident.id, "first": verdict.observed_at})
            row |= {"since": incident.since, "severity": incident.severity, "last": verdict.observed_at}
            if incident.score >= row.get("score", -1.0):
                row |= {"service": services[0], "score": incident.score}
    return list(found.values())


def _service_row(snapshot: MeshSnapshot, service: str) -> FloatArray | None:
    if service not in snapshot.node_ids:
        return None
    at = snapshot.node_ids.index(service)
    return np.where(snapshot.node_observed[at], snapshot.node_features[at], np.float32(np.nan))


def _call_row(snapshot: MeshSnapshot, source: str, destination: str) -> FloatArray | None:
    if source not in snapshot.node_ids or destination not in snapshot.node_ids:
        return None
    ends = snapshot.node_ids.index(source), snapshot.node_ids.index(destination)
    at = np.flatnonzero((snapshot.edge_index[0] == ends[0]) & (snapshot.edge_index[1] == ends[1]))
    if not len(at):
        return None
    return np.where(snapshot.edge_observed[at[0]], snapshot.edge_features[at[0]], np.float32(np.nan))


def _plain(column: FloatArray) -> list[float | None]:
    return [None if value != value else float(f"{value:.5g}") for value in column.tolist()]
