"""From deviations to improbabilities.

There are two steps. The network's expectation takes away the share of a deviation that the neighbours explain. The rest
is compared with the tail of the series' own past: above ``TAIL_START`` a generalised Pareto distribution (Pickands
1975; Siffer et al., KDD 2017). Its shape ships with the weights per channel. Its rate and scale move from the shipped
values to the series' own as history grows. The result is *surprise*, ``-log10 p``: 3 is one in a thousand, for any
series.
"""

from dataclasses import dataclass

import numpy as np

from kernels import passes
from model.features import Array
from model.snapshot import IntArray
from model.state.change_impact import (
    ABOVE,
    BEGUN,
    BESIDE,
    EXCESS,
    OWN,
    SEEN,
    UNEXPOSED,
)
from model.state.filters import TAIL_MEMORY, TAIL_START, Deviation

RATE_WEIGHT = 1000.0  # weight of the shipped exceedance rate, snapshots
SCALE_WEIGHT = 60.0  # weight of the shipped mean excess, exceedances
EXPLAINED_AT_MOST = 0.7  # a wrong expectation must not hide a gross deviation
SURPRISE_LIMIT = 15.0
_CONSTANTS = np.array(  # of the compiled pass, in the order of TailConstants in kernels/csrc/passes.h
    [TAIL_START, TAIL_MEMORY, RATE_WEIGHT, SCALE_WEIGHT, EXPLAINED_AT_MOST, SURPRISE_LIMIT], np.float32
)


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


@dataclass(frozen=True, slots=True)
class SeriesTail:
    """Tails of N x C series at each time scale: the shipped one, moved towards the series' own past or, near changes,
    towards earlier changes.

    Attributes:
        exposure: ``[N]``; near a planned change a series' own past does not apply.
        impact: ``[4, EXPOSURES, SCALES, C]``, what planned changes did in this mesh.
    """

    shipped: Tail
    past: Deviation
    exposure: IntArray
    impact: Array

    def calibrate(self, prediction: Array) -> tuple[Array, Array, Array]:
        """Return the surprise of what neighbours do not explain, the surprise of the whole deviation, and the expected
        value in transformed units, ``[N, C]`` each.

        Args:
            prediction: ``[N, C]`` deviations that the neighbours predict, sigmas.
        """
        past, shipped = self.past, self.shipped
        if passes.are_compiled():
            tails = shipped.rate, shipped.mean_excess, shipped.shape, self.impact, self.exposure
            levels = past.level, past.exceed_count, past.exceed_sum, past.now, prediction
            return passes.calibrate(_CONSTANTS, *tails, *levels, past.expected, past.spread, past.seen, past.observed)
        share = explained_share(past.now, prediction)
        expected = past.expected + share * past.now * past.spread
        return self.surprise(past.level * (1 - share)), self.surprise(past.level), expected

    def surprise(self, level: Array) -> Array:
        """Return the surprise ``-log10 p`` of levels ``[SCALES, N, C]``, from 0 to 15: ``[N, C]``.

        It is the strongest time scale's surprise, corrected for the number of scales (Bonferroni). Series without a
        measurement have surprise 0. Below the start of the tail, surprise rises linearly from 0 to the surprise of the
        start: ranks in the body carry little information, and only the tail decides.
        """
        observed = self.past.observed
        surprise: Array = (level * np.float32(1 / TAIL_START)).clip(0, 1) * self._start()
        surprise *= observed
        # Logarithms are slow, and few levels are in the tail.
        far = np.unravel_index(np.flatnonzero((level > TAIL_START) & observed), level.shape)
        surprise[far] += self._beyond(level[far] - np.float32(TAIL_START), *far)
        strongest: Array = surprise.max(axis=0) - np.float32(np.log10(len(surprise)))
        return strongest.clip(0, SURPRISE_LIMIT)

    def _start(self) -> Array:
        """Return the surprise of a level at ``TAIL_START``, ``[SCALES, N, C]``."""
        snapshots = np.minimum(self.past.seen, TAIL_MEMORY)
        shipped_count = self.shipped.rate * np.float32(RATE_WEIGHT)
        rate = (shipped_count[UNEXPOSED][:, None] + self.past.exceed_count) / (snapshots + np.float32(RATE_WEIGHT))
        amid = (self.impact[BEGUN] + shipped_count) / (self.impact[SEEN] + RATE_WEIGHT)
        for kind in (BESIDE, OWN):
            rate[:, self.exposure == kind] = amid[kind][:, None]
        return -np.log10(np.minimum(rate, np.float32(0.5)))

    def _beyond(self, over: Array, scale: IntArray, row: IntArray, channel: IntArray) -> Array:
        """Return the additional surprise ``[F]`` of F levels that exceed the start of their tails by ``over``."""
        kind = self.exposure[row]
        index = kind, scale, channel
        calm = kind == UNEXPOSED
        count, total = (
            np.where(calm, own[scale, row, channel], amid[index])
            for own, amid in (
                (self.past.exceed_count, self.impact[ABOVE]),
                (self.past.exceed_sum, self.impact[EXCESS]),
            )
        )
        excess = (total + self.shipped.mean_excess[index] * SCALE_WEIGHT) / (count + SCALE_WEIGHT)
        shape = np.maximum(self.shipped.shape[index], 1e-3)
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
