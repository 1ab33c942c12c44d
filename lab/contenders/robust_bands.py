"""The robust bands of Grafana's promql-anomaly-detection.

The middle is the median of a day. The band is twice the median absolute deviation, and at least half of the median. The
published rule compares the median of the last hour with the band, but incidents of a few minutes do not change that
median. Here the sample itself is compared. The published bands of the same hour one day and one week before are left
out.
"""

from dataclasses import dataclass, replace

import numpy as np

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
from lab.contenders.past import Past, quantiles
from model.snapshot import MeshSnapshot
from model.verdict import Verdict

LABEL = "robust bands"
SUMMARY = "Grafana promql-anomaly-detection: median of a day, twice the median absolute deviation, half of the median"
DAY = 24 * 3600.0  # s
RENEWED = 24  # updates of the bands in the length of the past


@dataclass(frozen=True, slots=True)
class RobustBands:
    """State of services or of calls: samples of a day, medians and widths ``[K, 2 M]``, and their age in samples."""

    day: Past
    table: Floats
    age: int = 0

    def with_samples(self, series: Named, sparse: int | None = None) -> "RobustBands":
        """Add one snapshot; ``sparse``: column of the request rate, if any."""
        day, age = self.day.with_frame(*series), self.age + 1
        if age < len(day.frames) // RENEWED:
            return replace(self, day=day, age=age)
        cube = day.cube()
        (median,) = quantiles(cube, [0.5])
        (deviation,) = quantiles(np.abs(cube - median[..., None].astype(np.float32)), [0.5])
        if sparse is not None:
            median[median[:, sparse] < SPARSE, sparse] = np.nan
        return RobustBands(day, np.hstack([median, np.maximum(TIMES * deviation, MARGIN * median)]))

    def distance_outside(self, series: Named) -> Floats:
        """Distance from the middle in units of the band, ``[N, M]``."""
        names, values = series
        median, reach = np.split(self.day.look_up(self.table, names), 2, axis=1)
        return distance_outside(values, median, median - reach, median + reach)


def start(interval_seconds: float, warm_up: int) -> BandState[RobustBands]:
    """Return the state before the first snapshot."""
    services, calls = (RobustBands(Past(max(1, round(DAY / interval_seconds))), np.empty((0, 2 * m))) for m in (6, 3))
    return BandState(PagingState(interval_seconds, warm_up), services, calls)


def advance(state: BandState[RobustBands], snapshot: MeshSnapshot) -> tuple[Verdict, BandState[RobustBands]]:
    """Process one snapshot."""
    of_services, of_calls = select_samples(snapshot)
    services, calls = state.services.with_samples(of_services, RATE), state.calls.with_samples(of_calls)
    scores = max_of_service(snapshot, services.distance_outside(of_services), calls.distance_outside(of_calls))
    verdict, watch = build_verdict(state.watch, snapshot, scores, 1.0)
    return verdict, BandState(watch, services, calls)
