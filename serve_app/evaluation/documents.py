"""Judgements as JSON: the names of the figures are those of ``model.evaluate.figures``."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any

from model.evaluate.figures import Figures
from model.evaluate.judged import RecordingResult
from model.evaluate.located import outcomes
from serve_app.evaluation.run import Pool


def document(found: Sequence[Pool], reference: str) -> dict[str, Any]:
    """All figures: by form over all recordings, of each recording, of each incident, and detectors compared."""
    return {
        "detectors": list(found[0].figures),
        "pooled": {pool.form.value: _of_detectors(pool.figures) for pool in found},
        "compared": {
            pool.form.value: {f"{reference} - {other}": plain(apart) for other, apart in told.items()}
            for pool in found
            if (told := pool.compared(reference))
        },
        "recordings": {
            sheet.name: {
                name: {**figures, "per_incident": _incidents(sheet.judged[name])}
                for name, figures in _of_detectors(sheet.figures).items()
            }
            for pool in found
            for sheet in pool.sheets
        },
    }


def text(found: Sequence[Pool], reference: str) -> str:
    """The same as text."""
    return json.dumps(document(found, reference), indent=1, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """Dataclasses as objects, times as text, durations in seconds; what is no number is null."""
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


def _of_detectors(told: Mapping[str, Figures]) -> dict[str, dict[str, Any]]:
    return {name: _figures(one) for name, one in told.items()}


def _figures(one: Figures) -> dict[str, Any]:
    found: dict[str, Any] = plain(one)
    if found["pages"]:
        del found["pages"]["outcomes"]  # they stand with their recording
    return found


def _incidents(judged: RecordingResult) -> list[dict[str, Any]]:
    """What became of each: by time, and, of located ones, by their page."""
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
        for outcome in judged.outcomes
    ]
    if judged.watch is not None and judged.watch.faults:
        rows = [
            {
                "start": told.fault.start,
                "end": told.fault.end,
                "kind": told.fault.kind,
                "culprit": told.fault.culprit,
                "severity": told.fault.severity,
                "effect_sigmas": told.fault.effect,
                "page": told.page and told.page.id,
                "delay_seconds": told.delay,
                "place": told.place,
                "blamed": told.blamed,
            }
            for told in outcomes(judged.watch)
        ]
    return [plain(row) for row in rows]
