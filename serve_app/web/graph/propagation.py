"""How an incident spreads: from its first suspect to those who call it, and on to those who call them."""

from dataclasses import dataclass

import numpy as np

from model.snapshot import MeshSnapshot
from serve_app.api.schemas.verdict import IncidentDocument


@dataclass(frozen=True, slots=True)
class Hop:
    """One call that trouble went along, from the called to the calling.

    Attributes:
        caller: who suffers.
        callee: by whom.
        distance: calls from the first suspect to the caller, from 1.
    """

    caller: str
    callee: str
    distance: int


def spread(snapshot: MeshSnapshot, incident: IncidentDocument) -> tuple[Hop, ...]:
    """The calls by which a first suspect reaches affected services, nearest first.

    Breadth first against the direction of calls, through affected services only; each is reached by its shortest way,
    of several by the busiest call. Empty where there is no suspect, or nobody affected calls it.

    Args:
        snapshot: who calls whom.
        incident: whose services are affected.
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
