"""Planned changes near a service, and their usual effect in this mesh.

After a deploy a service is slow for a while in every mesh, but how slow depends on the mesh. So a service near a change
is compared with what services near earlier changes did. Exposed rows are counted separately, for the mesh as a whole,
and the shipped tail of exposed rows moves towards these counts as they grow.
"""

import numpy as np

from model.features import Array, Channel
from model.snapshot import BoolArray, IntArray
from model.state.filters import CENTRE, CLIP, SCALES, SLOW_VARIANCE, TAIL_START, Deviation

# No change nearby; a change of a callee (for a call: of its caller, or of a callee of its callee); a change of the
# service itself (for a call: of its callee).
UNEXPOSED, BESIDE, OWN = range(3)
EXPOSURES = 3
# Slots of an impact: exposed snapshots, spells in the tail, snapshots in such spells, sum of the excess.
SEEN, BEGUN, ABOVE, EXCESS = range(4)
IMPACT_MEMORY = 5000  # exposed snapshots after which old counts fade
# Channels whose usual level no planned change sets: a lasting effect on traffic or errors is a fault, such as a wrong
# route. A new version may be slower permanently, or need more memory.
HARMLESS = float(np.log(1.8))  # logarithm of how many times as slow a new version may be
LASTING = 2.0  # average over 4 snapshots, sigmas, from which a deviation is not chance
KNOWN = 40.0  # snapshots for which a service has to be known; a new one has no level before its change
TIMES = frozenset({"p50_latency", "own_time"})
HELD = TIMES | {"error_rate"}
KEPT = frozenset({"request_rate", "requests_per_second", "weight", "error_rate"})


def no_impact(channels: int) -> Array:
    """Return an empty impact, ``[4, EXPOSURES, SCALES, C]``."""
    return np.zeros((4, EXPOSURES, SCALES, channels), np.float32)


def exposures(is_changed: BoolArray, late: BoolArray, edge_index: IntArray) -> tuple[IntArray, IntArray]:
    """Return the exposure of services ``[N]`` and of calls ``[E]`` to planned changes.

    Args:
        is_changed: ``[N]`` services that are being changed.
        late: ``[N]`` changed services whose neighbours do not show it any more.
    """
    node, edge = np.full(len(is_changed), UNEXPOSED), np.full(edge_index.shape[1], UNEXPOSED)
    if is_changed.any():
        source, destination = edge_index
        early = is_changed & ~late
        edge[early[source]] = BESIDE
        edge[is_changed[destination]] = OWN
        node[source[early[destination]]] = BESIDE
        edge[(node[destination] == BESIDE) & (edge == UNEXPOSED)] = BESIDE
        node[is_changed] = OWN
    return node, edge


def find_worse(deviation: Deviation, channels: tuple[Channel, ...]) -> BoolArray:
    """Return which rows ``[N]`` have become far slower, and stay so."""
    is_time = np.array([channel.name in TIMES for channel in channels])
    slower = deviation.observed & (deviation.value - deviation.expected > HARMLESS)
    return (slower & (deviation.past_short > LASTING) & is_time).any(axis=1)


def settled_series(exposure: IntArray, keeps_level: BoolArray, channels: tuple[Channel, ...]) -> BoolArray:
    """Return the series ``[N, C]`` to which a planned change sets a new usual level when it is over.

    A new version may be somewhat slower permanently. One that has become far slower has not proved itself: its level
    before the change remains the usual one.

    Args:
        exposure: ``[N]`` to the changes that are over with this snapshot.
        keeps_level: ``[N]`` rows that keep their usual level: in an alert, or worse than before.
    """
    settles = np.array([channel.name not in KEPT for channel in channels])
    return ((exposure != UNEXPOSED) & ~keeps_level)[:, None] & settles


def hold_levels(
    before: Array, after: Array, deviation: Deviation, rows: BoolArray, channels: tuple[Channel, ...]
) -> Array:
    """Return the filters ``after`` a snapshot, with the usual times and errors of services that have a new version as
    ``before``.

    Only a gross deviation is held: until the new version has proved itself, it must not become normal by itself.

    Args:
        before, after: ``[13, N, C]``; not changed.
        rows: ``[N]`` with a new version.
    """
    is_held = np.array([channel.name in HELD for channel in channels])
    holds = rows[:, None] & is_held & (np.abs(deviation.now) > CLIP)
    if not holds.any():
        return after
    after = after.copy()
    levels = slice(CENTRE, SLOW_VARIANCE + 1)
    after[levels] = np.where(holds, before[levels], after[levels])
    return after


def update_impact(impact: Array, deviation: Deviation, exposure: IntArray, muted: BoolArray) -> Array:
    """Return the impact ``[4, EXPOSURES, SCALES, C]`` with this snapshot counted.

    Args:
        exposure: ``[N]``; unexposed rows are not counted.
        muted: ``[N]`` rows that are not learned from.
    """
    is_counted = (exposure != UNEXPOSED) & ~muted
    if not is_counted.any():
        return impact
    impact = impact.copy()
    for kind in (BESIDE, OWN):
        rows = np.flatnonzero(is_counted & (exposure == kind))
        if len(rows):
            counts = tally_snapshot(deviation, rows)
            impact[:, kind] += counts - impact[:, kind] * np.minimum(counts[SEEN] / IMPACT_MEMORY, 1)
    return impact


def tally_snapshot(deviation: Deviation, rows: IntArray) -> Array:
    """Return the counts of these rows in one snapshot, ``[4, SCALES, C]``."""
    level, observed = deviation.level[:, rows], deviation.observed[rows]
    above = (level > TAIL_START) & observed
    snapshots = np.broadcast_to(observed.sum(axis=0), above.sum(axis=1).shape)
    excess = np.where(above, level - np.float32(TAIL_START), 0)
    begins = above.copy()
    scale, row, channel = np.nonzero(above)
    begins[above] = deviation.starts_spell(scale, rows[row], channel)
    return np.stack([snapshots, begins.sum(axis=1), above.sum(axis=1), excess.sum(axis=1)]).astype(np.float32)
