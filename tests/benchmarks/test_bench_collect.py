"""The benchmark of collecting: its own check of correctness passes what is right, in any order, and nothing else."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.bench_collect import Expected, mesh
from model.snapshot import MeshSnapshot

MADE = mesh(20, 60)
EXPECTED = Expected(MADE)


def read() -> MeshSnapshot:
    """What a collector that makes no mistake reads, in an order of its own."""
    nodes, edges = np.arange(20)[::-1], np.arange(60)[::-1]
    told = replace(
        MADE,
        node_features=EXPECTED.nodes.astype(np.float32),
        edge_features=EXPECTED.edges.astype(np.float32),
    )
    return told.take(nodes, edges)


def test_what_is_right_passes_in_any_order() -> None:
    EXPECTED.check(read())


def test_quantiles_are_those_of_buckets_and_near_what_was_made() -> None:
    assert not np.allclose(EXPECTED.edges[:, 3], MADE.edge_features[:, 3], rtol=1e-3)
    beyond = MADE.edge_features[:, 3] > 2.5  # the highest bound
    ratio = EXPECTED.edges[:, 3] / MADE.edge_features[:, 3]
    assert ratio[~beyond].min() > 0.4
    assert ratio[~beyond].max() < 3


@pytest.mark.parametrize("column", range(4))
def test_a_call_that_differs_by_a_thousandth_does_not(column: int) -> None:
    wrong = read()
    values = wrong.edge_features.copy()
    row = int(values[:, column].argmax())
    values[row, column] *= 1.001
    with pytest.raises(AssertionError):
        EXPECTED.check(replace(wrong, edge_features=values))


def test_a_call_that_is_missing_does_not() -> None:
    with pytest.raises(AssertionError):
        EXPECTED.check(read().take(np.arange(20), np.arange(59)))
