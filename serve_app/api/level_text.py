"""The service level in words."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from serve_app.api.number_text import PER_SECOND, PERCENT, span_text, unit
from serve_app.metrics import Objective, ObjectiveStatus, ServiceLevel, Violation

MIN_KNOWN = 0.9  # share of the window, below which an objective is not judged


@dataclass(frozen=True, slots=True)
class _Words:
    """What an objective is about, its bound, and how its values are written."""

    subject: str
    bound: str
    write: Callable[[float], str]


def _duration(seconds: float) -> str:
    return unit("p99_latency", seconds).words(seconds)


def _available(share: float) -> str:
    return f"{math.floor(1e4 * share) / 100:g}%"  # rounded down: 99.99% of the time is not all of it


_OBJECTIVES = {
    "p95": _Words("95% of the verdicts", "within", _duration),
    "p99": _Words("99% of the verdicts", "within", _duration),
    "requests_per_second": _Words("pushes", "up to", PER_SECOND.words),
    "error_rate": _Words("errors", "at most", PERCENT.words),
    "availability": _Words("available", "at least", _available),
}
_CAUSES = {
    "shed": "pushes were refused",
    "deadline": "verdicts missed the deadline",
    "failed": "requests failed",
    "slow_store": "the store was slow",
    "slow_scorer": "scoring was slow",
    "slow_decode": "decoding was slow",
    "slow_pipeline": "the steps around scoring were slow",
    "queue": "pushes waited for their turn",
}


def objective_title(one: Objective) -> str:
    """``95% of the verdicts within 50 ms``."""
    words = _OBJECTIVES[one.name]
    return f"{words.subject} {words.bound} {words.write(one.target)}"


def objective_text(one: Objective, level: ServiceLevel, now: float) -> str:
    """``violated since 08:00 UTC, the store was slow, 120 ms, error budget overspent``; ``now`` is Unix time."""
    lasting = next((v for v in level.violations if v.objective == one.name and v.until is None), None)
    current = "" if one.current is None else _OBJECTIVES[one.name].write(one.current)
    cause = _CAUSES.get((lasting and lasting.cause) or "", "")
    return ", ".join(filter(None, (_state(one, level, now), cause, current, _budget(one))))


def violation_title(one: Violation) -> str:
    """``target missed: 95% of the verdicts``."""
    return f"target missed: {_OBJECTIVES[one.objective].subject}"


def violation_text(one: Violation, now: float) -> str:
    """``from 08:00 UTC for 2 min, at worst 4 s, pushes waited for their turn``; ``now`` is Unix time."""
    lasted = span_text((now if one.until is None else one.until) - one.since)
    worst = "" if one.worst is None else f"at worst {_OBJECTIVES[one.objective].write(one.worst)}"
    return ", ".join(filter(None, (f"from {_time(one.since, now)} for {lasted}", worst, _CAUSES.get(one.cause or ""))))


def _state(one: Objective, level: ServiceLevel, now: float) -> str:
    if one.status is ObjectiveStatus.VIOLATED:
        return "violated" if one.violated_since is None else f"violated since {_time(one.violated_since, now)}"
    if one.status is not ObjectiveStatus.UNKNOWN:
        return "fulfilled"
    window = span_text(level.window_seconds)
    if level.known < MIN_KNOWN:
        return f"not judged yet: {math.floor(100 * level.known)}% of the last {window} is measured"
    return f"unknown: too few requests in the last {window}"


def _budget(one: Objective) -> str:
    if one.budget_left is None or one.status is ObjectiveStatus.UNKNOWN:
        return ""
    if one.budget_left < 0:
        return "error budget overspent"
    return f"{math.floor(100 * one.budget_left)}% of the error budget left"


def _time(at: float, now: float) -> str:
    """``08:00 UTC``, with the date if it is another day."""
    then, today = (datetime.fromtimestamp(one, UTC) for one in (at, now))
    return f"{then:%H:%M} UTC" if then.date() == today.date() else f"{then:%Y-%m-%d %H:%M} UTC"
