"""The front door of a mesh: the services that get requests from outside, and what is measured of these requests.

An entry point is a service that no other service calls, or one that the settings name. ``observe`` finds the entry
points of a mesh in each counted snapshot, by all of its recent calls. ``MeshState.entry_points`` has their names, and
all else takes them from there: the setting is read once. Other calls may be looked at as well, such as calls in an
earlier snapshot. They can add entry points, and take none away.

A gateway often has no metrics of its own. Where it lacks one, its calls to others stand for it: their sum for its
requests, and their mean, weighted by requests, for errors and latencies.
"""

from collections.abc import Callable, Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from model.snapshot import BoolArray, EdgeMetric, IntArray, MeshSnapshot, mark_services

Values = NDArray[np.float64]
RATE = EdgeMetric.REQUESTS_PER_SECOND
MEASURED = slice(len(EdgeMetric))  # requests/s, errors, p50 and p99: columns of calls, and the first ones of services


def find_entry_points(node_ids: Sequence[str], edge_index: IntArray, entry_points: Collection[str]) -> BoolArray:
    """Return which services ``[N]`` no other service calls, or are among ``entry_points``."""
    source, destination = edge_index
    is_called = np.bincount(destination[source != destination], minlength=len(node_ids)) > 0
    return ~is_called | mark_services(node_ids, entry_points)


def measure_entries(
    rows: IntArray, own: Values, edge_index: IntArray, of_calls: Callable[[IntArray], Values]
) -> Values:
    """Return the metrics of entry points ``[n, M]``, of which the first is requests/s; not a number where unknown.

    Args:
        own: ``[n, M]``, not a number where they lack one.
        of_calls: returns the same metrics of the calls in these rows. It is called only if one is lacking.
    """
    lacks = np.isnan(own)
    if not lacks.any():
        return own
    source, destination = edge_index
    place = np.full(max(int(edge_index.max(initial=0)), int(rows.max(initial=0))) + 1, -1)
    place[rows[lacks.any(axis=1)]] = np.flatnonzero(lacks.any(axis=1))
    calls = np.flatnonzero((place[source] >= 0) & (source != destination))
    caller, call_metrics = place[source[calls]], of_calls(calls)
    weight = np.nan_to_num(call_metrics[:, RATE])
    metrics = own.copy()
    for column in range(own.shape[1]):
        is_known = ~np.isnan(call_metrics[:, column])
        of, value = caller[is_known], call_metrics[is_known, column]
        weights = np.ones(len(of)) if column == RATE else weight[is_known]
        parts, total = np.bincount(of, weights, len(own)), np.bincount(of, weights * value, len(own))
        mean = total if column == RATE else total / np.where(parts > 0, parts, 1)
        metrics[:, column] = np.where(lacks[:, column], np.where(parts > 0, mean, np.nan), own[:, column])
    return metrics


def measure_entries_of(snapshot: MeshSnapshot, rows: IntArray) -> Values:
    """Return requests/s, errors, p50 and p99 of entry points ``[n, 4]`` in a snapshot; not a number where unknown.

    One that gets no requests and makes calls, such as the consumer of a queue, begins as many as it makes calls.
    """
    own = _known(snapshot.node_features[rows, MEASURED], snapshot.node_observed[rows, MEASURED])
    own[own[:, RATE] == 0, RATE] = np.nan

    def of_calls(calls: IntArray) -> Values:
        return _known(snapshot.edge_features[calls], snapshot.edge_observed[calls])

    return measure_entries(rows, own, snapshot.edge_index, of_calls)


def _known(values: NDArray[np.float32], observed: BoolArray) -> Values:
    return np.where(observed, values.astype(np.float64), np.nan)
