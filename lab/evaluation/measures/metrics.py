"""Metrics of one detector over one recording or several of a form."""

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
    """The metrics of one detector; None or empty if the form does not allow one.

    Attributes:
        form, snapshots, incidents, notes: what was evaluated.
        recall: incidents found at the default threshold.
        delay_median: snapshots from an incident's start until it was found, over those that were found.
        false_alarms: in labelled normal time.
        at_budget: recall with at most this many strict false-alarm events in each recording, at a threshold chosen in
            hindsight.
        auroc: mean over the recordings.
        ranking: of the root cause.
        by_symptom, by_kind: for each symptom, for each kind.
        pages: of located incidents: alerts.
        notices: notices judged as if they were the alerts; without located incidents, only false ones count. None if
            there are no notices.
        pages_and_notices: both together, of located incidents.
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
    """Compute the metrics of one detector on one recording, or on several of one form. All incidents have the same
    weight."""
    form = results[0].form
    outcomes = [outcome for one in results for outcome in one.outcomes]
    emitted = outcomes if form in BY_TIME else []
    late = [outcome.delay for outcome in emitted if outcome.delay is not None]
    runs = [one.run for one in results if one.run is not None]
    return DetectorMetrics(
        form=form,
        snapshots=sum(one.snapshots for one in results),
        incidents=len(outcomes),
        notes=_notes(results),
        recall=_recall(emitted),
        delay_median=float(np.median(late)) if late else None,
        false_alarms=_false_alarms([one.labelled for one in results if one.labelled is not None]),
        at_budget=_budgets(outcomes),
        auroc=_mean([one.auroc for one in results]),
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
        silence=_silence([one.silent_time for one in results if one.silent_time is not None]),
        forecast=forecast(
            np.concatenate([one.probabilities for one in results]), np.concatenate([one.incident for one in results])
        ),
        promise=_promise([one.fault_free for one in results if one.fault_free is not None]),
    )


def _recall(outcomes: Sequence[IncidentOutcome]) -> Estimate | None:
    return share([o.found for o in outcomes], [o.cluster for o in outcomes]) if outcomes else None


def _false_alarms(counts: Sequence[AlarmCount]) -> FalseAlarms | None:
    if not counts:
        return None
    total = AlarmCount.total(counts)
    alarmed = total.alarmed / total.snapshots if total.snapshots else None
    return FalseAlarms(total, rate(total.events, total.days), rate(total.strict, total.days), alarmed)


def _budgets(outcomes: Sequence[IncidentOutcome]) -> dict[int, Estimate]:
    known = [outcome for outcome in outcomes if outcome.at_budget]
    return {b: share([o.at_budget[b] for o in known], [o.cluster for o in known]) for b in BUDGETS if known}


def _ranking(outcomes: Sequence[IncidentOutcome]) -> Ranking:
    return ranking([outcome.place for outcome in outcomes], [outcome.cluster for outcome in outcomes])


def _by_symptom(outcomes: Sequence[IncidentOutcome]) -> dict[str, Ranking]:
    symptoms = sorted({outcome.span.symptom for outcome in outcomes if outcome.span.symptom})
    return {symptom: _ranking([o for o in outcomes if o.span.symptom == symptom]) for symptom in symptoms}


def _of_kind(outcomes: Sequence[IncidentOutcome], form: Form) -> KindMetrics:
    return KindMetrics(_recall(outcomes) if form in BY_TIME else None, _ranking(outcomes))


def _promise(stretches: Sequence[FaultFree]) -> Promise | None:
    days = sum(one.days for one in stretches)
    if not days:
        return None
    promised = sum(one.promised for one in stretches) / days
    observed = rate(sum(one.pages for one in stretches), days)
    return Promise(promised, observed)


def _silence(times: Sequence[SilentTime]) -> Estimate | None:
    return rate(sum(one.false_pages for one in times), sum(one.hours for one in times)) if times else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _notes(results: Sequence[RecordingResult]) -> tuple[str, ...]:
    if len(results) == 1:
        return results[0].notes
    return tuple(f"{one.recording}: {note}" for one in results for note in one.notes)
