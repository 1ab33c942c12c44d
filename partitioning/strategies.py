"""Strategies that assign services to parts."""

from typing import Any

import numpy as np

from partitioning.errors import MissingMetis
from partitioning.graph import (
    FloatArray,
    IntArray,
    SymmetricGraph,
    induced_subgraph,
    integer_weights,
)

ATTEMPTS = 6  # METIS overshoots by 3%; each attempt asks for an eighth more parts


def by_namespace(
    namespaces: IntArray, edge_index: IntArray, edge_weight: FloatArray, limit: int, seed: int
) -> IntArray:
    """Cut along namespaces: large ones by METIS, small ones grouped by METIS on the graph of namespaces.

    Most calls stay inside a namespace, so its border is a good cut that is cheap to find and that people recognise.

    Returns:
        int64 ``[N]``, the part of each service; parts are numbered from 0 without gaps.
    """
    part_of = np.zeros(len(namespaces), dtype=np.int64)
    if len(namespaces) <= limit:
        return part_of
    _, space, size = np.unique(namespaces, return_inverse=True, return_counts=True)
    parts = 0
    for large in np.flatnonzero(size > limit):
        members = np.flatnonzero(space == large)
        graph = induced_subgraph(members, len(namespaces), edge_index, edge_weight)
        part_of[members] = parts + cut(graph, np.ones(len(members), dtype=np.int64), limit, seed)
        parts = int(part_of[members].max()) + 1
    small = np.flatnonzero(size <= limit)
    if len(small):
        group = np.full(len(size), -1, dtype=np.int64)
        group[small] = cut(induced_subgraph(small, len(size), space[edge_index], edge_weight), size[small], limit, seed)
        members = np.flatnonzero(group[space] >= 0)
        part_of[members] = parts + group[space[members]]
    return part_of


def cut(graph: SymmetricGraph, sizes: IntArray, limit: int, seed: int) -> IntArray:
    """Cut a graph into parts of at most ``limit`` with little weight between them.

    METIS balances only to a few percent, so with exactly ``total / limit`` parts it exceeds the limit. We request a
    tenth more, check, and request more again. Graphs that it cannot balance (a few large vertices, no edges) are packed
    first-fit.

    Args:
        sizes: ``[V]``, services of each vertex, each at most ``limit``.

    Returns:
        int64 ``[V]``, parts numbered from 0 without gaps.
    """
    labels = np.zeros(len(sizes), dtype=np.int64)
    total = int(sizes.sum())
    if total <= limit:
        return labels
    nparts = max(2, int(1.1 * total / limit) + 1)
    for _ in range(ATTEMPTS):
        if nparts >= len(sizes) or not len(graph.indices):
            break
        labels = part_graph(graph, sizes, nparts, seed)
        if np.bincount(labels, weights=sizes).max() <= limit:
            break
        nparts += max(1, nparts // 8)
    return np.unique(_pack(labels, sizes, limit), return_inverse=True)[1]


def part_graph(graph: SymmetricGraph, sizes: IntArray, nparts: int, seed: int) -> IntArray:
    """Cut with METIS (Karypis and Kumar 1998) into ``nparts`` parts of about equal ``sizes`` with little weight between
    them.

    Only this function uses a METIS binding: pymetis, or the package ``metis`` if pymetis is not installed.

    Args:
        sizes: ``[V]``, at least 1 each.
        nparts: from 2 to V; ``metis`` crashes with SIGFPE at 1.
        seed: 0 to 2^31 - 1.

    Returns:
        int64 ``[V]``; a part may be empty, and may be a few percent larger than the others.

    Raises:
        MissingMetis: no binding is installed.
    """
    try:
        import pymetis
    except ImportError:
        return _part_graph_ctypes(graph, sizes, nparts, seed)
    options = pymetis.Options()
    options.seed = seed
    _, labels = pymetis.part_graph(
        nparts,
        pymetis.CSRAdjacency(graph.indptr, graph.indices),
        vweights=sizes,
        eweights=integer_weights(graph.weights),
        options=options,
    )
    return np.array(labels, dtype=np.int64)


def _part_graph_ctypes(graph: SymmetricGraph, sizes: IntArray, nparts: int, seed: int) -> IntArray:
    try:
        import metis
    except (ImportError, RuntimeError) as error:  # RuntimeError: the package is installed, libmetis is not
        raise MissingMetis(
            f"expected pymetis or metis to cut {len(sizes)} vertices into {nparts} parts, found neither ({error}); "
            "pip install pymetis"
        ) from error
    width = np.dtype(metis.idx_t)  # 32 or 64 bits, as the system's libmetis was built

    def pointer(array: IntArray) -> Any:
        return np.ctypeslib.as_ctypes(array.astype(width))

    whole = metis.METIS_Graph(
        nvtxs=metis.idx_t(len(sizes)),
        ncon=metis.idx_t(1),
        xadj=pointer(graph.indptr),
        adjncy=pointer(graph.indices),
        vwgt=pointer(sizes),
        vsize=None,
        adjwgt=pointer(integer_weights(graph.weights)),
    )
    _, labels = metis.part_graph(whole, nparts, recursive=nparts <= 8, seed=seed)
    return np.array(labels, dtype=np.int64)


def _pack(labels: IntArray, sizes: IntArray, limit: int) -> IntArray:
    """Split each group above the limit first-fit, largest vertices first (Johnson 1973: at most 11/9 of the fewest)."""
    labels = labels.copy()
    groups = int(labels.max()) + 1
    for group in np.flatnonzero(np.bincount(labels, weights=sizes) > limit):
        members = np.flatnonzero(labels == group)
        largest_first = members[np.argsort(-sizes[members], kind="stable")]
        room = np.full(len(members), limit, dtype=np.int64)
        bins = 1
        for vertex in largest_first:
            bin_ = int(np.argmax(room[: bins + 1] >= sizes[vertex]))
            bins = max(bins, bin_ + 1)
            room[bin_] -= sizes[vertex]
            labels[vertex] = group if bin_ == 0 else groups + bin_ - 1
        groups += bins - 1
    return labels
