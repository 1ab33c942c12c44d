"""Build a snapshot from the columns of one instant."""

from collections.abc import Callable, Mapping, Sequence
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
from serve_app.collect.prometheus.frames import Column, Key, KeyIndex
from serve_app.collect.service_labels import NAMELESS

Columns = Mapping[str, Column]  # by role
# Metrics that are the values of one role, unchanged.
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

    A service exists if it reports requests, makes a call or is called; a dead service is visible to its callers only.
    Its error rate is the larger of its own value and its callers' value. Its request rate is its own value, or its
    callers' if it has none.

    Args:
        services: columns by role, with keys (namespace, name); ``requests`` is required.
        calls: columns by role, with keys (namespace, name) of the source, then of the destination. Those with
            ``requests`` are listed.
        external: names of callers that are not services. Their calls are left out; the callee's requests include them.

    Raises:
        InvalidSnapshot: if there is no service.
    """
    index = services["requests"].index  # services that are known from calls only are added
    requested = calls["requests"]
    ends = [requested.index.part(begin, begin + 2, index)[requested.numbers] for begin in (0, 2)]
    inside = np.fromiter((key[1] not in external and key not in NAMELESS for key in index.keys), bool, len(index))
    made = inside[ends[0]]  # by a service
    source, destination = (end[made] for end in ends)
    numbers, rates = requested.numbers[made], requested.values[made]
    exists = np.zeros(len(index), bool)
    for numbers_of_some in (services["requests"].numbers, source, destination):
        exists[numbers_of_some] = True
    present, row_of = np.flatnonzero(exists), np.cumsum(exists) - 1

    def service_values(role: str) -> Numbers:
        return _align(services.get(role), index, present)

    def call_values(role: str) -> Numbers:
        return _align(calls.get(role), requested.index, numbers)

    nodes = np.full((len(present), len(NODE_METRICS)), np.nan)
    edges = np.full((len(numbers), len(EDGE_METRICS)), np.nan)
    edges[:, EdgeMetric.REQUESTS_PER_SECOND] = rates
    edges[:, EdgeMetric.ERROR_RATE] = _share(call_values("failures"), rates, "failures" in calls)
    for call_metric, role in _CALL_ROLES.items():
        edges[:, call_metric] = call_values(role)
    requests = service_values("requests")
    failing = _share(service_values("failures"), requests, "failures" in services)
    called, failed = _callers_view(row_of[destination], edges, len(present))
    nodes[:, NodeMetric.REQUEST_RATE] = np.where(np.isnan(requests), called, requests)
    nodes[:, NodeMetric.ERROR_RATE] = np.fmax(failing, failed)
    for metric, role in _SERVICE_ROLES.items():
        nodes[:, metric] = service_values(role)
    nodes[:, _UTILIZATION] = np.minimum(nodes[:, _UTILIZATION], 1)  # usage can exceed the limit for a moment
    in_use = service_values("connections")
    nodes[:, NodeMetric.ACTIVE_CONNECTIONS] = np.where(np.isnan(in_use), service_values("in_flight"), in_use)
    keys = [index.keys[i] for i in present.tolist()]
    return MeshSnapshot.create(
        node_ids=["/".join(key) for key in keys],
        edge_index=np.stack([row_of[source], row_of[destination]]),
        node_features=_clean(nodes),
        edge_features=_clean_calls(edges),
        observed_at=observed_at,
        changes=changes,
        policies=policies,
        signals=signals(keys) if signals else (),
    )


def _clean(values: Numbers) -> Numbers:
    """Raise negative values to 0; values above ``LARGEST_VALUE`` count as not observed."""
    return np.where(values > LARGEST_VALUE, np.nan, np.maximum(values, 0))


def _clean_calls(edges: Numbers) -> Numbers:
    """The same for calls. Their request rate is always known, so it is at most ``LARGEST_VALUE``."""
    cleaned = _clean(edges)
    cleaned[:, EdgeMetric.REQUESTS_PER_SECOND] = np.clip(edges[:, EdgeMetric.REQUESTS_PER_SECOND], 0, LARGEST_VALUE)
    return cleaned


def _align(column: Column | None, index: KeyIndex, numbers: IntArray) -> Numbers:
    """:meth:`Column.align`; NaN without a column."""
    return np.full(len(numbers), np.nan) if column is None else column.align(index, numbers)


def _share(failures: Numbers, requests: Numbers, is_known: bool) -> Numbers:
    """Share of requests that failed, 0 to 1. No failure series means no failures. NaN without requests or a result."""
    if not is_known:
        return np.full_like(requests, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        share: Numbers = np.where(requests > 0, np.nan_to_num(failures) / requests, np.nan)
    return share.clip(0, 1)


def _callers_view(destination: IntArray, edges: Numbers, count: int) -> tuple[Numbers, Numbers]:
    """``[N]`` requests that callers send to each service, 1/s, and the share that fails; NaN without callers, or
    without requests."""
    rate, share = edges[:, EdgeMetric.REQUESTS_PER_SECOND], edges[:, EdgeMetric.ERROR_RATE]
    sent, callers = np.bincount(destination, rate, count), np.bincount(destination, minlength=count)
    known = ~np.isnan(share)
    measured = np.bincount(destination[known], rate[known], count)
    failed = np.bincount(destination[known], (rate * share)[known], count)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(callers > 0, sent, np.nan), np.where(measured > 0, failed / measured, np.nan)
