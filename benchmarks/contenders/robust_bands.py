"""The robust bands of Grafana's promql-anomaly-detection.

Median of a day, twice the median absolute deviation from it, at least half of the median. The published rule compares
the median of the last hour, which no incident of a few minutes moves; here it is the sample itself. Bands of the hour a
day and a week before are left out.
"""

from dataclasses import dataclass, replace

import numpy as np

from benchmarks.contenders.bands import MARGIN, RATE, SPARSE, TIMES, Named, State, outside, selected, worst
from benchmarks.contenders.paging import Floats, Watch, judged
from benchmarks.contenders.past import Past, quantiles
from model.snapshot import MeshSnapshot
from model.verdict import Verdict

LABEL = "robust bands"
SUMMARY = "Grafana promql-anomaly-detection: median of a day, twice the median absolute deviation, half of the median"
DAY = 24 * 3600.0  # s
RENEWED = 24  # times in what was seen that the bands are computed anew


@dataclass(frozen=True, slots=True)
class Bands:
    """Of one kind of series: samples of a day, ``[K, 2 M]`` medians and reaches, and how many samples ago these were
    computed."""

    day: Past
    table: Floats
    age: int = 0

    def with_samples(self, series: Named, sparse: int | None = None) -> "Bands":
        """One snapshot on; ``sparse``: place of the rate, if it has one."""
        day, age = self.day.with_frame(*series), self.age + 1
        if age < len(day.frames) // RENEWED:
            return replace(self, day=day, age=age)
        cube = day.cube()
        (median,) = quantiles(cube, [0.5])
        (deviation,) = quantiles(np.abs(cube - median[..., None].astype(np.float32)), [0.5])
        if sparse is not None:
            median[median[:, sparse] < SPARSE, sparse] = np.nan
        return Bands(day, np.hstack([median, np.maximum(TIMES * deviation, MARGIN * median)]))

    def outside(self, series: Named) -> Floats:
        """How far outside of its band each series is, ``[N, M]``."""
        names, values = series
        median, reach = np.split(self.day.looked_up(self.table, names), 2, axis=1)
        return outside(values, median, median - reach, median + reach)


def start(interval_seconds: float, warm_up: int) -> State[Bands]:
    """Nothing seen yet."""
    services, calls = (Bands(Past(max(1, round(DAY / interval_seconds))), np.empty((0, 2 * m))) for m in (6, 3))
    return State(Watch(interval_seconds, warm_up), services, calls)


def advance(state: State[Bands], snapshot: MeshSnapshot) -> tuple[Verdict, State[Bands]]:
    """One snapshot on."""
    of_services, of_calls = selected(snapshot)
    services, calls = state.services.with_samples(of_services, RATE), state.calls.with_samples(of_calls)
    scores = worst(snapshot, services.outside(of_services), calls.outside(of_calls))
    verdict, watch = judged(state.watch, snapshot, scores, 1.0)
    return verdict, State(watch, services, calls)
