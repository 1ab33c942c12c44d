"""The drift of a mesh as a document, and as advice that names the command to run."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from model.checkpoint import Checkpoint
from model.drift.call_sample import BLOCK_SECONDS
from model.drift.measures import MEASURES, Kind, Measure, Reference
from model.drift.populations import POPULATIONS
from model.drift.quality import DataQuality, data_quality
from model.drift.sketch import DriftSketch, drifting
from model.state.drift import limits_of
from model.state.mesh_state import MeshState
from serve_app.api.schemas.drift import (
    ConstantDocument,
    DataQualityDocument,
    DriftAdviceDocument,
    DriftDocument,
    DriftMeasureDocument,
    MissingDocument,
)

SUBJECTS = {  # by channel; channels with one subject are one advice
    "request_rate": "shares of the traffic",
    "requests_per_second": "shares of the traffic",
    "weight": "shares of the traffic",
    "error_rate": "error rates",
    "p50_latency": "latencies",
    "p99_latency": "latencies",
    "own_time": "latencies",
    "cpu_utilization": "CPU use",
    "cpu_per_request": "CPU use",
    "memory_utilization": "memory use",
    "active_connections": "connections",
    "callers": "counts of callers and callees",
    "callees": "counts of callers and callees",
}
OF_KINDS = {Kind.CALLS: "new calls", Kind.MISSING: "missing metrics"}
REFERENCES = {Reference.TRAINING: "training's", Reference.WEEK: "last week's"}


@dataclass(frozen=True, slots=True)
class _Drift:
    """A drifting measure: its distance, the share of values that moved, and the start of the drift, Unix time."""

    measure: Measure
    distance: float
    moved_share: float
    since: float

    @property
    def population(self) -> str:
        return "calls" if self.measure.channel.startswith("call.") else "services"

    @property
    def subject(self) -> str:
        kind = self.measure.kind
        if kind in OF_KINDS:
            return OF_KINDS[kind]
        subject = SUBJECTS[self.measure.channel.partition(".")[2]]
        return f"tails of {subject}" if kind is Kind.TAILS else subject


def drift_document(mesh: str, state: MeshState, checkpoint: Checkpoint) -> DriftDocument:
    """The drift of a mesh with at least one snapshot in its window."""
    sketch = state.drift
    return DriftDocument(
        judged_until=None if sketch.judged < 0 else _instant((sketch.judged + 1) * BLOCK_SECONDS),
        days=int(sketch.days.min()),
        advice=advice(mesh, sketch),
        measures=_measures(sketch, checkpoint),
        quality=_quality(data_quality(state.window), sketch),
    )


def advice(mesh: str, sketch: DriftSketch) -> list[DriftAdviceDocument]:
    """One advice for each subject and reference that drifts, the oldest first."""
    drifts = [
        _Drift(MEASURES[row], *(float(column[row]) for column in (sketch.distances, sketch.moved, sketch.since)))
        for row in drifting(sketch).tolist()
    ]
    groups: dict[tuple[str, ...], list[_Drift]] = {}
    for drift in drifts:
        key = drift.measure.kind, drift.measure.reference, drift.subject
        groups.setdefault(key, []).append(drift)
    return sorted((_advise(mesh, group) for group in groups.values()), key=lambda drift: drift.since)


def _advise(mesh: str, group: Sequence[_Drift]) -> DriftAdviceDocument:
    kind, since = group[0].measure.kind, _instant(min(drift.since for drift in group))
    if kind is Kind.MISSING:
        command, purpose = f"tagae doctor --source {mesh}", "find the series that are missing"
    else:
        command = "tagae train weights.safetensors --recording FOLDER"
        purpose = "if this is to stay, train weights on a recording of this mesh (tagae record)"
    return DriftAdviceDocument(
        reference=group[0].measure.reference,
        subject=group[0].subject,
        text=f"{_describe(group)} since {since:%a} {since.day} {since:%b, %H:%M} UTC",
        command=command,
        purpose=purpose,
        since=since,
    )


def _describe(group: Sequence[_Drift]) -> str:
    worst = max(group, key=lambda drift: drift.moved_share if drift.measure.kind is Kind.VALUES else drift.distance)
    kind, channel = worst.measure.kind, worst.measure.channel.partition(".")[2]
    to = REFERENCES[worst.measure.reference]
    if kind is Kind.VALUES:
        return (
            f"the {worst.subject} of at least {worst.moved_share:.0%} of the {worst.population} have differed from {to}"
        )
    if kind is Kind.MISSING:
        return f"{channel} has been missing for {worst.distance:.0%} more of the {worst.population} than last week"
    if kind is Kind.CALLS:
        return f"{worst.distance:.0%} of the calls have been new"
    return (
        f"{channel} of {worst.population} has left its usual range {10**worst.distance:.1f} times as often as "
        f"{'in training' if worst.measure.reference is Reference.TRAINING else 'last week'}"
    )


def _measures(sketch: DriftSketch, checkpoint: Checkpoint) -> list[DriftMeasureDocument]:
    limits, active = limits_of(checkpoint.reference), set(drifting(sketch).tolist())
    return [
        DriftMeasureDocument.from_object(
            measure,
            distance=_none_if_nan(sketch.distances[row]),
            limit=_none_if_nan(limits[row]),
            moved=_none_if_nan(sketch.moved[row]),
            since=_instant(sketch.since[row]) if row in active else None,
        )
        for row, measure in enumerate(MEASURES)
    ]


def _quality(quality: DataQuality, sketch: DriftSketch) -> DataQualityDocument:
    has_history = sketch.days > 0
    before = sketch.week_missing[has_history].mean(axis=0) if has_history.any() else None
    rows = {population.name: row for row, population in enumerate(POPULATIONS)}
    return DataQualityDocument(
        missing=[
            MissingDocument(
                channel=name, share=share, before=None if before is None else _none_if_nan(before[rows[name]])
            )
            for name, share in quality.missing.items()
            if share > 0
        ],
        stale=list(quality.stale),
        constant=[ConstantDocument(service=service, metric=metric) for service, metric in quality.constant],
    )


def _none_if_nan(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(float(seconds), UTC)
