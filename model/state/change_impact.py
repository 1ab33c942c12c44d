"""Planned changes near a service, and what they do in this mesh.

A deploy makes its service slow for a while wherever people deploy; how slow is a matter of the mesh. What a service
shows near a change is therefore compared with what services showed near changes before: exposed rows are counted apart,
for the mesh as a whole, and the shipped tail of exposed rows leans to these counts as they grow.
"""

import numpy as np

from model.features import Array
from model.snapshot import BoolArray, IntArray
from model.state.filters import SCALES, TAIL_START, Deviation

UNEXPOSED, BESIDE, OWN = range(3)  # no change near; one of a callee (for a call: of its caller); of itself (its callee)
EXPOSURES = 3
SEEN, BEGUN, ABOVE, EXCESS = range(4)  # slots of an impact: exposed snapshots, spells, snapshots in them, sum of excess
IMPACT_MEMORY = 5000  # exposed snapshots over which an impact is counted


def no_impact(channels: int) -> Array:
    """``[4, EXPOSURES, SCALES, C]``: of a mesh in which nothing was counted yet."""
    return np.zeros((4, EXPOSURES, SCALES, channels), np.float32)


def exposures(changed: BoolArray, edge_index: IntArray) -> tuple[IntArray, IntArray]:
    """Exposure of services ``[N]`` and of calls ``[E]`` when these services ``[N]`` are being changed."""
    node, edge = np.full(len(changed), UNEXPOSED), np.full(edge_index.shape[1], UNEXPOSED)
    if changed.any():
        source, destination = edge_index
        edge[changed[source]] = BESIDE
        edge[changed[destination]] = OWN
        node[source[edge == OWN]] = BESIDE
        node[changed] = OWN
    return node, edge


def impact_after(impact: Array, deviation: Deviation, exposure: IntArray, muted: BoolArray) -> Array:
    """The impact ``[4, EXPOSURES, SCALES, C]`` with this snapshot counted.

    Args:
        impact: before; not changed.
        deviation: of N rows.
        exposure: ``[N]``; what is not exposed is not counted.
        muted: ``[N]`` rows that teach nothing.
    """
    counted = (exposure != UNEXPOSED) & ~muted
    if not counted.any():
        return impact
    impact = impact.copy()
    for kind in (BESIDE, OWN):
        rows = np.flatnonzero(counted & (exposure == kind))
        if len(rows):
            found = tallied(deviation, rows)
            impact[:, kind] += found - impact[:, kind] * np.minimum(found[SEEN] / IMPACT_MEMORY, 1)
    return impact


def tallied(deviation: Deviation, rows: IntArray) -> Array:
    """``[4, SCALES, C]``: one snapshot of these rows, summed."""
    level, observed = deviation.level[:, rows], deviation.observed[rows]
    above = (level > TAIL_START) & observed
    seen = np.broadcast_to(observed.sum(axis=0), above.sum(axis=1).shape)
    excess = np.where(above, level - np.float32(TAIL_START), 0)
    begun = above.copy()
    scale, row, channel = np.nonzero(above)
    begun[above] = deviation.begun(scale, rows[row], channel)
    return np.stack([seen, begun.sum(axis=1), above.sum(axis=1), excess.sum(axis=1)]).astype(np.float32)
