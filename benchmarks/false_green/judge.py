"""Judges whether a case's verdicts are as expected, and whether a group keeps its bound."""

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
WIDTH = 100  # maximum number of letters in a line
NAME_WIDTH = 78


@dataclass(frozen=True, slots=True)
class Entry:
    """An incident that counts, in a verdict."""

    id: str
    since: datetime
    is_notice: bool
    is_recovering: bool


@dataclass(frozen=True, slots=True)
class Mark:
    """The part of a verdict that counts: its letter, and the case's incidents."""

    letter: str
    incidents: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A case's result, with a letter for each snapshot, the numbers of incidents that count, and the problem, if
    any."""

    case: Case
    letters: str
    is_good: bool
    alerts: int
    notices: int
    problem: str = ""

    @property
    def line(self) -> str:
        verdict = "OK   " if self.is_good else "FAULT"
        suffix = f"  {self.problem}" if self.problem else ""
        return f"{verdict} {self.case.group}: {self.case.name:<{NAME_WIDTH}} {shorten(self.letters)}{suffix}"

    @property
    def row(self) -> dict[str, Any]:
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
            "why": self.problem,
        }


@dataclass(frozen=True, slots=True)
class Summary:
    """A group's result."""

    group: str
    is_good: bool
    row: dict[str, Any]

    @property
    def line(self) -> str:
        figures = ", ".join(f"{name} {value}" for name, value in self.row.items() if name not in ("benchmark", "group"))
        return f"{self.group}: {figures}\n"


def mark(verdict: Verdict, expectation: Expectation) -> Mark:
    """Reduce a verdict to the part that counts in a case."""
    incidents = tuple(
        Entry(incident.id, incident.since, incident.severity is Severity.NOTICE, incident.recovering)
        for incident in verdict.incidents
        if _counts(incident, expectation)
    )
    return Mark(_letter(verdict, incidents), incidents)


def _counts(incident: Incident, expectation: Expectation) -> bool:
    if expectation.alerts_only and incident.severity is Severity.NOTICE:
        return False
    if expectation.kinds and incident.kind not in expectation.kinds:
        return False
    services = {*incident.affected, *(suspect.service for suspect in incident.suspects)}
    return not expectation.services or not expectation.services.isdisjoint(services)


def _letter(verdict: Verdict, incidents: Sequence[Entry]) -> str:
    alerts = [entry for entry in incidents if not entry.is_notice]
    if alerts:
        return "R" if all(entry.is_recovering for entry in alerts) else "A"
    if incidents:
        return "n"
    return "." if verdict.status in (Status.NORMAL, Status.ANOMALOUS) else "?"


def shorten(letters: str, width: int = WIDTH) -> str:
    """Return at most ``width`` letters, each the worst in a part of equal length."""
    if len(letters) <= width:
        return letters
    bounds = [i * len(letters) // width for i in range(width + 1)]
    return "".join(min(letters[a:b], key=WORST.index) for a, b in pairwise(bounds))


def judge(case: Case, marks: Sequence[Mark | None]) -> Outcome:
    """Judge a case by its marks; None is a missing snapshot."""
    letters = "".join(MISSING if mark is None else mark.letter for mark in marks)
    present = [mark for mark in marks if mark is not None]
    alerts = {entry.id for mark in present for entry in mark.incidents if not entry.is_notice}
    notices = {entry.id for mark in present for entry in mark.incidents if entry.is_notice} - alerts
    problem = _problem(case, letters, marks, len(alerts) + len(notices))
    return Outcome(case, letters, not problem, len(alerts), len(notices), problem)


def _problem(case: Case, letters: str, marks: Sequence[Mark | None], incidents: int) -> str:
    """Return a case's problem; empty if there is none."""
    expectation = case.expectation
    match expectation.form:
        case Form.ALERT | Form.FOUND | Form.NOTICE:
            return _found_problem(letters, expectation)
        case Form.SAME:
            return _gap_problem(case, letters, marks)
        case Form.ENDED:
            return "an alert is still open at the end" if letters[-1] in "AR" else ""
        case Form.COUNT if incidents > expectation.max_incidents:
            return f"expected at most {expectation.max_incidents} incidents, got {incidents}"
    return ""


def _found_problem(letters: str, expectation: Expectation) -> str:
    letters_of_form, noun = {
        Form.ALERT: ("A", "alert"),
        Form.FOUND: ("An", "alert or notice"),
        Form.NOTICE: ("n", "notice"),
    }[expectation.form]
    first = next((i for i, letter in enumerate(letters) if letter in letters_of_form), len(letters))
    if first == len(letters):
        return f"no {noun}"
    if first >= expectation.since + expectation.within:
        return f"{noun} after {first + 1 - expectation.since} snapshots"
    if expectation.form is Form.NOTICE and "A" in letters[:first]:
        return "an alert without harm"
    if expectation.form is Form.ALERT and expectation.stays and set(letters[first:]) != {"A"}:
        return "the alert does not stay"
    return ""


def _gap_problem(case: Case, letters: str, marks: Sequence[Mark | None]) -> str:
    at = case.gap[0] - case.begins
    before, after = marks[at - 1], [mark for mark in marks[at:] if mark is not None]
    entries_before = {(entry.id, entry.since) for entry in (before.incidents if before else ()) if not entry.is_notice}
    if not entries_before:
        return "no alert before the gap"
    entries_after = {(entry.id, entry.since) for mark in after for entry in mark.incidents if not entry.is_notice}
    text = letters[at:].strip(MISSING)
    if not text.startswith("A"):
        return "no alert at once after the gap"
    if entries_after - entries_before:
        return "another incident, or another beginning, after the gap"
    return "" if set(text) == {"A"} else "the alert does not stay after the gap"


def summarize(group: str, outcomes: Sequence[Outcome]) -> Summary:
    """Judge a group by its cases' outcomes."""
    bound = GROUPS[group]
    failures = sum(not outcome.is_good for outcome in outcomes)
    alerts, notices = sum(outcome.alerts for outcome in outcomes), sum(outcome.notices for outcome in outcomes)
    is_good = failures <= bound.failures * len(outcomes) and (bound.alerts is None or alerts <= bound.alerts)
    row: dict[str, Any] = {"benchmark": "false_green", "group": group, "cases": len(outcomes), "failed": failures}
    row |= {"alerts": alerts, "notices": notices}
    if bound.is_promise:
        budget = sum(_promise(outcome.case) for outcome in outcomes)
        limit = budget + 2.0 * math.sqrt(budget)  # chance alone exceeds it in one run of 40
        is_good &= max(alerts, notices) <= limit
        row |= {"promised": round(budget, 2), "most": round(limit, 2)}
    if bound.alerts is not None:
        row |= {"most_alerts": bound.alerts}
    return Summary(group, is_good, row | {"is_good": is_good})


def _promise(case: Case) -> float:
    """Return the number of false alerts, and of false notices, that the shipped settings allow in a case."""
    return AlertPolicy().budget(case.spec.services) * case.length * case.spec.interval_seconds / 86_400.0
