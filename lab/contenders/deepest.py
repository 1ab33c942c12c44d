"""The simple rule of root cause analysis: the deepest service with an anomaly of its own.

It alerts like N-sigma. An anomalous service comes first if it calls no anomalous service; all others come after these.
"""

import numpy as np

from lab.contenders.deviation import Mesh, max_of_callees
from lab.contenders.n_sigma import SIGMAS, NSigmaState, scores
from lab.contenders.paging import PagingState, build_verdict, lasting_scores
from model.snapshot import MeshSnapshot
from model.verdict import Verdict

LABEL = "deepest anomaly"
WINDOW = 120  # snapshots
LEFT = 1e-3  # share of the score that is left to all other services


def start(interval_seconds: float, warm_up: int) -> NSigmaState:
    """Return the state before the first snapshot."""
    return NSigmaState(PagingState(interval_seconds, warm_up), Mesh.empty(WINDOW))


def advance(state: NSigmaState, snapshot: MeshSnapshot) -> tuple[Verdict, NSigmaState]:
    """Process one snapshot."""
    risen = scores(state.mesh, snapshot)
    lasting = lasting_scores(state.watch, snapshot, risen)
    is_deepest = (lasting > SIGMAS) & (max_of_callees(snapshot, lasting) <= SIGMAS)
    verdict, watch = build_verdict(state.watch, snapshot, risen, SIGMAS, np.where(is_deepest, lasting, LEFT * lasting))
    return verdict, NSigmaState(watch, state.mesh.with_snapshot(snapshot))
