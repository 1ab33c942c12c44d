"""From columns to a snapshot: who is there, who calls whom, and what is not known of them."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import numpy as np

from model.snapshot import (
    EDGE_METRICS,
    LARGEST_VALUE,
    NODE_METRICS,
    IntArray,
    MeshSnapshot,
    PlannedChange,
    ServicePolicy,
)
from serve_app.collect.prometheus.client import Numbers
from serve_app.collect.prometheus.frames import Column, Keys

Columns = Mapping[str, Column]  # by role


def assemble(
    services: Columns,
    calls: Columns,
    observed_at: datetime,
    *,
    external: frozenset[str] = frozenset(),
    changes: Sequence[PlannedChange] = (),
    policies: Sequence[ServicePolicy] = (),
) -> MeshSnapshot:
    """One snapshot.

    A service is there if it measured requests, calls or is called: a dead one is seen by its callers alone. Its error
    rate is the larger of its own view and its callers'; its traffic its own view, or theirs where it has none. A call
    without traffic is no call.

    Args:
        services: columns by role, keys (namespace, name); ``requests`` among them.
        calls: likewise, keys (namespace, name) of the source, then of the destination.
        observed_at: the instant.
        external: names of callers that are no services: their traffic is known from whom they call.
        changes: planned changes announced since the snapshot before.
        policies: of services' pages.

    Raises:
        InvalidSnapshot: nobody is there.
    """
    named = services["requests"].of  # all services by number; who is known from calls alone is added
    requested = calls["requests"]
    ends = [requested.of.part(begin, begin + 2, named)[requested.numbers] for begin in (0, 2)]
    inside = np.fromiter((key[1] not in external for key in named.seen), bool, len(named))
    made = (requested.values > 0) & inside[ends[0]]  # by a service, and with traffic
    source, destination = (end[made] for end in ends)
    numbers, rates = requested.numbers[made], requested.values[made]
    there = np.zeros(len(named), bool)
    for some in (services["requests"].numbers, source, destination):
        there[some] = True
    present, row_of = np.flatnonzero(there), np.cumsum(there) - 1

    def of_services(role: str) -> Numbers:
        return _laid(services.get(role), named, present)

    def of_calls(role: str) -> Numbers:
        return _laid(calls.get(role), requested.of, numbers)

    nodes = np.full((len(present), len(NODE_METRICS)), np.nan)
    edges = np.full((len(numbers), len(EDGE_METRICS)), np.nan)
    edges[:, 0] = rates
    edges[:, 1] = _share(of_calls("failures"), rates, "failures" in calls)
    for metric, role in ((2, "p50"), (3, "p99")):
        edges[:, metric] = of_calls(role)
    requests = of_services("requests")
    failing = _share(of_services("failures"), requests, "failures" in services)
    called, failed = _seen_by_callers(row_of[destination], edges, len(present))
    nodes[:, 0] = np.where(np.isnan(requests), called, requests)
    nodes[:, 1] = np.fmax(failing, failed)
    for metric, role in ((2, "p50"), (3, "p99"), (4, "cpu"), (5, "memory")):
        nodes[:, metric] = of_services(role)
    nodes[:, 4:6] = np.minimum(nodes[:, 4:6], 1)  # above its limit for a moment is at its limit
    in_use = of_services("connections")
    nodes[:, 6] = np.where(np.isnan(in_use), of_services("in_flight"), in_use)
    return MeshSnapshot.create(
        node_ids=["/".join(named.seen[i]) for i in present.tolist()],
        edge_index=np.stack([row_of[source], row_of[destination]]),
        node_features=_possible(nodes),
        edge_features=np.where(np.arange(len(EDGE_METRICS)) == 0, np.clip(edges, 0, LARGEST_VALUE), _possible(edges)),
        observed_at=observed_at,
        changes=changes,
        policies=policies,
    )


def _possible(values: Numbers) -> Numbers:
    """Nothing below 0; what is beyond all measure counts as not observed."""
    return np.where(values > LARGEST_VALUE, np.nan, np.maximum(values, 0))


def _laid(column: Column | None, on: Keys, numbers: IntArray) -> Numbers:
    """``[len(numbers)]`` values on rows of these keys; NaN where there is none."""
    return np.full(len(numbers), np.nan) if column is None else column.laid(on, numbers)


def _share(failures: Numbers, requests: Numbers, asked: bool) -> Numbers:
    """Failures of requests, 0 to 1: where no failure has a series none failed; NaN without requests or an answer."""
    if not asked:
        return np.full_like(requests, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        share: Numbers = np.where(requests > 0, np.nan_to_num(failures) / requests, np.nan)
    return share.clip(0, 1)


def _seen_by_callers(destination: IntArray, edges: Numbers, count: int) -> tuple[Numbers, Numbers]:
    """``[N]`` requests that callers send to each service, 1/s, and the share that fails; NaN where nobody calls."""
    rate, share = edges[:, 0], edges[:, 1]
    sent = np.bincount(destination, rate, count)
    known = ~np.isnan(share)
    measured = np.bincount(destination[known], rate[known], count)
    failed = np.bincount(destination[known], (rate * share)[known], count)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(sent > 0, sent, np.nan), np.where(measured > 0, failed / measured, np.nan)
