"""An edge list as arrays: its checks and its symmetric CSR form."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partitioning.errors import InvalidGraph

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

TOTAL_WEIGHT = 2**29  # METIS adds weights up in 32 bits where it was built so


@dataclass(frozen=True, slots=True, eq=False)
class SymmetricGraph:
    """An undirected graph in CSR form: no self loops, each neighbour once, neighbours ascending.

    Attributes:
        indptr: int64 ``[N + 1]``.
        indices: int64 ``[M]``, the neighbours of node i at ``indptr[i]:indptr[i + 1]``.
        weights: float64 ``[M]``, equal in both directions.
    """

    indptr: IntArray
    indices: IntArray
    weights: FloatArray


def symmetric_csr(num_nodes: int, edge_index: IntArray, edge_weight: FloatArray) -> SymmetricGraph:
    """Drop self loops, add up parallel and opposite edges, and write each edge in both directions.

    Args:
        edge_index: ``[2, E]`` positions below N.
    """
    low, high = np.minimum(edge_index[0], edge_index[1]), np.maximum(edge_index[0], edge_index[1])
    apart = low != high
    low, high, weight = low[apart], high[apart], edge_weight[apart]
    pair = low * num_nodes + high
    order = stable_order(pair, num_nodes * num_nodes)
    first = _run_starts(pair[order])
    weight = np.add.reduceat(weight[order], first) if len(first) else weight
    low, high = low[order[first]], high[order[first]]
    # The pairs are sorted by (low, high). With the lower neighbours written first, a stable sort by row alone
    # leaves every row ascending.
    rows = np.concatenate([high, low])
    order = stable_order(rows, num_nodes)
    indptr = np.zeros(num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=num_nodes), out=indptr[1:])
    return SymmetricGraph(indptr, np.concatenate([low, high])[order], np.concatenate([weight, weight])[order])


def induced_subgraph(nodes: IntArray, num_nodes: int, edge_index: IntArray, edge_weight: FloatArray) -> SymmetricGraph:
    """Return the symmetric graph of ``nodes`` (their order gives the new positions) and the edges between them."""
    position = np.full(num_nodes, -1, dtype=np.int64)
    position[nodes] = np.arange(len(nodes))
    index = position[edge_index]
    inside = (index >= 0).all(axis=0)
    return symmetric_csr(len(nodes), index[:, inside], edge_weight[inside])


def stable_order(keys: IntArray, bound: int) -> IntArray:
    """``np.argsort(keys, kind="stable")`` for ``0 <= keys < bound``.

    Key and position are packed into one integer where 63 bits hold both: numpy sorts plain integers with vector
    instructions, ten times faster than a stable argsort.
    """
    bits = len(keys).bit_length()
    if bound.bit_length() + bits > 63:
        return np.argsort(keys, kind="stable")
    return np.sort((keys << bits) | np.arange(len(keys), dtype=np.int64)) & ((1 << bits) - 1)


def integer_weights(weights: FloatArray) -> IntArray:
    """Return weights for METIS: integers of at least 1, in proportion, with a sum of about ``TOTAL_WEIGHT``."""
    total = float(weights.sum())
    if total <= 0:
        return np.ones(len(weights), dtype=np.int64)
    return np.maximum(1, np.rint(weights / total * TOTAL_WEIGHT)).astype(np.int64)


def check_mesh(
    namespaces: IntArray,
    edge_index: IntArray,
    edge_weight: FloatArray,
    attended_callers: BoolArray,
    attended_callees: BoolArray,
) -> None:
    """Check shapes, types and values.

    Raises:
        InvalidGraph: with the first argument that is wrong.
    """
    _check_array("namespaces", namespaces, (None,), np.int64)
    _check_array("edge_index", edge_index, (2, None), np.int64)
    edges = edge_index.shape[1]
    _check_array("edge_weight", edge_weight, (edges,), np.float64)
    _check_array("attended_callers", attended_callers, (edges,), np.bool_)
    _check_array("attended_callees", attended_callees, (edges,), np.bool_)
    outside = np.flatnonzero(((edge_index < 0) | (edge_index >= len(namespaces))).any(axis=0))
    if len(outside):
        e = int(outside[0])
        raise InvalidGraph(
            f"edge_index: call {e} goes from {edge_index[0, e]} to {edge_index[1, e]}, expected positions from 0 to "
            f"{len(namespaces) - 1}; add the service to namespaces or drop the call",
            argument="edge_index",
        )
    wrong = np.flatnonzero(~(np.isfinite(edge_weight) & (edge_weight >= 0)))
    if len(wrong):
        raise InvalidGraph(
            f"edge_weight: call {wrong[0]} has weight {edge_weight[wrong[0]]}, expected a finite number of at least 0; "
            "a call without measured traffic weighs 0",
            argument="edge_weight",
        )


def check_limit(limit: int, seed: int) -> None:
    """Check the settings of a plan.

    Raises:
        InvalidGraph: if ``limit`` is below 1 or ``seed`` is not in [0, 2^31).
    """
    if limit < 1:
        raise InvalidGraph(f"limit: expected at least 1 service a part, got {limit}", argument="limit")
    if not 0 <= seed < 2**31:
        raise InvalidGraph(f"seed: expected 0 <= seed < 2^31 (METIS keeps 31 bits), got {seed}", argument="seed")


def _check_array(name: str, array: NDArray[Any], shape: tuple[int | None, ...], dtype: type[np.generic]) -> None:
    expected = f"[{', '.join('any' if size is None else str(size) for size in shape)}]"
    fits = array.ndim == len(shape) and all(
        size is None or size == got for size, got in zip(shape, array.shape, strict=True)
    )
    if not fits:
        raise InvalidGraph(
            f"{name}: expected shape {expected}, got {list(array.shape)}; arrays of calls have one entry for each "
            "column of edge_index",
            argument=name,
        )
    if array.dtype != dtype:
        raise InvalidGraph(
            f"{name}: expected {np.dtype(dtype)}, got {array.dtype}; convert it with .astype", argument=name
        )


def _run_starts(keys: IntArray) -> IntArray:
    starts = np.ones(len(keys), dtype=np.bool_)
    starts[1:] = keys[1:] != keys[:-1]
    return np.flatnonzero(starts)
