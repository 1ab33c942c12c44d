"""ECOD (Li et al., TKDE 2022): the sum of how rare each feature of a row is in its empirical distribution.

Like PyOD: for each feature, take the negative logarithms of the left tail, the right tail, and the tail that its
skewness points to. The score is the sum of the largest of the three.
"""

from dataclasses import dataclass

import numpy as np

from lab.contenders import learned
from lab.contenders.learned import LearnedState, Rows, start
from lab.contenders.paging import Floats
from model.snapshot import MeshSnapshot
from model.verdict import Verdict

__all__ = ["LABEL", "SUMMARY", "LearnedState", "advance", "start"]
LABEL = "ECOD"
SUMMARY = f"empirical tails {learned.ABOUT}"


@dataclass(frozen=True, slots=True)
class Tails:
    """``ordered``: each feature's samples, ascending, ``[R, M]``; ``skewness``: its sign, ``[M]``."""

    ordered: Rows
    skewness: Floats


def advance(state: LearnedState, snapshot: MeshSnapshot) -> tuple[Verdict, LearnedState]:
    """Process one snapshot."""
    return learned.advance(state, snapshot, _learn, _anomaly_score)


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
