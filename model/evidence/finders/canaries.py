"""Canaries that are worse than the version beside them.

A canary has no past to be compared with, but it has a better measure: the same callers call the stable version at the
same time. What harms both, such as a slow database, is not a fault of the canary.
"""

import numpy as np
from numpy.typing import NDArray

from model.evidence.finders.finder import Finding
from model.evidence.kinds import EVENT_SURPRISE, EvidenceKind
from model.evidence.release_versions import find_versions, new_services
from model.evidence.scored_mesh import ScoredMesh
from model.snapshot import EDGE_METRICS, EdgeMetric, IntArray, find_calls, find_rows
from model.state.mesh_state import MeshState

FloatArray = NDArray[np.float64]
LASTS = 8  # snapshots that are compared; a cold start is over sooner
MIN_REQUESTS = 100.0  # of each version in these snapshots
SLOWER = 2.2  # times the median latency of the stable version, in every snapshot
FAILS = 0.05  # share of its requests that fail, beyond the share of the stable version
SIGMAS = 4.0  # of the difference between the two shares, by the number of requests
_REQUESTS, _ERRORS, _P50 = EdgeMetric.REQUESTS_PER_SECOND, EdgeMetric.ERROR_RATE, EdgeMetric.P50_LATENCY


def find_worse_canaries(mesh: ScoredMesh) -> tuple[Finding, ...]:
    """Find canaries that are far slower than the version beside them, and canaries that fail far more often. The calls
    from the callers of both are compared."""
    state = mesh.state
    pairs = _pairs(state)
    if not pairs:
        return ()
    slow, failing = np.zeros((2, len(state.node_ids)), np.float32)
    for canary, stable in pairs:
        rows = _calls_from_common_callers(state, canary, stable)
        if not len(rows[0]):
            continue
        calls = _window(state, rows)
        if np.isnan(calls[..., _REQUESTS]).all(axis=2).any():
            continue  # one of the two was not called in all of these snapshots
        requests = np.nansum(calls[..., _REQUESTS], axis=(0, 2)) * state.interval_seconds
        if (requests < MIN_REQUESTS).any():
            continue
        median = _weighted_mean(calls, _P50, axis=2)
        slow[canary] = EVENT_SURPRISE * bool((median[:, 0] >= SLOWER * median[:, 1]).all())
        failing[canary] = EVENT_SURPRISE * _fails_more(_weighted_mean(calls, _ERRORS, axis=(0, 2)), requests)
    return Finding(EvidenceKind.LATENCY, slow), Finding(EvidenceKind.ERROR, failing)


def _pairs(state: MeshState) -> list[tuple[int, int]]:
    """Return the rows of each new service and its older version, both present."""
    new = new_services(state)
    fresh = np.flatnonzero(new & (state.node_absent == 0))
    if not len(fresh):
        return []
    versions = find_versions(state.node_ids, [state.node_ids[row] for row in fresh.tolist()])
    row = {name: i for i, name in enumerate(state.node_ids)} if versions else {}
    return [
        (row[name], row[other_version])
        for name, other_versions in versions.items()
        for other_version in other_versions
        if not new[row[other_version]] and state.node_absent[row[other_version]] == 0
    ]


def _calls_from_common_callers(state: MeshState, canary: int, stable: int) -> tuple[IntArray, IntArray]:
    """Return the rows of the calls to a canary, and of the calls to the stable version, each in the order of their
    common callers."""
    source, destination = state.edge_index
    calls_by_version = [
        np.flatnonzero((destination == row) & (source != stable) & (source != canary)) for row in (canary, stable)
    ]
    common = np.intersect1d(source[calls_by_version[0]], source[calls_by_version[1]])
    canary_calls, stable_calls = (rows[np.isin(source[rows], common)] for rows in calls_by_version)
    return canary_calls[np.argsort(source[canary_calls])], stable_calls[np.argsort(source[stable_calls])]


def _window(state: MeshState, rows: tuple[IntArray, IntArray]) -> FloatArray:
    """Return the metrics of calls in the last snapshots, ``[LASTS, 2, k, 4]``; not a number where there are none."""
    names = [[(state.node_ids[a], state.node_ids[b]) for a, b in state.edge_index[:, of].T.tolist()] for of in rows]
    metrics = np.full((LASTS, 2, max(map(len, names)), len(EDGE_METRICS)), np.nan, np.float64)
    row: dict[str, int] = {}
    for age, snapshot in enumerate(state.window[-LASTS:]):
        row = find_rows(snapshot.node_ids, {name for of in names for pair in of for name in pair}, row)
        for version, of in enumerate(names):
            at = find_calls(snapshot, of, row)
            there, at = np.flatnonzero(at >= 0), at[at >= 0]
            metrics[age, version, there] = np.where(snapshot.edge_observed[at], snapshot.edge_features[at], np.nan)
    return metrics


def _weighted_mean(calls: FloatArray, metric: int, axis: int | tuple[int, int]) -> FloatArray:
    """Return the mean of a metric over the callers that report it of both versions, weighted by requests; not a number
    where none does.
    """
    is_known = np.isfinite(calls[..., metric]) & np.isfinite(calls[..., _REQUESTS])
    is_known &= is_known.all(axis=1, keepdims=True)
    weight = np.where(is_known, calls[..., _REQUESTS], 0)
    total = (weight * np.where(is_known, calls[..., metric], 0)).sum(axis=axis)
    weights = weight.sum(axis=axis)
    return np.where(weights > 0, total / np.maximum(weights, 1e-9), np.nan)


def _fails_more(share: FloatArray, requests: FloatArray) -> bool:
    """Return whether the first of two versions fails more often, by their shares and numbers of requests, ``[2]``."""
    if np.isnan(share).any():
        return False
    common_share = float((share * requests).sum() / requests.sum())
    spread = np.sqrt(max(common_share * (1 - common_share), 1e-6) * (1 / requests).sum())
    return bool(share[0] - share[1] >= max(FAILS, SIGMAS * spread))
