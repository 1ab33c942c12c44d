"""Fits the shipped tails to the training meshes' normal traffic."""

from collections.abc import Sequence

import numpy as np

from model.features import Array
from model.scoring.calibration import Tail
from model.snapshot import BoolArray, IntArray
from model.state.change_impact import ABOVE, BEGUN, EXCESS, EXPOSURES, SEEN, no_impact, tally_snapshot
from model.state.filters import TAIL_START, Deviation

MIN_EXCESSES, MIN_OF_MESH = 50, 10  # excesses required for a tail, and from each mesh


class TailCounts:
    """Exceedances of the tail's start in a mesh's normal traffic, by exposure, time scale and channel."""

    def __init__(self, channels: int) -> None:
        self.tally = no_impact(channels)
        self._excesses: dict[tuple[int, ...], list[Array]] = {}

    def add(self, deviation: Deviation, exposure: IntArray, is_settled: BoolArray) -> None:
        """Count a snapshot's settled rows, ``[N]``."""
        for kind in range(EXPOSURES):
            rows = np.flatnonzero(is_settled & (exposure == kind))
            self.tally[:, kind] += tally_snapshot(deviation, rows)
            excess = np.where(deviation.observed[rows], deviation.level[:, rows] - np.float32(TAIL_START), 0)
            for scale, channel in np.argwhere((excess > 0).any(axis=1)).tolist():
                values = excess[scale, :, channel]
                self._excesses.setdefault((kind, scale, channel), []).append(values[values > 0])

    def excess(self, cell: tuple[int, ...]) -> Array:
        """Return the excesses of all snapshots, for an exposure, scale and channel."""
        return np.concatenate([np.zeros(0, np.float32), *self._excesses.get(cell, [])])


def fit_tail(meshes: Sequence[TailCounts]) -> Tail:
    """Fit tails to the exceedances of normal traffic in many meshes.

    The rate is counted over all meshes. The excess is a typical mesh's: the median of the meshes' mean excesses,
    and the shape of excesses relative to their mesh's mean, by probability-weighted moments (Hosking and Wallis 1987).
    The shape is limited to 0 to 0.4: thinner tails than exponential are not plausible, and heavier ones have no usable
    quantiles. Without scaling, pooled excesses would look heavy-tailed, because meshes differ, and would depend on the
    choice of meshes.
    """
    tally = np.sum([mesh.tally for mesh in meshes], axis=0)
    rate = (tally[BEGUN] + 1) / (tally[SEEN] + 100)
    mean, shape = (tally[EXCESS] + 1) / (tally[ABOVE] + 1), np.full(rate.shape, 0.2, np.float32)
    for cell in np.ndindex(*rate.shape):
        samples = [excess for mesh in meshes if len(excess := mesh.excess(cell)) >= MIN_OF_MESH]
        if sum(map(len, samples)) >= MIN_EXCESSES:
            means = [float(excess.mean()) for excess in samples]
            mean[cell] = np.median(means)
            relative = np.concatenate([excess / m for excess, m in zip(samples, means, strict=True)])
            shape[cell] = _pareto_shape(np.sort(relative))
    return Tail(rate.astype(np.float32), mean.astype(np.float32), shape)


def _pareto_shape(x: Array) -> float:
    """Return sorted excesses' generalised Pareto shape, by probability-weighted moments."""
    n = len(x)
    first = float(x.mean())
    second = float((x * (1 - (np.arange(n) + 0.65) / n)).mean())
    return float(np.clip(2 - first / max(first - 2 * second, 1e-9), 0.0, 0.4))
