"""Isolation forest (Liu, Ting and Zhou, ICDM 2008) on rows of services, fitted by scikit-learn with its defaults.

The trees are stored as arrays, which can be compared and saved, and which are many times faster on few rows.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import IsolationForest

from lab.contenders import learned
from lab.contenders.learned import LearnedState, Rows, start
from lab.contenders.paging import Floats
from model.snapshot import MeshSnapshot
from model.verdict import Verdict

__all__ = ["LABEL", "SUMMARY", "LearnedState", "advance", "start"]
LABEL = "isolation forest"
SUMMARY = f"100 trees of 256 rows {learned.ABOUT}"


@dataclass(frozen=True, slots=True)
class Forest:
    """All trees, ``[trees, nodes]``; a leaf is its own child.

    Attributes:
        feature, limit: of a node; values up to the limit continue at ``low``, others at ``high``.
        low, high: child nodes.
        depth: of a leaf, plus the expected depth of a tree that separates its rows.
        expected: mean depth of a tree of that many rows.
        levels: depth of the deepest tree.
    """

    feature: NDArray[np.int64]
    limit: Floats
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    depth: Floats
    expected: float
    levels: int


def advance(state: LearnedState, snapshot: MeshSnapshot) -> tuple[Verdict, LearnedState]:
    """Process one snapshot."""
    return learned.advance(state, snapshot, _learn, _anomaly_score)


def _learn(rows: Rows) -> Forest:
    grown = IsolationForest(random_state=0).fit(rows)
    trees = [estimator.tree_ for estimator in grown.estimators_]
    shape = len(trees), max(tree.node_count for tree in trees)
    low, high, feature = (np.tile(np.arange(shape[1]), (shape[0], 1)) for _ in range(3))
    feature[:] = 0
    limit, depth = np.zeros(shape), np.zeros(shape)
    for i, tree in enumerate(trees):
        inner = np.flatnonzero(tree.children_left >= 0)
        low[i, inner], high[i, inner] = tree.children_left[inner], tree.children_right[inner]
        feature[i, inner], limit[i, inner] = tree.feature[inner], tree.threshold[inner]
        for node in inner:  # parents come before their children
            depth[i, [low[i, node], high[i, node]]] = depth[i, node] + 1
        depth[i, : tree.node_count] += np.where(tree.children_left < 0, _expected_depth(tree.n_node_samples), 0.0)
    sampled = float(_expected_depth(np.array([grown.max_samples_]))[0])
    return Forest(feature, limit, low, high, depth, sampled, max(tree.max_depth for tree in trees))


def _anomaly_score(forest: Forest, rows: Rows) -> Floats:
    """Score from 0 to 1: 2 to the power of minus the mean depth divided by the expected depth."""
    trees, nodes = forest.low.shape
    base = (np.arange(trees) * nodes)[:, None]  # offset of each tree in the concatenated arrays
    limit, feature, values = forest.limit.ravel(), forest.feature.ravel(), rows.ravel()
    children = np.stack([forest.high + base, forest.low + base], axis=-1).ravel()
    at = np.repeat(base, len(rows), axis=1)
    row = np.arange(len(rows)) * rows.shape[1]
    for _ in range(forest.levels):
        below = values[row + feature[at]] <= limit[at]
        at = children[2 * at + below]
    depth = forest.depth.ravel()[at].mean(axis=0)
    return np.asarray(2.0 ** (-depth / max(forest.expected, 1e-9)), np.float64)


def _expected_depth(rows: NDArray[np.int64]) -> Floats:
    """Expected depth of an unsuccessful search in a binary tree of this many rows."""
    n = np.maximum(np.asarray(rows, np.float64), 2.0)
    many = 2.0 * (np.log(n - 1.0) + np.euler_gamma) - 2.0 * (n - 1.0) / n
    return np.where(np.asarray(rows) <= 1, 0.0, np.where(np.asarray(rows) == 2, 1.0, many))
