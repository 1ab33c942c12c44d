"""The details of one service, or of the calls from one service to another, up to a moment, as JSON."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

import msgspec
import numpy as np

from model.features import Array
from model.incidents.mutes import EVERY, matches
from model.snapshot import BoolArray, EdgeMetric, MeshSnapshot, Owner, SignalKind
from model.state.mesh_state import MeshState
from model.verdict import Severity, Status
from serve_app.alerts.links import LEAD, Links, LinkSubject, incident_subject
from serve_app.errors import InvalidParameter
from serve_app.stores.archive import unpack_json
from serve_app.stores.records import ArchivedIncident
from serve_app.stores.scored_snapshot import ScoredSnapshot, StoredVerdict
from serve_app.web.expectation import metric_histories
from serve_app.web.history import (
    ListedIncident,
    ListedVerdict,
    five_digits,
    instant,
    metric_table,
    read_incident,
    read_verdict,
    row_of,
    score_of,
    signal_values,
)
from serve_app.web.period import Subject

MAX_SNAPSHOTS = 240  # of the metrics
MAX_NEIGHBOURS = 100  # callers, and callees
MAX_LISTED = 50  # changes, events and incidents
ROLES = ("affected", "suspect", "first_suspect")  # of a service in an incident, the weakest first
RATE, ERROR, P99 = EdgeMetric.REQUESTS_PER_SECOND, EdgeMetric.ERROR_RATE, EdgeMetric.P99_LATENCY


def span(window: Sequence[MeshSnapshot], at: datetime) -> Sequence[MeshSnapshot]:
    """Return the newest snapshots of a window that a chart has room for, with the one of this time among them."""
    first = max(0, len(window) - MAX_SNAPSHOTS)
    moment = next((i for i, snapshot in enumerate(window) if snapshot.observed_at == at), first)
    first = min(first, max(0, moment - MAX_SNAPSHOTS // 2))
    return window[first : first + MAX_SNAPSHOTS]


def details(
    subject: Subject,
    state: MeshState,
    moment: ScoredSnapshot,
    snapshots: Sequence[MeshSnapshot],
    stored_verdicts: Iterable[StoredVerdict],
    archived_incidents: Iterable[ArchivedIncident],
    mesh: str,
    links: Links,
    owner: Owner | None = None,
) -> bytes:
    """Return JSON of a ``DetailsDocument``.

    Args:
        snapshots: of the charts, see :func:`span`.
        stored_verdicts: their verdicts, oldest first.
        archived_incidents: incidents of the subject up to the moment, the newest first.
        owner: of the service, or of the destination of the calls; None: not known.

    Raises:
        InvalidParameter: no kept snapshot has the subject.
    """
    table = metric_table(snapshots, subject)
    if table is None:
        name = f"{'service' if subject.source is None else 'calls'} {' -> '.join(map(repr, subject.ends))}"
        raise InvalidParameter(
            f"{name}: expected in one of the {len(snapshots)} kept snapshots, got none; take a name from the graph"
        )
    verdicts = [read_verdict(verdict.document) for verdict in stored_verdicts]
    at, observed = moment.snapshot.observed_at, ~np.isnan(table)
    until = [i for i, snapshot in enumerate(snapshots) if snapshot.observed_at <= at]
    measurements = [i for i in until if observed[i].any()]
    row = row_of(moment.snapshot, subject)
    deviation = score_of(moment.deviations, row, subject)
    incidents = _incidents(subject, archived_incidents, at)
    document: dict[str, Any] = {
        "service": subject.service,
        "source": subject.source,
        "team": owner.team if owner else "",
        "contact": owner.contact if owner else "",
        "observed_at": instant(at),
        "interval_seconds": round(state.interval_seconds, 3),
        "state": _state(moment, subject, row, deviation),
        "measured_at": instant(snapshots[measurements[-1]].observed_at) if measurements else None,
        "requests": _requests(table[until[-1], RATE], state.interval_seconds),
        "deviation": round(deviation, 2),
        "times": [instant(snapshot.observed_at) for snapshot in snapshots],
        "metrics": metric_histories(subject, state, table, _find_pauses(subject, snapshots, verdicts)),
        "signals": _signals(subject, snapshots),
        **_neighbours(subject, moment, snapshots[: until[-1] + 1], state.interval_seconds),
        "changes": _changes(subject, snapshots),
        "events": _events(subject, verdicts),
        "incidents": incidents,
        "muted": [
            mute.model_dump(mode="json")
            for mute in moment.verdict.muted
            if matches(mute.services or (EVERY,), subject.ends).any()
        ],
        "links": links.tools(link_subject(mesh, subject.service, at, incidents)),
    }
    return msgspec.json.encode(document)


def _signals(subject: Subject, snapshots: Sequence[MeshSnapshot]) -> dict[str, list[float]]:
    """Return a service's signals by kind; calls have none."""
    if subject.source is not None:
        return {}
    kinds = {signal.kind for snapshot in snapshots for signal in snapshot.signals if signal.service == subject.service}
    return {
        kind.value: five_digits(signal_values(snapshots, subject.service, kind)) for kind in SignalKind if kind in kinds
    }


def link_subject(mesh: str, service: str, at: datetime, incidents: Sequence[dict[str, Any]]) -> LinkSubject:
    """Return the service in its open incident, or in the time before the moment."""
    incident = next((row for row in incidents if row["open"]), None)
    if incident is None:
        return LinkSubject(mesh, service, at - LEAD, at)
    return incident_subject(
        mesh, incident["id"], service, incident["kind"], datetime.fromisoformat(incident["since"]), at
    )


def _state(moment: ScoredSnapshot, subject: Subject, row: int | None, deviation: float) -> str:
    snapshot = moment.snapshot
    if row is None:
        return "absent"
    if subject.source is None and not snapshot.node_observed[row].any():
        return "silent"
    if moment.verdict.status == Status.WARMING_UP:
        return "warming_up"
    return "unscored" if np.isnan(deviation) else "scored"


def _requests(rate: float, interval_seconds: float) -> float:
    return float(f"{rate * interval_seconds:.4g}")


def _find_pauses(subject: Subject, snapshots: Sequence[MeshSnapshot], verdicts: Sequence[ListedVerdict]) -> BoolArray:
    """Return whether an alert was open at the service before each snapshot, so that its baselines paused, ``[T]``."""
    is_alerting = {
        verdict.observed_at: any(
            set(subject.ends).intersection(incident.affected)
            for incident in verdict.incidents
            if incident.severity != Severity.NOTICE
        )
        for verdict in verdicts
    }
    return np.array([False, *(is_alerting.get(instant(snapshot.observed_at), False) for snapshot in snapshots[:-1])])


def _neighbours(
    subject: Subject, moment: ScoredSnapshot, until: Sequence[MeshSnapshot], interval_seconds: float
) -> dict[str, Any]:
    """Return the callers and callees at the moment; of a service that disappeared, its last ones."""
    nothing = {"callers": [], "callers_total": 0, "callees": [], "callees_total": 0}
    snapshot = next((snapshot for snapshot in reversed(until) if subject.service in snapshot.node_ids), None)
    if subject.source is not None or snapshot is None:
        return {"neighbours_at": None, **nothing}
    scores = moment.deviations.calls
    if snapshot.observed_at != moment.snapshot.observed_at:
        scores = np.full(snapshot.num_edges, np.nan, np.float32)
    row = snapshot.node_ids.index(subject.service)
    document: dict[str, Any] = {"neighbours_at": instant(snapshot.observed_at)}
    for name, mine, theirs in (("callers", 1, 0), ("callees", 0, 1)):
        edges = np.flatnonzero(snapshot.edge_index[mine] == row)
        busiest = edges[np.argsort(-snapshot.edge_features[edges, RATE], kind="stable")][:MAX_NEIGHBOURS]
        document[name] = [_neighbour(snapshot, int(edge), theirs, scores, interval_seconds) for edge in busiest]
        document[f"{name}_total"] = len(edges)
    return document


def _neighbour(snapshot: MeshSnapshot, edge: int, end: int, scores: Array, interval_seconds: float) -> dict[str, Any]:
    values = np.where(snapshot.edge_observed[edge], snapshot.edge_features[edge], np.float32(np.nan))
    metrics = five_digits(values)
    return {
        "service": snapshot.node_ids[snapshot.edge_index[end, edge]],
        "requests_per_second": metrics[RATE],
        "requests": _requests(values[RATE], interval_seconds),
        "error_rate": metrics[ERROR],
        "p99_latency": metrics[P99],
        "deviation": round(float(scores[edge]), 2),
    }


def _changes(subject: Subject, snapshots: Sequence[MeshSnapshot]) -> list[dict[str, Any]]:
    return [
        {"at": instant(snapshot.observed_at), **asdict(change)}
        for snapshot in reversed(snapshots)
        for change in snapshot.changes
        if change.service in subject.ends
    ][:MAX_LISTED]


def _events(subject: Subject, verdicts: Sequence[ListedVerdict]) -> list[dict[str, Any]]:
    """Return each event once, as the last verdict with it reports it."""
    events = {
        (event.kind, event.object, event.first): event
        for verdict in verdicts
        for incident in verdict.incidents
        for event in incident.events
        if event.service in subject.ends
    }
    newest = sorted(events.values(), key=lambda event: datetime.fromisoformat(event.last), reverse=True)
    return [msgspec.to_builtins(event) for event in newest[:MAX_LISTED]]


def _incidents(subject: Subject, archived_incidents: Iterable[ArchivedIncident], at: datetime) -> list[dict[str, Any]]:
    documents = ((incident, read_incident(unpack_json(incident.document))) for incident in archived_incidents)
    return [
        {
            **{name: getattr(document, name) for name in ("id", "since", "severity", "kind", "headline")},
            "role": role,
            "last": instant(incident.until or at),
            "open": incident.until is None or at < incident.until,
        }
        for incident, document in documents
        if (role := _role(incident, document, subject)) is not None
    ]


def _role(archived_incident: ArchivedIncident, incident: ListedIncident, subject: Subject) -> str | None:
    """Return the strongest role of the service, or of both ends of the calls; None: one of them has none."""
    services = (incident.affected, archived_incident.suspects, archived_incident.suspects[:1])  # by role
    ranks = [max((rank for rank in range(3) if end in services[rank]), default=-1) for end in subject.ends]
    return None if min(ranks) < 0 else ROLES[max(ranks)]
