"""The robust z-score with a wide window, and a ranking by the graph.

It alerts like N-sigma. Faults spread from callee to caller, so a service is ranked by its score minus the highest score
among its callees.
"""

import numpy as np

from lab.contenders.deviation import Mesh, max_of_callees
from lab.contenders.n_sigma import SIGMAS, NSigmaState, scores
from lab.contenders.paging import PagingState, build_verdict, lasting_scores
from model.snapshot import MeshSnapshot
from model.verdict import Verdict

LABEL = "wide z on the graph"
WINDOW = 720  # snapshots
LEFT = 1e-3  # share of the score that is left if callees explain it; such services come last, ordered by score


def start(interval_seconds: float, warm_up: int) -> NSigmaState:
    """Return the state before the first snapshot."""
    return NSigmaState(PagingState(interval_seconds, warm_up), Mesh.empty(WINDOW))


def advance(state: NSigmaState, snapshot: MeshSnapshot) -> tuple[Verdict, NSigmaState]:
    """Process one snapshot."""
    risen = scores(state.mesh, snapshot)
    lasting = lasting_scores(state.watch, snapshot, risen)
    ranking = np.maximum(lasting - max_of_callees(snapshot, lasting), LEFT * lasting)
    verdict, watch = build_verdict(state.watch, snapshot, risen, SIGMAS, ranking)
    return verdict, NSigmaState(watch, state.mesh.with_snapshot(snapshot))
