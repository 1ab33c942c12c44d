"""The usual range of a metric at each moment of a period: what it was at the same time of the days before.

The detector's own expectation (``expectation.py``) needs each snapshot, so only the details of a service have it, for
the window. Of the weeks before, the history has minutes. Their quantiles at the same time of day need no model, and
follow daily traffic.
"""

import numpy as np

from model.snapshot import FloatArray, IntArray
from serve_app.stores.history_files import PastSeries, Times
from serve_app.web.period import RangeSteps
from serve_app.web.range import Band

DAY = 86_400  # s
DAYS_BEFORE = 14  # that are compared
MIN_DAYS = 3  # with values at that time of day, below which nothing is known
AROUND = 1800  # s before and after the same time of day
SLOT = 600  # s of a day that share a range: a day has 144
LOW, HIGH = 0.02, 0.98  # quantiles


def usual_range(before: PastSeries, steps: RangeSteps) -> Band:
    """Return the usual range of each metric at each step.

    Args:
        before: rows of the days before the period.
        steps: of the period.
    """
    shape = len(steps.times), before.values.shape[1]
    low, high = np.full(shape, np.nan, np.float32), np.full(shape, np.nan, np.float32)
    of_day = before.times % DAY
    order = np.argsort(of_day, kind="stable")
    sorted_times = of_day[order]
    known: dict[int, tuple[FloatArray, FloatArray]] = {}
    for i, at in enumerate(steps.times.tolist()):
        middle = int((at + steps.seconds / 2) % DAY // SLOT * SLOT + SLOT / 2)
        if middle not in known:
            known[middle] = _quantiles(before, order[_around(sorted_times, middle)], middle)
        low[i], high[i] = known[middle]
    return Band(low, high)


def _around(sorted_times: Times, middle: int) -> IntArray:
    """Positions of the times within ``AROUND`` of a time of day, across midnight too."""
    found = []
    for shift in (-DAY, 0, DAY):
        first, last = np.searchsorted(sorted_times, [middle + shift - AROUND, middle + shift + AROUND])
        found.append(np.arange(first, last))
    return np.concatenate(found)


def _quantiles(before: PastSeries, rows: IntArray, middle: int) -> tuple[FloatArray, FloatArray]:
    values = before.values[rows]
    days = (before.times[rows] - middle + DAY / 2) // DAY
    low, high = (np.full(values.shape[1], np.nan, np.float32) for _ in range(2))
    for i in range(values.shape[1]):
        seen = ~np.isnan(values[:, i])
        if len(np.unique(days[seen])) >= MIN_DAYS:
            low[i], high[i] = np.quantile(values[seen, i], (LOW, HIGH))
    return low, high
