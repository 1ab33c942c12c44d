"""The step from one state of a mesh to the next: compare a snapshot with its past, and learn from it.

It covers the whole mesh, before any cut. Services and calls are two tables that learn in the same way.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

import numpy as np

from model.errors import OutOfOrder
from model.features import EDGE_CHANNELS, NODE_CHANNELS, P50, RATE, Array, Channel, ChannelValues, count_requests
from model.front_door import find_entry_points
from model.ordering import largest_of_rows
from model.snapshot import DELETIONS, BoolArray, IntArray, MeshSnapshot, mark_services
from model.state.alignment import align_channels, align_rows, share_topology, start_rows
from model.state.change_impact import (
    HARMLESS,
    KNOWN,
    UNEXPOSED,
    exposures,
    find_worse,
    hold_levels,
    settled_series,
    update_impact,
)
from model.state.few_requests import Counts, count_failures
from model.state.filters import SEEN, Deviation, accept_level, temper_young, update_filters
from model.state.gaps import update_interval
from model.state.history import append_block, block_length
from model.state.levels import accept_another_load, adjust_after_gap, find_another_load
from model.state.mesh_state import MeshState, Observation, topology_of
from model.state.presence import Presence
from model.state.topology import calls_at
from model.state.traffic import measure_requests, observe_traffic

NEW_SERVICE, MOST_OF_TIME = 120.0, 0.8  # snapshots for which a service is new, and of the snapshots of its mesh


def observe(
    state: MeshState,
    snapshot: MeshSnapshot,
    *,
    window_size: int,
    neighbours: int,
    counted: bool = True,
    longest_gap: float = 7200.0,
    entry_points: AbstractSet[str] = frozenset(),
) -> tuple[Observation, MeshState]:
    """Compare a snapshot with the state of its mesh, and learn from it.

    Args:
        window_size: W, snapshots in the ring; services and calls absent for longer are forgotten.
        neighbours: most callers and most callees that a service attends to; see :mod:`~model.state.topology`.
        counted: False for a warm-up, which sets baselines and leaves the mesh's clock and ring unchanged.
        entry_points: node ids that get requests from outside although other services call them too.

    Returns:
        The observation and the next state.

    Raises:
        OutOfOrder: a counted snapshot that is not newer than the last one.
    """
    if counted and state.observed_at is not None and snapshot.observed_at <= state.observed_at:
        raise OutOfOrder(
            f"observed_at: expected a time after the newest snapshot, {state.observed_at.isoformat()}, got "
            f"{snapshot.observed_at.isoformat()}; send snapshots in order",
            newest=state.observed_at.isoformat(),
        )
    last = state.learned_at
    state = update_interval(state, snapshot, longest_gap)
    state, node_rows, edge_rows = align_rows(state, snapshot, window_size)
    values, presence = align_channels(state, snapshot, node_rows, edge_rows)
    state = start_rows(state, values, neighbours)
    if last is not None:
        state = adjust_after_gap(state, values, (snapshot.observed_at - last).total_seconds())
    another_load = find_another_load(state, values, snapshot.observed_at)
    state = accept_another_load(state, values, another_load)
    lessons = _find_lessons(state, another_load, snapshot.observed_at)
    standing = _robust_z_scores(values.node, values.node_observed)  # first, since failures among few change values
    node = _learn(
        NODE_CHANNELS,
        (state.node_filters, state.node_counts, state.node_impact),
        (values.node, values.node_observed, values.node_noise),
        lessons.of_services,
    )
    edge = _learn(
        EDGE_CHANNELS,
        (state.edge_filters, state.edge_counts, state.edge_impact),
        (values.edge, values.edge_observed, values.edge_noise),
        lessons.of_calls,
    )
    observation = Observation(
        node=node.deviation,
        edge=edge.deviation,
        standing=standing,
        node_present=state.node_absent == 0,
        edge_present=state.edge_absent == 0,
        presence=presence,
        node_exposure=lessons.of_services.exposure,
        edge_exposure=lessons.of_calls.exposure,
        node_impact=state.node_impact,
        edge_impact=state.edge_impact,
        node_failures=node.failures,
        edge_failures=edge.failures,
    )
    node_filters, edge_filters = _follow_changes(state, lessons, node, edge)
    state = replace(
        state,
        node_filters=node_filters,
        edge_filters=edge_filters,
        node_unmeasured=np.where(presence.gone | presence.silent, state.node_unmeasured + 1, 0).astype(np.int32),
        node_impact=node.impact,
        edge_impact=edge.impact,
        node_counts=node.counts,
        edge_counts=edge.counts,
        learned=state.learned + 1,
        learned_at=snapshot.observed_at,
        topology=topology_of(state),
    )
    if not counted:
        return observation, state
    state = _observe_traffic(state, values, presence, snapshot.observed_at, entry_points)
    window = (*state.window, share_topology(snapshot, state, node_rows))[-window_size:]
    sequence, length = state.sequence + 1, block_length(state.interval_seconds)
    if sequence % length == 0:
        state = replace(state, node_history=append_block(state.node_history, state.node_ids, window[-length:]))
    return observation, replace(state, sequence=sequence, observed_at=snapshot.observed_at, window=window)


class _Masks(NamedTuple):
    """Masks of the R rows of a table that learn from a snapshot.

    Attributes:
        exposure: int64 ``[R]`` to planned changes, see ``change_impact.py``.
        involved: bool ``[R]`` part of an incident or perhaps of one: tails do not learn.
        paused: bool ``[R]`` baselines do not learn either.
    """

    exposure: IntArray
    involved: BoolArray
    paused: BoolArray


@dataclass(frozen=True, slots=True)
class _Lessons:
    """Masks of the services ``[N]`` and calls that learn from a snapshot, with the reasons.

    Attributes:
        changed: with a planned change, or new, and deviating since then at most.
        arriving: without a past. Their neighbours have one.
        late: only they may still show their change.
    """

    alerted: BoolArray
    changed: BoolArray
    arriving: BoolArray
    late: BoolArray
    of_services: _Masks
    of_calls: _Masks


def _find_lessons(state: MeshState, another_load: BoolArray, now: datetime) -> _Lessons:
    """Return what is learned from a snapshot; ``another_load`` are the services ``[N]`` with a new load."""
    memory, names = state.memory, state.node_ids
    alerted, is_changed = memory.is_alerted(names), memory.has_new_version(names, but=DELETIONS)
    # A new service has no past to be compared with, announced or not. Its neighbours have one.
    arriving = largest_of_rows(state.node_filters[SEEN]) < min(KNOWN, MOST_OF_TIME * state.learned)
    late = mark_services(names, memory.late) | (arriving & ~is_changed)
    # What began before a planned change is not its effect. A member of an incident that is not far from its own past
    # is there because its neighbours are.
    is_changed = (is_changed | arriving) & ~(alerted & memory.is_above_threshold(names))
    exposure, edge_exposure = exposures(is_changed, late, state.edge_index)
    suspicious = memory.is_suspicious(names, now) & (exposure == UNEXPOSED)
    # A service that came to a known mesh has no past yet that an incident could spoil.
    is_new = state.node_filters[SEEN, :, RATE] < min(NEW_SERVICE, MOST_OF_TIME * state.learned)
    is_paused = (alerted | suspicious) & ~(another_load | is_new)
    # Services in an open incident, suspicious ones, and those muted because they may be in one, are not learned from.
    is_involved = memory.is_in_incident(names) | memory.active_mutes.is_muted(names) | suspicious
    of_calls = _Masks(edge_exposure, calls_at(is_involved, state.edge_index), calls_at(is_paused, state.edge_index))
    return _Lessons(alerted, is_changed, arriving, late, _Masks(exposure, is_involved, is_paused), of_calls)


class _Learned(NamedTuple):
    """A table after a snapshot: the deviations from its past, and what it has learned. ``failures`` ``[R]`` are the
    surprise of failures among few requests."""

    deviation: Deviation
    filters: Array
    counts: Counts
    impact: Array
    failures: Array


def _learn(
    channels: tuple[Channel, ...],
    before: tuple[Array, Counts, Array],
    values: tuple[Array, BoolArray, Array],
    masks: _Masks,
) -> _Learned:
    """Compare a snapshot with the past of a table, and learn from it.

    Args:
        values: ``[R, C]`` in the snapshot, which of them were observed, and their sampling variance.
    """
    (filters, counts, impact), (value, observed, noise) = before, values
    requests = count_requests(noise, observed)
    muted = masks.involved | (masks.exposure != UNEXPOSED)
    deviation, after = update_filters(filters, value, observed, noise, muted, masks.paused, channels, requests)
    young_deviation = temper_young(deviation, channels)
    deviation, counts, failures = count_failures(counts, young_deviation, filters, observed, requests, masks.paused)
    return _Learned(
        deviation, after, counts, update_impact(impact, deviation, masks.exposure, masks.involved), failures
    )


def _follow_changes(state: MeshState, lessons: _Lessons, node: _Learned, edge: _Learned) -> tuple[Array, Array]:
    """Return the filters of services and calls: levels hold still near a new version, and settle when a change is
    over."""
    node_filters, edge_filters = node.filters, edge.filters
    source, destination = state.edge_index
    if lessons.changed.any():
        new = lessons.changed & ~lessons.arriving & state.memory.has_new_version(state.node_ids)
        calls = new[destination]
        node_filters = hold_levels(state.node_filters, node_filters, node.deviation, new, NODE_CHANNELS)
        edge_filters = hold_levels(state.edge_filters, edge_filters, edge.deviation, calls, EDGE_CHANNELS)
    if state.memory.expiring_changes:
        expiring = mark_services(state.node_ids, state.memory.expiring_changes)
        over, edge_over = exposures(expiring, lessons.late, state.edge_index)
        keeps_level = lessons.alerted | find_worse(node.deviation, NODE_CHANNELS)
        # The calls to a service follow its own metrics. The calls of a single caller are fewer, and vary more.
        worse = find_worse(edge.deviation, EDGE_CHANNELS) & ~node.deviation.observed[destination, P50]
        settles = settled_series(over, keeps_level, NODE_CHANNELS)
        node_filters = accept_level(node_filters, node.deviation, settles, HARMLESS)
        settles = settled_series(edge_over, lessons.alerted[source] | keeps_level[destination] | worse, EDGE_CHANNELS)
        edge_filters = accept_level(edge_filters, edge.deviation, settles, HARMLESS)
    return node_filters, edge_filters


def _observe_traffic(
    state: MeshState, values: ChannelValues, presence: Presence, now: datetime, entry_points: AbstractSet[str]
) -> MeshState:
    """Count the requests from outside in a snapshot; ``entry_points`` are entry points that other services call too."""
    rows = np.flatnonzero(find_entry_points(state.node_ids, state.edge_index, entry_points))
    requests = measure_requests(rows, values, presence, state.edge_absent == 0, state.edge_index)
    elapsed = (now - state.observed_at).total_seconds() if state.observed_at else state.interval_seconds
    names = tuple(state.node_ids[row] for row in rows.tolist())
    traffic = observe_traffic(state.traffic, names, requests, now, elapsed, state.interval_seconds)
    return replace(state, traffic=traffic)


def _robust_z_scores(value: Array, observed: BoolArray) -> Array:
    """Return the robust z-score of each channel among the mesh's services now: median and 1.4826 MAD, clipped at ±8."""
    count = observed.sum(axis=0)
    distance = value - _medians(value, observed, count)
    spread = 1.4826 * _medians(np.abs(distance), observed, count) + np.float32(0.05)
    standing = np.where(observed & (count >= 3), distance / spread, 0).clip(-8, 8)
    return standing.astype(np.float32)


def _medians(value: Array, observed: BoolArray, count: IntArray) -> Array:
    """Return each column's upper median ``[C]`` over its observed rows. One sort of all columns is far cheaper than
    separate medians."""
    sorted_columns = np.where(observed, value, np.float32(np.inf)).T.copy()
    sorted_columns.sort(axis=1)
    middle = sorted_columns[np.arange(len(sorted_columns)), np.minimum(count // 2, sorted_columns.shape[1] - 1)]
    return np.where(count > 0, middle, np.float32(0))
