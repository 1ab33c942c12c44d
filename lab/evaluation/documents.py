"""The results as JSON, with the names of ``lab.evaluation.measures.metrics``."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any

from lab.evaluation.measures.located import fault_outcomes
from lab.evaluation.measures.metrics import DetectorMetrics
from lab.evaluation.measures.recording import RecordingResult
from lab.evaluation.run import Pool


def document(found: Sequence[Pool], reference: str) -> dict[str, Any]:
    """Return all figures: pooled by form, by recording, by incident, and the differences between detectors."""
    return {
        "detectors": list(found[0].metrics),
        "pooled": {pool.form.value: _of_detectors(pool.metrics) for pool in found},
        "compared": {
            pool.form.value: {f"{reference} - {other}": plain(apart) for other, apart in differences.items()}
            for pool in found
            if (differences := pool.compare_with(reference))
        },
        "recordings": {
            sheet.name: {
                name: {**figures, "per_incident": _incidents(sheet.results[name])}
                for name, figures in _of_detectors(sheet.metrics).items()
            }
            for pool in found
            for sheet in pool.sheets
        },
    }


def text(found: Sequence[Pool], reference: str) -> str:
    return json.dumps(document(found, reference), indent=1, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """Convert to JSON types: dataclasses to objects, times to text, durations to seconds, NaN to null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value


def _of_detectors(by_detector: Mapping[str, DetectorMetrics]) -> dict[str, dict[str, Any]]:
    return {name: _figures(one) for name, one in by_detector.items()}


def _figures(one: DetectorMetrics) -> dict[str, Any]:
    found: dict[str, Any] = plain(one)
    for located in filter(None, (found["pages"], found["notices"], found["pages_and_notices"])):
        del located["outcomes"]  # they are with their recording
    return found


def _incidents(result: RecordingResult) -> list[dict[str, Any]]:
    """The outcome of each incident: by time or, for located recordings, by its alert."""
    rows: list[dict[str, Any]] = [
        {
            "start": outcome.span.start,
            "end": outcome.span.end,
            "kind": outcome.span.kind,
            "culprit": outcome.span.culprit,
            "found": outcome.found,
            "delay_snapshots": outcome.delay,
            "place": outcome.place,
            "peak": float(outcome.scores.max()) if len(outcome.scores) else None,
        }
        for outcome in result.outcomes
    ]
    if result.run is not None and result.run.faults:
        rows = [
            {
                "start": outcome.fault.start,
                "end": outcome.fault.end,
                "kind": outcome.fault.kind,
                "culprit": outcome.fault.culprit,
                "severity": outcome.fault.severity,
                "effect_sigmas": outcome.fault.effect,
                "user_sigmas": outcome.fault.user_effect,
                "page": outcome.page and outcome.page.id,
                "notice": noticed.page and noticed.page.id,
                "delay_seconds": outcome.delay,
                "place": outcome.place,
            }
            for outcome, noticed in zip(
                fault_outcomes(result.run), fault_outcomes(result.run.with_notices_alone()), strict=True
            )
        ]
    return [plain(row) for row in rows]
