"""The robust N-sigma rule: each series of services and calls against its own newest samples.

A call is evidence about the service that is called, and that is all it knows of the graph.
"""

from dataclasses import dataclass

import numpy as np

from benchmarks.contenders.deviation import Mesh, into
from benchmarks.contenders.paging import Floats, Watch, judged
from model.snapshot import MeshSnapshot
from model.verdict import Verdict

LABEL = "N-sigma"
WINDOW = 120  # snapshots
SIGMAS = 6.0
SUMMARY = (
    f"errors, latencies and cpu of services and of calls into them {SIGMAS:g} robust sigmas above the median of "
    f"{WINDOW} snapshots, two in a row"
)


@dataclass(frozen=True, slots=True)
class State:
    """Between two snapshots."""

    watch: Watch
    mesh: Mesh


def start(interval_seconds: float, warm_up: int) -> State:
    """Nothing seen yet."""
    return State(Watch(interval_seconds, warm_up), Mesh.empty(WINDOW))


def advance(state: State, snapshot: MeshSnapshot) -> tuple[Verdict, State]:
    """One snapshot on."""
    verdict, watch = judged(state.watch, snapshot, scores(state.mesh, snapshot), SIGMAS)
    return verdict, State(watch, state.mesh.with_snapshot(snapshot))


def scores(mesh: Mesh, snapshot: MeshSnapshot) -> Floats:
    """Of each service the largest rise of its own series and of the calls into it, ``[N]``, spreads."""
    services, calls = mesh.rises(snapshot)
    return np.maximum(services.max(axis=1), into(snapshot, calls.max(axis=1)), dtype=np.float64)
