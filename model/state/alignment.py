"""Aligns snapshots with the table of the services and calls that a mesh has, and gives new ones a row."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.features import EDGE_CHANNELS, NODE_CHANNELS, OWN_TIME, RATE, Array, ChannelValues, channel_values
from model.ordering import stable_order
from model.snapshot import IntArray, MeshSnapshot, number_namespaces
from model.state.filters import SEEN, SLOW_CENTRE, new_filters
from model.state.history import new_history
from model.state.mesh_state import MeshState
from model.state.presence import Presence, Rows, find_presence
from model.state.topology import sample_neighbours

TableRows = IntArray | slice  # of a table, one for each row of a snapshot
ALL = slice(None)  # both have the same rows; far faster than their numbers


def align_rows(state: MeshState, snapshot: MeshSnapshot, window_size: int) -> tuple[MeshState, TableRows, TableRows]:
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
    known_keys = state.edge_index[0] * width + state.edge_index[1]
    ends = node_rows[snapshot.edge_index]
    keys = ends[0] * width + ends[1]
    order = stable_order(known_keys, width * width)
    sorted_keys = known_keys[order]
    place = np.searchsorted(sorted_keys, keys)
    is_known = np.zeros(len(keys), bool)
    inside = place < len(known_keys)
    is_known[inside] = sorted_keys[place[inside]] == keys[inside]
    edge_rows = np.empty(len(keys), np.int64)
    edge_rows[is_known] = order[place[is_known]]
    edge_rows[~is_known] = len(known_keys) + np.arange((~is_known).sum())
    node_absent = np.append(state.node_absent + 1, np.zeros(len(new_names), np.int32)).astype(np.int32)
    edge_absent = np.append(state.edge_absent + 1, np.zeros((~is_known).sum(), np.int32)).astype(np.int32)
    node_absent[node_rows] = 0
    edge_absent[edge_rows] = 0
    return (
        replace(
            state,
            node_ids=(*state.node_ids, *new_names),
            edge_index=np.concatenate([state.edge_index, ends[:, ~is_known]], axis=1),
            node_absent=node_absent,
            edge_absent=edge_absent,
            node_unmeasured=np.append(state.node_unmeasured, np.zeros(len(new_names), np.int32)).astype(np.int32),
            node_counts=state.node_counts.add_rows(len(new_names)),
            edge_counts=state.edge_counts.add_rows(int((~is_known).sum())),
            node_history=np.concatenate([state.node_history, new_history(len(new_names))], axis=1),
        ),
        node_rows,
        edge_rows,
    )


def _forget_absent(state: MeshState, window_size: int) -> MeshState:
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


def start_rows(state: MeshState, values: ChannelValues, neighbours: int) -> MeshState:
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
    namespace = number_namespaces(state.node_ids)[state.edge_index]
    foreign = namespace[0] != namespace[1]
    return replace(
        state,
        node_filters=node_filters,
        edge_filters=edge_filters,
        attended_callers=sample_neighbours(traffic, state.edge_index[1], foreign, neighbours),
        attended_callees=sample_neighbours(traffic, state.edge_index[0], foreign, neighbours),
    )


def _start_from_neighbours(filters: Array, known_count: int, edge_index: IntArray) -> None:
    """Start new services from the mean of their callers' and callees' filters, in place. Only the centre is their
    own."""
    source, destination = edge_index
    count = filters.shape[1] - known_count
    total = np.zeros((count, filters.shape[0], filters.shape[2]), np.float64)
    links = np.zeros(count)
    for new, old in ((source, destination), (destination, source)):
        pairs = (new >= known_count) & (old < known_count)
        np.add.at(total, new[pairs] - known_count, filters[:, old[pairs]].swapaxes(0, 1))
        np.add.at(links, new[pairs] - known_count, 1)
    linked_rows = np.flatnonzero(links)
    mean = total[linked_rows] / links[linked_rows, None, None]
    filters[:, known_count + linked_rows] = mean.swapaxes(0, 1)
    filters[SEEN, known_count:] = 0


def align_channels(
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
        values, _ = align_channels(state, snapshot, node_rows, edge_rows)
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


def share_topology(snapshot: MeshSnapshot, state: MeshState, rows: TableRows) -> MeshSnapshot:
    """Share names and topology with the table or with the previous snapshot, so that they are stored once, and that a
    row of the table is found in the ring without its name. If the services are not the same, share the text of each
    name with the table: a mesh of 100,000 services has 8 MB of it.
    """
    if isinstance(rows, slice):
        return replace(snapshot, node_ids=state.node_ids, edge_index=state.edge_index)
    last = state.window[-1] if state.window else None
    if last is None or snapshot.node_ids != last.node_ids:
        return replace(snapshot, node_ids=tuple(map(state.node_ids.__getitem__, rows.tolist())))
    is_same = np.array_equal(snapshot.edge_index, last.edge_index)
    return replace(snapshot, node_ids=last.node_ids, edge_index=last.edge_index if is_same else snapshot.edge_index)
