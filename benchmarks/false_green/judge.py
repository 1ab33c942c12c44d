"""Whether the verdicts of a case show what they must, and whether a group keeps its bound."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from benchmarks.false_green.cases import GROUPS, Case, Expectation, Form
from model.incidents.policy import AlertPolicy
from model.verdict import Incident, Severity, Status, Verdict

MISSING = "_"
WORST = "An?R._"  # letters, the worst first
WIDTH = 100  # letters of a line at most
NAME_WIDTH = 78


@dataclass(frozen=True, slots=True)
class Entry:
    """An incident that counts, in one verdict."""

    id: str
    since: datetime
    is_notice: bool
    is_recovering: bool


@dataclass(frozen=True, slots=True)
class Mark:
    """The part of a verdict that counts: its letter, and the incidents that the case is about."""

    letter: str
    incidents: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a case.

    Attributes:
        case: the case.
        letters: one for each snapshot.
        is_good: whether it shows what it must.
        alerts, notices: number of incidents that count.
        why: what is wrong; empty if nothing is.
    """

    case: Case
    letters: str
    is_good: bool
    alerts: int
    notices: int
    why: str = ""

    @property
    def line(self) -> str:
        """For people."""
        verdict = "OK   " if self.is_good else "FAULT"
        why = f"  {self.why}" if self.why else ""
        return f"{verdict} {self.case.group}: {self.case.name:<{NAME_WIDTH}} {shorten(self.letters)}{why}"

    @property
    def row(self) -> dict[str, Any]:
        """For the file of results."""
        return {
            "benchmark": "false_green",
            "group": self.case.group,
            "case": self.case.name,
            "seed": self.case.spec.seed,
            "services": self.case.spec.services,
            "snapshots": self.case.length,
            "is_good": self.is_good,
            "alerts": self.alerts,
            "notices": self.notices,
            "letters": shorten(self.letters),
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class Summary:
    """Result of a group."""

    group: str
    is_good: bool
    row: dict[str, Any]

    @property
    def line(self) -> str:
        """For people."""
        figures = ", ".join(f"{name} {value}" for name, value in self.row.items() if name not in ("benchmark", "group"))
        return f"{self.group}: {figures}\n"


def mark(verdict: Verdict, expected: Expectation) -> Mark:
    """Reduce a verdict to the part that counts in a case."""
    incidents = tuple(
        Entry(one.id, one.since, one.severity is Severity.NOTICE, one.recovering)
        for one in verdict.incidents
        if _counts(one, expected)
    )
    return Mark(_letter(verdict, incidents), incidents)


def _counts(incident: Incident, expected: Expectation) -> bool:
    if expected.alerts_only and incident.severity is Severity.NOTICE:
        return False
    if expected.kinds and incident.kind not in expected.kinds:
        return False
    named = {*incident.affected, *(suspect.service for suspect in incident.suspects)}
    return not expected.services or not expected.services.isdisjoint(named)


def _letter(verdict: Verdict, incidents: Sequence[Entry]) -> str:
    alerts = [one for one in incidents if not one.is_notice]
    if alerts:
        return "R" if all(one.is_recovering for one in alerts) else "A"
    if incidents:
        return "n"
    return "." if verdict.status in (Status.NORMAL, Status.ANOMALOUS) else "?"


def shorten(letters: str, width: int = WIDTH) -> str:
    """At most ``width`` letters, each the worst one of a part of equal length."""
    if len(letters) <= width:
        return letters
    bounds = [i * len(letters) // width for i in range(width + 1)]
    return "".join(min(letters[a:b], key=WORST.index) for a, b in pairwise(bounds))


def judge(case: Case, marks: Sequence[Mark | None]) -> Outcome:
    """Judge a case by its marks; None is a missing snapshot."""
    letters = "".join(MISSING if one is None else one.letter for one in marks)
    seen = [one for one in marks if one is not None]
    alerts = {entry.id for one in seen for entry in one.incidents if not entry.is_notice}
    notices = {entry.id for one in seen for entry in one.incidents if entry.is_notice} - alerts
    why = _problem(case, letters, marks, len(alerts) + len(notices))
    return Outcome(case, letters, not why, len(alerts), len(notices), why)


def _problem(case: Case, letters: str, marks: Sequence[Mark | None], incidents: int) -> str:
    """The problem of a case; empty if there is none."""
    expected = case.expected
    match expected.form:
        case Form.ALERT | Form.FOUND | Form.NOTICE:
            return _found_problem(letters, expected)
        case Form.SAME:
            return _gap_problem(case, letters, marks)
        case Form.ENDED:
            return "an alert is still open at the end" if letters[-1] in "AR" else ""
        case Form.COUNT if incidents > expected.most:
            return f"expected at most {expected.most} incidents, got {incidents}"
    return ""


def _found_problem(letters: str, expected: Expectation) -> str:
    wanted, what = {
        Form.ALERT: ("A", "alert"),
        Form.FOUND: ("An", "alert or notice"),
        Form.NOTICE: ("n", "notice"),
    }[expected.form]
    first = next((i for i, letter in enumerate(letters) if letter in wanted), len(letters))
    if first == len(letters):
        return f"no {what}"
    if first >= expected.since + expected.within:
        return f"{what} after {first + 1 - expected.since} snapshots"
    if expected.form is Form.NOTICE and "A" in letters[:first]:
        return "an alert without harm"
    if expected.form is Form.ALERT and expected.stays and set(letters[first:]) != {"A"}:
        return "the alert does not stay"
    return ""


def _gap_problem(case: Case, letters: str, marks: Sequence[Mark | None]) -> str:
    at = case.gap[0] - case.begins
    before, after = marks[at - 1], [one for one in marks[at:] if one is not None]
    known = {(entry.id, entry.since) for entry in (before.incidents if before else ()) if not entry.is_notice}
    if not known:
        return "no alert before the gap"
    later = {(entry.id, entry.since) for one in after for entry in one.incidents if not entry.is_notice}
    text = letters[at:].strip(MISSING)
    if not text.startswith("A"):
        return "no alert at once after the gap"
    if later - known:
        return "another incident, or another beginning, after the gap"
    return "" if set(text) == {"A"} else "the alert does not stay after the gap"


def summarize(group: str, outcomes: Sequence[Outcome]) -> Summary:
    """Judge a group by the outcomes of its cases."""
    bound = GROUPS[group]
    failed = sum(not outcome.is_good for outcome in outcomes)
    alerts, notices = sum(one.alerts for one in outcomes), sum(one.notices for one in outcomes)
    is_good = failed <= bound.failures * len(outcomes) and (bound.alerts is None or alerts <= bound.alerts)
    row: dict[str, Any] = {"benchmark": "false_green", "group": group, "cases": len(outcomes), "failed": failed}
    row |= {"alerts": alerts, "notices": notices}
    if bound.is_promise:
        promised = sum(_promise(one.case) for one in outcomes)
        most = promised + 2.0 * math.sqrt(promised)  # chance alone exceeds it in one run of 40
        is_good &= max(alerts, notices) <= most
        row |= {"promised": round(promised, 2), "most": round(most, 2)}
    if bound.alerts is not None:
        row |= {"most_alerts": bound.alerts}
    return Summary(group, is_good, row | {"is_good": is_good})


def _promise(case: Case) -> float:
    """Number of false alerts, and of false notices, that the shipped settings allow in a case."""
    return AlertPolicy().budget(case.spec.services) * case.length * case.spec.interval_seconds / 86_400.0
