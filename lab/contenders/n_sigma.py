"""The robust N-sigma rule: each series of services and calls against its own newest samples.

A call counts for its destination. The rule does not use the graph otherwise.
"""

from dataclasses import dataclass

import numpy as np

from lab.contenders.deviation import Mesh, max_of_incoming_calls
from lab.contenders.paging import Floats, PagingState, build_verdict
from model.snapshot import MeshSnapshot
from model.verdict import Verdict

LABEL = "N-sigma"
WINDOW = 120  # snapshots
SIGMAS = 6.0


@dataclass(frozen=True, slots=True)
class NSigmaState:
    watch: PagingState
    mesh: Mesh


def start(interval_seconds: float, warm_up: int) -> NSigmaState:
    return NSigmaState(PagingState(interval_seconds, warm_up), Mesh.empty(WINDOW))


def advance(state: NSigmaState, snapshot: MeshSnapshot) -> tuple[Verdict, NSigmaState]:
    verdict, watch = build_verdict(state.watch, snapshot, scores(state.mesh, snapshot), SIGMAS)
    return verdict, NSigmaState(watch, state.mesh.with_snapshot(snapshot))


def scores(mesh: Mesh, snapshot: MeshSnapshot) -> Floats:
    """Return each service's largest rise over its own series and the calls into it, ``[N]``, in spreads."""
    services, calls = mesh.rises(snapshot)
    largest: Floats = np.maximum(
        services.max(axis=1), max_of_incoming_calls(snapshot, calls.max(axis=1)), dtype=np.float64
    )
    return largest
