"""Figures from meshes that are simulated here. Other seeds show how much a figure varies."""

import numpy as np
import torch

from benchmarks.calm_again.cases import Case as CalmCase
from benchmarks.calm_again.judge import MOVED, Line
from benchmarks.calm_again.score import score_case as score_calm_case
from benchmarks.false_green.cases import Case, Expectation, Form, Size, cases, mesh_of
from benchmarks.false_green.score import score_case
from benchmarks.gate.figures import Join, MeasuredFigure
from lab.simulator.events.churn import plan_churn
from lab.simulator.mesh.topology import MeshSpec

SERVICES = 60
QUIET_HOURS, CHANGES_PER_HOUR = 6, 3
DAY_HOURS = 24
FALSE_GREEN = ("traffic", "deploys", "gaps")


def quiet_case(seed: int) -> Case:
    """Return a mesh without faults, with some benign changes."""
    spec = MeshSpec(services=SERVICES, seed=seed)
    length = round(QUIET_HOURS * 3600 / spec.interval_seconds)
    changes = plan_churn(mesh_of(spec), np.random.default_rng([11, seed]), length, CHANGES_PER_HOUR * QUIET_HOURS)
    return Case("quiet", f"seed {seed}", spec, Expectation(Form.FREE), changes, begins=0, length=length)


def measure_quiet(part: str, case: Case) -> list[MeasuredFigure]:
    """Measure the false alerts per day in a mesh without faults."""
    alerts = score_case(case).alerts * DAY_HOURS / QUIET_HOURS
    return [MeasuredFigure(f"{part}: false alerts per day", alerts, join="mean")]


def false_green_cases(group: str, seed: int) -> tuple[Case, ...]:
    """Return the cases of a `make false-green` group with one seed."""
    return tuple(cases(group, Size((seed,), SERVICES)))


def measure_false_green(part: str, group: tuple[Case, ...]) -> list[MeasuredFigure]:
    """Count the failed cases of a group."""
    torch.set_num_threads(1)
    failures = sum(not score_case(case).is_good for case in group)
    return [MeasuredFigure(f"{part}: failed cases of {group[0].group}", failures)]


def measure_calm_again(part: str, case: CalmCase) -> list[MeasuredFigure]:
    """Return the numbers in a case's lines."""
    return [_of_line(part, line) for line in score_calm_case(case)]


def _of_line(part: str, line: Line) -> MeasuredFigure:
    """Return a line's figure. Those about decisions are joined over the cases."""
    join: Join = "max" if line.measure == MOVED else "sum"
    case = line.case.split(",")[0]  # "decision, step" is about decisions
    return MeasuredFigure(f"{part}: {case}, {line.measure}", line.value, line.is_higher_better, join=join)
