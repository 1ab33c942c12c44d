"""From columns to a snapshot: who is there, who calls whom, and what is not known of them."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import numpy as np

from model.snapshot import EDGE_METRICS, NODE_METRICS, IntArray, MeshSnapshot, PlannedChange, ServicePolicy
from serve_app.sources.prometheus.table import Column, Key, Numbers

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
    made = _made(calls["requests"], external)
    row_of = _rows([services["requests"].keys, [key[2:] for key in made.keys], [key[:2] for key in made.keys]])
    source, destination = (
        np.fromiter((row_of[key[side]] for key in made.keys), np.int64, len(made.keys))
        for side in (slice(0, 2), slice(2, 4))
    )
    nodes = np.full((len(row_of), len(NODE_METRICS)), np.nan)
    edges = np.full((len(made.keys), len(EDGE_METRICS)), np.nan)
    edges[:, 0] = made.values
    edges[:, 1] = _share(_laid(calls.get("failures"), _index(made.keys)), made.values, "failures" in calls)
    for metric, role in ((2, "p50"), (3, "p99")):
        edges[:, metric] = _laid(calls.get(role), _index(made.keys))
    requests = _laid(services["requests"], row_of)
    failing = _share(_laid(services.get("failures"), row_of), requests, "failures" in services)
    called, failed = _seen_by_callers(destination, edges, len(row_of))
    nodes[:, 0] = np.where(np.isnan(requests), called, requests)
    nodes[:, 1] = np.fmax(failing, failed)
    for metric, role in ((2, "p50"), (3, "p99"), (4, "cpu"), (5, "memory")):
        nodes[:, metric] = _laid(services.get(role), row_of)
    nodes[:, 4:6] = np.minimum(nodes[:, 4:6], 1)  # above its limit for a moment is at its limit
    in_use = _laid(services.get("connections"), row_of)
    nodes[:, 6] = np.where(np.isnan(in_use), _laid(services.get("in_flight"), row_of), in_use)
    return MeshSnapshot.create(
        node_ids=["/".join(key) for key in row_of],
        edge_index=np.stack([source, destination]),
        node_features=np.maximum(nodes, 0),
        edge_features=np.maximum(edges, 0),
        observed_at=observed_at,
        changes=changes,
        policies=policies,
    )


def _made(requests: Column, external: frozenset[str]) -> Column:
    """Calls with traffic, from services."""
    kept = [
        i
        for i, (key, rate) in enumerate(zip(requests.keys, requests.values.tolist(), strict=True))
        if rate > 0 and key[1] not in external
    ]
    return Column(tuple(requests.keys[i] for i in kept), requests.values[kept])


def _rows(keys: Sequence[Sequence[Key]]) -> dict[Key, int]:
    found: dict[Key, int] = {}
    for some in keys:
        for key in some:
            found.setdefault(key, len(found))
    return found


def _index(keys: Sequence[Key]) -> dict[Key, int]:
    return {key: i for i, key in enumerate(keys)}


def _laid(column: Column | None, row_of: Mapping[Key, int]) -> Numbers:
    """``[R]`` values on rows; NaN where there is none. Keys without a row are left out."""
    laid = np.full(len(row_of), np.nan)
    if column is None:
        return laid
    rows: IntArray = np.fromiter((row_of.get(key, -1) for key in column.keys), np.int64, len(column.keys))
    laid[rows[rows >= 0]] = column.values[rows >= 0]
    return laid


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
