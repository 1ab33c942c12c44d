"""The ``tagae::`` ops in plain PyTorch: contract, definition, fallback, derivative, and ground truth of the tests.

Shapes: N nodes as targets, M nodes as neighbours (M = N in a whole mesh), E edges attended to, H heads, C channels a
head, T size of the temporal embedding, D embedding, I inputs, O outputs. Neighbourhoods are CSR: the slots of node i
are ``indptr[i]`` to ``indptr[i + 1]`` of ``indices``. Index tensors are int64; the others all float32 or all float64,
or on a GPU all bfloat16; all on one device. Inputs need not be contiguous and are never changed.

Call an op as :mod:`kernels.ops` has it, which also checks the arguments. Here are only operators that every runtime
has: gathers, scatters and products. So a program that is exported with them instead of the ops runs on a stock ONNX
Runtime, for any number of services, calls and neighbours.
"""

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, leaky_relu, linear


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
    heads, channels = attention.shape
    nodes, targets = query.shape[0], _targets(indptr, indices)
    keys, times = key.index_select(0, indices), trajectory.index_select(0, edges)  # [S, H*C], [S, T]
    u = query.index_select(0, targets) + keys + linear(times, trajectory_weight)
    logits = (leaky_relu(u, negative_slope).view(-1, heads, channels) * attention).sum(2)
    alpha = _softmax(logits, targets, nodes).unsqueeze(2)  # [S, H, 1]
    values = _sum((alpha * keys.view(-1, heads, channels)).flatten(1), targets, nodes)
    sums = _sum((alpha * times.unsqueeze(1)).flatten(1), targets, nodes)
    return values, sums.view(nodes, heads, trajectory.shape[1])


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
    query, key = linear(x, query_weight, query_bias), linear(x, key_weight, key_bias)
    values, sums = attend(query, key, trajectory, trajectory_weight, attention, indptr, indices, edges, negative_slope)
    return values + torch.einsum("nht,hct->nhc", sums, trajectory_value).flatten(1)


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
    total = linear(x, weight, bias) + callers + callees
    return gelu(layer_norm(total, norm_bias.shape, norm_weight, norm_bias, eps))


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
    if others is not None:
        rows = torch.cat([rows, others if positions is None else others.index_select(0, positions)], dim=1)
    return linear(gelu(linear(rows, hidden_weight, hidden_bias)), weight, bias)


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
    return (source.index_select(0, source_index) * target.index_select(0, target_index)).sum(1)


def _targets(indptr: Tensor, indices: Tensor) -> Tensor:
    """Return the target of each slot: how many nodes end at it or before."""
    ends = indptr[1:]
    return indices.new_zeros(indices.shape[0] + 1).scatter_add(0, ends, torch.ones_like(ends)).cumsum(0)[:-1]


def _softmax(logits: Tensor, targets: Tensor, nodes: int) -> Tensor:
    """Softmax over the slots of each node. The largest logit is subtracted first, so exp cannot overflow."""
    peak = logits.new_full((nodes, logits.shape[1]), -torch.inf)
    peak = peak.scatter_reduce(0, targets.unsqueeze(1).expand_as(logits), logits.detach(), "amax")
    exponentials = (logits - peak.index_select(0, targets)).exp()
    return exponentials / _sum(exponentials, targets, nodes).index_select(0, targets)


def _sum(rows: Tensor, targets: Tensor, nodes: int) -> Tensor:
    return rows.new_zeros(nodes, rows.shape[1]).scatter_add(0, targets.unsqueeze(1).expand_as(rows), rows)
