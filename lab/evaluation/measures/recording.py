"""A detector's result on one recording: each incident's outcome, and counts."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from lab.evaluation.measures.alarms import (
    SECONDS_PER_DAY,
    AlarmCount,
    delays,
    false_alarms,
    found_at_budgets,
)
from lab.evaluation.measures.curves import auroc
from lab.evaluation.measures.located import LocatedRun, false_pages, is_true
from lab.evaluation.measures.ranking import place
from lab.evaluation.measures.series import MISSING, VerdictSeries
from lab.evaluation.measures.truth import FAULT, NORMAL, Flags, Floats, Form, GroundTruth, Span, microseconds


@dataclass(frozen=True, slots=True)
class IncidentOutcome:
    """An incident's outcome.

    Attributes:
        delay: snapshots until the first alarm; None: not found.
        place: rank of the root cause among the suspects, from 1; None: not named.
        at_budget: whether it is found, by budget of strict false-alarm events.
    """

    span: Span
    delay: int | None
    place: int | None
    at_budget: Mapping[int, bool] = field(default_factory=dict)

    @property
    def found(self) -> bool:
        return self.delay is not None

    @property
    def cluster(self) -> tuple[str | None, str]:
        """Key of the bootstrap clusters: incidents of one root cause and kind are not independent."""
        return self.span.culprit, self.span.kind


@dataclass(frozen=True, slots=True)
class FaultFree:
    """Time without faults: days, alerts, and the budget of alerts."""

    days: float
    pages: int
    promised: float


@dataclass(frozen=True, slots=True)
class SilentTime:
    """Time with telemetry missing by plan: hours, and alerts that match no fault."""

    hours: float
    false_pages: int


@dataclass(frozen=True, slots=True)
class RecordingResult:
    """A detector's result on one recording.

    Attributes:
        status: number of snapshots for each status.
        outcomes: one per incident.
        auroc: over the labelled span.
        labelled: false alarms in labelled normal time.
        probabilities, incident: of the scored snapshots that are normal or faulty, ``[S]``.
        fault_free: alerts in time without faults.
        silent_time: alerts while telemetry was missing; None if it never was.
        run: the alerts, if they are located or there is no incident.
    """

    recording: str
    form: Form
    snapshots: int
    services: int
    status: Counter[str]
    notes: tuple[str, ...]
    outcomes: tuple[IncidentOutcome, ...]
    auroc: float | None
    labelled: AlarmCount | None
    probabilities: Floats
    incident: Flags
    fault_free: FaultFree | None
    silent_time: SilentTime | None
    run: LocatedRun | None


def evaluate_recording(truth: GroundTruth, series: VerdictSeries, pages_per_day: float) -> RecordingResult:
    """Evaluate a detector on one recording. ``pages_per_day`` is the budget of false alerts for a mesh of this size."""
    score = series.score
    normal = truth.labels == NORMAL
    has_times = truth.form in (Form.STREAM, Form.LOCATED)
    faulty_scores, normal_scores = score[truth.labels == FAULT], score[normal]
    if truth.form is Form.SEGMENTS and np.ptp(normal_scores) == 0:
        normal_scores = normal_scores[:0]
    is_scored = (truth.labels == FAULT) | normal if has_times or truth.form is Form.NORMAL else np.zeros_like(normal)
    is_scored &= series.on_duty & ~np.isnan(series.probability)
    run = _located_run(truth, series) if truth.form in (Form.LOCATED, Form.NORMAL) else None
    return RecordingResult(
        recording=truth.name,
        form=truth.form,
        snapshots=len(truth.times),
        services=len(truth.services),
        status=Counter(series.status),
        notes=_notes(truth, series),
        outcomes=_outcomes(truth, series),
        auroc=auroc(faulty_scores, normal_scores),
        labelled=_labelled_false_alarms(truth, series),
        probabilities=series.probability[is_scored],
        incident=truth.labels[is_scored] == FAULT,
        fault_free=_fault_free(truth, series, pages_per_day),
        silent_time=_silent_time(truth, series, run) if run is not None and truth.silent.any() else None,
        run=run,
    )


def _located_run(truth: GroundTruth, series: VerdictSeries) -> LocatedRun:
    """Return the alerts in the evaluated time, which begins with the first verdict after the warm-up."""
    duty = np.flatnonzero(series.on_duty)
    end = truth.instant(len(truth.times) - 1) + truth.step
    begin = max(truth.begin, truth.instant(int(duty[0]))) if len(duty) else end
    pages, notices = (
        tuple(record for record in records if record.begin >= begin) for records in (series.pages, series.notices)
    )
    return LocatedRun(pages, truth.faults, truth.step, begin, end, notices)


def _outcomes(truth: GroundTruth, series: VerdictSeries) -> tuple[IncidentOutcome, ...]:
    delays_found = delays(truth, series.alarm)
    budgets: Mapping[int, tuple[bool, ...]] = {}
    if truth.form is Form.STREAM:
        budgets = found_at_budgets(truth, series.score, truth.labels == NORMAL)
    return tuple(
        IncidentOutcome(
            span=window.span,
            delay=delays_found[i],
            place=place(window.span.culprit, series.suspects_in(window)),
            at_budget={budget: is_found[i] for budget, is_found in budgets.items()},
        )
        for i, window in enumerate(truth.windows)
    )


def _labelled_false_alarms(truth: GroundTruth, series: VerdictSeries) -> AlarmCount | None:
    """Count false alarms by time. It says nothing in a large mesh, and segments have none."""
    if truth.form is Form.STREAM:
        return false_alarms(truth, series.alarm, truth.labels == NORMAL)
    if truth.form is Form.NORMAL:
        return false_alarms(truth, series.alarm, (truth.labels == NORMAL) & series.on_duty)
    return None


def _fault_free(truth: GroundTruth, series: VerdictSeries, pages_per_day: float) -> FaultFree | None:
    if truth.form is Form.SEGMENTS:
        return None
    free = (truth.labels == NORMAL) & series.on_duty
    times = set(truth.times[free].tolist())
    pages = [
        page
        for page in series.pages
        if microseconds(page.begin) in times and not any(is_true(page, fault, truth.step) for fault in truth.faults)
    ]
    days = float(free.sum()) * truth.step.total_seconds() / SECONDS_PER_DAY
    return FaultFree(days, len(pages), days * pages_per_day)


def _silent_time(truth: GroundTruth, series: VerdictSeries, run: LocatedRun) -> SilentTime:
    is_judged = truth.silent & series.on_duty & (truth.times >= microseconds(run.begin))
    times = set(truth.times[is_judged].tolist())
    pages = sum(microseconds(record.begin) in times for record in false_pages(run))
    return SilentTime(float(is_judged.sum()) * truth.step.total_seconds() / 3600, pages)


def _notes(truth: GroundTruth, series: VerdictSeries) -> tuple[str, ...]:
    notes = []
    if missing := series.status.count(MISSING):
        notes.append(f"{missing} snapshots have no verdict: lowest score, no alarm")
    if series.unplaced:
        notes.append(f"{series.unplaced} verdicts belong to no snapshot and are left out")
    unknown = sum(window.span.culprit not in truth.services for window in truth.windows)
    if unknown:
        notes.append(f"{unknown} incidents have a culprit that is not among the services, so no detector can name it")
    if truth.form is Form.SEGMENTS and np.ptp(series.score[truth.first_rows]) == 0:
        notes.append("scores of the normal rows are all alike: AUROC says nothing")
    return tuple(notes)
