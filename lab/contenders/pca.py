"""Principal components (Shyu, Chen, Sarinnapakorn and Chang, 2003): how far a row is along each component.

Like PyOD: columns are standardized, and all components count. The score is the sum of the squared projections, each
divided by the variance along its component.
"""

from dataclasses import dataclass

import numpy as np

from lab.contenders import learned
from lab.contenders.learned import LearnedState, Rows, start
from lab.contenders.paging import Floats
from model.snapshot import MeshSnapshot
from model.verdict import Verdict

__all__ = ["LABEL", "SUMMARY", "LearnedState", "advance", "start"]
LABEL = "PCA"
SUMMARY = f"principal components {learned.ABOUT}"
LEAST_SPREAD = 1e-3  # of a column; one that never moved would make every later movement infinite
LEAST_VARIANCE = 1e-3  # along a component, of standardized columns


@dataclass(frozen=True, slots=True)
class Components:
    """``mean`` and ``spread`` of the columns ``[M]``; ``scaled``: components divided by their spreads, ``[M, M]``."""

    mean: Floats
    spread: Floats
    scaled: Floats


def advance(state: LearnedState, snapshot: MeshSnapshot) -> tuple[Verdict, LearnedState]:
    """Process one snapshot."""
    return learned.advance(state, snapshot, _learn, _anomaly_score)


def _learn(rows: Rows) -> Components:
    values = rows.astype(np.float64)
    mean, spread = values.mean(axis=0), np.maximum(values.std(axis=0), LEAST_SPREAD)
    standardized = (values - mean) / spread
    variance, components = np.linalg.eigh(standardized.T @ standardized / len(rows))
    return Components(mean, spread, components / np.sqrt(np.maximum(variance, LEAST_VARIANCE)))


def _anomaly_score(found: Components, rows: Rows) -> Floats:
    projected = (rows - found.mean) / found.spread @ found.scaled
    distance: Floats = (projected**2).sum(axis=1)
    return distance
