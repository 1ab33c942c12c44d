"""How well the values of calm snapshots are expected, as negative log-likelihoods. Lower is better."""

from dataclasses import dataclass
from math import lgamma, log, pi

import numpy as np
from numpy.typing import NDArray

from lab.training.dataset import SETTLE
from model.features import Array
from model.scoring.calibration import RATE_WEIGHT, SCALE_WEIGHT, Tail
from model.snapshot import IntArray
from model.state.change_impact import UNEXPOSED
from model.state.filters import EXCESS_LIMIT, TAIL_MEMORY, Deviation

FREEDOM = 4.0  # degrees, of Student's t
_CONSTANT = lgamma(FREEDOM / 2) - lgamma((FREEDOM + 1) / 2) + 0.5 * log(FREEDOM * pi)


@dataclass(frozen=True, slots=True)
class Likelihood:
    """A sum of negative log-likelihoods, nats, and the number of values in it."""

    total: float = 0.0
    values: int = 0

    def __add__(self, other: "Likelihood") -> "Likelihood":
        return Likelihood(self.total + other.total, self.values + other.values)

    @property
    def mean(self) -> float:
        """Nats per value."""
        return self.total / max(self.values, 1)


def of_values(deviation: Deviation, predicted: Array) -> Likelihood:
    """Return the likelihood of the measured values, under Student's t around what is expected of them.

    Args:
        deviation: of N rows; its ``expected`` and ``spread`` are centre and scale.
        predicted: ``[N, C]`` deviations that the network expects, sigmas.
    """
    known = deviation.observed & (deviation.seen > SETTLE)
    z = (deviation.value - deviation.expected)[known] / deviation.spread[known] - predicted[known]
    each = (
        _CONSTANT + np.log(deviation.spread[known]) + (FREEDOM + 1) / 2 * np.log1p(z.astype(np.float64) ** 2 / FREEDOM)
    )
    return Likelihood(float(each.sum()), len(each))


def of_tails(tail: Tail, deviation: Deviation, exposure: IntArray) -> Likelihood:
    """Return the likelihood of the beginnings and sizes of spells in the tails: a Bernoulli and a generalised Pareto
    distribution, at each time scale. Rows near planned changes are left out.

    Args:
        tail: of the checkpoint, moved towards the past of each series as in :mod:`model.scoring.calibration`.
        deviation: of N rows.
        exposure: ``[N]`` to planned changes.
    """
    known = deviation.observed & (deviation.seen > SETTLE) & (exposure == UNEXPOSED)[:, None]
    above = deviation.above & known
    scale, row, channel = np.nonzero(above)
    begun = deviation.starts_spell(scale, row, channel)
    scale, row, channel = scale[begun], row[begun], channel[begun]
    seen = np.minimum(deviation.seen, TAIL_MEMORY)
    rate = (tail.rate[UNEXPOSED][:, None] * RATE_WEIGHT + deviation.exceed_count) / (seen + RATE_WEIGHT)
    below = -np.log1p(-rate.clip(0, 0.5)[np.broadcast_to(known, above.shape) & ~above].astype(np.float64))
    which = UNEXPOSED, scale, channel
    count, total = deviation.exceed_count[scale, row, channel], deviation.exceed_sum[scale, row, channel]
    mean = (total + tail.mean_excess[which] * SCALE_WEIGHT) / (count + SCALE_WEIGHT)
    shape = np.maximum(tail.shape[which], 1e-3).astype(np.float64)
    excess = deviation.excess[scale, row, channel].clip(0, EXCESS_LIMIT)
    sizes = _pareto(excess, mean * (1 - shape), shape) - np.log(rate[scale, row, channel].clip(1e-6, 0.5))
    return Likelihood(float(below.sum() + sizes.sum()), int(len(below) + len(sizes)))


def _pareto(excess: Array, scale: NDArray[np.float64], shape: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return minus the log density of excesses under a generalised Pareto distribution."""
    nats: NDArray[np.float64] = np.log(scale) + (1 / shape + 1) * np.log1p(shape * excess / scale)
    return nats
