"""Meshes for the tests of partitioning."""

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from partitioning import PartitionPlan, plan

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Mesh:
    """The array arguments of ``plan``, in order."""

    namespaces: Ints
    edge_index: Ints
    edge_weight: NDArray[np.float64]
    attended_callers: NDArray[np.bool_]
    attended_callees: NDArray[np.bool_]

    @property
    def arrays(self) -> tuple[Ints, Ints, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        return (self.namespaces, self.edge_index, self.edge_weight, self.attended_callers, self.attended_callees)

    @property
    def num_nodes(self) -> int:
        return len(self.namespaces)

    @property
    def num_edges(self) -> int:
        return self.edge_index.shape[1]

    def plan(self, limit: int, seed: int = 0) -> PartitionPlan:
        return plan(*self.arrays, limit=limit, seed=seed)

    def relabelled(self, order: Ints) -> "Mesh":
        """Reorder services: ``order[i]`` of this mesh becomes service i."""
        position = np.argsort(order)
        return replace(self, namespaces=self.namespaces[order], edge_index=position[self.edge_index])


def random_mesh(
    num_nodes: int, num_edges: int, spaces: int, seed: int, inside: float = 0.85, attended: float = 0.8
) -> Mesh:
    """Return a mesh with calls mostly inside namespaces of uneven size, self calls, and a hub with many callers."""
    rng = np.random.default_rng(seed)
    namespaces = np.floor(spaces * rng.random(num_nodes) ** 2).astype(np.int64) * 7 - 3
    source = rng.integers(0, num_nodes, num_edges)
    by_space = np.argsort(namespaces, kind="stable")
    ordered = namespaces[by_space]
    low, high = np.searchsorted(ordered, namespaces[source]), np.searchsorted(ordered, namespaces[source], "right")
    near = by_space[low + (rng.random(num_edges) * (high - low)).astype(np.int64)]
    destination = np.where(rng.random(num_edges) < inside, near, rng.integers(0, num_nodes, num_edges))
    callers = np.flatnonzero(rng.random(num_nodes) < 0.33)
    pairs = np.concatenate([source * num_nodes + destination, callers * num_nodes + rng.integers(num_nodes)])
    pairs = rng.permutation(np.unique(pairs))
    edge_index = np.stack([pairs // num_nodes, pairs % num_nodes])
    return Mesh(
        namespaces,
        edge_index,
        rng.lognormal(0.0, 2.0, len(pairs)),
        rng.random(len(pairs)) < attended,
        rng.random(len(pairs)) < attended,
    )


@st.composite
def meshes(draw: st.DrawFn) -> Mesh:
    """Draw small meshes of any density, also with isolated services, with one service, or without calls."""
    num_nodes = draw(st.integers(1, 60))
    return random_mesh(
        num_nodes,
        num_edges=draw(st.integers(0, 4 * num_nodes)),
        spaces=draw(st.integers(1, 8)),
        seed=draw(st.integers(0, 2**31 - 1)),
        attended=draw(st.sampled_from([0.0, 0.3, 0.8, 1.0])),
    )


def check_valid(mesh: Mesh, made: PartitionPlan, limit: int) -> None:
    """Check the properties of every plan of a mesh."""
    source, destination = mesh.edge_index
    cores = np.concatenate([part.core for part in made.parts])
    owned = np.concatenate([part.owned_edges for part in made.parts])
    assert np.array_equal(np.sort(cores), np.arange(mesh.num_nodes)), "each service is core once"
    assert np.array_equal(np.sort(owned), np.arange(mesh.num_edges)), "each call is owned once"
    for number, part in enumerate(made.parts):
        assert 0 < len(part.core) <= limit
        assert (made.part_of[part.core] == number).all()
        assert (made.part_of[source[part.owned_edges]] == number).all()
        assert not np.isin(part.halo, part.core).any()
        assert np.isin(part.owned_edges, part.edges).all()
        assert np.isin(mesh.edge_index[:, part.edges], part.nodes).all(), "both ends of each call are in the part"
        for array in (part.core, part.halo, part.edges, part.owned_edges):
            assert array.dtype == np.int64
            assert (np.diff(array) > 0).all()
            assert not array.flags.writeable
    crossing = made.part_of[source] != made.part_of[destination]
    assert np.array_equal(made.crossing, np.flatnonzero(crossing))


def check_same(one: PartitionPlan, other: PartitionPlan) -> None:
    """Check that two plans are equal."""
    assert (one.digest, one.quality, one.fresh_quality) == (other.digest, other.quality, other.fresh_quality)
    assert np.array_equal(one.part_of, other.part_of)
    for part, twin in zip(one.parts, other.parts, strict=True):
        for name in ("core", "halo", "edges", "owned_edges"):
            assert np.array_equal(getattr(part, name), getattr(twin, name))
