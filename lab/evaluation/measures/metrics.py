"""Metrics of one detector over one recording or several of a form, and the difference between two detectors.

The JSON of ``tagae evaluate`` uses the names of the fields.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from lab.evaluation.measures.alarms import BUDGETS, AlarmCount
from lab.evaluation.measures.curves import Forecast, auroc, forecast
from lab.evaluation.measures.intervals import Difference, Estimate, differences, rate, share
from lab.evaluation.measures.located import (
    LocatedMetrics,
    LocatedRun,
    added_by_churn,
    false_pages,
    located_metrics,
)
from lab.evaluation.measures.ranking import PLACES, Ranking, component, ranking, within
from lab.evaluation.measures.recording import FaultFree, IncidentOutcome, RecordingResult, SilentTime
from lab.evaluation.measures.truth import Floats, Form

BY_TIME = (Form.STREAM, Form.SEGMENTS)  # in a large mesh, an alarm at the right time can have another cause


@dataclass(frozen=True, slots=True)
class Delay:
    """Snapshots from an incident's start until it was found, over the ``n`` found ones."""

    n: int
    median: float | None
    p90: float | None


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
    """Metrics of the incidents of one kind."""

    recall: Estimate | None
    delay_median: float | None
    auroc: float | None
    ranking: Ranking


@dataclass(frozen=True, slots=True)
class Promise:
    """Alerts per day on fault-free stretches: the budget of the settings, and observed.

    Attributes:
        days: of the stretches.
        promised_per_day: the budget.
        observed_per_day: false alerts.
        ratio: observed over budgeted.
    """

    days: float
    promised_per_day: float
    observed_per_day: Estimate
    ratio: float | None


@dataclass(frozen=True, slots=True)
class SilenceMetrics:
    """Alerts and notices that match no fault and begin while telemetry is missing, or until ``GRACE`` after it.

    Attributes:
        hours: of that time.
        false_pages, false_notices: number of alerts and of notices.
        false_pages_an_hour: alerts per hour.
    """

    hours: float
    false_pages: int
    false_notices: int
    false_pages_an_hour: Estimate


@dataclass(frozen=True, slots=True)
class Churn:
    """False alerts compared with the muted control: the same meshes and faults without benign changes.

    Attributes:
        hours: of the runs, and of the controls.
        false_pages, control_false_pages: number in ``hours`` each.
        due: false alerts that the control does not have.
        due_an_hour: the same per hour.
    """

    hours: float
    false_pages: int
    control_false_pages: int
    due: int
    due_an_hour: Estimate


@dataclass(frozen=True, slots=True)
class DetectorMetrics:
    """The metrics of EVALUATION.md; None or empty if the form does not allow one.

    Attributes:
        recordings, form, snapshots, services, incidents, status, notes: what was evaluated; ``services`` from, to.
        recall, onset: at the default threshold: incidents found, and those in which an alarm event begins.
        by_chance: recall expected from random alarms with the alarm share of normal time.
        in_warm_up, recall_after_warm_up: incidents during which the detector warmed up, and recall of the others.
        delay: see :class:`Delay`.
        false_alarms, tail: in labelled normal time; after the last incident, which is not labelled.
        at_budget, at_budget_with_tail: recall with at most this many strict false-alarm events in each recording, at a
            threshold chosen in hindsight.
        first_rows, first_rows_cold: alarms on the normal rows of segments; how many of these rows are warming up.
        auroc, average_precision, vus_pr, auroc_against_tail: mean over the recordings.
        faulty, normal: number of snapshots behind them.
        ranking, twins: of the root cause; with components that are listed several times counted once.
        by_symptom, by_kind: for each symptom, for each kind.
        chance: of naming the root cause among the first 1, 3, 5 at random.
        pages: of located incidents: alerts.
        notices: notices judged as if they were the alerts; without located incidents, only false ones count. None if
            there are no notices.
        pages_and_notices: both together, of located incidents.
        silence: if the recordings have silences.
        churn: if there is a control.
        forecast: of the probability.
        promise: budgeted and observed false alerts.
    """

    recordings: tuple[str, ...]
    form: Form
    snapshots: int
    services: tuple[int, int]
    incidents: int
    status: dict[str, int]
    notes: tuple[str, ...]
    recall: Estimate | None
    onset: Estimate | None
    by_chance: float | None
    in_warm_up: int
    recall_after_warm_up: Estimate | None
    delay: Delay | None
    false_alarms: FalseAlarms | None
    tail: FalseAlarms | None
    at_budget: dict[int, Estimate]
    at_budget_with_tail: dict[int, Estimate]
    first_rows: Estimate | None
    first_rows_cold: int
    auroc: float | None
    average_precision: float | None
    vus_pr: float | None
    auroc_against_tail: float | None
    faulty: int
    normal: int
    ranking: Ranking | None
    twins: Ranking | None
    by_symptom: dict[str, Ranking]
    by_kind: dict[str, KindMetrics]
    chance: tuple[float, ...]
    pages: LocatedMetrics | None
    notices: LocatedMetrics | None
    pages_and_notices: LocatedMetrics | None
    silence: SilenceMetrics | None
    churn: Churn | None
    forecast: Forecast | None
    promise: Promise | None


def compute_metrics(results: Sequence[RecordingResult], controls: Sequence[RecordingResult] = ()) -> DetectorMetrics:
    """Compute the metrics of one recording, or of several of one form. All incidents have the same weight.

    Args:
        results: of one detector.
        controls: the muted controls of those recordings, in the same order; empty without controls.
    """
    form = results[0].form
    outcomes = [outcome for one in results for outcome in one.outcomes]
    emitted = outcomes if form in BY_TIME else []
    stream = outcomes if form is Form.STREAM else []
    runs = [one.run for one in results if one.run is not None]
    return DetectorMetrics(
        recordings=tuple(one.recording for one in results),
        form=form,
        snapshots=sum(one.snapshots for one in results),
        services=(min(one.services for one in results), max(one.services for one in results)),
        incidents=len(outcomes),
        status=dict(sum((one.status for one in results), Counter[str]())),
        notes=_notes(results),
        recall=_share(emitted, lambda outcome: outcome.found),
        onset=_share(stream, lambda outcome: outcome.onset),
        by_chance=float(np.mean([outcome.by_chance for outcome in stream])) if stream else None,
        in_warm_up=sum(outcome.cold for outcome in outcomes),
        recall_after_warm_up=_share([o for o in stream if not o.cold], lambda outcome: outcome.found),
        delay=_delay(emitted) if emitted else None,
        false_alarms=_false_alarms([one.labelled for one in results if one.labelled is not None]),
        tail=_false_alarms([one.tail for one in results if one.tail is not None]),
        at_budget=_budgets([outcome.at_budget for outcome in outcomes], outcomes),
        at_budget_with_tail=_budgets([outcome.at_budget_with_tail for outcome in outcomes], outcomes),
        first_rows=share(rows) if (rows := [row for one in results for row in one.first_row_alarms]) else None,
        first_rows_cold=sum(one.first_rows_cold for one in results),
        auroc=_mean([one.auroc for one in results]),
        average_precision=_mean([one.average_precision for one in results]),
        vus_pr=_mean([one.vus_pr for one in results]),
        auroc_against_tail=_mean([one.auroc_against_tail for one in results]),
        faulty=sum(len(outcome.scores) for outcome in outcomes),
        normal=sum(len(one.normal_scores) for one in results),
        ranking=_ranking(outcomes) if outcomes else None,
        twins=_twins(outcomes),
        by_symptom=_by_symptom(outcomes),
        by_kind={kind: _of_kind(kind, results) for kind in sorted({outcome.span.kind for outcome in outcomes})},
        chance=tuple(float(np.mean([k / one.services for one in results])) for k in PLACES) if outcomes else (),
        pages=located_metrics(runs) if form is Form.LOCATED else None,
        notices=located_metrics([run.with_notices_alone() for run in runs]) if any(r.notices for r in runs) else None,
        pages_and_notices=(
            located_metrics([run.with_notices_as_alerts() for run in runs]) if form is Form.LOCATED else None
        ),
        silence=_silence([one.silent_time for one in results if one.silent_time is not None]),
        churn=_churn(runs, [one.run for one in controls if one.run is not None]),
        forecast=forecast(
            np.concatenate([one.probabilities for one in results]), np.concatenate([one.incident for one in results])
        ),
        promise=_promise([one.fault_free for one in results if one.fault_free is not None]),
    )


def compare_detectors(first: Sequence[RecordingResult], second: Sequence[RecordingResult]) -> dict[str, Difference]:
    """Compare two detectors on the same recordings, incident by incident: first minus second, for recall and top-1, 3,
    5.

    For located incidents, the root cause counts as named if a true alert names it.
    """
    if first[0].form is Form.LOCATED:
        pages, others = (
            located_metrics([one.run for one in results if one.run is not None]) for results in (first, second)
        )
        found = [[o.page is not None for o in metrics.outcomes] for metrics in (pages, others)]
        places = [[o.place for o in metrics.outcomes] for metrics in (pages, others)]
    else:
        both = [[outcome for one in results for outcome in one.outcomes] for results in (first, second)]
        found = [[o.found for o in outcomes] for outcomes in both]
        places = [[o.place for o in outcomes] for outcomes in both]
    top = {f"top{k}": tuple([within(p, k) for p in named] for named in places) for k in PLACES}
    return differences({"recall": (found[0], found[1]), **{name: (a, b) for name, (a, b) in top.items()}})


def _share(outcomes: Sequence[IncidentOutcome], hit: Callable[[IncidentOutcome], bool]) -> Estimate | None:
    return share([hit(o) for o in outcomes], [o.cluster for o in outcomes]) if outcomes else None


def _delay(outcomes: Sequence[IncidentOutcome]) -> Delay:
    late = [outcome.delay for outcome in outcomes if outcome.delay is not None]
    return Delay(len(late), float(np.median(late)) if late else None, float(np.quantile(late, 0.9)) if late else None)


def _false_alarms(counts: Sequence[AlarmCount]) -> FalseAlarms | None:
    if not counts:
        return None
    total = sum(counts[1:], counts[0])
    alarmed = total.alarmed / total.snapshots if total.snapshots else None
    return FalseAlarms(total, rate(total.events, total.days), rate(total.strict, total.days), alarmed)


def _budgets(found: Sequence[Mapping[int, bool]], outcomes: Sequence[IncidentOutcome]) -> dict[int, Estimate]:
    known = [(at, outcome.cluster) for at, outcome in zip(found, outcomes, strict=True) if at]
    return {b: share([at[b] for at, _ in known], [cluster for _, cluster in known]) for b in BUDGETS if known}


def _ranking(outcomes: Sequence[IncidentOutcome]) -> Ranking:
    return ranking([outcome.place for outcome in outcomes], [outcome.cluster for outcome in outcomes])


def _twins(outcomes: Sequence[IncidentOutcome]) -> Ranking | None:
    culprits = {outcome.span.culprit for outcome in outcomes if outcome.span.culprit}
    if {component(culprit) for culprit in culprits} == culprits:
        return None
    return ranking([outcome.twin_place for outcome in outcomes], [outcome.cluster for outcome in outcomes])


def _by_symptom(outcomes: Sequence[IncidentOutcome]) -> dict[str, Ranking]:
    symptoms = sorted({outcome.span.symptom for outcome in outcomes if outcome.span.symptom})
    return {symptom: _ranking([o for o in outcomes if o.span.symptom == symptom]) for symptom in symptoms}


def _of_kind(kind: str, results: Sequence[RecordingResult]) -> KindMetrics:
    outcomes = [outcome for one in results for outcome in one.outcomes if outcome.span.kind == kind]
    emitted = results[0].form in BY_TIME
    return KindMetrics(
        recall=_share(outcomes, lambda outcome: outcome.found) if emitted else None,
        delay_median=_delay(outcomes).median if emitted else None,
        auroc=_mean([_auroc_of_kind(kind, one) for one in results]),
        ranking=_ranking(outcomes),
    )


def _auroc_of_kind(kind: str, result: RecordingResult) -> float | None:
    scores: list[Floats] = [outcome.scores for outcome in result.outcomes if outcome.span.kind == kind]
    return auroc(np.concatenate(scores), result.normal_scores) if scores else None


def _promise(stretches: Sequence[FaultFree]) -> Promise | None:
    days = sum(one.days for one in stretches)
    if not days:
        return None
    promised = sum(one.promised for one in stretches) / days
    observed = rate(sum(one.pages for one in stretches), days)
    return Promise(days, promised, observed, (observed.value or 0.0) / promised)


def _silence(times: Sequence[SilentTime]) -> SilenceMetrics | None:
    if not times:
        return None
    hours, pages = sum(one.hours for one in times), sum(one.false_pages for one in times)
    return SilenceMetrics(hours, pages, sum(one.false_notices for one in times), rate(pages, hours))


def _churn(runs: Sequence[LocatedRun], controls: Sequence[LocatedRun]) -> Churn | None:
    if not controls or not runs:
        return None
    due = sum(len(added_by_churn(run, control)) for run, control in zip(runs, controls, strict=True))
    hours = sum((run.end - run.begin) / timedelta(hours=1) for run in runs)
    false, control = (sum(len(false_pages(run)) for run in group) for group in (runs, controls))
    return Churn(hours, false, control, due, rate(due, hours))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _notes(results: Sequence[RecordingResult]) -> tuple[str, ...]:
    if len(results) == 1:
        return results[0].notes
    return tuple(f"{one.recording}: {note}" for one in results for note in one.notes)
