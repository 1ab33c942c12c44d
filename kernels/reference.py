"""The ``tagae::`` ops in plain PyTorch: definition, fallback, derivative, and ground truth of the tests.

All of it are operators that every runtime has: gathers, scatters and products. So a program that is exported with them
instead of the ops runs on a stock ONNX Runtime, for any number of services, calls and neighbours. For shapes and errors
see :mod:`kernels.ops`, which checks the arguments.
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
    negative_slope: float,
) -> tuple[Tensor, Tensor]:
    """See :func:`kernels.ops.attend`."""
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
    negative_slope: float,
) -> Tensor:
    """See :func:`kernels.ops.project_and_attend`."""
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
    eps: float,
) -> Tensor:
    """See :func:`kernels.ops.join_sides`."""
    joined = linear(x, weight, bias) + callers + callees
    return gelu(layer_norm(joined, norm_bias.shape, norm_weight, norm_bias, eps))


def perceptron(
    rows: Tensor,
    others: Tensor | None,
    positions: Tensor | None,
    hidden_weight: Tensor,
    hidden_bias: Tensor,
    weight: Tensor,
    bias: Tensor,
) -> Tensor:
    """See :func:`kernels.ops.perceptron`."""
    if others is not None:
        rows = torch.cat([rows, others if positions is None else others.index_select(0, positions)], dim=1)
    return linear(gelu(linear(rows, hidden_weight, hidden_bias)), weight, bias)


def edge_dot(source: Tensor, target: Tensor, source_index: Tensor, target_index: Tensor) -> Tensor:
    """See :func:`kernels.ops.edge_dot`."""
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
    """Sum the rows ``[S, C]`` of each node, ``[N, C]``."""
    return rows.new_zeros(nodes, rows.shape[1]).scatter_add(0, targets.unsqueeze(1).expand_as(rows), rows)
