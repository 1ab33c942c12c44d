"""The ops: one thin function each, which checks sizes and types and calls ``torch.ops.tagae.<op>``.

Shapes: N nodes as targets, M nodes as neighbours (M = N in a whole mesh), E edges attended to, H heads, C channels a
head, T size of the temporal embedding, D embedding, I inputs, O outputs. Neighbourhoods are CSR: the slots of node i
are ``indptr[i]`` to ``indptr[i + 1]`` of ``indices``. Index tensors are int64; the others all float32 or all float64;
all on one device. Inputs need not be contiguous and are never changed. Contents of index tensors are checked on a CPU
only.

Every op has a first derivative (a second one raises ``NotDifferentiable``), runs under ``torch.inference_mode``, and
traces under ``torch.compile(fullgraph=True)`` and ``torch.export`` as one node of the graph.

Determinism: on a CPU the same input gives the same bits, forwards and backwards, at one thread count. On a GPU the
backwards adds with atomics in no fixed order unless ``torch.use_deterministic_algorithms(True)`` is set.
"""

import torch
from torch import Tensor

from kernels import _registry as _registry  # defines torch.ops.tagae
from kernels.checks import (
    check_dims,
    check_ends,
    check_filled,
    check_floats,
    check_indices,
    check_positions,
    check_size,
    check_slots,
)


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

    Raises:
        InvalidArgument: naming the argument that does not fit.
    """
    op = "attend"
    check_floats(
        op,
        query=query,
        key=key,
        trajectory=trajectory,
        trajectory_weight=trajectory_weight,
        attention=attention,
    )
    check_dims(op, "query", query, "[N, H*C]", 2)
    check_dims(op, "key", key, "[M, H*C]", 2)
    channels = _check_neighbourhoods(
        op, ("query", query), trajectory, trajectory_weight, attention, indptr, indices, edges
    )
    check_size(op, "query", query, 1, channels, "H*C of attention")
    check_size(op, "key", key, 1, channels, "H*C of attention")
    try:
        result: tuple[Tensor, Tensor] = torch.ops.tagae.attend(
            query, key, trajectory, trajectory_weight, attention, indptr, indices, edges, negative_slope
        )
    except RuntimeError:
        check_slots(op, key, trajectory, indptr, indices, edges)
        raise
    return result


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

    Raises:
        InvalidArgument: naming the argument that does not fit.
    """
    op = "project_and_attend"
    check_floats(
        op,
        x=x,
        query_weight=query_weight,
        query_bias=query_bias,
        key_weight=key_weight,
        key_bias=key_bias,
        trajectory=trajectory,
        trajectory_weight=trajectory_weight,
        attention=attention,
        trajectory_value=trajectory_value,
    )
    check_dims(op, "x", x, "[N, I]", 2)
    check_dims(op, "trajectory_value", trajectory_value, "[H, C, T]", 3)
    channels = _check_neighbourhoods(op, ("x", x), trajectory, trajectory_weight, attention, indptr, indices, edges)
    _check_linear(op, "query_", query_weight, query_bias, channels, "H*C of attention", x.shape[1], "I of x")
    _check_linear(op, "key_", key_weight, key_bias, channels, "H*C of attention", x.shape[1], "I of x")
    check_size(op, "trajectory_value", trajectory_value, 0, attention.shape[0], "H of attention")
    check_size(op, "trajectory_value", trajectory_value, 1, attention.shape[1], "C of attention")
    check_size(op, "trajectory_value", trajectory_value, 2, trajectory.shape[1], "T of trajectory")
    try:
        result: Tensor = torch.ops.tagae.project_and_attend(
            x,
            query_weight,
            query_bias,
            key_weight,
            key_bias,
            trajectory,
            trajectory_weight,
            attention,
            trajectory_value,
            indptr,
            indices,
            edges,
            negative_slope,
        )
    except RuntimeError:
        check_slots(op, x, trajectory, indptr, indices, edges)
        raise
    return result


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

    Raises:
        InvalidArgument: naming the argument that does not fit.
    """
    op = "join_sides"
    check_floats(
        op,
        x=x,
        weight=weight,
        bias=bias,
        callers=callers,
        callees=callees,
        norm_weight=norm_weight,
        norm_bias=norm_bias,
    )
    check_dims(op, "x", x, "[N, I]", 2)
    check_dims(op, "norm_weight", norm_weight, "[O]", 1)
    check_filled(op, "norm_weight", norm_weight)
    outputs = norm_weight.shape[0]
    _check_linear(op, "", weight, bias, outputs, "O of norm_weight", x.shape[1], "I of x")
    check_dims(op, "norm_bias", norm_bias, "[O]", 1)
    check_size(op, "norm_bias", norm_bias, 0, outputs, "O of norm_weight")
    for name, side in (("callers", callers), ("callees", callees)):
        check_dims(op, name, side, "[N, O]", 2)
        check_size(op, name, side, 0, x.shape[0], "N rows of x")
        check_size(op, name, side, 1, outputs, "O of norm_weight")
    result: Tensor = torch.ops.tagae.join_sides(x, weight, bias, callers, callees, norm_weight, norm_bias, eps)
    return result


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

    Raises:
        InvalidArgument: naming the argument that does not fit.
    """
    op = "perceptron"
    floats = {"others": others} if others is not None else {}
    check_floats(
        op, rows=rows, **floats, hidden_weight=hidden_weight, hidden_bias=hidden_bias, weight=weight, bias=bias
    )
    check_dims(op, "rows", rows, "[R, I]", 2)
    inputs, count = rows.shape[1], rows.shape[0]
    if others is not None:
        check_dims(op, "others", others, "[M, J]", 2)
        inputs += others.shape[1]
        if positions is None:
            check_size(op, "others", others, 0, count, "R rows of rows; else give positions")
    if positions is not None:
        check_indices(op, ("rows", rows), positions=positions)
        check_size(op, "positions", positions, 0, count if others is not None else 0, "R rows of rows, with others")
    check_dims(op, "hidden_bias", hidden_bias, "[K]", 1)
    check_dims(op, "bias", bias, "[O]", 1)
    hidden = hidden_bias.shape[0]
    _check_linear(op, "hidden_", hidden_weight, hidden_bias, hidden, "K of hidden_bias", inputs, "I + J")
    _check_linear(op, "", weight, bias, bias.shape[0], "O of bias", hidden, "K of hidden_bias")
    try:
        result: Tensor = torch.ops.tagae.perceptron(rows, others, positions, hidden_weight, hidden_bias, weight, bias)
    except RuntimeError:
        if others is not None and positions is not None:
            check_positions(op, "positions", positions, "others", others.shape[0])
        raise
    return result


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

    Raises:
        InvalidArgument: naming the argument that does not fit.
    """
    op = "edge_dot"
    check_floats(op, source=source, target=target)
    check_indices(op, ("source", source), source_index=source_index, target_index=target_index)
    check_dims(op, "source", source, "[N, D]", 2)
    check_dims(op, "target", target, "[M, D]", 2)
    check_size(op, "target", target, 1, source.shape[1], "D of source")
    check_size(op, "target_index", target_index, 0, source_index.shape[0], "E, the length of source_index")
    try:
        result: Tensor = torch.ops.tagae.edge_dot(source, target, source_index, target_index)
    except RuntimeError:
        check_ends(op, source, target, source_index, target_index)
        raise
    return result


def _check_neighbourhoods(
    op: str,
    targets: tuple[str, Tensor],
    trajectory: Tensor,
    trajectory_weight: Tensor,
    attention: Tensor,
    indptr: Tensor,
    indices: Tensor,
    edges: Tensor,
) -> int:
    """Sizes and types that both attention ops have; ``targets`` with its name. Returns H*C."""
    name, rows = targets
    check_indices(op, targets, indptr=indptr, indices=indices, edges=edges)
    check_dims(op, "trajectory", trajectory, "[E_total, T]", 2)
    check_dims(op, "trajectory_weight", trajectory_weight, "[H*C, T]", 2)
    check_dims(op, "attention", attention, "[H, C]", 2)
    check_filled(op, "attention", attention)
    check_filled(op, "trajectory_weight", trajectory_weight)
    channels = attention.shape[0] * attention.shape[1]
    check_size(op, "trajectory_weight", trajectory_weight, 0, channels, "H*C of attention")
    check_size(op, "trajectory", trajectory, 1, trajectory_weight.shape[1], "T of trajectory_weight")
    check_size(op, "indptr", indptr, 0, rows.shape[0] + 1, f"N + 1, N rows of {name}")
    check_size(op, "edges", edges, 0, indices.shape[0], "E, the length of indices")
    return channels


def _check_linear(
    op: str, prefix: str, weight: Tensor, bias: Tensor, outputs: int, of_outputs: str, inputs: int, of_inputs: str
) -> None:
    """Sizes of ``<prefix>weight`` and ``<prefix>bias``, and where they come from."""
    check_dims(op, f"{prefix}weight", weight, "[outputs, inputs]", 2)
    check_dims(op, f"{prefix}bias", bias, "[outputs]", 1)
    check_size(op, f"{prefix}weight", weight, 0, outputs, of_outputs)
    check_size(op, f"{prefix}weight", weight, 1, inputs, of_inputs)
    check_size(op, f"{prefix}bias", bias, 0, outputs, of_outputs)
