"""The interval between snapshots, what a gap makes old, and levels that become usual at once.

They do after a gap, with another load, or because a person accepts them.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np

from model.features import EDGE_CHANNELS, NODE_CHANNELS, RATE, Array, Channel, ChannelValues
from model.snapshot import BoolArray, MeshSnapshot, mark_services
from model.state.alignment import channels_of_window
from model.state.filters import CENTRE, LONG, LONG_RATE, SHORT, SHORT_RATE, SLOW_CENTRE
from model.state.history import skip_blocks
from model.state.mesh_state import MeshState
from model.state.topology import calls_at
from model.state.traffic import accept_traffic

GAP_INTERVALS = 3.0  # a longer silence is a gap


def update_interval(state: MeshState, snapshot: MeshSnapshot, longest_gap: float) -> MeshState:
    """Update the interval, and what a gap before the snapshot makes old.

    Trajectories fade as if the missing snapshots had been usual, histories have blocks without a value, and planned
    changes age. Open incidents are kept, because nothing says that they are over, unless the gap is longer than
    ``longest_gap``, s.
    """
    if state.learned_at is None:
        return state
    elapsed = (snapshot.observed_at - state.learned_at).total_seconds()
    interval = state.interval_seconds
    if elapsed > 0 and (state.learned == 1 or elapsed < interval / 3):
        interval = elapsed
    elif 0 < elapsed <= GAP_INTERVALS * interval:
        interval += 0.1 * (elapsed - interval)
    if 0 < elapsed <= GAP_INTERVALS * interval:
        return replace(state, interval_seconds=interval)
    missing = elapsed / interval - 1 if elapsed > 0 else np.inf
    if elapsed > 0 and _is_second_gap(state):
        interval = min(elapsed, 2 * interval)  # the interval has changed; a longer one is reached in a few steps
    node_filters, edge_filters = state.node_filters.copy(), state.edge_filters.copy()
    for filters in (node_filters, edge_filters):
        for slot, forgets in ((SHORT, SHORT_RATE), (LONG, LONG_RATE)):
            filters[slot] *= np.float32((1 - forgets) ** missing)
    is_long = not 0 < elapsed <= max(longest_gap, GAP_INTERVALS * interval)
    memory = state.memory.forget_incidents() if is_long else state.memory.pass_gap(round(missing))
    return replace(
        state,
        interval_seconds=interval,
        node_filters=node_filters,
        edge_filters=edge_filters,
        node_history=skip_blocks(state.node_history, max(elapsed, 0) or np.inf),
        memory=memory,
    )


def _is_second_gap(state: MeshState) -> bool:
    """Return whether a gap also came before the newest snapshot; or, without counted snapshots, whether none did."""
    if len(state.window) < 2:
        return True
    last, before = state.window[-1].observed_at, state.window[-2].observed_at
    return (last - before).total_seconds() > GAP_INTERVALS / 2 * state.interval_seconds


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
    most = np.inf if seconds > BASELINE_SECONDS else UNSEEN_CHANGE
    alerted = state.memory.is_alerted(state.node_ids)
    rows = ~alerted, ~calls_at(alerted, state.edge_index)
    return replace(
        state,
        node_filters=_move_centres(state.node_filters, values.node, values.node_observed, rows[0], NODE_CHANNELS, most),
        edge_filters=_move_centres(state.edge_filters, values.edge, values.edge_observed, rows[1], EDGE_CHANNELS, most),
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
    filters: Array, value: Array, observed: BoolArray, rows: BoolArray, channels: Sequence[Channel], most: float
) -> Array:
    """Return filters whose fast centres moved to the values ``[N, C]`` of these rows ``[N]``, by ``most`` at most.
    Errors keep their centres, and if ``most`` is limited, latencies move less."""
    moves = np.array([channel.name != "error_rate" for channel in channels])
    slower = min(most, UNSEEN_SLOWER) if most < ANY_CHANGE else most
    limit = np.array([slower if channel.name in TIMES else most for channel in channels])
    filters = filters.copy()
    change = np.clip(value - filters[CENTRE], -limit, limit)
    filters[CENTRE] += np.where(observed & rows[:, None] & moves, change, 0)
    return filters


LATELY = 4  # snapshots whose median is the present level


def accept_incident(state: MeshState, incident: str) -> MeshState:
    """Return the state to which the present level of an open incident's services is normal. The incident is over.

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
