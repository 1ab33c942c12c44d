"""A case's lines: a number from its verdicts, the limit, and OK or FAULT."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.calm_again.cases import BEGIN, LATER, NIGHT_FAULTS, NIGHT_LASTS, Case, Night

CAUSE = "web"  # in the cases ``network`` and ``cpu``
MINUTES = 4  # snapshots in a minute
MAX_QUIET, MIN_OPENED, MIN_RIGHT = 0.03, 36, 32  # in the night: share of time, faults, faults
SETTLED = 60  # first snapshot with an expected stable threshold
CLEARLY, FOR = 1.2, 5  # a normal verdict's score over the threshold, and snapshots
MAX_MOVED = 1.5  # factor between the highest and the lowest threshold


@dataclass(frozen=True, slots=True)
class Alert:
    """An incident with an alert in a verdict; ``suspect`` is the first one's name without namespace, empty if none."""

    id: str
    headline: str
    suspect: str


@dataclass(frozen=True, slots=True)
class Mark:
    """The part of a verdict that the cases judge.

    Attributes:
        alerts: the most urgent first.
        score, threshold: NaN or 0 if there is none.
        is_normal: whether the status is normal, and nothing is muted.
    """

    alerts: tuple[Alert, ...]
    score: float
    threshold: float
    is_normal: bool


Marks = Sequence[Mark]


@dataclass(frozen=True, slots=True)
class Line:
    """A number and its limit, which is a minimum if ``is_higher_better``."""

    case: str
    measure: str
    value: float
    limit: float
    text: str
    is_higher_better: bool = False

    @property
    def holds(self) -> bool:
        return self.value >= self.limit if self.is_higher_better else self.value <= self.limit

    def __str__(self) -> str:
        return f"{'OK   ' if self.holds else 'FAULT'} {self.case}: {self.text}"


def judge(case: Case, marks: Marks) -> tuple[Line, ...]:
    return {"residue": _residue, "step": _step, "swing": _swing, "network": _cause, "cpu": _cause, "night": _night}[
        case.name
    ](case, marks)


def _residue(case: Case, marks: Marks) -> tuple[Line, ...]:
    late = [mark for mark in marks[BEGIN + 36 : LATER] if mark.alerts]
    before = {alert.id for mark in marks[:LATER] for alert in mark.alerts}
    during = [alert for mark in marks[LATER : LATER + 16] for alert in mark.alerts]
    is_new = any("pay" in alert.headline for alert in during if alert.id not in before)
    headline = late[-1].alerts[0].headline if late else ""
    text = f"{len(late)} of 84 snapshots in alarm from 6 minutes after the fault on {headline!r}"
    return (
        Line(case.name, "snapshots in alarm after the fault", len(late), 0, text),
        _flag(case, "the next fault is an alert of its own", is_new),
    )


def _step(case: Case, marks: Marks) -> tuple[Line, ...]:
    late = sum(bool(mark.alerts) for mark in marks[BEGIN:])
    return (Line(case.name, "snapshots in alarm", late, 0, f"{late} of 240 snapshots in alarm because of 1 ms"),)


def _swing(case: Case, marks: Marks) -> tuple[Line, ...]:
    is_found = any(mark.alerts for mark in marks[BEGIN : BEGIN + 3 * MINUTES])
    late = sum(any("fell" in alert.headline for alert in mark.alerts) for mark in marks[BEGIN + 24 :])
    text = f"{late} of 96 snapshots still say that requests fell, from 4 minutes after their return"
    return (
        _flag(case, "the fall is an alert within three minutes", is_found),
        Line(case.name, "snapshots that still say that requests fell", late, 0, text),
    )


def _cause(case: Case, marks: Marks) -> tuple[Line, ...]:
    suspects = [mark.alerts[0].suspect for mark in marks[BEGIN + MINUTES :] if mark.alerts and mark.alerts[0].suspect]
    first = max(sorted(set(suspects)), key=suspects.count) if suspects else "none"
    return (_flag(case, f"the first suspect is {CAUSE}", first == CAUSE, f", got {first}"),)


def _night(case: Case, marks: Marks) -> tuple[Line, ...]:
    faults = Night(case.seed).faults
    busy = {k for fault in faults for k in range(fault.at, fault.at + NIGHT_LASTS + 4 * MINUTES)}
    quiet = [mark for k, mark in enumerate(marks) if k >= 30 and k not in busy]
    share = sum(bool(one.alerts) for one in quiet) / len(quiet)
    fresh_count = right = 0
    for k, fresh in enumerate(new_alerts(marks)):
        for fault in faults if fresh else ():
            if fault.at <= k < fault.at + NIGHT_LASTS + 2:
                fresh_count += 1
                right += any(alert.suspect == fault.service for alert in fresh)
    suffix = f"of {NIGHT_FAULTS} faults"
    text = f"it names the service first in {right} {suffix}"
    return (
        Line(case.name, "share of quiet time in alarm", share, MAX_QUIET, f"{share:.1%} of the quiet time in alarm"),
        Line(case.name, "new alerts", fresh_count, MIN_OPENED, f"a new alert in {fresh_count} {suffix}", True),
        Line(case.name, "new alerts that name the service first", right, MIN_RIGHT, text, True),
    )


def decision(case: Case, marks: Marks) -> tuple[Line, ...]:
    """Return whether the verdicts' score and threshold explain the alerts."""
    below = above = alert_count = length = 0
    for mark, fresh in zip(marks, new_alerts(marks), strict=True):
        is_high = mark.threshold > 0 and mark.score >= CLEARLY * mark.threshold and mark.is_normal
        alert_count += bool(fresh)
        below += bool(fresh) and not (mark.threshold > 0 and mark.score >= mark.threshold)
        length = length + 1 if is_high else 0
        above += length == FOR
    thresholds = [mark.threshold for mark in marks[SETTLED:] if mark.threshold > 0]
    factor = max(thresholds) / min(thresholds) if thresholds else 1.0
    under = f"{below} of {alert_count} alerts opened while the score was below the threshold shown"
    over = f"{above} times normal for five snapshots with a score 1.2 times the threshold"
    spread = f"the threshold moved by a factor of {factor:.1f} after the first quarter of an hour"
    name = f"decision, {case.name}"
    return (
        Line(name, BELOW, below, 0, under),
        Line(name, ABOVE, above, 0, over),
        Line(name, MOVED, factor, MAX_MOVED, spread),
    )


def new_alerts(marks: Marks) -> list[tuple[Alert, ...]]:
    """Return each mark's alerts whose incident raised none before."""
    ids: set[str] = set()
    fresh_alerts = []
    for mark in marks:
        fresh_alerts.append(tuple(alert for alert in mark.alerts if alert.id not in ids))
        ids |= {alert.id for alert in mark.alerts}
    return fresh_alerts


def _flag(case: Case, measure: str, holds: bool, text: str = "") -> Line:
    return Line(case.name, measure, float(holds), 1, measure + text, is_higher_better=True)


BELOW, ABOVE, MOVED = "alerts opened below the threshold", "normal far above the threshold", "the threshold moved by"
