"""95% intervals of shares and rates: bootstrap, Wilson, Poisson."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DRAWS, SEED = 2000, 7  # of the bootstrap
Z = 1.96

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over ``n`` items, or a rate: events over ``n`` hours or days. None if there is no data.

    Attributes:
        clustered: whether the interval is over whole clusters, because that one is wider.
    """

    n: float
    value: float | None
    low: float | None
    high: float | None
    clustered: bool = False


def share(hits: Sequence[bool] | Sequence[float], clusters: Sequence[Hashable] = ()) -> Estimate:
    """Return a mean over incidents with its percentile bootstrap interval; with clusters, the wider of the intervals
    over incidents and over whole clusters.

    If all values or none are hits, the bootstrap has no width, so Wilson's interval replaces it.
    """
    values = np.asarray(hits, np.float64)
    if not len(values):
        return Estimate(0, None, None, None)
    mean, plain = float(values.mean()), _bootstrap(values, np.arange(len(values)))
    if not len(clusters):
        return Estimate(len(values), mean, *plain)
    codes: dict[Hashable, int] = {}
    wide = _bootstrap(values, np.array([codes.setdefault(key, len(codes)) for key in clusters]))
    if wide[1] - wide[0] > plain[1] - plain[0]:
        return Estimate(len(values), mean, *wide, clustered=True)
    return Estimate(len(values), mean, *plain)


def rate(events: int, time: float) -> Estimate:
    """Return events over time (hours, days) with a Poisson interval.

    Source: the Wilson-Hilferty form of the exact limits (Breslow and Day, Statistical Methods in Cancer Research II,
    1987, 2.11).
    """
    if time <= 0:
        return Estimate(0, None, None, None)
    more = events + 1
    low = events * (1 - 1 / (9 * events) - Z / (3 * events**0.5)) ** 3 if events else 0.0
    high = more * (1 - 1 / (9 * more) + Z / (3 * more**0.5)) ** 3
    return Estimate(time, events / time, max(0.0, low) / time, high / time)


def bursty_rate(events: NDArray[np.float64], times: NDArray[np.float64]) -> Estimate:
    """Return events over time. Events come in bursts, so the bootstrap draws whole blocks.

    Args:
        events, times: of each block, ``[B]``.
    """
    total = float(times.sum())
    if not events.any() or total <= 0:
        return rate(0, total)
    draws = np.random.default_rng(SEED).integers(0, len(events), (DRAWS, len(events)))
    low, high = np.quantile(events[draws].sum(axis=1) / times[draws].sum(axis=1), [0.025, 0.975])
    return Estimate(total, float(events.sum() / total), float(low), float(high))


def per_day(hourly: Estimate) -> Estimate:
    value, low, high = (None if bound is None else 24 * bound for bound in (hourly.value, hourly.low, hourly.high))
    return Estimate(hourly.n / 24, value, low, high, hourly.clustered)


def wilson(hits: float, n: int) -> Interval:
    """Return Wilson's score interval for ``hits`` among ``n``."""
    p, scale = hits / n, 1 + Z * Z / n
    middle = (p + Z * Z / (2 * n)) / scale
    half = Z * float(np.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))) / scale
    return max(0.0, middle - half), min(1.0, middle + half)


def _bootstrap(values: NDArray[np.float64], cluster: NDArray[np.int64]) -> Interval:
    """Return the interval of the mean. ``cluster`` numbers the items to draw, from 0, in order of appearance."""
    count = int(cluster.max()) + 1
    if values.min() == values.max() and values[0] in (0.0, 1.0):
        return wilson(count * float(values[0]), count)
    total, size = np.bincount(cluster, values), np.bincount(cluster)
    draws = np.random.default_rng(SEED).integers(0, count, (DRAWS, count))
    low, high = np.quantile(total[draws].sum(axis=1) / size[draws].sum(axis=1), [0.025, 0.975])
    return float(low), float(high)
