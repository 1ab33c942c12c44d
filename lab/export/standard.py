"""Our ops in operators that every runtime has: gathers, scatters and products.

They say the same as :mod:`kernels.reference`, without its blocks and without operators that only torch has. So a
program that is exported with them runs on a stock ONNX Runtime, for any number of services, calls and neighbours.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, leaky_relu, linear

from kernels import _registry as _registry  # defines torch.ops.tagae


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
    targets = _targets(indptr, indices)
    keys, times = key[indices], trajectory[edges]  # [S, H*C], [S, T]
    u = query[targets] + keys + linear(times, trajectory_weight)
    logits = (leaky_relu(u, negative_slope).view(-1, heads, channels) * attention).sum(2)  # [S, H]
    alpha = _softmax(logits, targets, query.shape[0]).unsqueeze(2)  # [S, H, 1]
    values = _sum(alpha * keys.view(-1, heads, channels), targets, query.shape[0])
    return values.flatten(1), _sum(alpha * times.unsqueeze(1), targets, query.shape[0])


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
        rows = torch.cat([rows, others if positions is None else others[positions]], dim=1)
    return linear(gelu(linear(rows, hidden_weight, hidden_bias)), weight, bias)


def edge_dot(source: Tensor, target: Tensor, source_index: Tensor, target_index: Tensor) -> Tensor:
    """See :func:`kernels.ops.edge_dot`."""
    return (source[source_index] * target[target_index]).sum(1)


def _targets(indptr: Tensor, indices: Tensor) -> Tensor:
    """Return the target of each slot: how many nodes end at it or before."""
    ends = torch.zeros_like(indices.new_zeros(indices.shape[0] + 1)).index_put(
        (indptr[1:],), torch.ones_like(indptr[1:]), accumulate=True
    )
    return ends.cumsum(0)[:-1]


def _softmax(logits: Tensor, targets: Tensor, nodes: int) -> Tensor:
    """Softmax over the slots of each node. The largest logit is subtracted first, so exp cannot overflow."""
    peak = logits.new_full((nodes, logits.shape[1]), -torch.inf)
    peak = peak.scatter_reduce(0, targets.unsqueeze(1).expand_as(logits), logits, "amax")
    exponentials = (logits - peak[targets]).exp()
    return exponentials / _sum(exponentials, targets, nodes)[targets]


def _sum(rows: Tensor, targets: Tensor, nodes: int) -> Tensor:
    """Sum the rows ``[S, ...]`` of each node, ``[N, ...]``."""
    return rows.new_zeros((nodes, *rows.shape[1:])).index_put((targets,), rows, accumulate=True)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.tagae.attend.default: attend,
    torch.ops.tagae.project_and_attend.default: project_and_attend,
    torch.ops.tagae.join_sides.default: join_sides,
    torch.ops.tagae.perceptron.default: perceptron,
    torch.ops.tagae.edge_dot.default: edge_dot,
}
