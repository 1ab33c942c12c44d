"""A person accepts the present level of some services as normal."""

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from model.features import Array
from model.snapshot import BoolArray, mark_services
from model.state.alignment import channels_of_window
from model.state.filters import CENTRE, LONG, SHORT, SLOW_CENTRE
from model.state.mesh_state import MeshState
from model.state.traffic import accept_traffic

LATELY = 4  # snapshots whose median is the present level


def accept_incident(state: MeshState, incident: str) -> MeshState:
    """Return the state to which the present level of an open incident's services is normal. The incident is over.

    Args:
        state: of the mesh.
        incident: id of an open incident or notice.

    Raises:
        KeyError: no open incident has this id.
    """
    found = next((one for one in state.memory.open if one.id == incident), None)
    if found is None:
        raise KeyError(incident)
    if found.scope:
        traffic = accept_traffic(state.traffic, found.members)
        return replace(state, traffic=traffic, memory=state.memory.accept(incident))
    services = {*found.members, *(suspect.service for suspect in found.suspects[:1])}
    return replace(accept_services(state, services), memory=state.memory.accept(incident))


def accept_services(state: MeshState, services: Collection[str]) -> MeshState:
    """Return the state to which the present level of these services, and of the calls from and to them, is normal: the
    median of the last ``LATELY`` snapshots."""
    accepted = mark_services(state.node_ids, set(services))
    node, edge = channels_of_window(state, LATELY)
    source, destination = state.edge_index
    calls = accepted[source] | accepted[destination]
    return replace(
        state,
        node_filters=_accept(state.node_filters, node, accepted),
        edge_filters=_accept(state.edge_filters, edge, calls),
    )


def _accept(filters: Array, level: Array, rows: BoolArray) -> Array:
    """Move both centres of these rows ``[N]`` to the level ``[N, C]``, where it is a number."""
    filters = filters.copy()
    accepted = rows[:, None] & np.isfinite(level)
    for slot in (CENTRE, SLOW_CENTRE):
        filters[slot] = np.where(accepted, level, filters[slot])
    filters[SHORT : LONG + 1] = np.where(accepted, 0, filters[SHORT : LONG + 1])
    return filters
