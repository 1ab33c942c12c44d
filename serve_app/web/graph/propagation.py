"""How an incident spreads: from its first suspect to its callers, and on to their callers."""

from dataclasses import dataclass

import numpy as np

from model.snapshot import MeshSnapshot
from serve_app.api.schemas.verdict import IncidentDocument


@dataclass(frozen=True, slots=True)
class Hop:
    """One call along which an incident spread, from callee to caller.

    Attributes:
        caller: the affected service.
        callee: the service that it calls.
        distance: number of calls from the first suspect to the caller, from 1.
    """

    caller: str
    callee: str
    distance: int


def spread(snapshot: MeshSnapshot, incident: IncidentDocument) -> tuple[Hop, ...]:
    """Return the calls from affected services to the first suspect, nearest first.

    Breadth first against the direction of calls, through affected services only. Each service is reached by the
    shortest path; of several, by the busiest call. Empty without a suspect, or if no affected service calls it.

    Args:
        snapshot: with the calls.
        incident: with the suspects and the affected services.
    """
    if not incident.suspects:
        return ()
    first, affected = incident.suspects[0].service, set(incident.affected)
    inside = np.fromiter((name == first or name in affected for name in snapshot.node_ids), bool, snapshot.num_nodes)
    rows = np.flatnonzero(inside[snapshot.edge_index].all(axis=0))
    rows = rows[np.argsort(-snapshot.edge_features[rows, 0], kind="stable")]  # the busiest first
    callers: dict[str, list[str]] = {}
    for source, destination in snapshot.edge_index[:, rows].T.tolist():
        callers.setdefault(snapshot.node_ids[destination], []).append(snapshot.node_ids[source])
    hops: list[Hop] = []
    distance, front = {first: 0}, [first]
    for callee in front:  # grows as callers are reached
        for caller in callers.get(callee, ()):
            if caller not in distance:
                distance[caller] = distance[callee] + 1
                front.append(caller)
                hops.append(Hop(caller, callee, distance[caller]))
    return tuple(hops)
