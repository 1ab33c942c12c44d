"""Alerts on large meshes compared with located faults: recall, location, delay, and false alerts.

Notices raise no alert. They are judged by the same rules, apart from alerts and together with them.

One incident id is one alert. An alert is true for a fault if it begins in time, from one step before the fault's start
to ``GRACE`` after its recovery, and names, as suspect or affected, a service that the fault affects or that may be its
root cause. Every other alert is false. By time alone, any alarm in a large mesh would look right.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np

from lab.evaluation.measures.intervals import Estimate, bursty_rate, share
from lab.evaluation.measures.ranking import Ranking, place, ranking

GRACE = timedelta(minutes=2)
USERS_SUFFER = 5.0  # least effect on errors or latencies, sigmas
BLOCK = timedelta(minutes=15)  # false alerts come in bursts, so their rate is resampled in blocks


@dataclass(frozen=True, slots=True)
class AlertRecord:
    """One alert: an incident as a person receives it."""

    id: str
    begin: datetime
    suspects: tuple[str, ...]
    affected: frozenset[str]


@dataclass(frozen=True, slots=True)
class LocatedFault:
    """A fault and where it shows.

    Attributes:
        start, end: the first instant with it and the first without.
        recovered: the first instant without symptoms, not before ``end``.
        culprit: node id.
        candidates: services that cannot be distinguished from the root cause.
        affected: services with symptoms.
        kind, severity: as injected.
        effect: the largest deviation from the same run without the fault, in sigmas.
        user_effect: the same of errors and latencies alone.
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
        """Return the run as if every incident raised an alert. An incident that was both counts once, from its first
        snapshot."""
        latest_first = sorted((*self.pages, *self.notices), key=lambda record: record.begin, reverse=True)
        return replace(self, pages=tuple({record.id: record for record in latest_first}.values()), notices=())


@dataclass(frozen=True, slots=True)
class FaultOutcome:
    """The outcome of a fault.

    Attributes:
        page: its first true alert; None: not found.
        delay: of the alert; one step early counts as no delay.
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
        ranking: of the root cause in the alerts of those that were found.
    """

    recall: Estimate
    delay_seconds: float | None
    ranking: Ranking


@dataclass(frozen=True, slots=True)
class LocatedMetrics:
    """Metrics of one detector over some runs.

    Attributes:
        outcomes: of each fault.
        overall, by_kind: of the faults.
        resources_only: of the faults that harm resources only.
        pages, false_pages: number of alerts, and of false ones.
        false_pages_an_hour: over all evaluated time.
        pages_a_found_fault: true alerts over faults found; one is right, more means that one fault has several
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
    """Return whether the alert matches this fault in time and in location."""
    in_time = fault.start - step <= page.begin <= fault.recovered + GRACE
    shown = fault.affected | fault.candidates | {fault.culprit}
    return in_time and not shown.isdisjoint({*page.suspects, *page.affected})


def fault_outcomes(run: LocatedRun) -> list[FaultOutcome]:
    pages = sorted(run.pages, key=lambda page: page.begin)
    return [_outcome(fault, next((p for p in pages if is_true(p, fault, run.step)), None)) for fault in run.faults]


def false_pages(run: LocatedRun) -> tuple[AlertRecord, ...]:
    return tuple(page for page in run.pages if not any(is_true(page, f, run.step) for f in run.faults))


def located_metrics(located_runs: Iterable[LocatedRun]) -> LocatedMetrics:
    """Compute the metrics over runs.

    Intervals are bootstrapped over faults, or over pairs of root cause and kind if that is wider, and over blocks of
    time for false alerts.
    """
    runs = list(located_runs)
    found = [outcome for run in runs for outcome in fault_outcomes(run)]
    kinds = sorted({outcome.fault.kind for outcome in found})
    pages, false = sum(len(run.pages) for run in runs), sum(len(false_pages(run)) for run in runs)
    hits = sum(outcome.page is not None for outcome in found)
    return LocatedMetrics(
        outcomes=tuple(found),
        overall=fault_metrics(found),
        by_kind={kind: fault_metrics([one for one in found if one.fault.kind == kind]) for kind in kinds},
        resources_only=fault_metrics([outcome for outcome in found if outcome.fault.harms_resources_only]),
        pages=pages,
        false_pages=false,
        false_pages_an_hour=_rate(runs),
        pages_a_found_fault=(pages - false) / hits if hits else None,
    )


def fault_metrics(found: Sequence[FaultOutcome]) -> FaultMetrics:
    hits = [o for o in found if o.page is not None]
    delays = [o.delay.total_seconds() for o in hits if o.delay is not None]
    return FaultMetrics(
        share([o.page is not None for o in found], [o.cluster for o in found]),
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
