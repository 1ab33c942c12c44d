"""Levels that become usual at once: after a gap, with another load, or because a person accepts them."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np

from model.features import EDGE_CHANNELS, NODE_CHANNELS, RATE, Array, Channel, ChannelValues
from model.snapshot import BoolArray, mark_services
from model.state.alignment import channels_of_window
from model.state.filters import CENTRE, LONG, SHORT, SLOW_CENTRE
from model.state.gaps import GAP_INTERVALS
from model.state.mesh_state import MeshState
from model.state.topology import calls_at
from model.state.traffic import accept_traffic

LATELY = 4  # snapshots whose median is the present level
ANY_CHANGE = 50.0  # logarithm, more than any channel can move
NEW_LOAD, NEW_LOAD_SECONDS = np.log(3.0), 1800.0  # of its requests, and how long an alert has been open
# After a gap of this many seconds, a change of load or resources by up to this factor (logarithm) is not an event.
UNSEEN_SECONDS, UNSEEN_CHANGE = 300.0, np.log(2.2)
UNSEEN_SLOWER = np.log(1.5)  # the same for latencies: a fault may have begun in the gap
BASELINE_SECONDS = 86_400.0  # without data, after which any level may be normal
TIMES = frozenset({"p50_latency", "p99_latency", "own_time"})


def adjust_after_gap(state: MeshState, values: ChannelValues, seconds: float) -> MeshState:
    """Move fast baselines towards the present values after a gap.

    Meshes change while no snapshots arrive. After a day without data the present level is as normal as the one that
    the slow baselines remember; after minutes, a load or a use of resources up to ``UNSEEN_CHANGE`` away is, and a
    latency up to ``UNSEEN_SLOWER``. Errors remain as unusual as without the gap, since a fault may have begun in it.
    So does everything at services in an alert.
    """
    if seconds <= max(UNSEEN_SECONDS, GAP_INTERVALS * state.interval_seconds):
        return state
    max_change = np.inf if seconds > BASELINE_SECONDS else UNSEEN_CHANGE
    alerted = state.memory.is_alerted(state.node_ids)
    rows = ~alerted, ~calls_at(alerted, state.edge_index)
    return replace(
        state,
        node_filters=_move_centres(
            state.node_filters, values.node, values.node_observed, rows[0], NODE_CHANNELS, max_change
        ),
        edge_filters=_move_centres(
            state.edge_filters, values.edge, values.edge_observed, rows[1], EDGE_CHANNELS, max_change
        ),
    )


def find_another_load(state: MeshState, values: ChannelValues, now: datetime) -> BoolArray:
    """Return which services ``[N]`` have far more or far fewer requests than before, in an alert for long enough for
    that to be their new load."""
    rate = state.node_filters[SLOW_CENTRE, :, RATE]
    another: BoolArray = values.node_observed[:, RATE] & (np.abs(values.node[:, RATE] - rate) > NEW_LOAD)
    alerted = state.memory.is_alerted(state.node_ids)
    if alerted.any() and another.any():
        old = state.memory.is_alerted(state.node_ids, now - timedelta(seconds=NEW_LOAD_SECONDS))
        another &= old | ~alerted
    return another


def accept_another_load(state: MeshState, values: ChannelValues, rows: BoolArray) -> MeshState:
    """Return the state to which the present level of services in an alert that have another load is usual: their other
    metrics belong to that load. Errors do not."""
    rows = rows & state.memory.is_alerted(state.node_ids)
    if not rows.any():
        return state
    calls = rows[state.edge_index[1]]
    node = _move_centres(state.node_filters, values.node, values.node_observed, rows, NODE_CHANNELS, ANY_CHANGE)
    edge = _move_centres(state.edge_filters, values.edge, values.edge_observed, calls, EDGE_CHANNELS, ANY_CHANGE)
    return replace(state, node_filters=node, edge_filters=edge)


def _move_centres(
    filters: Array, value: Array, observed: BoolArray, rows: BoolArray, channels: Sequence[Channel], max_change: float
) -> Array:
    """Return filters whose fast centres moved to these rows' values ``[N, C]``, by ``max_change`` at most.
    Errors keep their centres, and if ``max_change`` is limited, latencies move less."""
    moves = np.array([channel.name != "error_rate" for channel in channels])
    slower = min(max_change, UNSEEN_SLOWER) if max_change < ANY_CHANGE else max_change
    limit = np.array([slower if channel.name in TIMES else max_change for channel in channels])
    filters = filters.copy()
    change = np.clip(value - filters[CENTRE], -limit, limit)
    filters[CENTRE] += np.where(observed & rows[:, None] & moves, change, 0)
    return filters


def accept_incident(state: MeshState, incident: str) -> MeshState:
    """Return the state to which the present level of an open incident's services is normal. The incident is over.

    Raises:
        KeyError: no open incident has this id.
    """
    open_incident = next((candidate for candidate in state.memory.open if candidate.id == incident), None)
    if open_incident is None:
        raise KeyError(incident)
    if open_incident.scope:
        traffic = accept_traffic(state.traffic, open_incident.members)
        return replace(state, traffic=traffic, memory=state.memory.accept(incident))
    services = {*open_incident.members, *(suspect.service for suspect in open_incident.suspects[:1])}
    return replace(accept_services(state, services), memory=state.memory.accept(incident))


def accept_services(state: MeshState, services: Collection[str]) -> MeshState:
    """Return the state to which the present level of these services, and of the calls from and to them, is normal: the
    median of the last ``LATELY`` snapshots."""
    is_accepted = mark_services(state.node_ids, set(services))
    node, edge = channels_of_window(state, LATELY)
    source, destination = state.edge_index
    calls = is_accepted[source] | is_accepted[destination]
    return replace(
        state,
        node_filters=_accept(state.node_filters, node, is_accepted),
        edge_filters=_accept(state.edge_filters, edge, calls),
    )


def _accept(filters: Array, level: Array, rows: BoolArray) -> Array:
    """Move both centres of these rows ``[N]`` to the level ``[N, C]``, where it is a number."""
    filters = filters.copy()
    is_accepted = rows[:, None] & np.isfinite(level)
    for slot in (CENTRE, SLOW_CENTRE):
        filters[slot] = np.where(is_accepted, level, filters[slot])
    filters[SHORT : LONG + 1] = np.where(is_accepted, 0, filters[SHORT : LONG + 1])
    return filters
