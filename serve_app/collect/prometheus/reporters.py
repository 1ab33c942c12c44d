"""Reduces services and calls to one row each, although several proxies report a request, and names differ.

A gateway or a sidecar reports a request as its source, a waypoint on the way reports it again, and the sidecar of the
destination a third time. Each sees all requests of a call or, while a mesh moves from sidecars to waypoints, some of
them. So a call's reporters are never added: the one with the most requests counts. Latencies come from one preferred
reporter that sees nearly all requests, because reporters measure in different ways.

A destination's sidecar may see the waypoint in front of it as the caller. If a waypoint reports a destination's
requests, a caller that appears nowhere else is this waypoint, and its calls are left out. Calls of a gateway that
passes requests on to an external service are left out in the same way.
"""

import numpy as np
from numpy.typing import NDArray

from model.snapshot import IntArray
from serve_app.collect.prometheus.client import Numbers
from serve_app.collect.prometheus.keys import Column, Columns, KeyMap, KeyTable
from serve_app.collect.prometheus.service_names import NO_SERVICE

MIN_SEEN_SHARE = 0.8  # share of the requests; scrapes at different times cause smaller differences
MIN_SHARE = 0.01  # share of a row's requests from which one part can move its p99
LARGEST = ("requests", "failures", "cancelled", "long_requests")  # the reporter that sees most counts
QUANTILES = ("p50", "p99")
WAYPOINT, DESTINATION = "waypoint", "destination"  # reporters


def join_rows(columns: Columns, reporters: tuple[str, ...], shown_names: KeyMap, parts: int) -> dict[str, Column]:
    """Reduce the columns of services or calls to one row each.

    Args:
        columns: by role; ``requests`` is required. Keys are the names, followed by the reporter if ``reporters`` are
            given.
        reporters: the preferred one first. Others follow.
        shown_names: names to show, by key.
        parts: number of names in a key.
    """
    row_names = {role: shown_names(column.numbers) for role, column in columns.items()}
    if not reporters and all((row_names[role] == column.numbers).all() for role, column in columns.items()):
        return dict(columns)
    keys = columns["requests"].table
    by = {role: column.part(parts) for role, column in columns.items()}
    reporter_keys = [keys.number((reporter,)) for reporter in reporters]
    order = list(dict.fromkeys([*reporter_keys, *keys.distinct(*by.values()).tolist()]))
    rows = keys.distinct(*row_names.values())
    place, rank = np.zeros((2, len(keys)), np.int64)
    place[rows], rank[order] = np.arange(len(rows)), np.arange(len(order))
    cells = {role: place[row_names[role]] * len(order) + rank[by[role]] for role in columns}
    shape = len(rows), len(order)
    requests = _sums(columns["requests"].array, cells["requests"], shape)
    best = _best(requests, np.concatenate([*cells.values()]))
    nameless = keys.number(NO_SERVICE)
    is_row = (keys.part(0, 2)(rows) != nameless) & (keys.part(2, 4)(rows) != nameless)
    if parts == 4 and {WAYPOINT, DESTINATION} <= set(reporters):
        is_row &= ~_calls_of_waypoints(keys, rows, requests, *map(reporters.index, (WAYPOINT, DESTINATION)))

    def join(role: str, column: Column) -> Column:
        if role in LARGEST:
            values = np.fmax.reduce(_sums(column.array, cells[role], shape), axis=1)
        elif role in QUANTILES:
            weights = columns["requests"].at(column.numbers)
            values = _quantiles(role, column.array, cells[role], weights, requests)[np.arange(len(rows)), best]
        else:
            values = _sums(column.array, cells[role], shape)[np.arange(len(rows)), best]
        is_there = np.zeros(len(rows), bool)
        is_there[place[row_names[role]]] = True
        return Column(keys, rows, values).only(is_there & is_row)

    return {role: join(role, column) for role, column in columns.items()}


def _best(requests: Numbers, cells: IntArray) -> IntArray:
    """Return ``[N]`` the preferred reporter among those that see nearly all requests; without requests, the first one
    with any series."""
    nearly_all = requests >= MIN_SEEN_SHARE * np.fmax.reduce(requests, axis=1)[:, None]
    reports = np.bincount(cells, minlength=requests.size).reshape(requests.shape) > 0
    best: IntArray = np.where(nearly_all.any(axis=1)[:, None], nearly_all, reports).argmax(axis=1)
    return best


def _calls_of_waypoints(
    keys: KeyTable, rows: IntArray, requests: Numbers, waypoint: int, destination: int
) -> NDArray[np.bool_]:
    """Return ``[N]`` whether the caller is a waypoint."""
    sees = requests > 0
    by_others = np.delete(sees, destination, axis=1).any(axis=1)
    caller, callee = keys.part(0, 2)(rows), keys.part(2, 4)(rows)
    has_waypoint = keys.among(callee, callee[sees[:, waypoint]])
    is_service = keys.among(caller, callee[sees.any(axis=1)], caller[by_others])
    is_waypoint: NDArray[np.bool_] = sees[:, destination] & ~by_others & has_waypoint & ~is_service
    return is_waypoint


def without_relayed(requests: Column, services: Column, relays: IntArray) -> Column:
    """Return the requests of calls, without requests that a relay passes on to a service that is not measured itself
    and has other callers.

    Args:
        services: requests of services that are measured themselves.
        relays: service numbers.
    """
    keys, callee = requests.table, requests.part(2)
    by_relay = keys.among(requests.part(0, 2), relays)
    is_relayed = keys.among(callee, callee[~by_relay]) & ~keys.among(callee, services.numbers)
    return requests.only(~(by_relay & is_relayed))


def _sums(values: Numbers, cells: IntArray, shape: tuple[int, int]) -> Numbers:
    """Return the sums of rows by reporter; NaN where nothing is known."""
    is_known, size = ~np.isnan(values), shape[0] * shape[1]
    sums = np.bincount(cells[is_known], values[is_known], size).astype(np.float64)
    sums[np.bincount(cells[is_known], minlength=size) == 0] = np.nan
    return sums.reshape(shape)


def _quantiles(role: str, values: Numbers, cells: IntArray, weights: Numbers, requests: Numbers) -> Numbers:
    """Return the quantiles by reporter. If several rows become one, the p50 comes from the row with the most requests,
    and the p99 from the slowest row with a notable share of them."""
    is_part = ~np.isnan(values)
    if role != "p50":
        is_part &= ~(np.nan_to_num(weights, nan=-1.0) < MIN_SHARE * requests.flat[cells])  # alone without requests
    rank = np.where(np.isnan(weights), -1.0, weights) if role == "p50" else values
    order = np.flatnonzero(is_part)
    order = order[np.argsort(rank[order], kind="stable")]
    quantiles = np.full(requests.size, np.nan)
    quantiles[cells[order]] = values[order]  # the last one stays
    return quantiles.reshape(requests.shape)
