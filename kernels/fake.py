"""The shapes of each op's result without its values, for tracing by ``torch.compile`` and ``torch.export``.

They apply to every body, so a compiled body must return results of these shapes, contiguous, as the reference does.
"""

from torch import Tensor

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
    negative_slope: float,
) -> tuple[Tensor, Tensor]:
    checks.check_attend("attend", query, key, trajectory, trajectory_weight, attention, indptr, indices, edges)
    nodes, channels = query.shape
    return query.new_empty(nodes, channels), query.new_empty(nodes, attention.shape[0], trajectory.shape[1])


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
    return (
        _empty_like(query),
        _empty_like(key),
        _empty_like(trajectory),
        _empty_like(trajectory_weight),
        _empty_like(attention),
    )


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
    checks.check_project_and_attend(
        "project_and_attend",
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
    )
    return x.new_empty(x.shape[0], query_weight.shape[0])


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
    return (
        _empty_like(x),
        _empty_like(query_weight),
        _empty_like(query_bias),
        _empty_like(key_weight),
        _empty_like(key_bias),
        _empty_like(trajectory),
        _empty_like(trajectory_weight),
        _empty_like(attention),
        _empty_like(trajectory_value),
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
    checks.check_join_sides("join_sides", x, weight, bias, callers, callees, norm_weight, norm_bias)
    return x.new_empty(x.shape[0], weight.shape[0])


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
    return (
        _empty_like(x),
        _empty_like(weight),
        _empty_like(bias),
        _empty_like(callers),
        _empty_like(norm_weight),
        _empty_like(norm_bias),
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
    checks.check_perceptron("perceptron", rows, others, positions, hidden_weight, hidden_bias, weight, bias)
    return rows.new_empty(rows.shape[0], weight.shape[0])


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
    grad_others = rows.new_empty(0) if others is None else _empty_like(others)
    return (
        _empty_like(rows),
        grad_others,
        _empty_like(hidden_weight),
        _empty_like(hidden_bias),
        _empty_like(weight),
        _empty_like(bias),
    )


def edge_dot(source: Tensor, target: Tensor, source_index: Tensor, target_index: Tensor) -> Tensor:
    checks.check_edge_dot("edge_dot", source, target, source_index, target_index)
    return source.new_empty(source_index.shape[0])


def edge_dot_backward(
    grad: Tensor, source: Tensor, target: Tensor, source_index: Tensor, target_index: Tensor
) -> tuple[Tensor, Tensor]:
    return _empty_like(source), _empty_like(target)


def _empty_like(tensor: Tensor) -> Tensor:
    return tensor.new_empty(tensor.shape)
