"""What a part must read beside its own services."""

import numpy as np

from partitioning.graph import BoolArray, IntArray


def closure(
    seeds: BoolArray, edge_index: IntArray, attended_callers: BoolArray, attended_callees: BoolArray, hops: int
) -> tuple[BoolArray, BoolArray]:
    """Everything that ``hops`` attention layers read to compute the seeds.

    In one layer node i hears caller j along call (j -> i) where ``attended_callers`` holds for that call, and callee k
    along call (i -> k) where ``attended_callees`` holds. Whoever runs the layers on the closure must slice the same
    two masks with it: a neighbourhood cap chosen anew inside a part would choose other neighbours.

    Args:
        seeds: ``[N]``, the nodes wanted exactly.
        edge_index: ``[2, E]``.
        attended_callers: ``[E]``, the destination hears the source.
        attended_callees: ``[E]``, the source hears the destination.
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
