"""A changed mesh keeps most of its plan."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partitioning import InvalidGraph, Partition, PartitionPlan, rebalance
from tests.partitioning.meshes import Mesh, check_same, check_valid, meshes, random_mesh


def carry(old: PartitionPlan, kept: np.ndarray, mesh: Mesh, limit: int, factor: float = 1.25) -> PartitionPlan:
    return rebalance(old, kept, *mesh.arrays, limit=limit, factor=factor)


def grow(mesh: Mesh, namespaces: list[int], calls: list[tuple[int, int]], weight: float = 1.0) -> Mesh:
    """Append services and attended calls."""
    attended = np.ones(len(calls), dtype=bool)
    return Mesh(
        np.append(mesh.namespaces, namespaces),
        np.concatenate([mesh.edge_index, np.array(calls, dtype=np.int64).reshape(-1, 2).T], axis=1),
        np.append(mesh.edge_weight, np.full(len(calls), weight)),
        np.append(mesh.attended_callers, attended),
        np.append(mesh.attended_callees, attended),
    )


def keep_services(mesh: Mesh, stays: np.ndarray) -> tuple[Mesh, np.ndarray]:
    """Return the mesh of the services that stay, and their old positions."""
    kept = np.flatnonzero(stays)
    position = np.full(mesh.num_nodes, -1, dtype=np.int64)
    position[kept] = np.arange(len(kept))
    calls = stays[mesh.edge_index].all(axis=0)
    left = Mesh(
        mesh.namespaces[kept],
        position[mesh.edge_index[:, calls]],
        mesh.edge_weight[calls],
        mesh.attended_callers[calls],
        mesh.attended_callees[calls],
    )
    return left, kept


def kept_after(mesh: Mesh, added: int) -> np.ndarray:
    return np.append(np.arange(mesh.num_nodes), np.full(added, -1))


@settings(max_examples=60)
@given(meshes(), meshes(), st.integers(1, 30), st.sampled_from([1.0, 1.25, 100.0]))
def test_any_change_gives_a_valid_plan(before: Mesh, after: Mesh, limit: int, factor: float) -> None:
    """Rebalance from any mesh to any other, with any services declared the same."""
    rng = np.random.default_rng(before.num_edges + after.num_edges)
    kept = np.full(after.num_nodes, -1, dtype=np.int64)
    same = rng.integers(0, min(before.num_nodes, after.num_nodes) + 1)
    kept[rng.permutation(after.num_nodes)[:same]] = rng.permutation(before.num_nodes)[:same]
    arrays = [array.copy() for array in after.arrays]
    made = carry(before.plan(limit), kept, after, limit, factor)
    check_valid(after, made, limit)
    check_same(made, carry(before.plan(limit), kept, after, limit, factor))
    assert made.digest == after.plan(limit).digest
    for array, copy in zip(after.arrays, arrays, strict=True):
        assert np.array_equal(array, copy)


def test_unchanged_mesh_keeps_the_same_plan_object() -> None:
    mesh = random_mesh(300, 1_200, spaces=8, seed=0)
    old = mesh.plan(limit=50)
    busier = replace(mesh, edge_weight=mesh.edge_weight * 3)
    assert carry(old, np.arange(300), busier, 50) is old
    swapped = np.arange(300)[::-1].copy()
    assert carry(old, swapped, mesh, 50) is not old


@pytest.mark.parametrize("seed", range(3))
def test_churn_moves_no_service_that_stays(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mesh = random_mesh(1_500, 6_000, spaces=20, seed=seed)
    old = mesh.plan(limit=300)
    left, kept = keep_services(mesh, rng.random(1_500) > 0.02)
    added = 30
    calls = [(left.num_nodes + i, int(rng.integers(left.num_nodes))) for i in range(added) for _ in range(3)]
    after = grow(left, rng.choice(left.namespaces, added).tolist(), calls)
    made = carry(old, np.append(kept, np.full(added, -1)), after, 300)
    check_valid(after, made, 300)
    assert np.array_equal(made.part_of[: left.num_nodes], old.part_of[kept])
    assert made.fresh_quality == old.fresh_quality


def test_a_new_service_changes_only_the_few_parts_that_read_it() -> None:
    mesh = random_mesh(10_000, 60_000, spaces=200, seed=3, inside=0.97, attended=0.1)
    old = mesh.plan(limit=250)
    caller, callee = old.parts[0].core[:2].tolist()
    after = grow(mesh, [int(mesh.namespaces[caller])], [(caller, 10_000), (10_000, callee)])
    made = carry(old, kept_after(mesh, 1), after, 250)
    assert np.array_equal(made.part_of[:10_000], old.part_of)
    changed = [
        index
        for index, (now, before) in enumerate(zip(made.parts, old.parts, strict=True))
        if not all(np.array_equal(getattr(now, name), getattr(before, name)) for name in Partition.__slots__)
    ]
    reading = [index for index, part in enumerate(made.parts) if (part.edges >= mesh.num_edges).any()]
    assert changed == reading
    assert len(old.parts) > 40
    assert len(changed) < 10


def test_new_service_joins_its_traffic_then_its_namespace() -> None:
    mesh = random_mesh(200, 800, spaces=6, seed=4)
    old = mesh.plan(limit=60)
    smallest, other = np.argsort([len(part.core) for part in old.parts])[:2]
    there, here = old.parts[other].core[0], old.parts[smallest].core[0]
    namespace = int(mesh.namespaces[there])
    assert (mesh.namespaces[old.part_of == other] == namespace).sum() > (
        mesh.namespaces[old.part_of == smallest] == namespace
    ).sum(), "the namespace alone would choose the other part"
    called = grow(mesh, [namespace, namespace], [(200, int(here))], weight=100.0)
    made = carry(old, kept_after(mesh, 2), called, 60, factor=100.0)
    assert made.part_of[200] == old.part_of[here]
    spaces = mesh.namespaces == namespace
    home = np.bincount(old.part_of[spaces]).argmax()
    assert len(old.parts[home].core) < 60
    assert made.part_of[201] == home


def test_full_part_takes_no_new_service() -> None:
    mesh = random_mesh(100, 400, spaces=1, seed=5)
    limit = max(len(part.core) for part in mesh.plan(limit=40).parts)
    old = mesh.plan(limit=40)
    full = next(part for part in old.parts if len(part.core) == limit)
    after = grow(mesh, [int(mesh.namespaces[0])] * 3, [(100 + i, int(full.core[i])) for i in range(3)], weight=50.0)
    made = carry(old, kept_after(mesh, 3), after, limit, factor=100.0)
    check_valid(after, made, limit)
    assert np.array_equal(made.part_of[:100], old.part_of)


def test_new_namespace_joins_as_a_whole() -> None:
    mesh = random_mesh(200, 800, spaces=6, seed=6)
    old = mesh.plan(limit=60)
    roomiest = min(old.parts, key=lambda part: len(part.core))
    count = min(60 - len(roomiest.core), 10)
    inner = [(200 + i, 200 + (i + 1) % count) for i in range(count)]
    after = grow(mesh, [999] * count, [*inner, (200, int(roomiest.core[0]))])
    made = carry(old, kept_after(mesh, count), after, 60, factor=100.0)
    assert count > 1
    assert set(made.part_of[200:]) == {old.part_of[roomiest.core[0]]}


def test_new_namespace_above_the_limit_is_cut() -> None:
    mesh = random_mesh(200, 800, spaces=6, seed=7)
    inner = [(200 + i, 200 + i + 1) for i in range(149)]
    after = grow(mesh, [999] * 150, inner)
    made = carry(mesh.plan(limit=60), kept_after(mesh, 150), after, 60, factor=100.0)
    check_valid(after, made, 60)


def test_lowered_limit_cuts_large_parts_and_keeps_their_largest_piece() -> None:
    mesh = random_mesh(300, 1_200, spaces=8, seed=8)
    old = mesh.plan(limit=100)
    made = carry(old, np.arange(300), mesh, 60, factor=100.0)
    check_valid(mesh, made, 60)
    assert all(len(np.unique(old.part_of[part.core])) == 1 for part in made.parts), "pieces do not mix old parts"


def test_much_worse_plan_is_made_from_scratch() -> None:
    """All calls inside parts now cross parts: every service calls one of another old part."""
    mesh = random_mesh(600, 2_400, spaces=10, seed=9, inside=1.0)
    old = mesh.plan(limit=100)
    order = np.random.default_rng(0).permutation(600)
    turned = mesh.relabelled(order)
    made = carry(old, np.arange(600), turned, 100)
    check_same(made, turned.plan(limit=100))
    stubborn = carry(old, np.arange(600), turned, 100, factor=1e9)
    assert np.array_equal(stubborn.part_of, old.part_of)
    assert stubborn.quality.traffic_cut > 1.25 * made.quality.traffic_cut


def test_slow_decay_is_compared_with_the_last_fresh_plan() -> None:
    """Twenty services swap roles at a time. Compared with the previous step, no step would be clearly worse."""
    rng = np.random.default_rng(10)
    mesh = random_mesh(600, 2_400, spaces=10, seed=10, inside=0.98)
    made = mesh.plan(limit=100)
    from_scratch = [made.quality]
    renewals = 0
    for _ in range(30):
        order = np.arange(600)
        some = rng.choice(600, 20, replace=False)
        order[some] = rng.permutation(some)
        mesh = mesh.relabelled(order)
        before, made = made, carry(made, np.arange(600), mesh, 100)
        renewals += not np.array_equal(before.part_of, made.part_of)
        from_scratch.append(mesh.plan(limit=100).quality)
        assert any(not made.quality.clearly_worse_than(quality, 1.25) for quality in from_scratch)
    assert 1 <= renewals <= 29


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        (np.arange(29), r"expected int64 \[30\]"),
        (np.arange(30.0), "got float64"),
        (np.append(np.arange(29), 30), "service 29 claims old position 30, expected -1"),
        (np.append(np.arange(29), -2), "service 29 claims old position -2"),
        (np.append(np.arange(29), 0), "old position 0 is claimed by several"),
    ],
)
def test_wrong_positions_are_refused(kept: np.ndarray, words: str) -> None:
    mesh = random_mesh(30, 90, spaces=3, seed=0)
    with pytest.raises(InvalidGraph, match=words) as caught:
        carry(mesh.plan(limit=10), kept, mesh, 10)
    assert caught.value.details["argument"] == "kept"
