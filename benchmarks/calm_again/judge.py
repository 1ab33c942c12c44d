"""The lines of a case: a number that its verdicts show, the limit of this number, and OK or FAULT."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.calm_again.cases import BEGIN, LATER, NIGHT_FAULTS, NIGHT_LASTS, Case, Night

CAUSE = "web"  # of the cases ``network`` and ``cpu``
MINUTES = 4  # snapshots of a minute
MAX_QUIET, MIN_OPENED, MIN_RIGHT = 0.03, 36, 32  # of the night: share of time, faults, faults
SETTLED = 60  # first snapshot at which the threshold may be expected to stay
CLEARLY, FOR = 1.2, 5  # a normal verdict whose score is that much above the threshold, for that many snapshots
MAX_MOVED = 1.5  # factor between the highest and the lowest threshold


@dataclass(frozen=True, slots=True)
class Alert:
    """An incident that raises an alert, in one verdict.

    Attributes:
        id: of the incident.
        headline: its text.
        suspect: name of its first suspect without the namespace; empty if it has none.
    """

    id: str
    headline: str
    suspect: str


@dataclass(frozen=True, slots=True)
class Mark:
    """The part of a verdict that the cases ask about.

    Attributes:
        alerts: the most urgent first.
        score, threshold: as shown; NaN or 0 if there is none.
        is_normal: whether the status is normal, and nothing is muted.
    """

    alerts: tuple[Alert, ...]
    score: float
    threshold: float
    is_normal: bool


Marks = Sequence[Mark]


@dataclass(frozen=True, slots=True)
class Line:
    """A number and its limit.

    Attributes:
        case: name of the case.
        what: name of the number within the case.
        value, limit: of the number.
        text: for people.
        is_higher_better: whether the limit is the least value, not the most.
    """

    case: str
    what: str
    value: float
    limit: float
    text: str
    is_higher_better: bool = False

    @property
    def holds(self) -> bool:
        """Whether the value keeps its limit."""
        return self.value >= self.limit if self.is_higher_better else self.value <= self.limit

    def __str__(self) -> str:
        return f"{'OK   ' if self.holds else 'FAULT'} {self.case}: {self.text}"


def judge(case: Case, marks: Marks) -> tuple[Line, ...]:
    return {"residue": _residue, "step": _step, "swing": _swing, "network": _cause, "cpu": _cause, "night": _night}[
        case.name
    ](case, marks)


def _residue(case: Case, marks: Marks) -> tuple[Line, ...]:
    late = [one for one in marks[BEGIN + 36 : LATER] if one.alerts]
    before = {alert.id for one in marks[:LATER] for alert in one.alerts}
    during = [alert for one in marks[LATER : LATER + 16] for alert in one.alerts]
    is_new = any("pay" in alert.headline for alert in during if alert.id not in before)
    headline = late[-1].alerts[0].headline if late else ""
    text = f"{len(late)} of 84 snapshots in alarm from 6 minutes after the fault on {headline!r}"
    return (
        Line(case.name, "snapshots in alarm after the fault", len(late), 0, text),
        _flag(case, "the next fault is an alert of its own", is_new),
    )


def _step(case: Case, marks: Marks) -> tuple[Line, ...]:
    late = sum(bool(one.alerts) for one in marks[BEGIN:])
    return (Line(case.name, "snapshots in alarm", late, 0, f"{late} of 240 snapshots in alarm because of 1 ms"),)


def _swing(case: Case, marks: Marks) -> tuple[Line, ...]:
    is_found = any(one.alerts for one in marks[BEGIN : BEGIN + 3 * MINUTES])
    late = sum(any("fell" in alert.headline for alert in one.alerts) for one in marks[BEGIN + 24 :])
    text = f"{late} of 96 snapshots still say that requests fell, from 4 minutes after their return"
    return (
        _flag(case, "the fall is an alert within three minutes", is_found),
        Line(case.name, "snapshots that still say that requests fell", late, 0, text),
    )


def _cause(case: Case, marks: Marks) -> tuple[Line, ...]:
    named = [one.alerts[0].suspect for one in marks[BEGIN + MINUTES :] if one.alerts and one.alerts[0].suspect]
    first = max(sorted(set(named)), key=named.count) if named else "none"
    return (_flag(case, f"the first suspect is {CAUSE}", first == CAUSE, f", got {first}"),)


def _night(case: Case, marks: Marks) -> tuple[Line, ...]:
    faults = Night(case.seed).faults
    busy = {k for fault in faults for k in range(fault.at, fault.at + NIGHT_LASTS + 4 * MINUTES)}
    quiet = [one for k, one in enumerate(marks) if k >= 30 and k not in busy]
    share = sum(bool(one.alerts) for one in quiet) / len(quiet)
    opened = right = 0
    for k, fresh in enumerate(new_alerts(marks)):
        for fault in faults if fresh else ():
            if fault.at <= k < fault.at + NIGHT_LASTS + 2:
                opened += 1
                right += any(alert.suspect == fault.service for alert in fresh)
    of = f"of {NIGHT_FAULTS} faults"
    return (
        Line(case.name, "share of quiet time in alarm", share, MAX_QUIET, f"{share:.1%} of the quiet time in alarm"),
        Line(case.name, "new alerts", opened, MIN_OPENED, f"a new alert in {opened} {of}", is_higher_better=True),
        Line(
            case.name,
            "new alerts that name the service first",
            right,
            MIN_RIGHT,
            f"it names the service first in {right} {of}",
            is_higher_better=True,
        ),
    )


def decision(case: Case, marks: Marks) -> tuple[Line, ...]:
    """Whether the score and the threshold of the verdicts are what decides."""
    below = above = opened = length = 0
    for one, fresh in zip(marks, new_alerts(marks), strict=True):
        is_high = one.threshold > 0 and one.score >= CLEARLY * one.threshold and one.is_normal
        opened += bool(fresh)
        below += bool(fresh) and not (one.threshold > 0 and one.score >= one.threshold)
        length = length + 1 if is_high else 0
        above += length == FOR
    thresholds = [one.threshold for one in marks[SETTLED:] if one.threshold > 0]
    moved = max(thresholds) / min(thresholds) if thresholds else 1.0
    under = f"{below} of {opened} alerts opened while the score was below the threshold shown"
    over = f"{above} times normal for five snapshots with a score 1.2 times the threshold"
    spread = f"the threshold moved by a factor of {moved:.1f} after the first quarter of an hour"
    name = f"decision, {case.name}"
    return (
        Line(name, BELOW, below, 0, under),
        Line(name, ABOVE, above, 0, over),
        Line(name, MOVED, moved, MAX_MOVED, spread),
    )


def new_alerts(marks: Marks) -> list[tuple[Alert, ...]]:
    """The alerts of each mark whose incident raised none before."""
    known: set[str] = set()
    found = []
    for one in marks:
        found.append(tuple(alert for alert in one.alerts if alert.id not in known))
        known |= {alert.id for alert in one.alerts}
    return found


def _flag(case: Case, what: str, holds: bool, text: str = "") -> Line:
    return Line(case.name, what, float(holds), 1, what + text, is_higher_better=True)


BELOW, ABOVE, MOVED = "alerts opened below the threshold", "normal far above the threshold", "the threshold moved by"
