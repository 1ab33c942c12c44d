"""The range of a mesh: its scores, and the metrics of a service or call, in steps over any period. Returns JSON."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np

from model.snapshot import FloatArray
from serve_app.stores.archive import SEVERITIES
from serve_app.stores.base import ArchivedIncident
from serve_app.stores.history import highest, join_rows, means
from serve_app.stores.history_files import MeshRow, PastSeries
from serve_app.web.history import instant, plain
from serve_app.web.period import RangeSteps, TimeRange

SNAPSHOTS, ARCHIVE, PROMETHEUS = "snapshots", "archive", "prometheus"


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """The usual range of metrics, ``[T, M]``; NaN: unknown."""

    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class RangeContent:
    """The content of a range.

    Attributes:
        source: where the values come from.
        problem: why Prometheus has no more; None: it was not asked, or has.
        complete_from: from when there are any; None: unknown.
        steps: of the answer.
        period: both ends; planned changes outside of it are left out.
        rows: of the mesh, oldest first.
        series: of the service or call; None: not asked for.
        expected: usual range of its metrics; None: unknown.
        incidents: of the period.
        unusual: services with the highest scores: name, score, time.
        newest: time of the newest snapshot.
    """

    source: str
    problem: str | None
    complete_from: datetime | None
    steps: RangeSteps
    period: TimeRange
    rows: Sequence[MeshRow]
    series: PastSeries | None
    expected: Band | None
    incidents: Sequence[ArchivedIncident]
    unusual: Sequence[tuple[str, float, datetime]]
    newest: datetime


def range_document(content: RangeContent) -> bytes:
    """Return JSON of a ``RangeDocument``."""
    steps = content.steps
    return msgspec.json.encode(
        {
            "source": content.source,
            "problem": content.problem,
            "complete_from": None if content.complete_from is None else instant(content.complete_from),
            "step_seconds": steps.seconds,
            "observed_at": [instant(datetime.fromtimestamp(at, UTC)) for at in steps.times.tolist()],
            "mesh": mesh_columns(steps, content.rows),
            "service": None if content.series is None else series_columns(steps, content.series, content.expected),
            "unusual": [
                {"service": name, "highest_score": round(score, 2), "at": instant(at)}
                for name, score, at in content.unusual
            ],
            "incidents": [_incident(one, content.newest) for one in content.incidents],
            "changes": [
                {**asdict(change), "at": instant(change.at)}
                for row in content.rows
                for change in row.changes
                if content.period.start <= change.at <= content.period.end
            ],
        }
    )


def mesh_columns(steps: RangeSteps, rows: Sequence[MeshRow]) -> dict[str, list[Any]]:
    """Return the columns of the mesh; None where there is no row."""
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
    """Return the columns of a service, or of a call."""
    values, low, high, scores = to_steps(steps, series)
    metrics: dict[str, Any] = {}
    for i, name in enumerate(series.metrics):
        metrics[name] = {"values": plain(values[:, i])}
        if np.nanmax(high[:, i] - low[:, i], initial=0.0) > 0:
            metrics[name] |= {"low": plain(low[:, i]), "high": plain(high[:, i])}
        if expected is not None:
            metrics[name]["expected"] = {"low": plain(expected.low[:, i]), "high": plain(expected.high[:, i])}
    return {"metrics": metrics, "score": [None if one != one else round(one, 2) for one in scores.tolist()]}


def to_steps(steps: RangeSteps, series: PastSeries) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return the mean, lowest and highest metrics of each step, ``[T, M]``, and its highest score ``[T]``; NaN without
    a row."""
    places = steps.find(series.times)
    rows = np.flatnonzero(places >= 0)
    group, count, found = places[rows], len(steps.times), series.values[rows]
    low, high = (np.full((count, found.shape[1]), np.nan, np.float32) for _ in range(2))
    np.fmin.at(low, group, found)
    np.fmax.at(high, group, found)
    return means(found, group, count), low, high, highest(series.scores[rows], group, count)


def _incident(one: ArchivedIncident, newest: datetime) -> dict[str, Any]:
    return {
        "id": one.id,
        "service": next(iter(one.suspects), None),
        "kind": one.kind,
        "severity": SEVERITIES[one.severity],
        "first": instant(one.since),
        "last": instant(newest if one.until is None else one.until),
    }
