"""The ops: one thin function each, which checks sizes and types and calls ``torch.ops.tagae.<op>``.

Shapes: N nodes as targets, M nodes as neighbours (M = N in a whole mesh), E edges attended to, H heads, C channels a
head, T size of the temporal embedding, D embedding, I inputs, O outputs. Neighbourhoods are CSR: the slots of node i
are ``indptr[i]`` to ``indptr[i + 1]`` of ``indices``. Index tensors are int64; the others all float32 or all float64,
or on a GPU all bfloat16; all on one device. ``InvalidArgument`` names an argument that does not fit. Contents of index
tensors are checked on a CPU only. Inputs need not be contiguous and are never changed.

Every op has the derivatives of its PyTorch form in ``reference.py``. It runs under ``torch.inference_mode``, and
traces under ``torch.compile(fullgraph=True)`` and ``torch.export`` as one node of the graph.

Determinism: on a CPU the same input gives the same bits, forwards and backwards, at one thread count. On a GPU the
backwards adds with atomics in no fixed order unless ``torch.use_deterministic_algorithms(True)`` is set.
"""

from typing import Any

import torch
from torch import Tensor

from kernels import _registry as _registry  # defines torch.ops.tagae
from kernels import checks


def attend(
    query: Tensor,
    key: Tensor,
    trajectory: Tensor,
    trajectory_weight: Tensor,
    attention: Tensor,
    indptr: Tensor,
    indices: Tensor,
    edges: Tensor,
    negative_slope: float = 0.2,
) -> tuple[Tensor, Tensor]:
    """One pass of graph attention in GATv2 form with a temporal embedding per edge.

    For target i, its slot s with neighbour ``j = indices[s]`` and edge ``e = edges[s]``, and head h::

        u       = query[i] + key[j] + trajectory_weight @ trajectory[e]       viewed [H, C]
        logit_h = sum_c attention[h, c] * leaky_relu(u[h, c], negative_slope)
        alpha_h = softmax of logit_h over the slots of i
        values[i, h]       = sum_s alpha_h * key[j, h]
        trajectories[i, h] = sum_s alpha_h * trajectory[e]

    A node without slots gets zeros. ``trajectories`` is what lets the temporal embedding enter the value too without
    an ``[E, H, C]`` tensor: the caller multiplies it by a value weight, since sum alpha (W t) = W sum alpha t.

    Source: Brody, Alon and Yahav, "How Attentive are Graph Attention Networks?", ICLR 2022, equation 7.

    Args:
        query: ``[N, H*C]``, projected targets.
        key: ``[M, H*C]``, projected neighbours.
        trajectory: ``[E_total, T]``, temporal embeddings; it may have rows that no slot names.
        trajectory_weight: ``[H*C, T]``.
        attention: ``[H, C]``; H, C and T at least 1.
        indptr: ``[N + 1]``.
        indices: ``[E]``, rows of ``key``.
        edges: ``[E]``, rows of ``trajectory``.
        negative_slope: of the LeakyReLU.

    Returns:
        ``values [N, H*C]`` and ``trajectories [N, H, T]``, contiguous.
    """
    return _call("attend", query, key, trajectory, trajectory_weight, attention, indptr, indices, edges, negative_slope)


def project_and_attend(
    x: Tensor,
    query_weight: Tensor,
    query_bias: Tensor,
    key_weight: Tensor,
    key_bias: Tensor,
    trajectory: Tensor,
    trajectory_weight: Tensor,
    attention: Tensor,
    trajectory_value: Tensor,
    indptr: Tensor,
    indices: Tensor,
    edges: Tensor,
    negative_slope: float = 0.2,
) -> Tensor:
    """:func:`attend` with its projections: services attend to services, and trajectories enter the value.

    ``values, trajectories = attend(query_weight x + query_bias, key_weight x + key_bias, ...)``, and the result is
    ``values[i, h] + trajectory_value[h] @ trajectories[i, h]``.

    Args:
        x: ``[N, I]``.
        query_weight, key_weight: ``[H*C, I]``.
        query_bias, key_bias: ``[H*C]``.
        trajectory, trajectory_weight, attention: as of ``attend``.
        trajectory_value: ``[H, C, T]``.
        indptr, indices, edges, negative_slope: as of ``attend``.

    Returns:
        ``[N, H*C]``.
    """
    projections = query_weight, query_bias, key_weight, key_bias
    slots = trajectory, trajectory_weight, attention, trajectory_value, indptr, indices, edges, negative_slope
    return _call("project_and_attend", x, *projections, *slots)


def join_sides(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    callers: Tensor,
    callees: Tensor,
    norm_weight: Tensor,
    norm_bias: Tensor,
    eps: float = 1e-5,
) -> Tensor:
    """The end of a layer: ``gelu(layer_norm(weight x + bias + callers + callees))``.

    Args:
        x: ``[N, I]``.
        weight: ``[O, I]``.
        bias: ``[O]``.
        callers, callees: ``[N, O]``.
        norm_weight, norm_bias: ``[O]``.
        eps: added to the variance.

    Returns:
        ``[N, O]``.
    """
    return _call("join_sides", x, weight, bias, callers, callees, norm_weight, norm_bias, eps)


def perceptron(
    rows: Tensor,
    others: Tensor | None,
    positions: Tensor | None,
    hidden_weight: Tensor,
    hidden_bias: Tensor,
    weight: Tensor,
    bias: Tensor,
) -> Tensor:
    """Two linear layers with a GELU between them: ``weight gelu(hidden_weight input + hidden_bias) + bias``.

    The input is a row of ``rows``, and beside it the row of ``others`` that belongs to it.

    Args:
        rows: ``[R, I]``.
        others: ``[M, J]``, or None for J = 0.
        positions: ``[R]``, rows of ``others``; None if row i goes with row i, then M = R.
        hidden_weight: ``[K, I + J]``.
        hidden_bias: ``[K]``.
        weight: ``[O, K]``.
        bias: ``[O]``.

    Returns:
        ``[R, O]``.
    """
    return _call("perceptron", rows, others, positions, hidden_weight, hidden_bias, weight, bias)


def edge_dot(source: Tensor, target: Tensor, source_index: Tensor, target_index: Tensor) -> Tensor:
    """Directed inner products: ``out[e] = <source[source_index[e]], target[target_index[e]]>``.

    The logits of a directed decoder: separate embeddings as source and as target tell A->B from B->A.

    Args:
        source: ``[N, D]``.
        target: ``[M, D]``; usually M = N.
        source_index: ``[E]``, rows of ``source``.
        target_index: ``[E]``, rows of ``target``.

    Returns:
        ``[E]``.
    """
    return _call("edge_dot", source, target, source_index, target_index)


def _call(op: str, *arguments: Any) -> Any:
    """Call an op. If its body refuses the arguments, find out which one is wrong."""
    try:
        return getattr(torch.ops.tagae, op)(*arguments)
    except RuntimeError:
        tensors = arguments[: len(checks.SIZES[op])]
        checks.check_arguments(op, *tensors)
        checks.check_contents(op, *tensors)
        raise
