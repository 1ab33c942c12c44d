"""The symmetric CSR form, and both METIS bindings behind one function."""

import importlib.util
import sys

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partitioning import InvalidGraph, MissingMetis, PartitioningError
from partitioning.graph import TOTAL_WEIGHT, integer_weights, stable_order, symmetric_csr
from partitioning.strategies import cut, part_graph
from tests.partitioning.meshes import Mesh, meshes, random_mesh


@settings(max_examples=60)
@given(meshes())
def test_csr_is_the_undirected_graph(mesh: Mesh) -> None:
    expected = nx.Graph()
    expected.add_nodes_from(range(mesh.num_nodes))
    for source, destination, weight in zip(*mesh.edge_index.tolist(), mesh.edge_weight, strict=True):
        if source != destination:
            before = expected.get_edge_data(source, destination, {"weight": 0.0})["weight"]
            expected.add_edge(source, destination, weight=before + weight)
    graph = symmetric_csr(mesh.num_nodes, mesh.edge_index, mesh.edge_weight)
    assert len(graph.indices) == 2 * expected.number_of_edges()
    for node in range(mesh.num_nodes):
        row = slice(graph.indptr[node], graph.indptr[node + 1])
        assert graph.indices[row].tolist() == sorted(expected[node])
        wanted = [expected[node][other]["weight"] for other in sorted(expected[node])]
        assert graph.weights[row] == pytest.approx(wanted)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 20)), st.sampled_from([21, 2**40, 2**62]))
def test_stable_order_is_a_stable_argsort(keys: list[int], bound: int) -> None:
    array = np.array(keys, dtype=np.int64)
    assert np.array_equal(stable_order(array, bound), np.argsort(array, kind="stable"))


def test_integer_weights_keep_proportions_and_stay_positive() -> None:
    weights = integer_weights(np.array([0.0, 1.0, 2.0, 1e-12]))
    assert weights.min() == weights[0] == weights[3] == 1
    assert weights[2] == pytest.approx(2 * weights[1], rel=1e-6)
    assert weights.sum() <= TOTAL_WEIGHT + len(weights)
    assert integer_weights(np.zeros(3)).tolist() == [1, 1, 1]


def test_lumps_that_metis_cannot_balance_are_packed() -> None:
    """Three lumps of 6 and three of 4 in a ring, limit 10: first-fit decreasing needs three parts."""
    ring = np.stack([np.arange(6), (np.arange(6) + 1) % 6])
    sizes = np.array([6, 6, 6, 4, 4, 4])
    labels = cut(symmetric_csr(6, ring, np.ones(6)), sizes, limit=10, seed=0)
    assert np.bincount(labels, weights=sizes).max() <= 10
    alone = cut(symmetric_csr(6, ring[:, :0], np.ones(0)), sizes, limit=10, seed=0)
    assert np.bincount(alone, weights=sizes).tolist() == [10, 10, 10]


def test_star_is_cut_within_the_limit() -> None:
    """METIS balances a star badly, because every leaf is connected only to the hub."""
    star = np.stack([np.arange(1, 5_000), np.zeros(4_999, dtype=np.int64)])
    labels = cut(symmetric_csr(5_000, star, np.ones(4_999)), np.ones(5_000, dtype=np.int64), limit=300, seed=0)
    assert np.bincount(labels).max() <= 300
    assert len(np.unique(labels)) <= 25


def test_no_binding_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    monkeypatch.setitem(sys.modules, "metis", None)
    with pytest.raises(MissingMetis, match="pip install pymetis"):
        random_mesh(50, 200, spaces=1, seed=0).plan(limit=20)


@pytest.mark.skipif(importlib.util.find_spec("metis") is None, reason="the extra tagae[metis] is not installed")
def test_both_bindings_cut_equally_well(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = random_mesh(2_000, 8_000, spaces=20, seed=3)
    graph = symmetric_csr(mesh.num_nodes, mesh.edge_index, mesh.edge_weight)
    sizes = np.ones(mesh.num_nodes, dtype=np.int64)

    def severed() -> float:
        labels = part_graph(graph, sizes, 12, seed=1)
        assert np.bincount(labels, minlength=12).max() <= 1.1 * mesh.num_nodes / 12
        return float(mesh.edge_weight[labels[mesh.edge_index[0]] != labels[mesh.edge_index[1]]].sum())

    with_pymetis = severed()
    monkeypatch.setitem(sys.modules, "pymetis", None)
    assert severed() == pytest.approx(with_pymetis, rel=0.2)


def test_errors_come_back_from_another_process() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(InvalidGraph("limit: expected 1", argument="limit")))
    assert isinstance(error, PartitioningError)
    assert (type(error), str(error), error.details) == (InvalidGraph, "limit: expected 1", {"argument": "limit"})
