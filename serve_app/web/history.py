"""The kept time of one mesh as the page reads it: a timeline, a series, two periods compared. JSON out."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec
import numpy as np

from model.features import EDGE_CHANNELS, NODE_CHANNELS, Array, Channel
from model.snapshot import EDGE_METRICS, NODE_METRICS, FloatArray, MeshSnapshot
from serve_app.errors import InvalidParameter
from serve_app.stores.record import Record

MOST_DIFFERENCES = 60  # told of two periods
LEAST_STRENGTH = 2.0  # a difference that is told
CONTEXT = frozenset({"request_rate", "requests_per_second", "memory_utilization", "active_connections"})
CONTEXT_WEIGHT = 0.25  # in the order of differences: latencies, errors and cpu tell more of what is wrong


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
    """What a timeline takes of a verdict's document; the rest is not looked at."""

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
    """JSON of a ``TimelineDocument``.

    Args:
        records: what is told, oldest first.
        window: snapshots, of which the planned changes of those told are taken.
    """
    verdicts = [_read(record.document) for record in records]
    told = {verdict.observed_at for verdict in verdicts}
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
        if snapshot.changes and (at := instant(snapshot.observed_at)) in told
        for change in snapshot.changes
    ]
    return msgspec.json.encode(columns)


def instant(at: datetime) -> str:
    """As verdicts write it."""
    return at.isoformat().replace("+00:00", "Z")


def series(window: Sequence[MeshSnapshot], service: str, source: str | None = None) -> bytes:
    """JSON of a ``SeriesDocument``: of a service, or of the calls that ``source`` makes to it.

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


def comparison(first: Sequence[MeshSnapshot], second: Sequence[MeshSnapshot]) -> bytes:
    """JSON of a ``ComparisonDocument``.

    Medians of the two periods are compared in transformed units (``model.features``), over the larger of the channel's
    floor and the usual spread within a period, 1.48 times the median absolute deviation. So it is the same number for a
    latency and for an error rate, and what wavers by itself is no difference. Traffic and memory come after latencies,
    errors and cpu of the same strength.
    """
    found = sorted(
        [*_differences(_services(first), _services(second)), *_differences(_calls(first), _calls(second))],
        key=lambda row: -abs(row["strength"]) * (CONTEXT_WEIGHT if row["metric"] in CONTEXT else 1.0),
    )
    return msgspec.json.encode(
        {
            "first_snapshots": len(first),
            "second_snapshots": len(second),
            "rows": found[:MOST_DIFFERENCES],
        }
    )


def period(window: Sequence[MeshSnapshot], begin: datetime, end: datetime, name: str) -> list[MeshSnapshot]:
    """The kept snapshots from ``begin`` to ``end``, both included.

    Raises:
        InvalidParameter: there are none.
    """
    found = [snapshot for snapshot in window if begin <= snapshot.observed_at <= end]
    if not found:
        kept = f"{instant(window[0].observed_at)} to {instant(window[-1].observed_at)}" if window else "nothing"
        raise InvalidParameter(
            f"query: expected a {name} period with a snapshot in it, came {instant(begin)} to "
            f"{instant(end)}; kept is {kept}"
        )
    return found


def _incidents(verdicts: Sequence[_Verdict]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    strongest: dict[str, float] = {}
    for verdict in verdicts:
        for incident in verdict.incidents:
            named = [*(suspect.service for suspect in incident.suspects), *incident.affected, None]
            told = found.setdefault(incident.id, {"id": incident.id, "first": verdict.observed_at})
            told |= {"since": incident.since, "severity": incident.severity, "last": verdict.observed_at}
            if incident.score >= strongest.get(incident.id, -1.0):
                strongest[incident.id] = incident.score
                told["service"] = named[0]
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


Table = tuple[dict[tuple[str, str | None], int], FloatArray, Sequence[str], Sequence[Channel]]


def _services(period: Sequence[MeshSnapshot]) -> Table:
    """Rows by (service, nobody), values ``[T, rows, 7]`` with NaN where not observed."""
    row: dict[tuple[str, str | None], int] = {}
    for snapshot in period:
        for name in snapshot.node_ids:
            row.setdefault((name, None), len(row))
    values = np.full((len(period), len(row), len(NODE_METRICS)), np.nan, np.float32)
    for t, snapshot in enumerate(period):
        at = [row[name, None] for name in snapshot.node_ids]
        values[t, at] = np.where(snapshot.node_observed, snapshot.node_features, np.float32(np.nan))
    return row, values, NODE_METRICS, NODE_CHANNELS


def _calls(period: Sequence[MeshSnapshot]) -> Table:
    """Rows by (destination, source), values ``[T, rows, 4]``."""
    row: dict[tuple[str, str | None], int] = {}
    places = []
    for snapshot in period:
        name = snapshot.node_ids
        ends = ((name[d], name[s]) for s, d in snapshot.edge_index.T.tolist())
        places.append([row.setdefault(end, len(row)) for end in ends])
    values = np.full((len(period), len(row), len(EDGE_METRICS)), np.nan, np.float32)
    for t, (snapshot, at) in enumerate(zip(period, places, strict=True)):
        values[t, at] = np.where(snapshot.edge_observed, snapshot.edge_features, np.float32(np.nan))
    return row, values, EDGE_METRICS, EDGE_CHANNELS


def _differences(first: Table, second: Table) -> Iterator[dict[str, Any]]:
    both = [key for key in first[0] if key in second[0]]
    rows = [first[0][key] for key in both], [second[0][key] for key in both]
    for metric, (name, channel) in enumerate(zip(first[2], first[3], strict=False)):
        a, b = first[1][:, rows[0], metric], second[1][:, rows[1], metric]
        middle = _median(a), _median(b)
        centre = channel.forward(middle[0]), channel.forward(middle[1])
        spread = np.maximum(_spread(channel.forward(a), centre[0]), _spread(channel.forward(b), centre[1]))
        strength = (centre[1] - centre[0]) / np.maximum(spread, channel.floor)
        for i in np.flatnonzero(np.abs(strength) >= LEAST_STRENGTH).tolist():
            service, source = both[i]
            yield {
                "service": service,
                "source": source,
                "metric": name,
                "first": float(middle[0][i]),
                "second": float(middle[1][i]),
                "strength": round(float(strength[i]), 2),
            }


def _median(values: FloatArray) -> Array:
    """Of what was observed ``[T, rows]``, by row; NaN where nothing was."""
    empty = np.isnan(values).all(axis=0)
    filled = np.where(empty, np.float32(0), values)
    return np.where(empty, np.float32(np.nan), np.nanmedian(filled, axis=0)).astype(np.float32)


def _spread(values: Array, centre: Array) -> Array:
    return np.float32(1.48) * _median(np.abs(values - centre))


def _plain(column: FloatArray) -> list[float | None]:
    return [None if value != value else float(f"{value:.5g}") for value in column.tolist()]
