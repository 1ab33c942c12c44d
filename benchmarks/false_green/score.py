"""Scores a case; each verdict becomes a mark."""

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

import torch

from benchmarks.false_green.cases import Case
from benchmarks.false_green.judge import Mark, Outcome, judge, mark
from benchmarks.workers import report_steps
from lab.simulator.events.faults import Fault
from lab.simulator.events.operations import BenignChange
from lab.simulator.events.traffic import TrafficShift
from lab.simulator.events.work import Work
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import Checkpoint, load
from serve_app.pipeline import Mesh, Options, advance

EVERY = 16  # snapshots between two reports of progress


def score_case(case: Case) -> Outcome:
    """Score a case in a worker, and report its progress."""
    torch.set_num_threads(1)
    return judge(case, list(marks(case)))


def marks(case: Case) -> Iterator[Mark | None]:
    """Yield a mark for each snapshot that counts; None for a missing snapshot."""
    checkpoint, mesh = _checkpoint(), settle(case.spec, case.prelude)
    first, missing = case.gap
    steps = 0
    for index, snapshot in enumerate(islice(simulator(case).snapshots(), case.prelude, None), case.prelude):
        if first <= index < first + missing:
            yield None
            continue
        verdict, mesh = advance(checkpoint, mesh, snapshot, Options())
        steps += 1
        if steps % EVERY == 0:
            report_steps(EVERY)
        if index >= case.begins:
            yield mark(verdict, case.expectation)
    report_steps(steps % EVERY)


def simulator(case: Case) -> Simulator:
    """Return the simulator with a case's events."""
    faults = [event for event in case.events if isinstance(event, Fault)]
    changes = [event for event in case.events if isinstance(event, BenignChange)]
    other_events = [event for event in case.events if isinstance(event, TrafficShift | Work)]
    return Simulator(case.spec, faults, changes, case.begins + case.length, others=other_events)


@lru_cache(maxsize=2)
def settle(spec: MeshSpec, snapshots: int) -> Mesh:
    """Return the state after this many snapshots without events. A mesh's cases follow each other, so two are
    cached."""
    mesh = Mesh()
    for snapshot in Simulator(spec, snapshots=snapshots).snapshots():
        _, mesh = advance(_checkpoint(), mesh, snapshot, Options())
    return mesh


@lru_cache(maxsize=1)
def _checkpoint() -> Checkpoint:
    return load()
