"""Everything that follows from a mesh's calls: the attended ones of each service, and their order.

Calls change rarely, and everything here is computed once for as long as they stay the same. A :class:`Topology` is
known to be of a mesh by its arrays themselves, not by their contents: states never change an array in place.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.features import Array
from model.ordering import descending_order, stable_order
from model.snapshot import BoolArray, IntArray


class SortedNeighbours(NamedTuple):
    """The neighbours that each of N services attends to in one direction, as CSR.

    Attributes:
        indptr: int64 ``[N + 1]``.
        indices: int64 ``[S]`` neighbours.
        edges: int64 ``[S]`` the call to each.
    """

    indptr: IntArray
    indices: IntArray
    edges: IntArray


def sort_neighbours(listener: IntArray, speaker: IntArray, attended: BoolArray, services: int) -> SortedNeighbours:
    """Sort the attended calls by the service that attends.

    Args:
        listener, speaker: ``[E]`` rows of the service that attends to each call, and of the other one.
    """
    edges = np.flatnonzero(attended)
    of = listener[edges]
    # numpy sorts numbers of 16 bits in one pass, several times faster than torch sorts.
    in_one_pass = services < 2**16
    edges = edges[np.argsort(of.astype(np.uint16), kind="stable") if in_one_pass else stable_order(of, services)]
    indptr = np.zeros(services + 1, np.int64)
    np.cumsum(np.bincount(of, minlength=services), out=indptr[1:])
    return SortedNeighbours(indptr, speaker[edges], edges)


@dataclass(frozen=True, eq=False)
class Topology:
    """The calls of a mesh, and what follows from them.

    Attributes:
        edge_index: int64 ``[2, E]``.
        attended_callers, attended_callees: bool ``[E]``, as of :class:`~model.state.mesh_state.MeshState`.
    """

    services: int
    edge_index: IntArray
    attended_callers: BoolArray
    attended_callees: BoolArray

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave out what can be computed again."""
        return Topology, (self.services, self.edge_index, self.attended_callers, self.attended_callees)

    def is_of(
        self, services: int, edge_index: IntArray, attended_callers: BoolArray, attended_callees: BoolArray
    ) -> bool:
        """Return whether these are the very arrays that it was computed from."""
        return (
            services == self.services
            and edge_index is self.edge_index
            and attended_callers is self.attended_callers
            and attended_callees is self.attended_callees
        )

    @cached_property
    def ends(self) -> np.ndarray[tuple[int, int], np.dtype[np.int32]]:
        """The caller and the callee of each call, ``[2, E]``, in half of the memory."""
        return self.edge_index.astype(np.int32)

    @cached_property
    def callers(self) -> SortedNeighbours:
        source, destination = self.edge_index
        return sort_neighbours(destination, source, self.attended_callers, self.services)

    @cached_property
    def callees(self) -> SortedNeighbours:
        source, destination = self.edge_index
        return sort_neighbours(source, destination, self.attended_callees, self.services)

    @cached_property
    def chances_as_caller(self) -> Array:
        """``log10`` of each service's outgoing calls, ``[N]``; 0 if it makes none."""
        return _decades(np.bincount(self.edge_index[0], minlength=self.services))

    @cached_property
    def chances_as_callee(self) -> Array:
        """``log10`` of each service's incoming calls, ``[N]``; 0 if there are none."""
        return _decades(np.bincount(self.edge_index[1], minlength=self.services))


def _decades(counts: NDArray[np.integer]) -> Array:
    return np.log10(np.maximum(counts, 1)).astype(np.float32)


def calls_at(services: BoolArray, edge_index: IntArray) -> BoolArray:
    """Return which calls ``[E]`` have one of the ``services`` ``[N]`` at an end. Usually there are none."""
    if not services.any():
        return np.zeros(edge_index.shape[1], bool)
    return services[edge_index[0]] | services[edge_index[1]]


def sample_neighbours(traffic: Array, listener: IntArray, foreign: BoolArray, limit: int) -> BoolArray:
    """Select the calls that each service attends to on one side: those with most traffic and, if there are more than
    ``limit``, at most one from another namespace.

    The limit is a property of the model. It is applied when the topology changes, and is the same for a whole mesh and
    for its parts. Without the rule for namespaces, every part of a cut mesh would read all callers of the shared
    services (figures in docs/research-log.md).

    Args:
        listener: ``[E]`` row of the service at this side of each call.
        foreign: ``[E]`` whether the call crosses namespaces.
    """
    is_attended = strongest(traffic, listener, limit)
    is_crowded = np.bincount(listener, minlength=1)[listener] > limit
    rows = np.flatnonzero(foreign)
    first_foreign = np.zeros(len(listener), bool)
    first_foreign[rows] = strongest(traffic[rows], listener[rows], 1)
    return is_attended & (~is_crowded | ~foreign | first_foreign)


def strongest(traffic: Array, group: IntArray, limit: int) -> BoolArray:
    """Mark, in each group, the ``limit`` rows with most traffic (ties: the earlier row)."""
    mask = np.ones(len(group), bool)
    sizes = np.bincount(group) if len(group) else np.zeros(0, np.int64)
    if not len(sizes) or sizes.max() <= limit:
        return mask
    order = descending_order(traffic)
    order = order[stable_order(group[order], len(sizes))]
    start = np.cumsum(sizes) - sizes
    rank = np.empty(len(group), np.int64)
    rank[order] = np.arange(len(group)) - start[group[order]]
    return rank < limit
