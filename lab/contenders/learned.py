"""The common part of detectors that learn a model of normal rows.

A row is one service in one snapshot. Its columns say how far errors, latencies and cpu of the service, and errors and
latencies of the calls into it, are above their own past, in logarithms of N-sigma's spreads. One model learns from the
rows of all services. It is fitted when the warm-up ends, and again each time the number of snapshots has doubled, up to
the window. One in a thousand of the fitted rows has a score above the limit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.contenders.deviation import Mesh, max_of_incoming_calls
from lab.contenders.paging import Floats, PagingState, build_verdict
from model.snapshot import MeshSnapshot
from model.verdict import Verdict

WINDOW = 120  # snapshots of the spreads, as for N-sigma
LEARNED = 720  # most snapshots that a model learns from
ROWS = 20_000  # most rows that are sampled from these
LIMIT = 0.999
ABOUT = (
    f"of errors, latencies and cpu of a service and of the calls into it, in N-sigma's spreads; a limit that one row "
    f"in {round(1 / (1 - LIMIT)):,} exceeds, two in a row"
)

Rows = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class LearnedState:
    """State between two snapshots.

    Attributes:
        rows: one array ``[N_t, 7]`` for each of the newest snapshots.
        model: None before the first fit.
        limit: score above which a row alarms.
        due: number of snapshots at which the next fit happens.
    """

    watch: PagingState
    mesh: Mesh
    rows: tuple[Rows, ...]
    model: Any
    limit: float
    due: int


def start(interval_seconds: float, warm_up: int) -> LearnedState:
    """Return the state before the first snapshot."""
    return LearnedState(PagingState(interval_seconds, warm_up), Mesh.empty(WINDOW), (), None, 1.0, max(warm_up - 1, 1))


def advance(
    state: LearnedState,
    snapshot: MeshSnapshot,
    learn: Callable[[Rows], Any],
    anomaly_score: Callable[[Any, Rows], Floats],
) -> tuple[Verdict, LearnedState]:
    """Process one snapshot.

    Args:
        state: after the snapshots before.
        snapshot: the next one.
        learn: fits a model to rows ``[R, 7]``.
        anomaly_score: returns the scores ``[R]`` of rows under a model, 0 or more.
    """
    services, calls = state.mesh.rises(snapshot)
    now = np.log1p(np.hstack([services, max_of_incoming_calls(snapshot, calls)])).astype(np.float32)
    scores = np.zeros(len(now)) if state.model is None else anomaly_score(state.model, now)
    verdict, watch = build_verdict(state.watch, snapshot, scores, state.limit)
    rows, model, limit, due = (*state.rows, now)[-LEARNED:], state.model, state.limit, state.due
    if watch.sequence >= due:
        drawn = _sample_rows(rows)
        model = learn(drawn)
        limit, due = float(np.quantile(anomaly_score(model, drawn), LIMIT)), due + min(due, LEARNED)
    return verdict, LearnedState(watch, state.mesh.with_snapshot(snapshot), rows, model, limit, due)


def _sample_rows(rows: tuple[Rows, ...]) -> Rows:
    """Return at most ``ROWS`` rows, always the same ones."""
    every = np.concatenate(rows)
    if len(every) <= ROWS:
        return every
    return every[np.random.default_rng(0).choice(len(every), ROWS, replace=False)]
