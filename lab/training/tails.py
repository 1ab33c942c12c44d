"""Shipped tails, fitted to the normal traffic of the training meshes."""

from collections.abc import Sequence

import numpy as np

from model.features import Array
from model.scoring.calibration import Tail
from model.snapshot import BoolArray, IntArray
from model.state.change_impact import ABOVE, BEGUN, EXCESS, EXPOSURES, SEEN, no_impact, tally_snapshot
from model.state.filters import TAIL_START, Deviation

MIN_EXCESSES, MIN_OF_MESH = 50, 10  # excesses needed to fit a tail, and needed from each mesh


class TailCounts:
    """Exceedances of the start of the tail in the normal traffic of one mesh, by exposure, time scale and channel."""

    def __init__(self, channels: int) -> None:
        self.tally = no_impact(channels)
        self._excesses: dict[tuple[int, ...], list[Array]] = {}

    def add(self, deviation: Deviation, exposure: IntArray, settled: BoolArray) -> None:
        """Count one snapshot, for the rows that are ``settled`` ``[N]``."""
        for kind in range(EXPOSURES):
            rows = np.flatnonzero(settled & (exposure == kind))
            self.tally[:, kind] += tally_snapshot(deviation, rows)
            excess = np.where(deviation.observed[rows], deviation.level[:, rows] - np.float32(TAIL_START), 0)
            for scale, channel in np.argwhere((excess > 0).any(axis=1)).tolist():
                found = excess[scale, :, channel]
                self._excesses.setdefault((kind, scale, channel), []).append(found[found > 0])

    def excess(self, which: tuple[int, ...]) -> Array:
        """Return the excesses of all snapshots, for an exposure, scale and channel."""
        return np.concatenate([np.zeros(0, np.float32), *self._excesses.get(which, [])])


def fit_tail(meshes: Sequence[TailCounts]) -> Tail:
    """Fit tails to the exceedances of normal traffic in many meshes.

    The rate is counted over all meshes. The excess comes from a typical mesh: the median of the meshes' mean
    excesses, and the shape of excesses relative to their mesh's mean, by probability-weighted moments (Hosking and
    Wallis 1987). The shape is kept between 0 and 0.4: thinner tails than exponential are not plausible, and heavier
    ones have no usable quantiles. Pooling all excesses without scaling would look heavy-tailed because meshes
    differ, and would depend on the choice of meshes.
    """
    tally = np.sum([mesh.tally for mesh in meshes], axis=0)
    rate = (tally[BEGUN] + 1) / (tally[SEEN] + 100)
    mean, shape = (tally[EXCESS] + 1) / (tally[ABOVE] + 1), np.full(rate.shape, 0.2, np.float32)
    for which in np.ndindex(*rate.shape):
        found = [excess for mesh in meshes if len(excess := mesh.excess(which)) >= MIN_OF_MESH]
        if sum(map(len, found)) >= MIN_EXCESSES:
            means = [float(excess.mean()) for excess in found]
            mean[which] = np.median(means)
            scaled = np.concatenate([excess / m for excess, m in zip(found, means, strict=True)])
            shape[which] = _pareto_shape(np.sort(scaled))
    return Tail(rate.astype(np.float32), mean.astype(np.float32), shape)


def _pareto_shape(x: Array) -> float:
    """Return the generalised Pareto shape of sorted excesses, by probability-weighted moments."""
    n = len(x)
    first = float(x.mean())
    second = float((x * (1 - (np.arange(n) + 0.65) / n)).mean())
    return float(np.clip(2 - first / max(first - 2 * second, 1e-9), 0.0, 0.4))
