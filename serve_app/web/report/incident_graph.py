"""The part of the mesh to draw for an incident: suspects, affected services and their neighbours."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.snapshot import EdgeMetric, mark_services
from serve_app.web.graph.layout import Ints, Layout, arrange
from serve_app.web.report.case import ReportedIncident

MAX_INVOLVED, MAX_NEIGHBOURS = 40, 20
SUSPECTS = 3  # drawn even without deviations


@dataclass(frozen=True, slots=True, eq=False)
class IncidentGraph:
    """Services and calls to be drawn.

    Attributes:
        layout: of N services, involved ones before their neighbours.
        num_involved: number of involved services.
        services: ``[N]`` anomaly scores (log10); NaN: not scored, or missing.
        gone: bool ``[N]``: missing from the snapshot.
        edge_index: int64 ``[2, E]``, rows of the layout.
        calls: ``[E]`` anomaly scores (log10).
        left_out: involved services that are not drawn.
    """

    layout: Layout
    num_involved: int
    services: NDArray[np.float32]
    gone: NDArray[np.bool_]
    edge_index: Ints
    calls: NDArray[np.float32]
    left_out: int


def build_graph(
    case: ReportedIncident, involved_limit: int = MAX_INVOLVED, neighbour_limit: int = MAX_NEIGHBOURS
) -> IncidentGraph:
    """Return the services and calls to draw, at the worst snapshot of an incident.

    Args:
        case: the incident.
        involved_limit: suspects and affected services to draw at most.
        neighbour_limit: their unaffected callers and callees to draw at most.
    """
    scores = dict(zip(case.worst.snapshot.node_ids, case.worst.deviations.services.tolist(), strict=True))
    calls = _calls(case)
    touched = _order_services(case, scores)
    involved = touched[:involved_limit]
    names = (*involved, *_neighbours(involved, set(touched), calls)[:neighbour_limit])
    row = {name: i for i, name in enumerate(names)}
    drawn = [(row[a], row[b], *values) for (a, b), values in calls.items() if a in row and b in row]
    # Calls between neighbours are left out: they say nothing and hide other calls.
    drawn = [one for one in drawn if min(one[0], one[1]) < len(involved)]
    edge_index = np.array([one[:2] for one in drawn], np.int64).reshape(-1, 2).T
    return IncidentGraph(
        arrange(names, edge_index, np.array([rate for *_, rate, _ in drawn])),
        len(involved),
        np.array([scores.get(name, np.nan) for name in names], np.float32),
        np.array([name not in scores for name in names], bool),
        edge_index,
        np.array([deviation for *_, deviation in drawn], np.float32),
        len(touched) - len(involved),
    )


def _order_services(case: ReportedIncident, scores: dict[str, float]) -> list[str]:
    """Return the first suspect, the services that it reached, then other affected ones by score, then suspects."""
    suspects = [suspect.service for suspect in case.incident.suspects[:SUSPECTS]]
    reached = [hop.far for hop in case.hops]
    others = sorted(case.incident.affected, key=lambda name: -np.nan_to_num(scores.get(name, 0.0)))
    return list(dict.fromkeys([*suspects[:1], *reached, *others, *suspects]))


def _calls(case: ReportedIncident) -> dict[tuple[str, str], tuple[float, float]]:
    """Return rate and anomaly score of each call of the incident's services; missing services have their last calls."""
    touched = {*case.incident.affected, *(suspect.service for suspect in case.incident.suspects[:SUSPECTS])}
    found: dict[tuple[str, str], tuple[float, float]] = {}
    worst = case.worst
    for snapshot, deviations in ((worst.snapshot, worst.deviations.calls), (case.calling, None)):
        names = snapshot.node_ids
        inside = mark_services(names, touched)
        for e in np.flatnonzero(inside[snapshot.edge_index].any(axis=0)).tolist():
            source, destination = snapshot.edge_index[:, e].tolist()
            rate = float(snapshot.edge_features[e, EdgeMetric.REQUESTS_PER_SECOND])
            deviation = float("nan") if deviations is None else float(deviations[e])
            found.setdefault((names[source], names[destination]), (rate, deviation))
    return found


def _neighbours(involved: list[str], touched: set[str], calls: dict[tuple[str, str], tuple[float, float]]) -> list[str]:
    """Return callers and callees of the involved services, ordered by the first suspect, then by traffic."""
    place = {name: i for i, name in enumerate(involved)}
    order: dict[str, tuple[bool, float]] = {}
    for (a, b), (rate, _) in calls.items():
        for one, other in ((a, b), (b, a)):
            if one in place and other not in touched:
                key = place[one] > 0, -rate
                order[other] = min(order.get(other, key), key)
    return sorted(order, key=lambda name: (order[name], name))
