"""A detector's metrics over one or several recordings of a form."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lab.evaluation.measures.alarms import BUDGETS, AlarmCount
from lab.evaluation.measures.curves import Forecast, forecast
from lab.evaluation.measures.intervals import Estimate, rate, share
from lab.evaluation.measures.located import LocatedMetrics, located_metrics
from lab.evaluation.measures.ranking import Ranking, ranking
from lab.evaluation.measures.recording import FaultFree, IncidentOutcome, RecordingResult, SilentTime
from lab.evaluation.measures.truth import Form

BY_TIME = (Form.STREAM, Form.SEGMENTS)  # in a large mesh, an alarm at the right time can have another cause


@dataclass(frozen=True, slots=True)
class FalseAlarms:
    """Alarm events in normal time, plain and strict (see :class:`~lab.evaluation.measures.alarms.AlarmCount`), per day,
    and the share of normal snapshots in alarm."""

    count: AlarmCount
    per_day: Estimate
    strict_per_day: Estimate
    alarm_share: float | None


@dataclass(frozen=True, slots=True)
class KindMetrics:
    recall: Estimate | None
    ranking: Ranking


@dataclass(frozen=True, slots=True)
class Promise:
    """Alerts per day on fault-free stretches: the budget of the settings, and observed."""

    promised_per_day: float
    observed_per_day: Estimate


@dataclass(frozen=True, slots=True)
class DetectorMetrics:
    """A detector's metrics; None or empty where the form does not allow one.

    Attributes:
        recall: incidents found at the default threshold.
        delay_median: snapshots from the start of a found incident to its first alarm.
        false_alarms: in labelled normal time.
        at_budget: recall by budget of strict false-alarm events per recording, at a threshold chosen in hindsight.
        auroc: mean over the recordings.
        pages: alerts on located incidents.
        notices: notices judged as if they were the alerts; without located incidents, only false ones count. None if
            there are no notices.
        pages_and_notices: both together, on located incidents.
        silence: alerts per hour that match no fault and begin while telemetry is missing, or until ``GRACE`` after it.
        promise: budgeted and observed false alerts.
    """

    form: Form
    snapshots: int
    incidents: int
    notes: tuple[str, ...]
    recall: Estimate | None
    delay_median: float | None
    false_alarms: FalseAlarms | None
    at_budget: dict[int, Estimate]
    auroc: float | None
    ranking: Ranking | None
    by_symptom: dict[str, Ranking]
    by_kind: dict[str, KindMetrics]
    pages: LocatedMetrics | None
    notices: LocatedMetrics | None
    pages_and_notices: LocatedMetrics | None
    silence: Estimate | None
    forecast: Forecast | None
    promise: Promise | None


def compute_metrics(results: Sequence[RecordingResult]) -> DetectorMetrics:
    """Compute a detector's metrics on recordings of one form. All incidents have the same weight."""
    form = results[0].form
    outcomes = [outcome for result in results for outcome in result.outcomes]
    timely = outcomes if form in BY_TIME else []
    delays = [outcome.delay for outcome in timely if outcome.delay is not None]
    runs = [result.run for result in results if result.run is not None]
    return DetectorMetrics(
        form=form,
        snapshots=sum(result.snapshots for result in results),
        incidents=len(outcomes),
        notes=_notes(results),
        recall=_recall(timely),
        delay_median=float(np.median(delays)) if delays else None,
        false_alarms=_false_alarms([result.labelled for result in results if result.labelled is not None]),
        at_budget=_budgets(outcomes),
        auroc=_mean([result.auroc for result in results]),
        ranking=_ranking(outcomes) if outcomes else None,
        by_symptom=_by_symptom(outcomes),
        by_kind={
            kind: _of_kind([o for o in outcomes if o.span.kind == kind], form)
            for kind in sorted({outcome.span.kind for outcome in outcomes})
        },
        pages=located_metrics(runs) if form is Form.LOCATED else None,
        notices=located_metrics([run.with_notices_alone() for run in runs]) if any(r.notices for r in runs) else None,
        pages_and_notices=(
            located_metrics([run.with_notices_as_alerts() for run in runs]) if form is Form.LOCATED else None
        ),
        silence=_silence([result.silent_time for result in results if result.silent_time is not None]),
        forecast=forecast(
            np.concatenate([result.probabilities for result in results]),
            np.concatenate([result.incident for result in results]),
        ),
        promise=_promise([result.fault_free for result in results if result.fault_free is not None]),
    )


def _recall(outcomes: Sequence[IncidentOutcome]) -> Estimate | None:
    return share([o.found for o in outcomes], [o.cluster for o in outcomes]) if outcomes else None


def _false_alarms(counts: Sequence[AlarmCount]) -> FalseAlarms | None:
    if not counts:
        return None
    total = AlarmCount.total(counts)
    alarm_share = total.alarmed / total.snapshots if total.snapshots else None
    return FalseAlarms(total, rate(total.events, total.days), rate(total.strict, total.days), alarm_share)


def _budgets(outcomes: Sequence[IncidentOutcome]) -> dict[int, Estimate]:
    comparable = [outcome for outcome in outcomes if outcome.at_budget]
    clusters = [outcome.cluster for outcome in comparable]
    return {b: share([outcome.at_budget[b] for outcome in comparable], clusters) for b in BUDGETS if comparable}


def _ranking(outcomes: Sequence[IncidentOutcome]) -> Ranking:
    return ranking([outcome.place for outcome in outcomes], [outcome.cluster for outcome in outcomes])


def _by_symptom(outcomes: Sequence[IncidentOutcome]) -> dict[str, Ranking]:
    symptoms = sorted({outcome.span.symptom for outcome in outcomes if outcome.span.symptom})
    return {symptom: _ranking([o for o in outcomes if o.span.symptom == symptom]) for symptom in symptoms}


def _of_kind(outcomes: Sequence[IncidentOutcome], form: Form) -> KindMetrics:
    return KindMetrics(_recall(outcomes) if form in BY_TIME else None, _ranking(outcomes))


def _promise(stretches: Sequence[FaultFree]) -> Promise | None:
    days = sum(stretch.days for stretch in stretches)
    if not days:
        return None
    budget = sum(stretch.promised for stretch in stretches) / days
    pages_per_day = rate(sum(stretch.pages for stretch in stretches), days)
    return Promise(budget, pages_per_day)


def _silence(times: Sequence[SilentTime]) -> Estimate | None:
    return rate(sum(time.false_pages for time in times), sum(time.hours for time in times)) if times else None


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return float(np.mean(numbers)) if numbers else None


def _notes(results: Sequence[RecordingResult]) -> tuple[str, ...]:
    if len(results) == 1:
        return results[0].notes
    return tuple(f"{result.recording}: {note}" for result in results for note in result.notes)
