"""The robust z-score with a wide window, and a ranking by the graph.

Pages like N-sigma. For the ranking what a service's callees explain is taken off it: trouble climbs from the callee to
the caller, so a service is to blame for what it shows beyond the strangest of those that it calls.
"""

import numpy as np

from benchmarks.contenders.deviation import Mesh, out_of
from benchmarks.contenders.n_sigma import SIGMAS, State, scores
from benchmarks.contenders.paging import Watch, judged, lasting
from model.snapshot import MeshSnapshot
from model.verdict import Verdict

LABEL = "wide z on the graph"
WINDOW = 720  # snapshots
LEFT = 1e-3  # of the score of a service whose callees explain it: such services come last, in their own order
SUMMARY = (
    f"errors, latencies and cpu of services and of calls into them {SIGMAS:g} robust sigmas above the median of "
    f"{WINDOW} snapshots, two in a row; ranked by what callees do not explain"
)


def start(interval_seconds: float, warm_up: int) -> State:
    """Nothing seen yet."""
    return State(Watch(interval_seconds, warm_up), Mesh.empty(WINDOW))


def advance(state: State, snapshot: MeshSnapshot) -> tuple[Verdict, State]:
    """One snapshot on."""
    risen = scores(state.mesh, snapshot)
    lasts = lasting(state.watch, snapshot, risen)
    blame = np.maximum(lasts - out_of(snapshot, lasts), LEFT * lasts)
    verdict, watch = judged(state.watch, snapshot, risen, SIGMAS, blame)
    return verdict, State(watch, state.mesh.with_snapshot(snapshot))
