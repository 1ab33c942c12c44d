"""The document of the service level."""

import math
from datetime import UTC, datetime
from typing import Literal

from pydantic import Field

from serve_app.api.schemas.base import Document, Instant
from serve_app.metrics import Objective, ObjectiveStatus, ServiceLevel

SECONDS, RATIO, RATE = "s", "ratio", "1/s"
UNITS = {"p95": SECONDS, "p99": SECONDS, "requests_per_second": RATE, "error_rate": RATIO, "availability": RATIO}


class ObjectiveDocument(Document):
    """One target, and what the window says about it."""

    name: str = Field(
        description="`p95`, `p99`, `requests_per_second`, `error_rate` or `availability`", examples=["p99"]
    )
    status: Literal["fulfilled", "violated", "unknown", "no_target"] = Field(
        description="`unknown`: less than 90% of the window is known, or there were too few requests"
    )
    unit: Literal["s", "ratio", "1/s"] = Field(description="of `target` and `current`")
    target: float | None = Field(description="from the settings `sla`; null: no target")
    current: float | None = Field(description="over the known part of the window; null: unknown")
    budget_left: float | None = Field(
        description="share of the error budget that is left, 1 if all is, negative if it is overspent; null: unknown"
    )
    violated_since: Instant | None = Field(description="null: it is not violated")


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
    requests: dict[str, int] = Field(description="likewise all requests; pushes are requests, too")
    meshes: dict[str, int] = Field(
        description="pushes that were slower than the target of `p95`, failed or were shed, by mesh, for the 20 meshes "
        "with the most; the empty name stands for all others"
    )


def sla_document(level: ServiceLevel) -> SlaDocument:
    """The document of a service level."""
    return SlaDocument.from_object(
        level,
        status=level.status.value,
        known=round(level.known, 4),
        reported_at=_instant(level.reported_at),
        objectives=[_objective_document(one) for one in level.objectives],
    )


def _objective_document(one: Objective) -> ObjectiveDocument:
    has_target = one.status is not ObjectiveStatus.NO_TARGET
    return ObjectiveDocument(
        name=one.name,
        status=one.status.value,
        unit=UNITS[one.name],
        target=one.target if has_target and math.isfinite(one.target) else None,
        current=_round(one.current),
        budget_left=_round(one.budget_left),
        violated_since=_instant(one.violated_since),
    )


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _instant(at: float | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(round(at, 3), UTC)
