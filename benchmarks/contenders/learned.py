"""What detectors that learn a model of normal rows have in common.

A row is a service in a snapshot: how far its errors, latencies and cpu, and those of the calls into it, are above their
own past, in spreads (N-sigma's, on a logarithmic scale). Rows of all services make one model, which is learned when the
warm-up ends and again each time twice as many snapshots were seen, up to the window. The limit is the score that one
row in a thousand of those it learned from exceeds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.contenders.deviation import Mesh, into
from benchmarks.contenders.paging import Floats, Watch, judged
from model.snapshot import MeshSnapshot
from model.verdict import Verdict

WINDOW = 120  # snapshots that spreads are of, as N-sigma's
LEARNED = 720  # snapshots that a model is of, at most
ROWS = 20_000  # drawn of them, at most
LIMIT = 0.999
ABOUT = (
    f"of a service's errors, latencies and cpu and those of calls into it, in N-sigma's spreads; a limit that one row "
    f"in {round(1 / (1 - LIMIT)):,} exceeds, two in a row"
)

Rows = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class State:
    """Between two snapshots.

    Attributes:
        rows: of the newest snapshots, each ``[N_t, 7]``.
        model: None before there is one.
        limit: of its scores.
        due: snapshots after which it is learned next.
    """

    watch: Watch
    mesh: Mesh
    rows: tuple[Rows, ...]
    model: Any
    limit: float
    due: int


def start(interval_seconds: float, warm_up: int) -> State:
    """Nothing seen yet."""
    return State(Watch(interval_seconds, warm_up), Mesh.empty(WINDOW), (), None, 1.0, max(warm_up - 1, 1))


def advance(
    state: State, snapshot: MeshSnapshot, learn: Callable[[Rows], Any], strangeness: Callable[[Any, Rows], Floats]
) -> tuple[Verdict, State]:
    """One snapshot on.

    Args:
        state, snapshot: so far, and this one.
        learn: a model of rows ``[R, 7]``.
        strangeness: of rows under a model, ``[R]``, 0 or more.
    """
    services, calls = state.mesh.rises(snapshot)
    now = np.log1p(np.hstack([services, into(snapshot, calls)])).astype(np.float32)
    scores = np.zeros(len(now)) if state.model is None else strangeness(state.model, now)
    verdict, watch = judged(state.watch, snapshot, scores, state.limit)
    rows, model, limit, due = (*state.rows, now)[-LEARNED:], state.model, state.limit, state.due
    if watch.sequence >= due:
        drawn = _drawn(rows)
        model = learn(drawn)
        limit, due = float(np.quantile(strangeness(model, drawn), LIMIT)), due + min(due, LEARNED)
    return verdict, State(watch, state.mesh.with_snapshot(snapshot), rows, model, limit, due)


def _drawn(rows: tuple[Rows, ...]) -> Rows:
    """All rows, or as many as a model takes; always the same ones."""
    every = np.concatenate(rows)
    if len(every) <= ROWS:
        return every
    return every[np.random.default_rng(0).choice(len(every), ROWS, replace=False)]
