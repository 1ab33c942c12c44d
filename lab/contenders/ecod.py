"""ECOD (Li et al., TKDE 2022): the sum of how rare each feature of a row is in its empirical distribution.

A row is one service in one snapshot. Its columns say how far errors, latencies and cpu of the service, and errors and
latencies of the calls into it, are above their own past, in logarithms of N-sigma's spreads. One model learns from the
rows of all services. It is fitted when the warm-up ends, and again each time the number of snapshots has doubled, up to
the window. One in a thousand of the fitted rows has a score above the limit.

Like PyOD: for each feature, take the negative logarithms of the left tail, the right tail, and the tail that its
skewness points to. The score is the sum of the largest of the three.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lab.contenders.deviation import Mesh, max_of_incoming_calls
from lab.contenders.n_sigma import WINDOW
from lab.contenders.paging import Floats, PagingState, build_verdict
from model.snapshot import MeshSnapshot
from model.verdict import Verdict

LABEL = "ECOD"
LEARNED = 720  # most snapshots that the model learns from
ROWS = 20_000  # most rows that are sampled from these
LIMIT = 0.999

Rows = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Tails:
    """``ordered``: each feature's samples, ascending, ``[R, M]``; ``skewness``: its sign, ``[M]``."""

    ordered: Rows
    skewness: Floats


@dataclass(frozen=True, slots=True)
class EcodState:
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
    model: Tails | None
    limit: float
    due: int


def start(interval_seconds: float, warm_up: int) -> EcodState:
    return EcodState(PagingState(interval_seconds, warm_up), Mesh.empty(WINDOW), (), None, 1.0, max(warm_up - 1, 1))


def advance(state: EcodState, snapshot: MeshSnapshot) -> tuple[Verdict, EcodState]:
    services, calls = state.mesh.rises(snapshot)
    now = np.log1p(np.hstack([services, max_of_incoming_calls(snapshot, calls)])).astype(np.float32)
    scores = np.zeros(len(now)) if state.model is None else _anomaly_score(state.model, now)
    verdict, watch = build_verdict(state.watch, snapshot, scores, state.limit)
    rows, model, limit, due = (*state.rows, now)[-LEARNED:], state.model, state.limit, state.due
    if watch.sequence >= due:
        drawn = _sample_rows(rows)
        model = _learn(drawn)
        limit, due = float(np.quantile(_anomaly_score(model, drawn), LIMIT)), due + min(due, LEARNED)
    return verdict, EcodState(watch, state.mesh.with_snapshot(snapshot), rows, model, limit, due)


def _sample_rows(rows: tuple[Rows, ...]) -> Rows:
    every = np.concatenate(rows)
    if len(every) <= ROWS:
        return every
    return every[np.random.default_rng(0).choice(len(every), ROWS, replace=False)]


def _learn(rows: Rows) -> Tails:
    centred = rows - rows.mean(axis=0, dtype=np.float64)
    return Tails(np.sort(rows, axis=0), np.sign((centred**3).mean(axis=0)))


def _anomaly_score(tails: Tails, rows: Rows) -> Floats:
    """Sum of the tails of each row. The row itself counts as a sample, so no tail is empty."""
    total, found = len(tails.ordered), np.zeros(len(rows))
    for feature, skewness in enumerate(tails.skewness):
        ordered, values = tails.ordered[:, feature], rows[:, feature]
        left = -np.log((np.searchsorted(ordered, values, side="right") + 1) / (total + 1))
        right = -np.log((total - np.searchsorted(ordered, values, side="left") + 1) / (total + 1))
        skewed = left if skewness < 0 else right if skewness > 0 else left + right
        found += np.maximum(np.maximum(left, right), skewed)
    return found
