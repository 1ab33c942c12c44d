"""The memory of one mesh: O(1) filters per service and call, and the ring of the last W snapshots.

State is an argument and a return value, never a buffer of a module. :func:`observe` is the only step: it aligns a
snapshot with the table of known services and calls, computes how far each channel is from its own past, and returns the
next state. It covers the whole mesh, before any cut.
"""

import warnings
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.drift.sketch import DriftSketch
from model.errors import OutOfOrder
from model.features import (
    EDGE_CHANNELS,
    NODE_CHANNELS,
    OWN_TIME,
    P50,
    RATE,
    Array,
    Channel,
    ChannelValues,
    channel_values,
    count_requests,
)
from model.incidents.memory import IncidentMemory
from model.ordering import descending_order, largest_of_rows, stable_order
from model.snapshot import BoolArray, IntArray, MeshSnapshot, mark_services, namespace_of
from model.state.change_impact import (
    HARMLESS,
    KNOWN,
    UNEXPOSED,
    exposures,
    find_worse,
    follow_levels,
    hold_levels,
    no_impact,
    settled_series,
    update_impact,
)
from model.state.few_requests import Counts, count_failures
from model.state.filters import (
    CENTRE,
    LONG,
    LONG_RATE,
    SEEN,
    SHORT,
    SHORT_RATE,
    SLOTS,
    SLOW_CENTRE,
    Deviation,
    accept_level,
    new_filters,
    temper_young,
    update_filters,
)
from model.state.history import History, append_block, block_length, new_history, skip_blocks
from model.state.presence import Presence, Rows, find_presence
from model.state.topology import Topology
from model.state.traffic import EntryTraffic, find_entry_points, measure_entries, observe_traffic

TableRows = IntArray | slice  # of a table, one for each row of a snapshot
DERIVED = {"derived": True}  # of a field that follows from others
ALL = slice(None)  # both have the same rows; far faster than their numbers
GAP_INTERVALS = 3.0  # a longer silence is a gap
NEW_SERVICE, MOST_OF_TIME = 120.0, 0.8  # snapshots for which a service is new, and of the snapshots of its mesh
ANY_CHANGE = 50.0  # logarithm, more than any channel can move
NEW_LOAD, NEW_LOAD_SECONDS = np.log(3.0), 1800.0  # of its requests, and how long an alert has been open
# After a gap of this many seconds, a change of load or resources by up to this factor (logarithm) is not an event.
UNSEEN_SECONDS, UNSEEN_CHANGE = 300.0, np.log(2.2)
UNSEEN_SLOWER = np.log(1.5)  # the same for latencies: a fault may have begun in the gap
BASELINE_SECONDS = 86_400.0  # without data, after which any level may be normal
TIMES = frozenset({"p50_latency", "p99_latency", "own_time"})


@dataclass(frozen=True, slots=True)
class MeshState:
    """What is known about a mesh between two snapshots.

    Attributes:
        node_ids: N known services, in the order they were first seen; absent ones stay for W snapshots.
        edge_index: int64 ``[2, E]`` known calls of the window, present or vanished.
        node_filters, edge_filters: float32 ``[13, N, 9]`` and ``[13, E, 5]``: one filter per channel.
        node_impact, edge_impact: float32 ``[4, EXPOSURES, SCALES, C]``: effect of planned changes, see
            ``change_impact.py``.
        node_absent, edge_absent: int32, snapshots since last present.
        node_unmeasured: int32, snapshots since a metric of the service was last observed; 0 if none ever was.
        node_counts, edge_counts: failures and requests, see ``few_requests.py``.
        node_history: float16 ``[BLOCKS, N, 3]``, see ``history.py``.
        attended_callers, attended_callees: bool ``[E]``: whether the destination attends to this caller, and the source
            to this callee.
        sequence: snapshots counted.
        learned: snapshots that baselines learned from, warm-up included.
        observed_at: time of the newest counted snapshot.
        learned_at: time of the newest snapshot learned from.
        interval_seconds: measured time between snapshots, s.
        window: the last W snapshots, oldest first.
        memory: open incidents, and the memory of alerting and of the threshold.
        traffic: requests from outside.
        drift: what drift is measured from.
        topology: what follows from the calls, as far as it was computed; not stored. See :func:`topology_of`.
    """

    node_ids: tuple[str, ...] = ()
    edge_index: IntArray = field(default_factory=lambda: np.zeros((2, 0), np.int64))
    node_filters: Array = field(default_factory=lambda: np.zeros((SLOTS, 0, len(NODE_CHANNELS)), np.float32))
    edge_filters: Array = field(default_factory=lambda: np.zeros((SLOTS, 0, len(EDGE_CHANNELS)), np.float32))
    node_impact: Array = field(default_factory=lambda: no_impact(len(NODE_CHANNELS)))
    edge_impact: Array = field(default_factory=lambda: no_impact(len(EDGE_CHANNELS)))
    node_absent: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    edge_absent: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    node_unmeasured: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    node_counts: Counts = field(default_factory=lambda: Counts.none(0))
    edge_counts: Counts = field(default_factory=lambda: Counts.none(0))
    node_history: History = field(default_factory=lambda: new_history(0))
    attended_callers: BoolArray = field(default_factory=lambda: np.zeros(0, bool))
    attended_callees: BoolArray = field(default_factory=lambda: np.zeros(0, bool))
    sequence: int = 0
    learned: int = 0
    observed_at: datetime | None = None
    learned_at: datetime | None = None
    interval_seconds: float = 15.0
    window: tuple[MeshSnapshot, ...] = ()
    memory: IncidentMemory = field(default_factory=IncidentMemory)
    traffic: EntryTraffic = field(default_factory=EntryTraffic)
    drift: DriftSketch = field(default_factory=DriftSketch)
    topology: Topology | None = field(default=None, compare=False, repr=False, metadata=DERIVED)


@dataclass(frozen=True, slots=True)
class Observation:
    """A snapshot aligned with the table of a mesh: the inputs of scoring, for the whole mesh, before any cut.

    Attributes:
        node, edge: deviations of services ``[N, 9]`` and calls ``[E, 5]``.
        standing: float32 ``[N, 9]``: robust z-score among the mesh's services now, clipped at ±8.
        node_present, edge_present: bool: in this snapshot.
        presence: which services are measured, gone or silent, and which calls stopped.
        node_exposure, edge_exposure: to planned changes, see ``change_impact.py``.
        node_impact, edge_impact: ``[4, EXPOSURES, SCALES, C]``, effect of earlier changes in this mesh.
        node_failures, edge_failures: ``[N]``, ``[E]`` surprise of failures among few requests, see ``few_requests.py``.
    """

    node: Deviation
    edge: Deviation
    standing: Array
    node_present: BoolArray
    edge_present: BoolArray
    presence: Presence
    node_exposure: IntArray
    edge_exposure: IntArray
    node_impact: Array
    edge_impact: Array
    node_failures: Array
    edge_failures: Array


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
        state: of the mesh; not changed.
        snapshot: newer than any counted one.
        window_size: W, snapshots in the ring; services and calls absent for longer are forgotten.
        neighbours: most callers and most callees that a service attends to; see :func:`sample_neighbours`.
        counted: False for a warm-up, which sets baselines and leaves the mesh's clock and ring unchanged.
        longest_gap: s without a snapshot, after which open incidents are given up.
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
    state = _update_interval(state, snapshot, longest_gap)
    state, node_rows, edge_rows = _align_rows(state, snapshot, window_size)
    values, presence = _align_channels(state, snapshot, node_rows, edge_rows)
    standing = _robust_z_scores(values.node, values.node_observed)
    state = _start_rows(state, values, neighbours)
    if last is not None:
        state = _adjust_after_gap(state, values, (snapshot.observed_at - last).total_seconds())
    alerted = state.memory.is_alerted(state.node_ids)
    changed = state.memory.has_planned_change(state.node_ids)
    # A new service has no past to be compared with, announced or not. Its neighbours have one.
    arriving = largest_of_rows(state.node_filters[SEEN]) < min(KNOWN, MOST_OF_TIME * state.learned)
    late = state.memory.has_late_change(state.node_ids) | (arriving & ~changed)
    # What began before a planned change is not its effect. A member of an incident that is not far from its own past
    # is there because its neighbours are.
    changed = (changed | arriving) & ~(alerted & state.memory.is_above_threshold(state.node_ids))
    exposure, edge_exposure = exposures(changed, late, state.edge_index)
    suspicious = state.memory.is_suspicious(state.node_ids, snapshot.observed_at) & (exposure == UNEXPOSED)
    another_load = _find_another_load(state, values, alerted, snapshot.observed_at)
    state = _accept_another_load(state, values, another_load)
    # A service that came to a known mesh has no past yet that an incident could spoil.
    is_new = state.node_filters[SEEN, :, RATE] < min(NEW_SERVICE, MOST_OF_TIME * state.learned)
    paused = (alerted | suspicious) & ~(another_load | is_new)
    # Services in an open incident, suspicious ones, and those muted because they may be in one, are not learned from.
    involved = state.memory.is_in_incident(state.node_ids) | state.memory.active_mutes.is_muted(state.node_ids)
    involved |= suspicious
    muted = involved | (exposure != UNEXPOSED)
    edge_paused = _calls_at(paused, state.edge_index)
    requests = count_requests(values.node_noise, values.node_observed)
    node, node_filters = update_filters(
        state.node_filters, values.node, values.node_observed, values.node_noise, muted, paused, NODE_CHANNELS, requests
    )
    node = temper_young(node, NODE_CHANNELS)
    node, node_counts, node_failures = count_failures(
        state.node_counts, node, state.node_filters, values.node_observed, requests, paused
    )
    edge_involved = _calls_at(involved, state.edge_index)
    edge_muted = edge_involved | (edge_exposure != UNEXPOSED)
    edge_requests = count_requests(values.edge_noise, values.edge_observed)
    edge, edge_filters = update_filters(
        state.edge_filters,
        values.edge,
        values.edge_observed,
        values.edge_noise,
        edge_muted,
        edge_paused,
        EDGE_CHANNELS,
        edge_requests,
    )
    edge = temper_young(edge, EDGE_CHANNELS)
    edge, edge_counts, edge_failures = count_failures(
        state.edge_counts, edge, state.edge_filters, values.edge_observed, edge_requests, edge_paused
    )
    if changed.any():
        new = changed & ~arriving & state.memory.has_new_version(state.node_ids)
        calls = new[state.edge_index[1]]
        node_filters = hold_levels(state.node_filters, node_filters, node, new, NODE_CHANNELS)
        edge_filters = hold_levels(state.edge_filters, edge_filters, edge, calls, EDGE_CHANNELS)
    if arriving.any():
        calls = _calls_at(arriving, state.edge_index)
        node_filters = follow_levels(state.node_filters, node_filters, node, arriving, NODE_CHANNELS)
        edge_filters = follow_levels(state.edge_filters, edge_filters, edge, calls, EDGE_CHANNELS)
    if state.memory.expiring_changes:
        over, edge_over = exposures(state.memory.has_expiring_change(state.node_ids), late, state.edge_index)
        kept = alerted | find_worse(node, NODE_CHANNELS)
        source, destination = state.edge_index
        # The calls to a service follow its own metrics. The calls of a single caller are fewer, and vary more.
        worse = find_worse(edge, EDGE_CHANNELS) & ~node.observed[destination, P50]
        settles = settled_series(over, kept, NODE_CHANNELS)
        node_filters = accept_level(node_filters, node, settles, HARMLESS)
        settles = settled_series(edge_over, alerted[source] | kept[destination] | worse, EDGE_CHANNELS)
        edge_filters = accept_level(edge_filters, edge, settles, HARMLESS)
    observation = Observation(
        node,
        edge,
        standing,
        state.node_absent == 0,
        state.edge_absent == 0,
        presence,
        exposure,
        edge_exposure,
        state.node_impact,
        state.edge_impact,
        node_failures,
        edge_failures,
    )
    state = replace(
        state,
        node_filters=node_filters,
        edge_filters=edge_filters,
        node_unmeasured=np.where(presence.gone | presence.silent, state.node_unmeasured + 1, 0).astype(np.int32),
        node_impact=update_impact(state.node_impact, node, exposure, involved),
        edge_impact=update_impact(state.edge_impact, edge, edge_exposure, edge_involved),
        node_counts=node_counts,
        edge_counts=edge_counts,
        learned=state.learned + 1,
        learned_at=snapshot.observed_at,
        topology=topology_of(state),
    )
    if not counted:
        return observation, state
    state = _observe_traffic(state, values, presence, snapshot.observed_at, entry_points)
    window = (*state.window, _share_topology(snapshot, state, node_rows))[-window_size:]
    sequence, length = state.sequence + 1, block_length(state.interval_seconds)
    if sequence % length == 0:
        state = replace(state, node_history=append_block(state.node_history, state.node_ids, window[-length:]))
    return observation, replace(state, sequence=sequence, observed_at=snapshot.observed_at, window=window)


def topology_of(state: MeshState) -> Topology:
    """Return what follows from the calls of a mesh: the state's own if its calls are still the same."""
    parts = len(state.node_ids), state.edge_index, state.attended_callers, state.attended_callees
    known = state.topology
    return known if known is not None and known.is_of(*parts) else Topology(*parts)


def _observe_traffic(
    state: MeshState, values: ChannelValues, presence: Presence, now: datetime, named: AbstractSet[str]
) -> MeshState:
    """Count the requests from outside in a snapshot; ``named`` are entry points that other services call too."""
    rows = find_entry_points(state.edge_index, mark_services(state.node_ids, named))
    requests = measure_entries(rows, values, presence, state.edge_absent == 0, state.edge_index)
    elapsed = (now - state.observed_at).total_seconds() if state.observed_at else state.interval_seconds
    names = tuple(state.node_ids[row] for row in rows.tolist())
    traffic = observe_traffic(state.traffic, names, requests, now, elapsed, state.interval_seconds)
    return replace(state, traffic=traffic)


def _calls_at(services: BoolArray, edge_index: IntArray) -> BoolArray:
    """Return which calls ``[E]`` have one of the ``services`` ``[N]`` at an end. Usually there are none."""
    if not services.any():
        return np.zeros(edge_index.shape[1], bool)
    touched: BoolArray = services[edge_index[0]] | services[edge_index[1]]
    return touched


def _adjust_after_gap(state: MeshState, values: ChannelValues, seconds: float) -> MeshState:
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
    rows = ~alerted, ~_calls_at(alerted, state.edge_index)
    return replace(
        state,
        node_filters=_move_centres(state.node_filters, values.node, values.node_observed, rows[0], NODE_CHANNELS, most),
        edge_filters=_move_centres(state.edge_filters, values.edge, values.edge_observed, rows[1], EDGE_CHANNELS, most),
    )


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


def _find_another_load(state: MeshState, values: ChannelValues, alerted: BoolArray, now: datetime) -> BoolArray:
    """Return which services ``[N]`` have far more or far fewer requests than before, in an alert for long enough for
    that to be their new load."""
    rate = state.node_filters[SLOW_CENTRE, :, RATE]
    another: BoolArray = values.node_observed[:, RATE] & (np.abs(values.node[:, RATE] - rate) > NEW_LOAD)
    if alerted.any() and another.any():
        old = state.memory.is_alerted(state.node_ids, now - timedelta(seconds=NEW_LOAD_SECONDS))
        another &= old | ~alerted
    return another


def _accept_another_load(state: MeshState, values: ChannelValues, rows: BoolArray) -> MeshState:
    """Return the state to which the present level of services in an alert that have another load is usual: their other
    metrics belong to that load. Errors do not."""
    rows = rows & state.memory.is_alerted(state.node_ids)
    if not rows.any():
        return state
    calls = rows[state.edge_index[1]]
    node = _move_centres(state.node_filters, values.node, values.node_observed, rows, NODE_CHANNELS, ANY_CHANGE)
    edge = _move_centres(state.edge_filters, values.edge, values.edge_observed, calls, EDGE_CHANNELS, ANY_CHANGE)
    return replace(state, node_filters=node, edge_filters=edge)


def _share_topology(snapshot: MeshSnapshot, state: MeshState, rows: TableRows) -> MeshSnapshot:
    """Share names and topology with the table or with the previous snapshot, so that they are stored once, and that a
    row of the table is found in the ring without its name. If the services are not the same, share the text of each
    name with the table: a mesh of 100,000 services has 8 MB of it.

    Args:
        snapshot: new.
        state: the table with its services, and the ring before it.
        rows: of the table, of its services.
    """
    if isinstance(rows, slice):
        return replace(snapshot, node_ids=state.node_ids, edge_index=state.edge_index)
    last = state.window[-1] if state.window else None
    if last is None or snapshot.node_ids != last.node_ids:
        return replace(snapshot, node_ids=tuple(map(state.node_ids.__getitem__, rows.tolist())))
    same = np.array_equal(snapshot.edge_index, last.edge_index)
    return replace(snapshot, node_ids=last.node_ids, edge_index=last.edge_index if same else snapshot.edge_index)


def _update_interval(state: MeshState, snapshot: MeshSnapshot, longest_gap: float) -> MeshState:
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


def _align_rows(state: MeshState, snapshot: MeshSnapshot, window_size: int) -> tuple[MeshState, TableRows, TableRows]:
    """Add new services and calls to the table, forget those absent for W snapshots, and count absences.

    Returns:
        The state, and the table's row of each service and call of the snapshot.
    """
    if (
        state.node_ids == snapshot.node_ids
        and np.array_equal(state.edge_index, snapshot.edge_index)
        and not state.node_absent.any()
        and not state.edge_absent.any()
    ):
        return state, ALL, ALL
    state = _forget_absent(state, window_size)
    row_of = {name: row for row, name in enumerate(state.node_ids)}
    new_names = [name for name in snapshot.node_ids if name not in row_of]
    row_of.update((name, len(state.node_ids) + i) for i, name in enumerate(new_names))
    node_rows = np.fromiter((row_of[name] for name in snapshot.node_ids), np.int64, snapshot.num_nodes)
    width = max(len(row_of), 1)
    known = state.edge_index[0] * width + state.edge_index[1]
    ends = node_rows[snapshot.edge_index]
    keys = ends[0] * width + ends[1]
    order = stable_order(known, width * width)
    ordered = known[order]
    place = np.searchsorted(ordered, keys)
    found = np.zeros(len(keys), bool)
    inside = place < len(known)
    found[inside] = ordered[place[inside]] == keys[inside]
    edge_rows = np.empty(len(keys), np.int64)
    edge_rows[found] = order[place[found]]
    edge_rows[~found] = len(known) + np.arange((~found).sum())
    node_absent = np.append(state.node_absent + 1, np.zeros(len(new_names), np.int32)).astype(np.int32)
    edge_absent = np.append(state.edge_absent + 1, np.zeros((~found).sum(), np.int32)).astype(np.int32)
    node_absent[node_rows] = 0
    edge_absent[edge_rows] = 0
    return (
        replace(
            state,
            node_ids=(*state.node_ids, *new_names),
            edge_index=np.concatenate([state.edge_index, ends[:, ~found]], axis=1),
            node_absent=node_absent,
            edge_absent=edge_absent,
            node_unmeasured=np.append(state.node_unmeasured, np.zeros(len(new_names), np.int32)).astype(np.int32),
            node_counts=state.node_counts.add_rows(len(new_names)),
            edge_counts=state.edge_counts.add_rows(int((~found).sum())),
            node_history=np.concatenate([state.node_history, new_history(len(new_names))], axis=1),
        ),
        node_rows,
        edge_rows,
    )


def _forget_absent(state: MeshState, window_size: int) -> MeshState:
    """Remove the services and calls that were absent for more than W snapshots."""
    nodes = state.node_absent < window_size
    edges = (state.edge_absent < window_size) & nodes[state.edge_index].all(axis=0)
    if nodes.all() and edges.all():
        return state
    position = np.cumsum(nodes) - 1
    return replace(
        state,
        node_ids=tuple(name for name, keep in zip(state.node_ids, nodes, strict=True) if keep),
        edge_index=position[state.edge_index[:, edges]],
        node_filters=state.node_filters[:, nodes],
        edge_filters=state.edge_filters[:, edges],
        node_absent=state.node_absent[nodes],
        edge_absent=state.edge_absent[edges],
        node_unmeasured=state.node_unmeasured[nodes],
        node_counts=state.node_counts.keep_rows(nodes),
        edge_counts=state.edge_counts.keep_rows(edges),
        node_history=state.node_history[:, nodes],
        attended_callers=np.zeros(0, bool),  # sampled again: others may take the places of the removed ones
        attended_callees=np.zeros(0, bool),
    )


def _align_channels(
    state: MeshState, snapshot: MeshSnapshot, node_rows: TableRows, edge_rows: TableRows
) -> tuple[ChannelValues, Presence]:
    """Return the channels on the table's rows. For services that are gone and calls that stopped, traffic is observed
    to be 0. Nothing else is observed of rows that are not in the snapshot."""
    nodes, edges = len(state.node_ids), state.edge_index.shape[1]
    rows = Rows(
        _scatter(snapshot.node_features, node_rows, nodes),
        _scatter(snapshot.node_observed, node_rows, nodes),
        _scatter(snapshot.edge_features, edge_rows, edges),
        _scatter(snapshot.edge_observed, edge_rows, edges),
        state.edge_absent == 0,
    )
    presence = find_presence(state.node_filters, state.edge_filters, state.edge_index, rows, state.interval_seconds)
    rows.node_observed[presence.gone, RATE] = True
    rows.edge_observed[presence.stopped, RATE] = True
    values = channel_values(
        rows.node_features,
        rows.node_observed,
        rows.edge_features,
        rows.edge_observed,
        state.edge_index,
        state.interval_seconds,
    )
    values.node_noise[presence.gone] = 0  # absence has no sampling noise
    values.edge_noise[presence.stopped] = 0
    silent = ~(rows.edge_present | presence.stopped)
    values.edge[silent], values.edge_observed[silent] = 0, False
    blind = state.edge_index[0, silent]  # callers whose waiting for callees is not known
    values.node[blind, OWN_TIME], values.node_observed[blind, OWN_TIME] = 0, False
    return values, presence


def channels_of_window(state: MeshState, snapshots: int) -> tuple[Array, Array]:
    """Return the median channels of the last snapshots on the table's rows: of services ``[N, 9]`` and of calls
    ``[E, 5]``; not a number where nothing was measured."""
    row_of = {name: row for row, name in enumerate(state.node_ids)}
    call_of = {tuple(ends): row for row, ends in enumerate(state.edge_index.T.tolist())}
    nodes, edges = [], []
    for snapshot in state.window[-snapshots:]:
        node_rows = np.fromiter((row_of[name] for name in snapshot.node_ids), np.int64, snapshot.num_nodes)
        ends = node_rows[snapshot.edge_index].T.tolist()
        edge_rows = np.fromiter((call_of[tuple(pair)] for pair in ends), np.int64, snapshot.num_edges)
        values, _ = _align_channels(state, snapshot, node_rows, edge_rows)
        nodes.append(np.where(values.node_observed, values.node, np.nan))
        edges.append(np.where(values.edge_observed, values.edge, np.nan))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of rows without any measurement
        node, edge = (np.nanmedian(np.array(of), axis=0).astype(np.float32) for of in (nodes, edges))
    return node, edge


def _scatter(values: NDArray[Any], rows: TableRows, count: int) -> NDArray[Any]:
    out = np.zeros((count, values.shape[1]), values.dtype)
    out[rows] = values
    return out


def _start_rows(state: MeshState, values: ChannelValues, neighbours: int) -> MeshState:
    """Give new rows their first filters, and sample neighbours again if the topology has changed."""
    known_nodes, known_edges = state.node_filters.shape[1], state.edge_filters.shape[1]
    new_nodes = len(state.node_ids) - known_nodes
    new_edges = state.edge_index.shape[1] - known_edges
    if not new_nodes and not new_edges and len(state.attended_callers) == state.edge_index.shape[1]:
        return state
    node_filters = np.concatenate(
        [state.node_filters, new_filters(new_nodes, state.node_filters, NODE_CHANNELS)], axis=1
    )
    edge_filters = np.concatenate(
        [state.edge_filters, new_filters(new_edges, state.edge_filters, EDGE_CHANNELS)], axis=1
    )
    if new_nodes and known_nodes:
        _start_from_neighbours(node_filters, known_nodes, state.edge_index)
    traffic = np.where(edge_filters[SEEN, :, RATE] > 0, edge_filters[SLOW_CENTRE, :, RATE], values.edge[:, RATE])
    foreign = _crosses_namespaces(state.node_ids, state.edge_index)
    return replace(
        state,
        node_filters=node_filters,
        edge_filters=edge_filters,
        attended_callers=sample_neighbours(traffic, state.edge_index[1], foreign, neighbours),
        attended_callees=sample_neighbours(traffic, state.edge_index[0], foreign, neighbours),
    )


def _crosses_namespaces(node_ids: Sequence[str], edge_index: IntArray) -> BoolArray:
    """Return which calls go from one namespace to another."""
    number: dict[str, int] = {}
    namespace = np.fromiter(
        (number.setdefault(space, len(number)) for space in map(namespace_of, node_ids)), np.int64, len(node_ids)
    )
    foreign: BoolArray = namespace[edge_index[0]] != namespace[edge_index[1]]
    return foreign


def sample_neighbours(traffic: Array, listener: IntArray, foreign: BoolArray, most: int) -> BoolArray:
    """Select the calls that each service attends to on one side: those with most traffic and, if there are more than
    ``most``, at most one from another namespace.

    The limit is a property of the model. It is applied when the topology changes, and is the same for a whole mesh and
    for its parts. Without the rule for namespaces, every part of a cut mesh would read all callers of the shared
    services (figures in docs/research-log.md).

    Args:
        traffic: ``[E]``.
        listener: ``[E]`` row of the service at this side of each call.
        foreign: ``[E]`` whether the call crosses namespaces.
        most: most calls per service.
    """
    marked = strongest(traffic, listener, most)
    crowded = np.bincount(listener, minlength=1)[listener] > most
    rows = np.flatnonzero(foreign)
    first_foreign = np.zeros(len(listener), bool)
    first_foreign[rows] = strongest(traffic[rows], listener[rows], 1)
    return marked & (~crowded | ~foreign | first_foreign)


def _start_from_neighbours(filters: Array, known: int, edge_index: IntArray) -> None:
    """Start new services from the mean of their callers' and callees' filters, in place. Only the centre is their
    own."""
    source, destination = edge_index
    count = filters.shape[1] - known
    total = np.zeros((count, filters.shape[0], filters.shape[2]), np.float64)
    links = np.zeros(count)
    for new, old in ((source, destination), (destination, source)):
        pairs = (new >= known) & (old < known)
        np.add.at(total, new[pairs] - known, filters[:, old[pairs]].swapaxes(0, 1))
        np.add.at(links, new[pairs] - known, 1)
    linked = np.flatnonzero(links)
    mean = total[linked] / links[linked, None, None]
    filters[:, known + linked] = mean.swapaxes(0, 1)
    filters[SEEN, known:] = 0


def strongest(traffic: Array, group: IntArray, most: int) -> BoolArray:
    """Mark, in each group, the ``most`` rows with most traffic (ties: the earlier row)."""
    marked = np.ones(len(group), bool)
    sizes = np.bincount(group) if len(group) else np.zeros(0, np.int64)
    if not len(sizes) or sizes.max() <= most:
        return marked
    order = descending_order(traffic)
    order = order[stable_order(group[order], len(sizes))]
    start = np.cumsum(sizes) - sizes
    rank = np.empty(len(group), np.int64)
    rank[order] = np.arange(len(group)) - start[group[order]]
    return rank < most


def _robust_z_scores(value: Array, observed: BoolArray) -> Array:
    """Return the robust z-score of each channel among the mesh's services now: median and 1.4826 MAD, clipped at ±8."""
    count = observed.sum(axis=0)
    distance = value - _medians(value, observed, count)
    spread = 1.4826 * _medians(np.abs(distance), observed, count) + np.float32(0.05)
    standing = np.where(observed & (count >= 3), distance / spread, 0).clip(-8, 8)
    return standing.astype(np.float32)


def _medians(value: Array, observed: BoolArray, count: IntArray) -> Array:
    """Return the upper median ``[C]`` of the observed rows of each column. One sort of all columns is far cheaper than
    separate medians."""
    ordered = np.where(observed, value, np.float32(np.inf)).T.copy()
    ordered.sort(axis=1)
    middle = ordered[np.arange(len(ordered)), np.minimum(count // 2, ordered.shape[1] - 1)]
    return np.where(count > 0, middle, np.float32(0))
