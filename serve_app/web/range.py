"""The columns of a range: a mesh's scores, and the metrics of a service or call with their usual range, in steps over
any period."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np

from model.snapshot import FloatArray, IntArray
from serve_app.stores.archive import SEVERITIES
from serve_app.stores.history import highest, join_rows, means
from serve_app.stores.history_files import MeshRow, PastSeries, Times
from serve_app.stores.records import ArchivedIncident
from serve_app.web.history import five_digits, instant
from serve_app.web.period import RangeSteps

SNAPSHOTS, ARCHIVE, PROMETHEUS = "snapshots", "archive", "prometheus"
DAY = 86_400  # s
DAYS_BEFORE = 14  # that show the usual range
MIN_DAYS = 3  # with values at a time of day, below which its range is unknown
AROUND = 1800  # s before and after the same time of day
SLOT = 600  # s of a day that share a range: a day has 144
LOW, HIGH = 0.02, 0.98  # quantiles

Band = tuple[FloatArray, FloatArray]  # lower and upper ends of the usual range of metrics, ``[T, M]``; NaN: unknown


def mesh_columns(steps: RangeSteps, rows: Sequence[MeshRow]) -> dict[str, list[Any]]:
    """Return the mesh's columns; None in a step without a row."""
    places = steps.find(np.array([row.at for row in rows], np.float64))
    groups: dict[int, list[MeshRow]] = {}
    for place, row in zip(places.tolist(), rows, strict=True):
        groups.setdefault(place, []).append(row)
    joined = [join_rows(groups[i], at) if i in groups else None for i, at in enumerate(steps.times.tolist())]
    return {
        # The highest of the means: a score that was high for minutes stays visible in a week.
        "score": [max(round(row.score, 3) for row in groups[i]) if i in groups else None for i in range(len(joined))],
        "highest_score": [None if row is None else round(row.highest_score, 3) for row in joined],
        "threshold": [None if row is None else row.threshold for row in joined],
        "status": [None if row is None else row.status for row in joined],
    }


def series_columns(steps: RangeSteps, series: PastSeries, expected: Band | None) -> dict[str, Any]:
    """Return the columns of a service or call."""
    values, low, high, scores = to_steps(steps, series)
    metrics: dict[str, Any] = {}
    for i, name in enumerate(series.metrics):
        metrics[name] = {"values": five_digits(values[:, i])}
        if np.nanmax(high[:, i] - low[:, i], initial=0.0) > 0:
            metrics[name] |= {"low": five_digits(low[:, i]), "high": five_digits(high[:, i])}
        if expected is not None:
            metrics[name]["expected"] = {"low": five_digits(expected[0][:, i]), "high": five_digits(expected[1][:, i])}
    return {"metrics": metrics, "score": [round(score, 2) for score in scores.tolist()]}


def to_steps(steps: RangeSteps, series: PastSeries) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return each step's mean, lowest and highest metrics, ``[T, M]``, and its highest score ``[T]``; NaN without a
    row."""
    places = steps.find(series.times)
    rows = np.flatnonzero(places >= 0)
    group, count, row_values = places[rows], len(steps.times), series.values[rows]
    low, high = (np.full((count, row_values.shape[1]), np.nan, np.float32) for _ in range(2))
    np.fmin.at(low, group, row_values)
    np.fmax.at(high, group, row_values)
    return means(row_values, group, count), low, high, highest(series.scores[rows], group, count)


def incident_row(incident: ArchivedIncident, newest: datetime) -> dict[str, Any]:
    """Return a ``RangeIncident``."""
    return {
        "id": incident.id,
        "service": next(iter(incident.services), None),
        "kind": incident.kind,
        "severity": SEVERITIES[incident.severity],
        "first": instant(incident.since),
        "last": instant(newest if incident.until is None else incident.until),
    }


def usual_range(before: PastSeries, steps: RangeSteps) -> Band:
    """Return the ends of each metric's usual range at each step: quantiles at the same time of day on the days before.

    The detector's own expectation (``expectation.py``) needs each snapshot, so only the details of a service have it.
    For earlier weeks, the history has minutes. Their quantiles need no model, and follow daily traffic.
    """
    shape = len(steps.times), before.values.shape[1]
    low, high = np.full(shape, np.nan, np.float32), np.full(shape, np.nan, np.float32)
    of_day = before.times % DAY
    order = np.argsort(of_day, kind="stable")
    sorted_times = of_day[order]
    bands: dict[int, tuple[FloatArray, FloatArray]] = {}
    for i, at in enumerate(steps.times.tolist()):
        middle = int((at + steps.seconds / 2) % DAY // SLOT * SLOT + SLOT / 2)
        if middle not in bands:
            bands[middle] = _quantiles(before, order[_positions_around(sorted_times, middle)], middle)
        low[i], high[i] = bands[middle]
    return low, high


def _positions_around(sorted_times: Times, middle: int) -> IntArray:
    """Return the positions of the times within ``AROUND`` of a time of day, across midnight too."""
    positions = []
    for shift in (-DAY, 0, DAY):
        first, last = np.searchsorted(sorted_times, [middle + shift - AROUND, middle + shift + AROUND])
        positions.append(np.arange(first, last))
    return np.concatenate(positions)


def _quantiles(before: PastSeries, rows: IntArray, middle: int) -> tuple[FloatArray, FloatArray]:
    values = before.values[rows]
    days = (before.times[rows] - middle + DAY / 2) // DAY
    low, high = (np.full(values.shape[1], np.nan, np.float32) for _ in range(2))
    for i in range(values.shape[1]):
        is_observed = ~np.isnan(values[:, i])
        if len(np.unique(days[is_observed])) >= MIN_DAYS:
            low[i], high[i] = np.quantile(values[is_observed, i], (LOW, HIGH))
    return low, high
