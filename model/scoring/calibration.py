"""From deviations to improbabilities.

There are two steps. The network's expectation takes away the share of a deviation that the neighbours explain. The rest
is compared with the tail of the series' own past: above ``TAIL_START`` a generalised Pareto distribution (Pickands
1975; Siffer et al., KDD 2017). Its shape ships with the weights per channel. Its rate and scale move from the shipped
values to the series' own as history grows. The result is *surprise*, ``-log10 p``: 3 is one in a thousand, for any
series.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernels import passes
from model.features import Array
from model.snapshot import BoolArray, IntArray
from model.state.change_impact import (
    ABOVE,
    BEGUN,
    BESIDE,
    EXCESS,
    EXPOSURES,
    OWN,
    SEEN,
    UNEXPOSED,
    no_impact,
    tally_snapshot,
)
from model.state.filters import TAIL_MEMORY, TAIL_START, Deviation

RATE_WEIGHT = 1000.0  # weight of the shipped rate of exceedances, snapshots
SCALE_WEIGHT = 60.0  # weight of the shipped mean excess, exceedances
EXPLAINED_AT_MOST = 0.7  # a wrong expectation must not hide a gross deviation
SURPRISE_LIMIT = 15.0
_CONSTANTS = np.array(  # of the compiled pass, in the order of TailConstants in kernels/csrc/passes.h
    [TAIL_START, TAIL_MEMORY, RATE_WEIGHT, SCALE_WEIGHT, EXPLAINED_AT_MOST, SURPRISE_LIMIT], np.float32
)
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
            excess = np.where(deviation.observed[rows], deviation.excess[:, rows], 0)
            for scale, channel in np.argwhere((excess > 0).any(axis=1)).tolist():
                found = excess[scale, :, channel]
                self._excesses.setdefault((kind, scale, channel), []).append(found[found > 0])

    def excess(self, which: tuple[int, ...]) -> Array:
        """Return the excesses of all snapshots, for an exposure, scale and channel."""
        return np.concatenate([np.zeros(0, np.float32), *self._excesses.get(which, [])])


@dataclass(frozen=True, slots=True)
class Tail:
    """Shipped tails ``[EXPOSURES, SCALES, C]``.

    Attributes:
        rate: share of snapshots in which a spell above ``TAIL_START`` begins.
        mean_excess: mean excess in such a spell, sigmas.
    """

    rate: Array
    mean_excess: Array
    shape: Array

    @classmethod
    def of_meshes(cls, meshes: "Sequence[TailCounts]") -> "Tail":
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
        return cls(rate.astype(np.float32), mean.astype(np.float32), shape)

    def of(self, past: Deviation, exposure: IntArray, impact: Array) -> "SeriesTail":
        """Return the tail of each series: the shipped one, moved towards the series' own past or, near changes, towards
        earlier changes.

        Args:
            exposure: ``[N]``; near a planned change a series' own past does not apply.
            impact: ``[4, EXPOSURES, SCALES, C]``, what planned changes did in this mesh.
        """
        return SeriesTail(self, past, exposure, impact)


@dataclass(frozen=True, slots=True)
class SeriesTail:
    """Tails of N x C series at each time scale.

    Attributes:
        shipped, past, exposure, impact: as in :meth:`Tail.of`.
    """

    shipped: Tail
    past: Deviation
    exposure: IntArray
    impact: Array

    def calibrate(self, predicted: Array) -> tuple[Array, Array, Array]:
        """Return the surprise of what neighbours do not explain, the surprise of the whole deviation, and the expected
        value in transformed units, ``[N, C]`` each.

        Args:
            predicted: ``[N, C]`` deviations that the neighbours predict, sigmas.
        """
        past, shipped = self.past, self.shipped
        if passes.are_compiled():
            return passes.calibrate(
                _CONSTANTS,
                shipped.rate,
                shipped.mean_excess,
                shipped.shape,
                self.impact,
                self.exposure,
                past.level,
                past.exceed_count,
                past.exceed_sum,
                past.now,
                predicted,
                past.expected,
                past.spread,
                past.seen,
                past.observed,
            )
        share, start = explained_share(past.now, predicted), self._start()
        expected = past.expected + share * past.now * past.spread
        return self._surprise(past.level * (1 - share), start), self._surprise(past.level, start), expected

    def surprise(self, level: Array) -> Array:
        """Return the surprise ``-log10 p`` of levels ``[SCALES, N, C]``, from 0 to 15: ``[N, C]``.

        It is the strongest time scale's surprise, less ``log10`` of the number of scales (Bonferroni). Series without a
        measurement have surprise 0. Below the start of the tail, surprise rises linearly from 0 to the surprise of the
        start: ranks in the body carry little information, and only the tail decides.
        """
        return self._surprise(level, self._start())

    def _start(self) -> Array:
        """Return the surprise of a level at ``TAIL_START``, ``[SCALES, N, C]``."""
        seen = np.minimum(self.past.seen, TAIL_MEMORY)
        weighted = self.shipped.rate * np.float32(RATE_WEIGHT)
        rate = (weighted[UNEXPOSED][:, None] + self.past.exceed_count) / (seen + np.float32(RATE_WEIGHT))
        amid = (self.impact[BEGUN] + weighted) / (self.impact[SEEN] + RATE_WEIGHT)
        for kind in (BESIDE, OWN):
            rate[:, self.exposure == kind] = amid[kind][:, None]
        return -np.log10(np.minimum(rate, np.float32(0.5)))

    def _surprise(self, level: Array, start: Array) -> Array:
        observed = self.past.observed
        surprise: Array = (level * np.float32(1 / TAIL_START)).clip(0, 1) * start
        surprise *= observed
        # Logarithms are slow, and few levels are in the tail.
        far = np.unravel_index(np.flatnonzero((level > TAIL_START) & observed), level.shape)
        surprise[far] += self._beyond(level[far] - np.float32(TAIL_START), *far)
        strongest: Array = surprise.max(axis=0) - np.float32(np.log10(len(surprise)))
        return strongest.clip(0, SURPRISE_LIMIT)

    def _beyond(self, over: Array, scale: IntArray, row: IntArray, channel: IntArray) -> Array:
        """Return the additional surprise ``[F]`` of F levels that exceed the start of their tails by ``over``."""
        kind = self.exposure[row]
        which = kind, scale, channel
        calm = kind == UNEXPOSED
        count, total = (
            np.where(calm, own[scale, row, channel], amid[which])
            for own, amid in (
                (self.past.exceed_count, self.impact[ABOVE]),
                (self.past.exceed_sum, self.impact[EXCESS]),
            )
        )
        excess = (total + self.shipped.mean_excess[which] * SCALE_WEIGHT) / (count + SCALE_WEIGHT)
        shape = np.maximum(self.shipped.shape[which], 1e-3)
        return np.log10(1 + shape * over / (excess * (1 - shape))) / shape


def explained_share(deviation: Array, expected: Array) -> Array:
    """Return the share of each deviation that its expectation explains, 0 to 0.7: the projection of the expectation on
    it.

    Args:
        deviation, expected: ``[N, C]`` sigmas. Deviations of about one sigma are noise, so nothing of them is
            explained.
    """
    share = deviation * expected / (deviation * deviation + 1)
    return np.clip(share, 0, EXPLAINED_AT_MOST).astype(np.float32)


def _pareto_shape(x: Array) -> float:
    """Return the generalised Pareto shape of sorted excesses, by probability-weighted moments."""
    n = len(x)
    first = float(x.mean())
    second = float((x * (1 - (np.arange(n) + 0.65) / n)).mean())
    return float(np.clip(2 - first / max(first - 2 * second, 1e-9), 0.0, 0.4))
