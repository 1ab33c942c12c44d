"""Positions of services: grouped, near their callees, and where they were before."""

from itertools import pairwise

import numpy as np
import pytest

from serve_app.web.graph.layout import CLOSEST, Ints, Layout, arrange


def mesh(sizes: list[int], calls: int, seed: int = 0) -> tuple[list[str], Ints, np.ndarray]:
    """Return a mesh with namespaces of these sizes, and four of five calls inside a namespace."""
    random = np.random.default_rng(seed)
    ends = np.cumsum([0, *sizes])
    names = [f"ns{s}/s{i}" for s, (a, b) in enumerate(pairwise(ends)) for i in range(a, b)]
    source = random.integers(0, len(names), calls)
    space = np.searchsorted(ends, source, side="right") - 1
    inside = random.integers(ends[space], ends[space + 1])
    destination = np.where(random.random(calls) < 0.8, inside, random.integers(0, len(names), calls))
    return names, np.stack([source, destination]), random.exponential(10, calls)


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
    names, edges, rates = mesh(sizes, degree * sum(sizes))
    layout = arrange(names, edges, rates)
    assert layout.names == tuple(names)
    assert layout.positions.dtype == np.float32
    assert np.isfinite(layout.positions).all()
    found = discs(layout)
    for i, (centre, radius) in enumerate(found):
        assert radius <= 1.6 * np.sqrt(sizes[i])
        assert all(np.hypot(*(centre - other)) > radius + size for other, size in found[:i])
    if len(names) > 1:
        apart = nearest(layout.positions)
        assert apart.min() > 0.99
        assert len(sizes) > 1 or np.median(apart) < 1.2


def test_the_same_mesh_has_the_same_layout() -> None:
    drawn = mesh([30, 300, 8], 1500)
    assert np.array_equal(arrange(*drawn).positions, arrange(*drawn).positions)


@pytest.mark.parametrize(("sizes", "nearer"), [([25] * 20, 0.4), ([1000], 0.8)], ids=["namespaces", "one"])
def test_a_callee_is_nearer_than_other_services(sizes: list[int], nearer: float) -> None:
    names, edges, rates = mesh(sizes, 3 * sum(sizes))
    at = arrange(names, edges, rates).positions
    anybody = np.random.default_rng(1).permutation(len(names))
    assert np.hypot(*(at[edges[0]] - at[edges[1]]).T).mean() < nearer * np.hypot(*(at - at[anybody]).T).mean()


def test_callers_are_left_of_callees() -> None:
    names = [f"shop/s{i}" for i in range(12)]
    edges = np.stack([np.arange(11), np.arange(1, 12)])
    x = arrange(names, edges, np.ones(11)).positions[:, 0]
    assert x[0] == x.min()
    assert x[-1] == x.max()


def test_namespaces_with_calls_between_them_are_near_each_other() -> None:
    names = [f"ns{s}/s{i}" for s in range(9) for i in range(10)]
    chain = np.arange(80)
    layout = arrange(names, np.stack([chain, chain + 10]), np.ones(80))
    centres = np.stack([centre for centre, _ in discs(layout)])
    steps = np.hypot(*np.diff(centres, axis=0).T)
    assert steps.mean() < 0.7 * np.hypot(*(centres[:, None] - centres).transpose(2, 0, 1)).mean()


def test_known_services_stay_and_new_ones_are_near_their_callees() -> None:
    names, edges, rates = mesh([40, 40, 40], 600)
    before = arrange(names, edges, rates)
    names = [*names[5:], "ns1/new", "ns1/alone", "ns1/behind", "fresh/a", "fresh/b"]
    calls = np.array([[115, 117, 118, 118, 119], [60, 115, 119, 100, 101]])  # new calls ns1; fresh calls ns2
    kept = (edges >= 5).all(axis=0)
    edges = np.concatenate([edges[:, kept] - 5, calls], axis=1)
    after = arrange(names, edges, np.ones(edges.shape[1]), before)
    assert np.array_equal(after.positions[:115], before.positions[5:])
    assert nearest(after.positions).min() >= CLOSEST - 1e-4
    assert np.hypot(*(after.positions[115] - after.positions[60])) < 3
    assert np.hypot(*(after.positions[117] - after.positions[115])) < 3
    found = discs(after)
    assert np.hypot(*(after.positions[116] - found[1][0])) < found[1][1] + 1
    gaps = [np.hypot(*(found[3][0] - centre)) - radius - found[3][1] for centre, radius in found[:3]]
    assert min(gaps) > 0
    assert gaps[2] < 10
    assert np.array_equal(after.positions, arrange(names, edges, np.ones(edges.shape[1]), before).positions)


def test_a_known_mesh_keeps_its_layout_in_the_given_order() -> None:
    names, edges, rates = mesh([20, 20], 100)
    before = arrange(names, edges, rates)
    assert arrange(names, edges, rates, before) is before
    turned = arrange(names[::-1], 39 - edges, rates, before)
    assert np.array_equal(turned.positions, before.positions[::-1])


def test_a_mostly_new_mesh_is_arranged_from_the_start() -> None:
    names, edges, rates = mesh([20, 20], 100)
    fresh = arrange(names, edges, rates)
    moved = Layout(tuple(names[:15]), fresh.positions[:15] + 1000)
    assert np.array_equal(arrange(names, edges, rates, moved).positions, fresh.positions)


def test_calls_without_a_rate_and_self_calls_are_accepted() -> None:
    layout = arrange(["a/x", "a/y"], np.array([[0, 0, 0], [0, 1, 1]]), np.array([1.0, np.nan, 0.0]))
    assert np.hypot(*np.diff(layout.positions, axis=0)[0]) == pytest.approx(1, abs=0.2)
