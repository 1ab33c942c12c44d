"""Positions of services: grouped, right of their callers, and where they were before."""

from itertools import pairwise

import numpy as np
import pytest

from model.snapshot import IntArray
from serve_app.web.graph.layout import Layout, arrange


def mesh(sizes: list[int], calls: int, seed: int = 0) -> tuple[list[str], IntArray]:
    """Return a mesh with namespaces of these sizes, and four of five calls inside a namespace."""
    random = np.random.default_rng(seed)
    ends = np.cumsum([0, *sizes])
    names = [f"ns{s}/s{i}" for s, (a, b) in enumerate(pairwise(ends)) for i in range(a, b)]
    source = random.integers(0, len(names), calls)
    space = np.searchsorted(ends, source, side="right") - 1
    inside = random.integers(ends[space], ends[space + 1])
    destination = np.where(random.random(calls) < 0.8, inside, random.integers(0, len(names), calls))
    return names, np.stack([source, destination])


def discs(layout: Layout) -> list[tuple[np.ndarray, float]]:
    """Return centre and radius of each namespace."""
    spaces = np.array([name.split("/")[0] for name in layout.names])
    found = []
    for space in dict.fromkeys(spaces):
        at = layout.positions[spaces == space]
        centre = at.mean(axis=0)
        found.append((centre, float(np.hypot(*(at - centre).T).max())))
    return found


def nearest(positions: np.ndarray) -> np.ndarray:
    """Return the distance of each service to the nearest other one."""
    apart = np.hypot(*(positions[:, None] - positions).transpose(2, 0, 1))
    np.fill_diagonal(apart, np.inf)
    return apart.min(axis=1)


@pytest.mark.parametrize(
    "sizes", [[1], [2], [40], [1000], [3, 1, 12, 60, 25], [1] * 450], ids=lambda sizes: f"{len(sizes)}x{sizes[0]}"
)
@pytest.mark.parametrize("degree", [0, 6], ids=["isolated", "calls"])
def test_namespaces_are_discs_apart_and_services_one_apart(sizes: list[int], degree: int) -> None:
    names, edges = mesh(sizes, degree * sum(sizes))
    layout = arrange(names, edges)
    assert layout.names == tuple(names)
    found = discs(layout)
    for i, (centre, radius) in enumerate(found):
        assert radius <= 1.6 * np.sqrt(sizes[i])
        assert all(np.hypot(*(centre - other)) > radius + size for other, size in found[:i])
    if len(names) > 1:
        apart = nearest(layout.positions)
        assert apart.min() >= 1
        assert len(sizes) > 1 or np.median(apart) == 1


def test_the_same_mesh_has_the_same_layout() -> None:
    drawn = mesh([30, 300, 8], 1500)
    assert np.array_equal(arrange(*drawn).positions, arrange(*drawn).positions)


def test_callers_are_left_of_callees_in_a_namespace_and_between_namespaces() -> None:
    names = [f"ns{space}/s{i}" for space in range(3) for i in range(12)]
    chain = np.arange(35)
    x = arrange(names, np.stack([chain, chain + 1])).positions[:, 0]
    assert (np.diff(x) > 0).all()


def test_services_that_call_each_other_stand_in_one_column() -> None:
    x = arrange(["a/in", "a/x", "a/y", "a/out"], np.array([[0, 1, 2, 2], [1, 2, 1, 3]])).positions[:, 0]
    assert x[0] < x[1] == x[2] < x[3]


def test_a_callee_is_nearer_than_other_services() -> None:
    names, edges = mesh([25] * 20, 1500)
    at = arrange(names, edges).positions
    anybody = np.random.default_rng(1).permutation(len(names))
    assert np.hypot(*(at[edges[0]] - at[edges[1]]).T).mean() < 0.4 * np.hypot(*(at - at[anybody]).T).mean()


def test_known_services_stay_and_new_ones_are_near_their_callees() -> None:
    names, edges = mesh([40, 40, 40], 600)
    before = arrange(names, edges)
    names = [*names[5:], "ns1/new", "ns1/alone", "ns1/behind"]
    kept = (edges >= 5).all(axis=0)
    edges = np.concatenate([edges[:, kept] - 5, np.array([[115, 117], [60, 115]])], axis=1)
    after = arrange(names, edges, before)
    assert np.array_equal(after.positions[:115], before.positions[5:])
    assert nearest(after.positions).min() >= 1
    home = discs(after)[1]
    for new, near in ((115, after.positions[60]), (117, after.positions[115]), (116, home[0])):
        assert np.hypot(*(after.positions[new] - near)) < home[1] + 1
    assert np.array_equal(after.positions, arrange(names, edges, before).positions)


def test_a_known_mesh_keeps_its_layout_in_the_given_order() -> None:
    names, edges = mesh([20, 20], 100)
    before = arrange(names, edges)
    assert arrange(names, edges, before) is before
    turned = arrange(names[::-1], 39 - edges, before)
    assert np.array_equal(turned.positions, before.positions[::-1])


def test_a_new_namespace_and_a_mostly_new_mesh_are_arranged_from_the_start() -> None:
    names, edges = mesh([20, 20], 100)
    fresh = arrange(names, edges)
    for rows in (range(15), range(20)):
        moved = Layout(tuple(names[i] for i in rows), fresh.positions[list(rows)] + 1000)
        assert np.array_equal(arrange(names, edges, moved).positions, fresh.positions)


def test_self_calls_and_repeated_calls_are_accepted() -> None:
    layout = arrange(["a/x", "a/y"], np.array([[0, 0, 0], [0, 1, 1]]))
    assert np.hypot(*np.diff(layout.positions, axis=0)[0]) == 1
