"""The services and calls that a part must read besides its own."""

import numpy as np

from partitioning.graph import BoolArray, IntArray


def closure(
    seeds: BoolArray, edge_index: IntArray, attended_callers: BoolArray, attended_callees: BoolArray, hops: int
) -> tuple[BoolArray, BoolArray]:
    """Return everything that ``hops`` attention layers read to compute the seeds.

    In one layer node i attends to caller j along call (j -> i) if ``attended_callers`` holds for that call, and to
    callee k along call (i -> k) if ``attended_callees`` holds. The layers must run on the closure with the same two
    masks: a limit on neighbours applied again inside a part would choose other neighbours.

    Args:
        seeds: ``[N]``, the nodes whose results must be exact.
        edge_index: ``[2, E]``.
        attended_callers: ``[E]``, whether the destination attends to the source.
        attended_callees: ``[E]``, whether the source attends to the destination.
        hops: number of layers.

    Returns:
        ``(nodes [N], edges [E])`` as masks; the seeds are among the nodes, and so are both ends of each edge.
    """
    source, destination = edge_index
    nodes = seeds.copy()
    edges = np.zeros(len(source), dtype=np.bool_)
    for _ in range(hops):
        callers = attended_callers & nodes[destination]
        callees = attended_callees & nodes[source]
        nodes[source[callers]] = True
        nodes[destination[callees]] = True
        edges |= callers
        edges |= callees
    return nodes, edges
