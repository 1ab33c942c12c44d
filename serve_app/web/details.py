"""What is known about one service, or about the calls from one service to another, up to a moment. Returns JSON."""

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
    """Return the newest snapshots of a window that fit into a chart and include the one of this time."""
    first = max(0, len(window) - MAX_SNAPSHOTS)
    moment = next((i for i, snapshot in enumerate(window) if snapshot.observed_at == at), first)
    first = min(first, max(0, moment - MAX_SNAPSHOTS // 2))
    return window[first : first + MAX_SNAPSHOTS]


def details(
    subject: Subject,
    state: MeshState,
    moment: ScoredSnapshot,
    shown: Sequence[MeshSnapshot],
    stored: Iterable[StoredVerdict],
    archived: Iterable[ArchivedIncident],
    mesh: str,
    links: Links,
    owner: Owner | None = None,
) -> bytes:
    """Return JSON of a ``DetailsDocument``.

    Args:
        subject: the service or the calls.
        state: newest of the mesh.
        moment: selected.
        shown: the snapshots of the charts, see :func:`span`.
        stored: the verdicts of ``shown``, oldest first.
        archived: incidents of the subject up to the moment, the newest first.
        mesh: its name, for links.
        links: to other tools.
        owner: of the service, or of the destination of the calls; None: not known.

    Raises:
        InvalidParameter: no kept snapshot has the subject.
    """
    table = metric_table(shown, subject)
    if table is None:
        what = " -> ".join(map(repr, subject.ends))
        raise InvalidParameter(
            f"{'service' if subject.source is None else 'calls'} {what}: expected in one of the {len(shown)} kept "
            "snapshots, got none; take a name from the graph"
        )
    verdicts = [read_verdict(one.document) for one in stored]
    at, observed = moment.snapshot.observed_at, ~np.isnan(table)
    until = [i for i, snapshot in enumerate(shown) if snapshot.observed_at <= at]
    measured = [i for i in until if observed[i].any()]
    row = row_of(moment.snapshot, subject)
    deviation = score_of(moment.deviations, row, subject)
    incidents = _incidents(subject, archived, at)
    document: dict[str, Any] = {
        "service": subject.service,
        "source": subject.source,
        "team": owner.team if owner else "",
        "contact": owner.contact if owner else "",
        "observed_at": instant(at),
        "interval_seconds": round(state.interval_seconds, 3),
        "state": _state(moment, subject, row, deviation),
        "measured_at": instant(shown[measured[-1]].observed_at) if measured else None,
        "requests": _requests(table[until[-1], RATE], state.interval_seconds),
        "deviation": round(deviation, 2),
        "times": [instant(snapshot.observed_at) for snapshot in shown],
        "metrics": metric_histories(subject, state, table, _find_pauses(subject, shown, verdicts)),
        "signals": _signals(subject, shown),
        **_neighbours(subject, moment, shown[: until[-1] + 1], state.interval_seconds),
        "changes": _changes(subject, shown),
        "events": _events(subject, verdicts),
        "incidents": incidents,
        "muted": [
            one.model_dump(mode="json")
            for one in moment.verdict.muted
            if matches(one.services or (EVERY,), subject.ends).any()
        ],
        "links": links.tools(link_subject(mesh, subject.service, at, incidents)),
    }
    return msgspec.json.encode(document)


def _signals(subject: Subject, shown: Sequence[MeshSnapshot]) -> dict[str, list[float]]:
    """The signals of a service by kind; calls have none."""
    if subject.source is not None:
        return {}
    kinds = {one.kind for snapshot in shown for one in snapshot.signals if one.service == subject.service}
    return {
        kind.value: five_digits(signal_values(shown, subject.service, kind)) for kind in SignalKind if kind in kinds
    }


def link_subject(mesh: str, service: str, at: datetime, incidents: Sequence[dict[str, Any]]) -> LinkSubject:
    """The service in its open incident, or in the time before the moment."""
    incident = next((one for one in incidents if one["open"]), None)
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


def _find_pauses(subject: Subject, shown: Sequence[MeshSnapshot], verdicts: Sequence[ListedVerdict]) -> BoolArray:
    """Whether an alert was open at the service before each snapshot, so that its baselines paused, ``[T]``."""
    is_alerting = {
        verdict.observed_at: any(
            set(subject.ends).intersection(one.affected) for one in verdict.incidents if one.severity != Severity.NOTICE
        )
        for verdict in verdicts
    }
    return np.array([False, *(is_alerting.get(instant(one.observed_at), False) for one in shown[:-1])])


def _neighbours(
    subject: Subject, moment: ScoredSnapshot, until: Sequence[MeshSnapshot], interval_seconds: float
) -> dict[str, Any]:
    """The callers and callees at the moment; of a service that disappeared, its last ones."""
    nothing = {"callers": [], "callers_total": 0, "callees": [], "callees_total": 0}
    snapshot = next((one for one in reversed(until) if subject.service in one.node_ids), None)
    if subject.source is not None or snapshot is None:
        return {"neighbours_at": None, **nothing}
    scores = moment.deviations.calls
    if snapshot.observed_at != moment.snapshot.observed_at:
        scores = np.full(snapshot.num_edges, np.nan, np.float32)
    row = snapshot.node_ids.index(subject.service)
    found: dict[str, Any] = {"neighbours_at": instant(snapshot.observed_at)}
    for name, mine, theirs in (("callers", 1, 0), ("callees", 0, 1)):
        edges = np.flatnonzero(snapshot.edge_index[mine] == row)
        busiest = edges[np.argsort(-snapshot.edge_features[edges, RATE], kind="stable")][:MAX_NEIGHBOURS]
        found[name] = [_neighbour(snapshot, int(edge), theirs, scores, interval_seconds) for edge in busiest]
        found[f"{name}_total"] = len(edges)
    return found


def _neighbour(snapshot: MeshSnapshot, edge: int, end: int, scores: Array, interval_seconds: float) -> dict[str, Any]:
    values = np.where(snapshot.edge_observed[edge], snapshot.edge_features[edge], np.float32(np.nan))
    shown = five_digits(values)
    return {
        "service": snapshot.node_ids[snapshot.edge_index[end, edge]],
        "requests_per_second": shown[RATE],
        "requests": _requests(values[RATE], interval_seconds),
        "error_rate": shown[ERROR],
        "p99_latency": shown[P99],
        "deviation": round(float(scores[edge]), 2),
    }


def _changes(subject: Subject, shown: Sequence[MeshSnapshot]) -> list[dict[str, Any]]:
    return [
        {"at": instant(snapshot.observed_at), **asdict(change)}
        for snapshot in reversed(shown)
        for change in snapshot.changes
        if change.service in subject.ends
    ][:MAX_LISTED]


def _events(subject: Subject, verdicts: Sequence[ListedVerdict]) -> list[dict[str, Any]]:
    """Each event once, as the last verdict with it reports it."""
    found = {
        (event.kind, event.object, event.first): event
        for verdict in verdicts
        for incident in verdict.incidents
        for event in incident.events
        if event.service in subject.ends
    }
    newest = sorted(found.values(), key=lambda event: datetime.fromisoformat(event.last), reverse=True)
    return [msgspec.to_builtins(event) for event in newest[:MAX_LISTED]]


def _incidents(subject: Subject, archived: Iterable[ArchivedIncident], at: datetime) -> list[dict[str, Any]]:
    documents = ((one, read_incident(unpack_json(one.document))) for one in archived)
    return [
        {
            **{name: getattr(document, name) for name in ("id", "since", "severity", "kind", "headline")},
            "role": role,
            "last": instant(one.until or at),
            "open": one.until is None or at < one.until,
        }
        for one, document in documents
        if (role := _role(one, document, subject)) is not None
    ]


def _role(archived: ArchivedIncident, incident: ListedIncident, subject: Subject) -> str | None:
    """The strongest role of the service, or of both ends of the calls; None: one of them has none."""
    services = (incident.affected, archived.suspects, archived.suspects[:1])  # by role
    ranks = [max((rank for rank in range(3) if end in services[rank]), default=-1) for end in subject.ends]
    return None if min(ranks) < 0 else ROLES[max(ranks)]
