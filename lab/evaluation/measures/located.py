"""Compares alerts on large meshes with located faults: recall, location, delay, false alerts.

Notices raise no alert. They are judged by the same rules, apart from alerts and together with them.

One incident id is one alert. An alert is true for a fault if it begins in time, from one step before the fault's start
to ``GRACE`` after its recovery, and names, as suspect or affected, a service that the fault affects or a candidate for
its root cause. Every other alert is false. By time alone, any alarm in a large mesh would look right.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np

from lab.evaluation.measures.intervals import Estimate, bursty_rate, share
from lab.evaluation.measures.ranking import Ranking, place, ranking

GRACE = timedelta(minutes=2)
USERS_SUFFER = 5.0  # minimum effect on errors or latencies, sigmas
BLOCK = timedelta(minutes=15)  # false alerts come in bursts, so their rate is resampled in blocks


@dataclass(frozen=True, slots=True)
class AlertRecord:
    """An alert: an incident as a person receives it."""

    id: str
    begin: datetime
    suspects: tuple[str, ...]
    affected: frozenset[str]


@dataclass(frozen=True, slots=True)
class LocatedFault:
    """A fault and the services that show it.

    Attributes:
        start, end: the first instant with it and the first without.
        recovered: the first instant without symptoms, not before ``end``.
        candidates: services that cannot be distinguished from the root cause.
        affected: services with symptoms.
        effect: the largest deviation from the same run without the fault, in sigmas.
        user_effect: the largest deviation of errors and latencies alone, in sigmas.
    """

    start: datetime
    end: datetime
    recovered: datetime
    culprit: str
    candidates: frozenset[str]
    affected: frozenset[str]
    kind: str
    severity: str = ""
    effect: float = float("nan")
    user_effect: float = float("nan")

    @property
    def harms_resources_only(self) -> bool:
        """Whether the fault is known to affect no errors and latencies. A notice is the right answer then."""
        return self.user_effect < USERS_SUFFER


@dataclass(frozen=True, slots=True)
class LocatedRun:
    """One run under one detector: its alerts and the faults in it.

    Attributes:
        step: between two snapshots.
        begin, end: of the evaluated time; the end is excluded.
        notices: incidents that raised no alert.
    """

    pages: tuple[AlertRecord, ...]
    faults: tuple[LocatedFault, ...]
    step: timedelta
    begin: datetime
    end: datetime
    notices: tuple[AlertRecord, ...] = ()

    def with_notices_alone(self) -> "LocatedRun":
        """Return the run as if the notices were its alerts."""
        return replace(self, pages=self.notices, notices=())

    def with_notices_as_alerts(self) -> "LocatedRun":
        """Return the run as if every incident raised an alert. One that was both counts once, from its start."""
        latest_first = sorted((*self.pages, *self.notices), key=lambda record: record.begin, reverse=True)
        return replace(self, pages=tuple({record.id: record for record in latest_first}.values()), notices=())


@dataclass(frozen=True, slots=True)
class FaultOutcome:
    """The outcome of a fault.

    Attributes:
        page: the first true alert; None: not found.
        delay: until the alert; one step early counts as no delay.
        place: rank of the root cause in the alert; None: not named.
    """

    fault: LocatedFault
    page: AlertRecord | None
    delay: timedelta | None
    place: int | None

    @property
    def cluster(self) -> tuple[str, str]:
        """Key of the bootstrap clusters: faults of one root cause and kind are not independent."""
        return self.fault.culprit, self.fault.kind


@dataclass(frozen=True, slots=True)
class FaultMetrics:
    """Metrics of some faults.

    Attributes:
        recall: share found.
        delay_seconds: median.
        ranking: of the root cause in the alerts on faults that were found.
    """

    recall: Estimate
    delay_seconds: float | None
    ranking: Ranking


@dataclass(frozen=True, slots=True)
class LocatedMetrics:
    """Metrics of one detector over some runs.

    Attributes:
        resources_only: of the faults that affect resources only.
        pages, false_pages: numbers of alerts and of false alerts.
        pages_a_found_fault: true alerts over faults found; the ideal is one; more means that a fault has several
            incidents. None if no fault is found.
    """

    outcomes: tuple[FaultOutcome, ...]
    overall: FaultMetrics
    by_kind: dict[str, FaultMetrics]
    resources_only: FaultMetrics
    pages: int
    false_pages: int
    false_pages_an_hour: Estimate
    pages_a_found_fault: float | None


def is_true(page: AlertRecord, fault: LocatedFault, step: timedelta) -> bool:
    """Return whether the alert matches this fault in time and location."""
    in_time = fault.start - step <= page.begin <= fault.recovered + GRACE
    services = fault.affected | fault.candidates | {fault.culprit}
    return in_time and not services.isdisjoint({*page.suspects, *page.affected})


def fault_outcomes(run: LocatedRun) -> list[FaultOutcome]:
    pages = sorted(run.pages, key=lambda page: page.begin)
    return [_outcome(fault, next((p for p in pages if is_true(p, fault, run.step)), None)) for fault in run.faults]


def false_pages(run: LocatedRun) -> tuple[AlertRecord, ...]:
    return tuple(page for page in run.pages if not any(is_true(page, f, run.step) for f in run.faults))


def located_metrics(located_runs: Iterable[LocatedRun]) -> LocatedMetrics:
    """Compute the metrics over runs.

    Intervals are bootstrapped over faults, or over pairs of root cause and kind if that is wider; for false alerts,
    over blocks of time.
    """
    runs = list(located_runs)
    outcomes = [outcome for run in runs for outcome in fault_outcomes(run)]
    kinds = sorted({outcome.fault.kind for outcome in outcomes})
    pages, false_count = sum(len(run.pages) for run in runs), sum(len(false_pages(run)) for run in runs)
    hits = sum(outcome.page is not None for outcome in outcomes)
    return LocatedMetrics(
        outcomes=tuple(outcomes),
        overall=fault_metrics(outcomes),
        by_kind={
            kind: fault_metrics([outcome for outcome in outcomes if outcome.fault.kind == kind]) for kind in kinds
        },
        resources_only=fault_metrics([outcome for outcome in outcomes if outcome.fault.harms_resources_only]),
        pages=pages,
        false_pages=false_count,
        false_pages_an_hour=_rate(runs),
        pages_a_found_fault=(pages - false_count) / hits if hits else None,
    )


def fault_metrics(outcomes: Sequence[FaultOutcome]) -> FaultMetrics:
    hits = [o for o in outcomes if o.page is not None]
    delays = [o.delay.total_seconds() for o in hits if o.delay is not None]
    return FaultMetrics(
        share([o.page is not None for o in outcomes], [o.cluster for o in outcomes]),
        float(np.median(delays)) if delays else None,
        ranking([o.place for o in hits], [o.cluster for o in hits]),
    )


def _outcome(fault: LocatedFault, page: AlertRecord | None) -> FaultOutcome:
    if page is None:
        return FaultOutcome(fault, None, None, None)
    delay = max(timedelta(0), page.begin - fault.start)
    return FaultOutcome(fault, page, delay, place(fault.culprit, page.suspects))


def _rate(runs: Sequence[LocatedRun]) -> Estimate:
    counts: list[int] = []
    hours: list[float] = []
    for run in runs:
        blocks = max(1, -(-(run.end - run.begin) // BLOCK))
        at = [min(max((page.begin - run.begin) // BLOCK, 0), blocks - 1) for page in false_pages(run)]
        counts += np.bincount(at, minlength=blocks).tolist() if at else [0] * blocks
        ends = [min(run.begin + (i + 1) * BLOCK, run.end) for i in range(blocks)]
        hours += [(end - run.begin - i * BLOCK) / timedelta(hours=1) for i, end in enumerate(ends)]
    return bursty_rate(np.array(counts, np.float64), np.array(hours, np.float64))
