"""The ``tagae::`` ops in plain PyTorch: definition, fallback, ground truth of the tests and baseline of the benchmark.

``ops.py`` has checked sizes and types; contents of index tensors are checked here. Values per edge are computed in
blocks of edges that fit a core's cache, so there is no ``[E, H*C]`` tensor in either direction. Neighbourhood sums are
``embedding_bag``: gather, scale and add in one pass, in the order of the slots.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, gelu, layer_norm, leaky_relu, leaky_relu_, linear

from kernels import checks

# Elements of one [edges, channels] block: 768 edges of 128 float32 channels are 384 KB. Measured flat from 512 to 1,024
# edges, half as fast again outside (calls below, cache misses above).
_BLOCK_ELEMENTS = 98_304


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
    checks.check_attend(query, key, trajectory, trajectory_weight, attention, indptr, indices, edges)
    checks.check_slots("attend", key, trajectory, indptr, indices, edges)
    targets = _targets(indptr, len(indices))
    alpha = _attention_weights(
        query, key, trajectory, trajectory_weight, attention, targets, indptr, indices, edges, negative_slope
    )
    heads, channels = attention.shape
    weights = alpha.t().contiguous()  # [H, E]
    head_rows = key.reshape(-1, channels)  # [M*H, C]: row j*H + h is head h of node j
    values = [_weighted_sum(head_rows, indices * heads + h, indptr, w) for h, w in enumerate(weights)]
    trajectories = [_weighted_sum(trajectory, edges, indptr, w) for w in weights]
    return torch.cat(values, dim=1), torch.stack(trajectories, dim=1)


def attend_backward(
    grad_values: Tensor,
    grad_trajectories: Tensor,
    query: Tensor,
    key: Tensor,
    trajectory: Tensor,
    trajectory_weight: Tensor,
    attention: Tensor,
    indptr: Tensor,
    indices: Tensor,
    edges: Tensor,
    negative_slope: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of ``attend`` in closed form; the attention weights are recomputed rather than stored.

    With ``a`` = alpha and ``m(x)`` the sum of ``a x`` over the slots of a node, the softmax gives
    ``d_logit = a (d_a - m(d_a))``, where ``d_a = <grad_values[i, h], key[j, h]> + <grad_trajectories[i, h], t>``, and
    the LeakyReLU ``d_u = d_logit attention leaky_relu'(u)``. The rest are sums of products of these.

    Args:
        grad_values: ``[N, H*C]``.
        grad_trajectories: ``[N, H, T]``.

    Returns:
        The gradients of query, key, trajectory, trajectory_weight and attention.
    """
    checks.check_slots("attend_backward", key, trajectory, indptr, indices, edges)
    heads, channels = attention.shape
    targets = _targets(indptr, len(indices))
    alpha = _attention_weights(
        query, key, trajectory, trajectory_weight, attention, targets, indptr, indices, edges, negative_slope
    )
    grad_logits = _grad_logits(grad_values, grad_trajectories, key, trajectory, alpha, targets, indptr, indices, edges)

    grad_query, grad_key, grad_trajectory = _zeros(query), _zeros(key), _zeros(trajectory)
    grad_weight, grad_per_head = _zeros(trajectory_weight), query.new_zeros(heads, heads * channels)
    weight, per_head = trajectory_weight.t().contiguous(), _block_diagonal(attention)
    for i, j, e, a, grad_logit in _blocks(heads * channels, targets, indices, edges, alpha, grad_logits):
        t = trajectory.index_select(0, e)
        u = _preactivation(query, key, t, weight, i, j)
        grad_per_head.addmm_(grad_logit.t(), leaky_relu(u, negative_slope))
        grad_u = torch.ops.aten.leaky_relu_backward(grad_logit @ per_head, u, negative_slope, False)
        grad_query.index_add_(0, i, grad_u)
        grad_weight.addmm_(grad_u.t(), t)
        through_values = grad_values.index_select(0, i).view(-1, heads, channels).mul_(a.unsqueeze(2))
        grad_key.index_add_(0, j, through_values.view(-1, heads * channels).add_(grad_u))
        through_sums = grad_trajectories.index_select(0, i).mul_(a.unsqueeze(2)).sum(1)
        grad_trajectory.index_add_(0, e, through_sums.addmm_(grad_u, trajectory_weight))
    grad_attention = grad_per_head.view(heads, heads, channels).diagonal(dim1=0, dim2=1).t().contiguous()
    return grad_query, grad_key, grad_trajectory, grad_weight, grad_attention


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
    projections = query_weight, query_bias, key_weight, key_bias
    arguments = x, *projections, trajectory, trajectory_weight, attention, trajectory_value, indptr, indices, edges
    checks.check_project_and_attend(*arguments)
    checks.check_slots("project_and_attend", x, trajectory, indptr, indices, edges)
    query, key = linear(x, query_weight, query_bias), linear(x, key_weight, key_bias)
    values, sums = attend(query, key, trajectory, trajectory_weight, attention, indptr, indices, edges, negative_slope)
    return values + torch.einsum("nht,hct->nhc", sums, trajectory_value).flatten(1)


def project_and_attend_backward(
    grad: Tensor,
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
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of ``project_and_attend`` for its first nine arguments, from ``grad [N, H*C]``."""
    query, key = linear(x, query_weight, query_bias), linear(x, key_weight, key_bias)
    slots = trajectory, trajectory_weight, attention, indptr, indices, edges, negative_slope
    _, sums = attend(query, key, *slots)
    per_head = grad.reshape(-1, *attention.shape)
    grad_value = torch.einsum("nhc,nht->hct", per_head, sums)
    grad_sums = torch.einsum("nhc,hct->nht", per_head, trajectory_value)
    grad_query, grad_key, grad_trajectory, grad_weight, grad_attention = attend_backward(
        grad, grad_sums, query, key, *slots
    )
    return (
        torch.addmm(grad_query @ query_weight, grad_key, key_weight),
        grad_query.t() @ x,
        grad_query.sum(0),
        grad_key.t() @ x,
        grad_key.sum(0),
        grad_trajectory,
        grad_weight,
        grad_attention,
        grad_value,
    )


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
    checks.check_join_sides(x, weight, bias, callers, callees, norm_weight, norm_bias)
    joined = linear(x, weight, bias).add_(callers).add_(callees)
    return gelu(layer_norm(joined, norm_bias.shape, norm_weight, norm_bias, eps))


def join_sides_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    callers: Tensor,
    callees: Tensor,
    norm_weight: Tensor,
    norm_bias: Tensor,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of ``join_sides``: of x, weight, bias, of callers and callees (the same), norm_weight and norm_bias."""
    joined = linear(x, weight, bias).add_(callers).add_(callees)
    normalized, mean, scale = torch.native_layer_norm(joined, norm_bias.shape, norm_weight, norm_bias, eps)
    grad_normalized = torch.ops.aten.gelu_backward(grad, normalized)
    grad_joined, grad_norm_weight, grad_norm_bias = torch.ops.aten.native_layer_norm_backward(
        grad_normalized, joined, norm_bias.shape, mean, scale, norm_weight, norm_bias, [True, True, True]
    )
    return (
        grad_joined @ weight,
        grad_joined.t() @ x,
        grad_joined.sum(0),
        grad_joined,
        grad_norm_weight,
        grad_norm_bias,
    )


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
    checks.check_perceptron(rows, others, positions, hidden_weight, hidden_bias, weight, bias)
    inputs = _side_by_side("perceptron", rows, others, positions)
    return linear(gelu(linear(inputs, hidden_weight, hidden_bias)), weight, bias)


def perceptron_backward(
    grad: Tensor,
    rows: Tensor,
    others: Tensor | None,
    positions: Tensor | None,
    hidden_weight: Tensor,
    hidden_bias: Tensor,
    weight: Tensor,
    bias: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of ``perceptron``: of rows, others (empty if there are none), and the weights and biases."""
    inputs = _side_by_side("perceptron_backward", rows, others, positions)
    hidden = linear(inputs, hidden_weight, hidden_bias)
    grad_hidden = torch.ops.aten.gelu_backward(grad @ weight, hidden)
    grad_rows, grad_others = (grad_hidden @ hidden_weight).tensor_split([rows.shape[1]], dim=1)
    if others is None:
        grad_others = rows.new_empty(0)
    elif positions is not None:
        grad_others = _zeros(others).index_add_(0, positions, grad_others)
    return (
        grad_rows.contiguous(),
        grad_others.contiguous(),
        grad_hidden.t() @ inputs,
        grad_hidden.sum(0),
        grad.t() @ gelu(hidden),
        grad.sum(0),
    )


def edge_dot(source: Tensor, target: Tensor, source_index: Tensor, target_index: Tensor) -> Tensor:
    """See :func:`kernels.ops.edge_dot`."""
    checks.check_edge_dot(source, target, source_index, target_index)
    checks.check_ends("edge_dot", source, target, source_index, target_index)
    products = [
        source.index_select(0, i).mul_(target.index_select(0, j)).sum(1)
        for i, j in _blocks(source.shape[1], source_index, target_index)
    ]
    return torch.cat(products)


def edge_dot_backward(
    grad: Tensor, source: Tensor, target: Tensor, source_index: Tensor, target_index: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of ``edge_dot`` for ``source`` and ``target``, from ``grad [E]``."""
    checks.check_ends("edge_dot_backward", source, target, source_index, target_index)
    grad_source, grad_target = _zeros(source), _zeros(target)
    for g, i, j in _blocks(source.shape[1], grad.unsqueeze(1), source_index, target_index):
        grad_source.index_add_(0, i, target.index_select(0, j).mul_(g))
        grad_target.index_add_(0, j, source.index_select(0, i).mul_(g))
    return grad_source, grad_target


def _attention_weights(
    query: Tensor,
    key: Tensor,
    trajectory: Tensor,
    trajectory_weight: Tensor,
    attention: Tensor,
    targets: Tensor,
    indptr: Tensor,
    indices: Tensor,
    edges: Tensor,
    negative_slope: float,
) -> Tensor:
    """alpha ``[E, H]``."""
    weight = trajectory_weight.t().contiguous()  # [T, H*C]
    per_head = _block_diagonal(attention)
    logits = []
    times = trajectory.index_select(0, edges)  # [E, T]
    for i, j, t in _blocks(attention.numel(), targets, indices, times):
        u = _preactivation(query, key, t, weight, i, j)
        logits.append(per_head @ leaky_relu_(u, negative_slope).t())  # [H, block]
    return _segment_softmax(torch.cat(logits, dim=1).t().contiguous(), targets, indptr)


def _preactivation(query: Tensor, key: Tensor, t: Tensor, weight: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """u ``[block, H*C]`` of the slots from neighbours ``j`` to targets ``i`` with temporal embeddings ``t``."""
    return key.index_select(0, j).add_(query.index_select(0, i)).addmm_(t, weight)


def _block_diagonal(attention: Tensor) -> Tensor:
    """``[H, H*C]`` with attention[h] in its own columns of row h: one product then serves all heads."""
    heads = attention.shape[0]
    own = torch.eye(heads, dtype=attention.dtype, device=attention.device)
    return (own.unsqueeze(2) * attention).view(heads, -1)


def _segment_softmax(logits: Tensor, targets: Tensor, indptr: Tensor) -> Tensor:
    """Softmax over the slots of each node, in place; the largest logit is subtracted first, so exp cannot overflow."""
    peak = torch.segment_reduce(logits, "max", offsets=indptr, axis=0)
    logits.sub_(peak.index_select(0, targets)).exp_()
    total = torch.segment_reduce(logits, "sum", offsets=indptr, axis=0)
    return logits.div_(total.index_select(0, targets))


def _grad_logits(
    grad_values: Tensor,
    grad_trajectories: Tensor,
    key: Tensor,
    trajectory: Tensor,
    alpha: Tensor,
    targets: Tensor,
    indptr: Tensor,
    indices: Tensor,
    edges: Tensor,
) -> Tensor:
    """d_logit ``[E, H]``: the backward of the two weighted sums and of the softmax."""
    heads, channels = alpha.shape[1], key.shape[1] // alpha.shape[1]
    grad_alpha = []
    for i, j, e in _blocks(key.shape[1], targets, indices, edges):
        dots = grad_values.index_select(0, i).mul_(key.index_select(0, j)).view(len(i), heads, channels).sum(2)
        dots += torch.bmm(grad_trajectories.index_select(0, i), trajectory.index_select(0, e).unsqueeze(2)).squeeze(2)
        grad_alpha.append(dots)
    grads = torch.cat(grad_alpha)
    mean = torch.segment_reduce(alpha * grads, "sum", offsets=indptr, axis=0)
    return grads.sub_(mean.index_select(0, targets)).mul_(alpha)


def _weighted_sum(rows: Tensor, positions: Tensor, indptr: Tensor, weights: Tensor) -> Tensor:
    """``out[i] = sum of weights[s] * rows[positions[s]] over the slots s of i``; zeros where there are none."""
    return embedding_bag(positions, rows, indptr, mode="sum", include_last_offset=True, per_sample_weights=weights)


def _targets(indptr: Tensor, slots: int) -> Tensor:
    """Return the target of each slot. ``slots`` is an argument so that no device has to copy it to the host."""
    nodes = torch.arange(len(indptr) - 1, device=indptr.device)
    return torch.repeat_interleave(nodes, indptr.diff(), output_size=slots)


def _blocks(width: int, *columns: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Slices of ``columns`` for as many edges as let ``[edges, width]`` fit the cache; one slice off the CPU."""
    edges = len(columns[0])
    rows = max(1, _BLOCK_ELEMENTS // max(1, width)) if columns[0].device.type == "cpu" else max(1, edges)
    return zip(*(torch.split(column, rows) for column in columns), strict=True)


def _side_by_side(op: str, rows: Tensor, others: Tensor | None, positions: Tensor | None) -> Tensor:
    """Rows beside the rows of ``others`` that belong to them."""
    if others is None:
        return rows
    if positions is not None:
        checks.check_positions(op, "positions", positions, "others", len(others))
        others = others.index_select(0, positions)
    return torch.cat([rows, others], dim=1)


def _zeros(like: Tensor) -> Tensor:
    return torch.zeros(like.shape, dtype=like.dtype, device=like.device)
