"""The document of the service level."""

import math
import time
from datetime import UTC, datetime
from typing import Literal

from pydantic import Field

from serve_app.api.level_text import objective_text, objective_title, violation_text, violation_title
from serve_app.api.schemas.base import Document, Instant
from serve_app.metrics import Objective, ObjectiveStatus, ServiceLevel, Violation

Unit = Literal["s", "ratio", "1/s"]
UNITS: dict[str, Unit] = {
    "p95": "s",
    "p99": "s",
    "requests_per_second": "1/s",
    "error_rate": "ratio",
    "availability": "ratio",
}


class ObjectiveDocument(Document):
    """One target, and what the window says about it."""

    name: str = Field(
        description="`p95`, `p99`, `requests_per_second`, `error_rate` or `availability`", examples=["p99"]
    )
    status: Literal["fulfilled", "violated", "unknown", "no_target"] = Field(
        description="`unknown`: less than 90% of the window is known, or there were too few requests"
    )
    unit: Unit = Field(description="of `target` and `current`")
    target: float | None = Field(description="from the settings `sla`; null: no target")
    current: float | None = Field(description="over the known part of the window; null: unknown")
    budget_left: float | None = Field(
        description="share of the error budget that is left, 1 if all is, negative if it is overspent; null: unknown"
    )
    violated_since: Instant | None = Field(description="null: it is not violated")
    title: str = Field(description="in words; empty: no target", examples=["95% of the verdicts within 50 ms"])
    text: str = Field(description="its state in words; empty: no target", examples=["fulfilled, 34 ms"])


class ViolationDocument(Document):
    """A time in which an objective was violated."""

    objective: str = Field(description="its name", examples=["p95"])
    unit: Unit = Field(description="of `worst`")
    since: Instant
    until: Instant | None = Field(description="null: it is still violated")
    seconds: float = Field(ge=0, description="duration, until now if it is still violated")
    worst: float | None = Field(description="the worst value over the window; null: unknown")
    cause: str | None = Field(
        description="of most of its bad pushes when it was worst: `shed`, `deadline`, `failed`, `slow_store`, "
        "`slow_scorer`, `slow_decode`, `slow_pipeline` or `queue`; null: unknown",
        examples=["slow_store"],
    )
    title: str = Field(description="in words", examples=["target missed: 95% of the verdicts"])
    text: str = Field(description="when, how badly and why, in words", examples=["from 08:00 UTC for 2 min"])


class SlaDocument(Document):
    """The service level over the window."""

    status: Literal["fulfilled", "violated", "unknown", "no_target"] = Field(
        description="the worst of the objectives: violated, then unknown"
    )
    window_seconds: float = Field(gt=0, description="length of the window that ends now")
    known: float = Field(ge=0, le=1, description="share of the window that is known")
    reported_at: Instant | None = Field(description="when the newest counts arrived; null: never")
    objectives: list[ObjectiveDocument]
    pushes: dict[str, int] = Field(
        description="pushes in the window by outcome: `served`, `failed`, `shed`, `client`, `abandoned`"
    )
    requests: dict[str, int] = Field(description="all requests by outcome, pushes included")
    meshes: dict[str, int] = Field(
        description="pushes that were slower than the target of `p95`, failed or were shed, by mesh, for the 20 meshes "
        "with the most; the empty name stands for all others"
    )
    causes: dict[str, int] = Field(description="the same pushes by cause, where it is known; most first")
    violations: list[ViolationDocument] = Field(
        description="those that last, then up to 50 that ended, the newest first; a restart empties it"
    )


def sla_document(level: ServiceLevel, now: float | None = None) -> SlaDocument:
    """The document of a service level at a Unix time, by default now."""
    now = time.time() if now is None else now
    return SlaDocument.from_object(
        level,
        status=level.status.value,
        known=round(level.known, 4),
        reported_at=_instant(level.reported_at),
        objectives=[_objective_document(one, level, now) for one in level.objectives],
        violations=[_violation_document(one, now) for one in level.violations],
    )


def _violation_document(one: Violation, now: float) -> ViolationDocument:
    return ViolationDocument(
        objective=one.objective,
        unit=UNITS[one.objective],
        since=_utc(one.since),
        until=_instant(one.until),
        seconds=round(max(0.0, (now if one.until is None else one.until) - one.since), 1),
        worst=_round(one.worst),
        cause=one.cause,
        title=violation_title(one),
        text=violation_text(one, now),
    )


def _objective_document(one: Objective, level: ServiceLevel, now: float) -> ObjectiveDocument:
    has_target = one.status is not ObjectiveStatus.NO_TARGET
    return ObjectiveDocument(
        name=one.name,
        status=one.status.value,
        unit=UNITS[one.name],
        target=one.target if has_target and math.isfinite(one.target) else None,
        current=_round(one.current),
        budget_left=_round(one.budget_left),
        violated_since=_instant(one.violated_since),
        title=objective_title(one) if has_target else "",
        text=objective_text(one, level, now) if has_target else "",
    )


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _instant(at: float | None) -> datetime | None:
    return None if at is None else _utc(at)


def _utc(at: float) -> datetime:
    return datetime.fromtimestamp(round(at, 3), UTC)
