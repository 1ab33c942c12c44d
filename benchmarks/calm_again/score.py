"""Scores a case; each verdict becomes a mark."""

from collections.abc import Iterator, Mapping

import torch

from benchmarks.calm_again.cases import Case, scenario
from benchmarks.calm_again.judge import Alert, Line, Mark, decision, judge
from benchmarks.calm_again.mesh import Scenario, snapshots
from benchmarks.workers import report_steps
from model.checkpoint import load
from model.verdict import Status, Verdict
from serve_app.api.headline import headline
from serve_app.pipeline import Mesh, advance, options
from serve_app.settings import Settings

EVERY = 16  # snapshots between two reports of progress


def score_case(case: Case) -> tuple[Line, ...]:
    """Score and judge a case in a worker, and report its progress."""
    torch.set_num_threads(1)
    marks = []
    for number, verdict in enumerate(verdicts(scenario(case), case.snapshots, case.seed), 1):
        marks.append(mark(verdict))
        if number % EVERY == 0:
            report_steps(EVERY)
    report_steps(len(marks) % EVERY)
    return (*judge(case, marks), *decision(case, marks))


def verdicts(scenario: Scenario, count: int, seed: int, homes: Mapping[str, str] | None = None) -> Iterator[Verdict]:
    """Yield the verdicts from an empty state with the default settings, for the arguments of ``snapshots``."""
    checkpoint, mesh_options, mesh = load(), options(Settings()), Mesh()
    for snapshot in snapshots(scenario, count, seed, homes):
        verdict, mesh = advance(checkpoint, mesh, snapshot, mesh_options)
        yield verdict


def mark(verdict: Verdict) -> Mark:
    alerts = tuple(
        Alert(
            alert.id,
            headline(alert, verdict.alerts),
            alert.suspects[0].service.split("/")[-1] if alert.suspects else "",
        )
        for alert in verdict.alerts
    )
    is_normal = verdict.status is Status.NORMAL and not verdict.muted
    return Mark(alerts, verdict.mesh_score, verdict.threshold, is_normal)
