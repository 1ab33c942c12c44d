"""The verdicts of a case, each reduced to a mark."""

from collections.abc import Iterator

import torch

from benchmarks.calm_again.cases import Case, scenario
from benchmarks.calm_again.judge import Alert, Line, Mark, decision, judge
from benchmarks.calm_again.mesh import STEP_SECONDS, snapshots
from lab.comparison.lines import Tagae
from model.verdict import Severity, Status, Verdict
from serve_app.api.headline import headline
from serve_app.cli.workers import report_steps

EVERY = 16  # snapshots between two reports of progress


def score_case(case: Case) -> tuple[Line, ...]:
    """Score and judge a case in a worker, and report its progress."""
    torch.set_num_threads(1)
    marks = []
    for number, one in enumerate(scored_marks(case), 1):
        marks.append(one)
        if number % EVERY == 0:
            report_steps(EVERY)
    report_steps(len(marks) % EVERY)
    return (*judge(case, marks), *decision(case, marks))


def scored_marks(case: Case) -> Iterator[Mark]:
    """Yield a mark for each snapshot of a case, scored from an empty state with the default settings."""
    detector = Tagae()
    mesh = detector.start(STEP_SECONDS, 1)
    for snapshot in snapshots(scenario(case), case.snapshots, case.seed):
        verdict, mesh = detector.advance(mesh, snapshot)
        yield mark(verdict)


def mark(verdict: Verdict) -> Mark:
    """Reduce a verdict to what the cases ask about."""
    alerts = tuple(
        Alert(
            one.id,
            one.severity is Severity.CRITICAL,
            headline(one, verdict.alerts),
            one.suspects[0].service.split("/")[-1] if one.suspects else "",
        )
        for one in verdict.alerts
    )
    is_normal = verdict.status is Status.NORMAL and not verdict.muted
    return Mark(alerts, verdict.mesh_score, verdict.threshold, is_normal)
