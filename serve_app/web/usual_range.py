"""The usual range of a metric at each moment of a period: what it was at the same time of the days before.

The detector's own expectation (``expectation.py``) needs each snapshot, so it exists for the window only. Of the weeks
before, the history has minutes. Their quantiles at the same time of day need no model, and follow daily traffic.
"""

import numpy as np

from model.snapshot import FloatArray, IntArray
from serve_app.stores.history_reader import PastSeries, Times
from serve_app.web.range import Band, RangeSteps

DAY = 86_400  # s
DAYS_BEFORE = 14  # that are compared
LEAST_DAYS = 3  # with values at that time of day, below which nothing is known
AROUND = 1800  # s before and after the same time of day
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
    known: dict[tuple[int, ...], tuple[FloatArray, FloatArray]] = {}
    for i, at in enumerate(steps.times.tolist()):
        middle = int(at + steps.seconds / 2) % DAY
        rows = order[_around(sorted_times, middle)]
        key = (len(rows), int(rows[0]), int(rows[-1])) if len(rows) else ()
        if key not in known:
            known[key] = _quantiles(before, rows)
        low[i], high[i] = known[key]
    return Band(low, high)


def _around(sorted_times: Times, middle: int) -> IntArray:
    """Positions of the times within ``AROUND`` of a time of day, across midnight too."""
    found = []
    for shift in (-DAY, 0, DAY):
        first, last = np.searchsorted(sorted_times, [middle + shift - AROUND, middle + shift + AROUND])
        found.append(np.arange(first, last))
    return np.concatenate(found)


def _quantiles(before: PastSeries, rows: IntArray) -> tuple[FloatArray, FloatArray]:
    values = before.values[rows]
    days = before.times[rows] // DAY
    low, high = (np.full(values.shape[1], np.nan, np.float32) for _ in range(2))
    for i in range(values.shape[1]):
        seen = ~np.isnan(values[:, i])
        if len(np.unique(days[seen])) >= LEAST_DAYS:
            low[i], high[i] = np.quantile(values[seen, i], (LOW, HIGH))
    return low, high
