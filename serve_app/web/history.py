"""The timeline of a mesh, as JSON, and the series of a service or call."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from model.snapshot import COUNTS, EDGE_METRICS, NODE_METRICS, FloatArray, MeshSnapshot, SignalKind
from model.state.mesh_state import MeshState
from serve_app.api.views import Deviations
from serve_app.stores.history_files import PastSeries
from serve_app.stores.numbered import NumberedRows
from serve_app.stores.scored_snapshot import StoredVerdict
from serve_app.web.period import RangeSteps, Subject

if TYPE_CHECKING:  # sessions do not query Prometheus
    from serve_app.collect.prometheus.past import PastSnapshots


class _ListedSuspect(msgspec.Struct):
    service: str


class _ListedEvent(msgspec.Struct):
    kind: str
    service: str
    object: str
    message: str
    first: str
    last: str
    count: int


class ListedIncident(msgspec.Struct):
    """The fields of a stored incident that the timeline and the details of services need."""

    id: str
    since: str
    severity: str
    score: float
    suspects: list[_ListedSuspect]
    affected: list[str]
    kind: str = "unclear"
    headline: str = ""
    events: list[_ListedEvent] = []


class ListedVerdict(msgspec.Struct):
    """The fields of a stored verdict that the same need; the whole document takes far longer to read."""

    observed_at: str
    sequence: int
    status: str
    mesh_score: float
    threshold: float | None
    probability: float
    coverage: float
    missing_parts: list[int]
    incidents: list[ListedIncident]


read_verdict = msgspec.json.Decoder(ListedVerdict).decode
read_incident = msgspec.json.Decoder(ListedIncident).decode


def timeline(stored_verdicts: Sequence[StoredVerdict], window: Sequence[MeshSnapshot]) -> bytes:
    """Return JSON of a ``TimelineDocument``: verdicts, oldest first, and the planned changes of all kept snapshots."""
    verdicts = [read_verdict(verdict.document) for verdict in stored_verdicts]
    times = {verdict.observed_at for verdict in verdicts}
    columns: dict[str, Any] = {
        name: [getattr(verdict, name) for verdict in verdicts]
        for name in ("observed_at", "sequence", "status", "mesh_score", "threshold", "probability", "coverage")
    }
    columns["missing_parts"] = [len(verdict.missing_parts) for verdict in verdicts]
    durations = [verdict.seconds for verdict in stored_verdicts]
    columns["milliseconds"] = [None if seconds is None else round(1e3 * seconds, 2) for seconds in durations]
    columns["incidents"] = _incidents(verdicts)
    columns["changes"] = [
        {"at": at, **asdict(change)}
        for snapshot in window
        if snapshot.changes and (at := instant(snapshot.observed_at)) in times
        for change in snapshot.changes
    ]
    columns["kept_from"] = instant(window[0].observed_at)
    return msgspec.json.encode(columns)


def instant(at: datetime) -> str:
    """Return a time as verdicts write it."""
    return at.isoformat().replace("+00:00", "Z")


def signal_values(snapshots: Iterable[MeshSnapshot], service: str, kind: SignalKind) -> FloatArray:
    """Return a service's signal, ``[T]``; NaN if it was not measured. Sources leave out zeros of counts."""
    missing = 0.0 if kind in COUNTS else np.nan

    def value(snapshot: MeshSnapshot) -> float:
        if service not in snapshot.node_ids:
            return np.nan
        values = (signal.value for signal in snapshot.signals if (signal.kind, signal.service) == (kind, service))
        return next(values, missing)

    return np.array([value(snapshot) for snapshot in snapshots], np.float32)


def metric_table(window: Sequence[MeshSnapshot], subject: Subject) -> FloatArray | None:
    """Return the metrics of the subject, ``[T, C]``, NaN if not observed; None if no snapshot has it."""
    table = np.full((len(window), len(subject.metrics)), np.nan, np.float32)
    row: int | None = None
    last: MeshSnapshot | None = None
    is_known = False
    for t, snapshot in enumerate(window):
        # Most snapshots share names and topology, so that one search is enough.
        if last is None or snapshot.node_ids is not last.node_ids or snapshot.edge_index is not last.edge_index:
            row = row_of(snapshot, subject)
        last = snapshot
        if row is not None:
            is_known = True
            of_service = subject.source is None
            values = snapshot.node_features[row] if of_service else snapshot.edge_features[row]
            observed = snapshot.node_observed[row] if of_service else snapshot.edge_observed[row]
            table[t] = np.where(observed, values, np.float32(np.nan))
    return table if is_known else None


def past_series(past: "PastSnapshots", subject: Subject) -> tuple[RangeSteps, PastSeries]:
    """Return the steps of a period in Prometheus, and the subject's metrics in it, which have no scores."""
    steps = RangeSteps(past.step_seconds, past.begin + np.arange(past.count) * np.float64(past.step_seconds))
    values = metric_table(past.snapshots, subject)
    if values is None:
        return steps, PastSeries.join(subject.metrics, [])
    times = np.array([snapshot.observed_at.timestamp() for snapshot in past.snapshots])
    return steps, PastSeries(subject.metrics, times, values, np.full(len(times), np.nan, np.float32))


def metric_tables(
    period: Sequence[MeshSnapshot], rows: NumberedRows, places: Iterable[int]
) -> tuple[FloatArray, FloatArray]:
    """Return the metrics of services ``[T, N, 7]`` and calls ``[T, E, 4]``, NaN if not observed, of T snapshots that
    have these places in ``rows``."""
    nodes = np.full((len(period), len(rows.services), len(NODE_METRICS)), np.nan, np.float32)
    edges = np.full((len(period), rows.calls.shape[1], len(EDGE_METRICS)), np.nan, np.float32)
    for t, (snapshot, place) in enumerate(zip(period, places, strict=True)):
        nodes[t, rows.nodes[place]] = np.where(snapshot.node_observed, snapshot.node_features, np.float32(np.nan))
        edges[t, rows.edges[place]] = np.where(snapshot.edge_observed, snapshot.edge_features, np.float32(np.nan))
    return nodes, edges


def row_of(mesh: MeshSnapshot | MeshState, subject: Subject) -> int | None:
    """Return the row of a service, or of a call, in a snapshot or a state; None if it is not there."""
    if any(name not in mesh.node_ids for name in subject.ends):
        return None
    rows = [mesh.node_ids.index(name) for name in subject.ends]
    if subject.source is None:
        return rows[0]
    at = np.flatnonzero((mesh.edge_index[0] == rows[0]) & (mesh.edge_index[1] == rows[1]))
    return int(at[0]) if len(at) else None


def score_of(deviations: Deviations, row: int | None, subject: Subject) -> float:
    """Return the anomaly score of a service, or of a call; NaN if it was not scored."""
    scores = deviations.services if subject.source is None else deviations.calls
    return np.nan if row is None else float(scores[row])


def five_digits(column: NDArray[np.floating[Any]]) -> list[float]:
    """Round each value to five digits; ``msgspec`` writes NaN as null."""
    return [float(f"{value:.5g}") for value in column.tolist()]


def _incidents(verdicts: Sequence[ListedVerdict]) -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for verdict in verdicts:
        for incident in verdict.incidents:
            services = [*(suspect.service for suspect in incident.suspects), *incident.affected, None]
            row = rows.setdefault(incident.id, {"id": incident.id, "first": verdict.observed_at})
            row |= {"since": incident.since, "severity": incident.severity, "last": verdict.observed_at}
            if incident.score >= row.get("score", -1.0):
                row |= {"service": services[0], "score": incident.score}
    return list(rows.values())
