"""The adaptive bands of Grafana's promql-anomaly-detection.

The middle is the mean of an hour. Short term, the band is twice the hour's standard deviation where that is more than
half of the mean, averaged over 26 hours; long term, the hour's band of a day before. The widest of them and of the
margin counts. Windows are numbers of snapshots; the band of a week before is left out, as no recording is that long.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.contenders.bands import MARGIN, RATE, SPARSE, TIMES, Named, State, outside, selected, worst
from benchmarks.contenders.paging import Floats, Watch, judged
from benchmarks.contenders.past import Past
from model.snapshot import MeshSnapshot
from model.verdict import Verdict

LABEL = "adaptive bands"
SUMMARY = (
    "Grafana promql-anomaly-detection: mean of an hour, twice its deviation smoothed over 26 hours, half of the mean"
)
HOUR, SMOOTHED, DAY_BEFORE = 3600.0, 26 * 3600.0, 23.5 * 3600.0  # s
VARIABLE = 0.5  # deviation over mean from which an hour counts as variable


@dataclass(frozen=True, slots=True)
class Sliding:
    """The newest samples of some series and, over them, the number, the sum, and the sum of squares, ``[3, K, M]``."""

    past: Past
    sums: Floats

    def with_frame(self, names: tuple[str, ...], values: Floats) -> "Sliding":
        """One sample on."""
        past = self.past.with_frame(names, values)
        sums = np.zeros((3, *past.frames[-1].shape))
        sums[:, : self.sums.shape[1]] = self.sums
        sums = sums + _powers(past.frames[-1])
        if len(self.past.frames) == self.past.length:
            oldest = self.past.frames[0]
            sums[:, : len(oldest)] -= _powers(oldest)
        return Sliding(past, sums)

    def mean(self) -> Floats:
        """``[K, M]``, NaN where there are no samples."""
        count, total, _ = self.sums
        return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)

    def deviation(self) -> Floats:
        """Standard deviation ``[K, M]``, NaN where there are no samples."""
        count, _, squares = self.sums
        mean = self.mean()
        power = np.divide(squares, count, out=np.full_like(mean, np.nan), where=count > 0)
        return np.sqrt(np.maximum(power - mean**2, 0.0))


@dataclass(frozen=True, slots=True)
class Bands:
    """Of one kind of series: the hour, deviations of variable hours, and the hour's band ``[K, 2 M]`` of a day."""

    hour: Sliding
    variable: Sliding
    day: Past

    @classmethod
    def empty(cls, interval_seconds: float, metrics: int) -> "Bands":
        """Nothing seen yet."""
        hour, smoothed, day = (max(1, round(s / interval_seconds)) for s in (HOUR, SMOOTHED, DAY_BEFORE))
        none = np.zeros((3, 0, metrics))
        return cls(Sliding(Past(hour), none), Sliding(Past(smoothed), none), Past(day))

    def with_samples(self, series: Named) -> "Bands":
        """One snapshot on."""
        hour = self.hour.with_frame(*series)
        names, mean, deviation = hour.past.names, hour.mean(), hour.deviation()
        variable = self.variable.with_frame(names, np.where(deviation > VARIABLE * mean, deviation, np.nan))
        band = np.hstack([mean - TIMES * deviation, mean + TIMES * deviation])
        return replace(self, hour=hour, variable=variable, day=self.day.with_frame(names, band))

    def outside(self, series: Named, sparse: int | None = None) -> Floats:
        """How far outside of its band each series is, ``[N, M]``; ``sparse``: place of the rate, if it has one."""
        names, values = series
        mean, past = self.hour.mean(), self.hour.past
        reach = np.fmax(MARGIN * mean, TIMES * self.variable.mean())
        below, above = mean - reach, mean + reach
        if len(self.day.frames) == self.day.length:
            before = np.split(self.day.frames[0].astype(np.float64), 2, axis=1)
            known = len(before[0])
            below[:known], above[:known] = np.fmin(below[:known], before[0]), np.fmax(above[:known], before[1])
        if sparse is not None:
            mean[mean[:, sparse] < SPARSE, sparse] = np.nan
        return outside(values, *(past.looked_up(table, names) for table in (mean, below, above)))


def start(interval_seconds: float, warm_up: int) -> State[Bands]:
    """Nothing seen yet."""
    return State(Watch(interval_seconds, warm_up), Bands.empty(interval_seconds, 6), Bands.empty(interval_seconds, 3))


def advance(state: State[Bands], snapshot: MeshSnapshot) -> tuple[Verdict, State[Bands]]:
    """One snapshot on; the sample itself belongs to its hour."""
    of_services, of_calls = selected(snapshot)
    services, calls = state.services.with_samples(of_services), state.calls.with_samples(of_calls)
    scores = worst(snapshot, services.outside(of_services, RATE), calls.outside(of_calls))
    verdict, watch = judged(state.watch, snapshot, scores, 1.0)
    return verdict, State(watch, services, calls)


def _powers(frame: NDArray[np.float32]) -> Floats:
    """Zeroth, first and second, 0 where not observed."""
    values = np.nan_to_num(frame.astype(np.float64))
    return np.stack([np.isfinite(frame).astype(np.float64), values, values**2])
