"""The services and calls that a part must read besides its own."""

from dataclasses import dataclass

import numpy as np

from partitioning.graph import BoolArray, IntArray, stable_order


@dataclass(frozen=True, slots=True, eq=False)
class CallsByService:
    """Some calls of a mesh in CSR form, by the service at one end.

    Attributes:
        indptr: int64 ``[N + 1]``.
        calls: int64, ids of service i's calls at ``indptr[i]:indptr[i + 1]``.
    """

    indptr: IntArray
    calls: IntArray

    @classmethod
    def of(cls, ends: IntArray, mask: BoolArray, num_nodes: int) -> "CallsByService":
        """Group the calls of a ``mask [E]`` by their ``ends [E]``."""
        calls = np.flatnonzero(mask)
        indptr = np.zeros(num_nodes + 1, dtype=np.int64)
        np.cumsum(np.bincount(ends[calls], minlength=num_nodes), out=indptr[1:])
        return cls(indptr, calls[stable_order(ends[calls], num_nodes)])

    def calls_of(self, nodes: IntArray) -> IntArray:
        first, count = self.indptr[nodes], self.indptr[nodes + 1] - self.indptr[nodes]
        before = np.cumsum(count) - count
        calls: IntArray = self.calls[np.repeat(first - before, count) + np.arange(count.sum())]
        return calls


@dataclass(frozen=True, slots=True, eq=False)
class AttendedCalls:
    """The attended calls of a mesh, ready for the closures of many parts. Each takes time in proportion to the part.

    Attributes:
        edge_index: int64 ``[2, E]``.
        callers: the calls that their destination attends to, by destination.
        callees: the calls that their source attends to, by source.
    """

    edge_index: IntArray
    callers: CallsByService
    callees: CallsByService

    @classmethod
    def of(
        cls, num_nodes: int, edge_index: IntArray, attended_callers: BoolArray, attended_callees: BoolArray
    ) -> "AttendedCalls":
        """Arguments as in :func:`closure`."""
        source, destination = edge_index
        return cls(
            edge_index,
            CallsByService.of(destination, attended_callers, num_nodes),
            CallsByService.of(source, attended_callees, num_nodes),
        )

    def closure(self, seeds: IntArray, hops: int) -> tuple[BoolArray, BoolArray]:
        """As :func:`closure`, of ``seeds`` given as positions."""
        source, destination = self.edge_index
        nodes = np.zeros(len(self.callers.indptr) - 1, dtype=np.bool_)
        edges = np.zeros(len(source), dtype=np.bool_)
        nodes[seeds] = True
        for _ in range(hops):  # the calls at services of earlier hops are there already
            callers, callees = self.callers.calls_of(seeds), self.callees.calls_of(seeds)
            edges[callers] = edges[callees] = True
            before = nodes.copy()
            nodes[source[callers]] = nodes[destination[callees]] = True
            seeds = np.flatnonzero(nodes & ~before)
        return nodes, edges


def closure(
    seeds: BoolArray, edge_index: IntArray, attended_callers: BoolArray, attended_callees: BoolArray, hops: int
) -> tuple[BoolArray, BoolArray]:
    """Return everything that ``hops`` attention layers read to compute the seeds.

    In one layer node i attends to caller j along call (j -> i) if ``attended_callers`` holds for that call, and to
    callee k along call (i -> k) if ``attended_callees`` holds. The layers must run on the closure with the same two
    masks: a limit on neighbours applied again inside a part would choose other neighbours.

    Args:
        seeds: ``[N]``, the nodes whose results must be exact.
        attended_callers: ``[E]``, whether the destination attends to the source.
        attended_callees: ``[E]``, whether the source attends to the destination.

    Returns:
        ``(nodes [N], edges [E])`` as masks; the seeds are among the nodes, and so are both ends of each edge.
    """
    attended = AttendedCalls.of(len(seeds), edge_index, attended_callers, attended_callees)
    return attended.closure(np.flatnonzero(seeds), hops)
