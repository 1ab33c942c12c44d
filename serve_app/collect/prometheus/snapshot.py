"""Build a snapshot from the columns of one instant."""

from collections.abc import Callable, Sequence
from datetime import datetime

import numpy as np

from model.snapshot import (
    EDGE_METRICS,
    LARGEST_VALUE,
    NODE_METRICS,
    EdgeMetric,
    IntArray,
    MeshSnapshot,
    NodeMetric,
    PlannedChange,
    ServicePolicy,
    Signal,
)
from serve_app.collect.prometheus.client import Numbers
from serve_app.collect.prometheus.keys import Columns, Key, KeyTable
from serve_app.collect.service_labels import NAMELESS

# Metrics that are one role's unchanged values.
_SERVICE_ROLES = {
    NodeMetric.P50_LATENCY: "p50",
    NodeMetric.P99_LATENCY: "p99",
    NodeMetric.CPU_UTILIZATION: "cpu",
    NodeMetric.MEMORY_UTILIZATION: "memory",
}
_CALL_ROLES = {EdgeMetric.P50_LATENCY: "p50", EdgeMetric.P99_LATENCY: "p99"}
_UTILIZATION = [NodeMetric.CPU_UTILIZATION, NodeMetric.MEMORY_UTILIZATION]


def assemble(
    services: Columns,
    calls: Columns,
    observed_at: datetime,
    *,
    external: frozenset[str] = frozenset(),
    changes: Sequence[PlannedChange] = (),
    policies: Sequence[ServicePolicy] = (),
    signals: Callable[[Sequence[Key]], Sequence[Signal]] | None = None,
) -> MeshSnapshot:
    """Build one snapshot.

    A service exists if it reports requests, makes a call or is called; a dead service is visible only to its callers.
    Its error rate is the larger of its own and its callers' value. Its request rate is its own value, else its callers'
    value.

    Args:
        services: columns by role, with keys (namespace, name); ``requests`` is required.
        calls: columns by role, with keys (namespace, name) of the source, then of the destination. Calls with
            ``requests`` are listed.
        external: names of callers that are not services. Their calls are left out; the callee's requests include them.

    Raises:
        InvalidSnapshot: if there is no service.
    """
    requests, call_requests = services["requests"], calls["requests"]
    keys = call_requests.table
    callers = keys.name(keys.distinct(call_requests.part(0, 2)))
    outside = keys.numbers(key for key in callers if key[1] in external or key in NAMELESS)
    service_calls = call_requests.only(~keys.among(call_requests.part(0, 2), outside))  # calls by services
    ends = service_calls.part(0, 2), service_calls.part(2)
    names = sorted(keys.name(keys.distinct(requests.to(keys).numbers, *ends)))
    rows = keys.numbers(names)
    row_of = np.zeros(len(keys), np.int64)
    row_of[rows] = np.arange(len(rows))
    by_ends = np.lexsort((row_of[ends[1]], row_of[ends[0]]))
    source, destination = (row_of[end][by_ends] for end in ends)
    edges = _call_features(calls, keys, service_calls.numbers[by_ends])
    return MeshSnapshot.create(
        node_ids=["/".join(name) for name in names],
        edge_index=np.stack([source, destination]),
        node_features=_clean(_service_features(services, keys, rows, destination, edges)),
        edge_features=_clean_calls(edges),
        observed_at=observed_at,
        changes=changes,
        policies=policies,
        signals=signals(names) if signals else (),
    )


def _call_features(calls: Columns, keys: KeyTable, numbers: IntArray) -> Numbers:
    """Return the features ``[E, F]`` of the calls with these numbers; NaN if unknown."""
    features = np.full((len(numbers), len(EDGE_METRICS)), np.nan)
    rates = features[:, EdgeMetric.REQUESTS_PER_SECOND] = _values(calls, "requests", keys, numbers)
    failures = _values(calls, "failures", keys, numbers)
    features[:, EdgeMetric.ERROR_RATE] = _share(failures, rates, "failures" in calls)
    for metric, role in _CALL_ROLES.items():
        features[:, metric] = _values(calls, role, keys, numbers)
    return features


def _service_features(
    services: Columns, keys: KeyTable, numbers: IntArray, destination: IntArray, edges: Numbers
) -> Numbers:
    """Return the features ``[N, F]`` of the services with these numbers; NaN if unknown.

    Args:
        destination: ``[E]`` row of each call's callee.
        edges: ``[E, F]`` the calls' features.
    """

    def values(role: str) -> Numbers:
        return _values(services, role, keys, numbers)

    features, rate, in_use = (
        np.full((len(numbers), len(NODE_METRICS)), np.nan),
        values("requests"),
        values("connections"),
    )
    share = _share(values("failures"), rate, "failures" in services)
    callers_rate, callers_share = _callers_view(destination, edges, len(numbers))
    features[:, NodeMetric.REQUEST_RATE] = np.where(np.isnan(rate), callers_rate, rate)
    features[:, NodeMetric.ERROR_RATE] = np.fmax(share, callers_share)
    for metric, role in _SERVICE_ROLES.items():
        features[:, metric] = values(role)
    features[:, _UTILIZATION] = np.minimum(features[:, _UTILIZATION], 1)  # usage can exceed the limit for a moment
    features[:, NodeMetric.ACTIVE_CONNECTIONS] = np.where(np.isnan(in_use), values("in_flight"), in_use)
    return features


def _clean(values: Numbers) -> Numbers:
    """Raise negative values to 0; values above ``LARGEST_VALUE`` count as not observed."""
    return np.where(values > LARGEST_VALUE, np.nan, np.maximum(values, 0))


def _clean_calls(edges: Numbers) -> Numbers:
    """Clean the calls' values. Their request rate is always known, so it is at most ``LARGEST_VALUE``."""
    clean = _clean(edges)
    clean[:, EdgeMetric.REQUESTS_PER_SECOND] = np.clip(edges[:, EdgeMetric.REQUESTS_PER_SECOND], 0, LARGEST_VALUE)
    return clean


def _values(columns: Columns, role: str, keys: KeyTable, numbers: IntArray) -> Numbers:
    """Return ``[len(numbers)]`` values of a column; NaN for missing keys."""
    return columns[role].to(keys).at(numbers) if role in columns else np.full(len(numbers), np.nan)


def _share(failures: Numbers, requests: Numbers, is_known: bool) -> Numbers:
    """Return the share of requests that failed, 0 to 1. No failure series means no failures. NaN without requests or a
    result."""
    if not is_known:
        return np.full_like(requests, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        share: Numbers = np.where(requests > 0, np.nan_to_num(failures) / requests, np.nan)
    return share.clip(0, 1)


def _callers_view(destination: IntArray, edges: Numbers, count: int) -> tuple[Numbers, Numbers]:
    """Return ``[N]`` requests that callers send to each service, 1/s, and the share that fails; NaN without callers, or
    without requests."""
    rate, share = edges[:, EdgeMetric.REQUESTS_PER_SECOND], edges[:, EdgeMetric.ERROR_RATE]
    rates, callers = np.bincount(destination, rate, count), np.bincount(destination, minlength=count)
    is_known = ~np.isnan(share)
    measured_rates = np.bincount(destination[is_known], rate[is_known], count)
    failed_rates = np.bincount(destination[is_known], (rate * share)[is_known], count)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(callers > 0, rates, np.nan), np.where(measured_rates > 0, failed_rates / measured_rates, np.nan)
