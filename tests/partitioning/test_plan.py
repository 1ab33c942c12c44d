"""Plans are valid on any mesh."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partitioning import InvalidGraph, topology_digest
from tests.partitioning.meshes import Mesh, check_same, check_valid, meshes, random_mesh

LIMITS = st.integers(1, 40)
quick = settings(max_examples=60)


@quick
@given(meshes(), LIMITS)
def test_any_plan_is_valid(mesh: Mesh, limit: int) -> None:
    check_valid(mesh, mesh.plan(limit), limit)


@quick
@given(meshes(), LIMITS)
def test_halo_is_the_two_hop_closure(mesh: Mesh, limit: int) -> None:
    """Compare with networkx on the graph of attended calls, plus the destinations of owned calls."""
    hears = nx.DiGraph()
    hears.add_nodes_from(range(mesh.num_nodes))
    calls = list(zip(*mesh.edge_index.tolist(), mesh.attended_callers, mesh.attended_callees, strict=True))
    hears.add_edges_from((destination, source) for source, destination, callers, _ in calls if callers)
    hears.add_edges_from((source, destination) for source, destination, _, callees in calls if callees)
    for part in mesh.plan(limit).parts:
        depth = nx.multi_source_dijkstra_path_length(hears, set(part.core.tolist()), cutoff=2)
        inner = {node for node, hops in depth.items() if hops <= 1}
        edges = {
            e
            for e, (source, destination, callers, callees) in enumerate(calls)
            if (callers and destination in inner) or (callees and source in inner)
        }
        destinations = mesh.edge_index[1, part.owned_edges].tolist()
        assert set(part.nodes.tolist()) == {*depth, *destinations}
        assert set(part.edges.tolist()) == edges | set(part.owned_edges.tolist())


@quick
@given(meshes(), LIMITS, st.integers(0, 2**31 - 1))
def test_same_seed_same_plan_and_inputs_unchanged(mesh: Mesh, limit: int, seed: int) -> None:
    before = [array.copy() for array in mesh.arrays]
    check_same(mesh.plan(limit, seed), mesh.plan(limit, seed))
    for array, copy in zip(mesh.arrays, before, strict=True):
        assert np.array_equal(array, copy)


@quick
@given(meshes(), LIMITS)
def test_relabelled_mesh_has_a_valid_plan(mesh: Mesh, limit: int) -> None:
    order = np.random.default_rng(mesh.num_edges).permutation(mesh.num_nodes)
    moved = mesh.relabelled(order)
    check_valid(moved, moved.plan(limit), limit)


@quick
@given(meshes())
def test_mesh_up_to_the_limit_is_one_part_without_halo(mesh: Mesh) -> None:
    made = mesh.plan(limit=mesh.num_nodes)
    (part,) = made.parts
    assert len(part.halo) == len(made.crossing) == 0
    assert np.array_equal(part.edges, np.arange(mesh.num_edges))
    assert made.quality.replication == made.quality.balance == 1
    assert made.quality.traffic_cut == made.quality.call_cut == 0


@pytest.mark.parametrize("seed", range(3))
def test_large_mesh_is_cut_within_its_limit(seed: int) -> None:
    mesh = random_mesh(6_000, 24_000, spaces=40, seed=seed, attended=1.0)
    made = mesh.plan(limit=500, seed=seed)
    check_valid(mesh, made, 500)
    assert len(made.parts) <= 20
    random_cut = 1 - 1 / len(made.parts)
    assert made.quality.call_cut < random_cut / 2


def test_separate_namespaces_are_not_cut() -> None:
    """Four cliques of 30, limit 60: two parts without a crossing call."""
    cliques = nx.disjoint_union_all([nx.complete_graph(30).to_directed() for _ in range(4)])
    mesh = _attended(np.arange(120) // 30, np.array(cliques.edges).T)
    made = mesh.plan(limit=60)
    assert made.quality.traffic_cut == 0
    assert made.quality.replication == 1
    assert all(len(np.unique(made.part_of[space * 30 : space * 30 + 30])) == 1 for space in range(4))


def test_small_namespaces_are_grouped_by_their_traffic() -> None:
    """Namespaces 0-2 and 1-3 call each other. By size alone any pairing would be valid."""
    calls = [(0, 20), (10, 30), (1, 21), (11, 31)]
    inner = [(10 * space + i, 10 * space + i + 1) for space in range(4) for i in range(9)]
    mesh = _attended(np.arange(40) // 10, np.array(calls + inner).T)
    made = mesh.plan(limit=25)
    assert len(made.crossing) == 0
    assert made.part_of[0] == made.part_of[20] != made.part_of[10] == made.part_of[30]


def test_large_namespace_is_cut_where_traffic_is_thin() -> None:
    """Two cliques of 20 in one namespace, joined by one call."""
    cliques = nx.disjoint_union_all([nx.complete_graph(20).to_directed() for _ in range(2)])
    cliques.add_edge(0, 20)
    mesh = _attended(np.zeros(40, dtype=np.int64), np.array(cliques.edges).T)
    made = mesh.plan(limit=25)
    assert mesh.edge_index[:, made.crossing].T.tolist() == [[0, 20]]


def test_isolated_services_and_self_calls() -> None:
    loops = np.tile(np.arange(10), (2, 1))
    mesh = _attended(np.zeros(50, dtype=np.int64), loops)
    made = mesh.plan(limit=20)
    check_valid(mesh, made, 20)
    assert len(made.parts) == 3
    assert len(made.crossing) == 0
    assert all(len(part.halo) == 0 for part in made.parts)


def test_mesh_without_services_has_no_parts() -> None:
    mesh = _attended(np.zeros(0, dtype=np.int64), np.zeros((2, 0), dtype=np.int64))
    made = mesh.plan(limit=10)
    assert made.parts == ()
    assert made.quality.calls == ()


def test_capped_hub_brings_few_callers_into_other_halos() -> None:
    """A hub has 399 callers and attends to 4 of them. So each of its callers reads 4 others, not 399."""
    callers = np.arange(1, 400)
    edges = np.stack([callers, np.zeros(399, dtype=np.int64)])
    mesh = _attended(np.arange(400) // 50, edges)
    capped = replace(mesh, attended_callers=np.arange(399) < 4)
    home = mesh.plan(limit=100).part_of[0]
    for number, part in enumerate(capped.plan(limit=100).parts):
        if number != home:
            assert len(part.halo) <= 5
    assert all(len(part.nodes) == 400 for part in mesh.plan(limit=100).parts)


def test_unattended_owned_call_still_has_its_destination() -> None:
    mesh = _attended(np.array([0, 0, 1, 1]), np.array([[0, 2, 0], [1, 3, 3]]))
    silent = replace(mesh, attended_callers=np.zeros(3, dtype=bool), attended_callees=np.zeros(3, dtype=bool))
    made = silent.plan(limit=2)
    part = made.parts[made.part_of[0]]
    assert part.halo.tolist() == [3]
    assert part.owned_edges.tolist() == part.edges.tolist() == [0, 2]


def test_quality_by_hand() -> None:
    """Two parts of two; calls 0-1 (weight 3), 2-3 (1), 1-2 (4) and a self call (2)."""
    mesh = _attended(np.array([0, 0, 1, 1]), np.array([[0, 2, 1, 0], [1, 3, 2, 0]]))
    made = replace(mesh, edge_weight=np.array([3.0, 1.0, 4.0, 2.0])).plan(limit=2)
    assert made.crossing.tolist() == [2]
    assert made.quality.traffic_cut == pytest.approx(0.4)
    assert made.quality.call_cut == pytest.approx(0.25)
    assert made.quality.balance == 1
    assert made.quality.replication == 2  # a chain of four: the other part's two services are within two hops
    assert made.quality.calls == (4, 3)  # the second part does not need the self call of service 0


@pytest.mark.parametrize("name", ["namespaces", "edge_index", "attended_callers", "attended_callees"])
def test_digest_depends_on_every_argument(name: str) -> None:
    mesh = random_mesh(30, 90, spaces=4, seed=1)
    changed = getattr(mesh, name).copy()
    changed.flat[-1] = not changed.flat[-1]
    assert _digest(mesh) == _digest(random_mesh(30, 90, spaces=4, seed=1)) == mesh.plan(10).digest
    assert _digest(mesh) != _digest(replace(mesh, **{name: changed}))


def test_digest_does_not_depend_on_traffic_or_memory_layout() -> None:
    mesh = random_mesh(30, 90, spaces=4, seed=1)
    other = replace(mesh, edge_weight=mesh.edge_weight * 2, edge_index=np.asfortranarray(mesh.edge_index))
    assert _digest(mesh) == _digest(other)


@pytest.mark.parametrize(
    ("change", "argument", "words"),
    [
        ({"namespaces": np.zeros((2, 3), dtype=np.int64)}, "namespaces", r"expected shape \[any\], got \[2, 3\]"),
        ({"namespaces": np.array(["a", "b", "c"])}, "namespaces", "expected int64"),
        ({"edge_index": np.zeros((3, 2), dtype=np.int64)}, "edge_index", r"expected shape \[2, any\]"),
        ({"edge_index": np.zeros((2, 2), dtype=np.int32)}, "edge_index", "expected int64, got int32"),
        ({"edge_index": np.array([[0, 1], [1, 3]])}, "edge_index", "call 1 goes from 1 to 3"),
        ({"edge_index": np.array([[0, -1], [1, 2]])}, "edge_index", "call 1 goes from -1"),
        ({"edge_weight": np.ones(3)}, "edge_weight", r"expected shape \[2\], got \[3\]"),
        ({"edge_weight": np.array([1.0, np.nan])}, "edge_weight", "call 1 has weight nan"),
        ({"edge_weight": np.array([-1.0, 1.0])}, "edge_weight", "call 0 has weight -1.0"),
        ({"attended_callers": np.ones(2)}, "attended_callers", "expected bool, got float64"),
        ({"attended_callees": np.ones(1, dtype=bool)}, "attended_callees", r"expected shape \[2\], got \[1\]"),
    ],
)
def test_wrong_arrays_are_refused_by_name(change: dict[str, np.ndarray], argument: str, words: str) -> None:
    mesh = _attended(np.array([0, 0, 1]), np.array([[0, 1], [1, 2]]))
    with pytest.raises(InvalidGraph, match=words) as caught:
        replace(mesh, **change).plan(limit=2)
    assert caught.value.details["argument"] == argument


@pytest.mark.parametrize(("limit", "seed", "argument"), [(0, 0, "limit"), (5, -1, "seed"), (5, 2**31, "seed")])
def test_wrong_settings_are_refused(limit: int, seed: int, argument: str) -> None:
    mesh = random_mesh(10, 20, spaces=2, seed=0)
    with pytest.raises(InvalidGraph) as caught:
        mesh.plan(limit, seed)
    assert caught.value.details["argument"] == argument


def _attended(namespaces: np.ndarray, edge_index: np.ndarray) -> Mesh:
    attended = np.ones(edge_index.shape[1], dtype=bool)
    return Mesh(
        namespaces.astype(np.int64), edge_index.astype(np.int64), attended.astype(np.float64), attended, attended
    )


def _digest(mesh: Mesh) -> str:
    return topology_digest(mesh.namespaces, mesh.edge_index, mesh.attended_callers, mesh.attended_callees)
