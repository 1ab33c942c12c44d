"""CPU far beyond everything in the window, although there are not more requests.

The cause may be a busy neighbour on the same host, a hot loop, or a lower limit. CPU varies by hours and with
load, so its tail is heavy, and even twice the usual CPU is hardly improbable. The window shows more: the service never
needed as much, in total or for each request, and now it does for minutes.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from model.features import CPU, NODE_CHANNELS, RATE, Array
from model.snapshot import NODE_METRICS, BoolArray, MeshSnapshot, find_rows
from model.state.mesh_state import MeshState, Observation

LATELY, MOSTLY = 8, 6  # snapshots that are compared with the older ones, and how many of them have to be above
BEFORE = 40  # older measured snapshots
OUTLIERS = 2  # older snapshots that may be higher
ABOVE, TIMES = 0.15, 1.3  # of the utilization: by how much, and how many times, the older ones are exceeded
TIMES_PER_REQUEST = 1.1  # the same of CPU for each request
NEARLY = 0.03  # above the expected utilization, from which a service is examined
MAX = 32  # services examined, those that rose most first
WINDOW = 120  # snapshots
AT_ONCE = LATELY + 8  # snapshots that are looked at first
RELIEVING = frozenset({"scale_out"})  # planned changes after which a service does not need more CPU


def busy_cpu(state: MeshState, observation: Observation) -> Array:
    """Return which services ``[N]`` need far more CPU than ever in the window, as 1 and 0."""
    node, offset = observation.node, np.float32(NODE_CHANNELS[CPU].offset)
    busy = np.zeros(len(state.node_ids), np.float32)
    value, expected = (np.exp(v[:, CPU]) - offset for v in (node.value, node.expected))
    rows = np.flatnonzero(node.observed[:, CPU] & (value > expected + NEARLY) & (value > ABOVE))
    if not len(rows) or len(state.window) < LATELY + BEFORE:
        return busy
    rows = rows[np.argsort(expected[rows] - value[rows], kind="stable")][:MAX]
    # A service that is not above the last few minutes is not above the whole window, which takes longer to read.
    for snapshots in (AT_ONCE, WINDOW):
        used = _used_cpu(state.window[-snapshots:], {state.node_ids[row]: row for row in rows.tolist()})
        is_above = _is_above(used[:LATELY], used[LATELY:])
        if not is_above.any():
            return busy
        rows, used = rows[is_above], used[:, is_above]
    busy[rows] = np.isfinite(used[LATELY:, :, 0]).sum(axis=0) >= BEFORE
    return busy


def _is_above(lately: Array, before: Array) -> BoolArray:
    """Return which of k services, now and mostly, need more CPU than before; arguments as of :func:`_used_cpu`."""
    total, per_request = np.moveaxis(_highest(before), -1, 0)
    is_above = lately[..., 0] > np.maximum(total + ABOVE, total * TIMES)
    is_above &= lately[..., 1] > per_request * TIMES_PER_REQUEST
    return is_above[0] & (is_above.sum(axis=0) >= MOSTLY)


def _used_cpu(window: Sequence[MeshSnapshot], row: Mapping[str, int]) -> Array:
    """Return CPU utilization, and CPU for each request, of k services, ``[len(window), k, 2]``, newest first; not a
    number where they are not known. Nothing is known about the time before a planned change.
    """
    names = tuple(row)
    metrics = np.zeros((len(window), len(names), len(NODE_METRICS)), np.float32)
    measured = np.zeros(metrics.shape, bool)
    has_changed = np.zeros((len(window), len(names)), bool)
    there = at = np.zeros(0, np.int64)
    of: tuple[str, ...] | None = None  # whose rows `at` has; most snapshots share their names
    for age, snapshot in enumerate(reversed(window)):
        if snapshot.node_ids is not of:
            of, row = snapshot.node_ids, find_rows(snapshot.node_ids, names, row)
            at = np.array([row.get(name, -1) for name in names], np.int64)
            there, at = np.flatnonzero(at >= 0), at[at >= 0]
        metrics[age, there], measured[age, there] = snapshot.node_features[at], snapshot.node_observed[at]
        services = {change.service for change in snapshot.changes if change.kind not in RELIEVING}
        if services:
            has_changed[age:, [name in services for name in names]] = True
    requests, cpu = metrics[..., RATE], metrics[..., CPU]
    is_known = measured[..., RATE] & measured[..., CPU] & ~has_changed
    used = np.stack([cpu, cpu / np.maximum(requests, np.float32(0.05))], axis=-1)
    return np.where(is_known[..., None], used, np.float32(np.nan))


def _highest(used: Array) -> Array:
    """Return the highest values over time, without ``OUTLIERS``: ``[k, 2]`` of ``[T, k, 2]``."""
    finite = np.where(np.isfinite(used), used, np.float32(0))
    return np.partition(finite, -1 - OUTLIERS, axis=0)[-1 - OUTLIERS]
