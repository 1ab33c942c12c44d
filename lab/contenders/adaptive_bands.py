"""The adaptive bands of Grafana's promql-anomaly-detection.

The middle is the mean of an hour. The short-term band is twice the standard deviation of an hour. It is averaged over
the last 26 hours, without hours in which it is less than half of the mean. The long-term band is the hour's band one
day before. The widest of the two and of the margin counts. Windows are counted in snapshots. The published band of the
week before is left out because no recording is that long.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lab.contenders.bands import (
    MARGIN,
    RATE,
    SPARSE,
    TIMES,
    BandState,
    Named,
    distance_outside,
    max_of_service,
    select_samples,
)
from lab.contenders.paging import Floats, PagingState, build_verdict
from lab.contenders.past import Past
from model.snapshot import MeshSnapshot
from model.verdict import Verdict

LABEL = "adaptive bands"
SUMMARY = (
    "Grafana promql-anomaly-detection: mean of an hour, twice its deviation smoothed over 26 hours, half of the mean"
)
HOUR, SMOOTHED, DAY_BEFORE = 3600.0, 26 * 3600.0, 23.5 * 3600.0  # s
VARIABLE = 0.5  # deviation over mean from which an hour counts as variable


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """The newest samples of some series, with their number, sum and sum of squares in ``sums`` ``[3, K, M]``."""

    past: Past
    sums: Floats

    def with_frame(self, names: tuple[str, ...], values: Floats) -> "SlidingWindow":
        """Add one sample of each series."""
        past = self.past.with_frame(names, values)
        sums = np.zeros((3, *past.frames[-1].shape))
        sums[:, : self.sums.shape[1]] = self.sums
        sums = sums + _powers(past.frames[-1])
        if len(self.past.frames) == self.past.length:
            oldest = self.past.frames[0]
            sums[:, : len(oldest)] -= _powers(oldest)
        return SlidingWindow(past, sums)

    def mean(self) -> Floats:
        """``[K, M]``, NaN where there are no samples."""
        count, total, _ = self.sums
        mean: Floats = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
        return mean

    def deviation(self) -> Floats:
        """Standard deviation ``[K, M]``, NaN where there are no samples."""
        count, _, squares = self.sums
        mean = self.mean()
        power = np.divide(squares, count, out=np.full_like(mean, np.nan), where=count > 0)
        deviation: Floats = np.sqrt(np.maximum(power - mean**2, 0.0))
        return deviation


@dataclass(frozen=True, slots=True)
class AdaptiveBands:
    """State of services or of calls: one hour, the deviations of variable hours, and a day of bands ``[K, 2 M]``."""

    hour: SlidingWindow
    variable: SlidingWindow
    day: Past

    @classmethod
    def empty(cls, interval_seconds: float, metrics: int) -> "AdaptiveBands":
        """Return the state before the first snapshot."""
        hour, smoothed, day = (max(1, round(s / interval_seconds)) for s in (HOUR, SMOOTHED, DAY_BEFORE))
        none = np.zeros((3, 0, metrics))
        return cls(SlidingWindow(Past(hour), none), SlidingWindow(Past(smoothed), none), Past(day))

    def with_samples(self, series: Named) -> "AdaptiveBands":
        """Add one snapshot."""
        hour = self.hour.with_frame(*series)
        names, mean, deviation = hour.past.names, hour.mean(), hour.deviation()
        variable = self.variable.with_frame(names, np.where(deviation > VARIABLE * mean, deviation, np.nan))
        band = np.hstack([mean - TIMES * deviation, mean + TIMES * deviation])
        return replace(self, hour=hour, variable=variable, day=self.day.with_frame(names, band))

    def distance_outside(self, series: Named, sparse: int | None = None) -> Floats:
        """Distance from the middle in units of the band, ``[N, M]``; ``sparse``: column of the request rate, if any."""
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
        return distance_outside(values, *(past.look_up(table, names) for table in (mean, below, above)))


def start(interval_seconds: float, warm_up: int) -> BandState[AdaptiveBands]:
    """Return the state before the first snapshot."""
    return BandState(
        PagingState(interval_seconds, warm_up),
        AdaptiveBands.empty(interval_seconds, 6),
        AdaptiveBands.empty(interval_seconds, 3),
    )


def advance(state: BandState[AdaptiveBands], snapshot: MeshSnapshot) -> tuple[Verdict, BandState[AdaptiveBands]]:
    """Process one snapshot. Its own sample counts in the hour."""
    of_services, of_calls = select_samples(snapshot)
    services, calls = state.services.with_samples(of_services), state.calls.with_samples(of_calls)
    scores = max_of_service(snapshot, services.distance_outside(of_services, RATE), calls.distance_outside(of_calls))
    verdict, watch = build_verdict(state.watch, snapshot, scores, 1.0)
    return verdict, BandState(watch, services, calls)


def _powers(frame: NDArray[np.float32]) -> Floats:
    """Powers 0, 1 and 2 of the samples, 0 where not observed."""
    values = np.nan_to_num(frame.astype(np.float64))
    return np.stack([np.isfinite(frame).astype(np.float64), values, values**2])
