"""The shapes of each op's result without its values, for tracing by ``torch.compile`` and ``torch.export``.

They apply to every body, so a compiled body must return results of these shapes, contiguous, as the reference does.
"""

from collections.abc import Callable
from inspect import signature

from torch import Tensor

from kernels import checks, reference


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
    checks.check_attend(query, key, trajectory, trajectory_weight, attention, indptr, indices, edges)
    nodes, channels = query.shape
    return query.new_empty(nodes, channels), query.new_empty(nodes, attention.shape[0], trajectory.shape[1])


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
    projections = query_weight, query_bias, key_weight, key_bias
    arguments = x, *projections, trajectory, trajectory_weight, attention, trajectory_value, indptr, indices, edges
    checks.check_project_and_attend(*arguments)
    return x.new_empty(x.shape[0], query_weight.shape[0])


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
    checks.check_join_sides(x, weight, bias, callers, callees, norm_weight, norm_bias)
    return x.new_empty(x.shape[0], weight.shape[0])


def perceptron(
    rows: Tensor,
    others: Tensor | None,
    positions: Tensor | None,
    hidden_weight: Tensor,
    hidden_bias: Tensor,
    weight: Tensor,
    bias: Tensor,
) -> Tensor:
    checks.check_perceptron(rows, others, positions, hidden_weight, hidden_bias, weight, bias)
    return rows.new_empty(rows.shape[0], weight.shape[0])


def edge_dot(source: Tensor, target: Tensor, source_index: Tensor, target_index: Tensor) -> Tensor:
    checks.check_edge_dot(source, target, source_index, target_index)
    return source.new_empty(source_index.shape[0])


def _gradients(op: str, *names: str) -> Callable[..., tuple[Tensor, ...]]:
    """The fake of a backward: its results have the shapes of the arguments of these names."""
    arguments = [*signature(getattr(reference, op)).parameters]
    places = [arguments.index(name) for name in names]

    def backward(*given: Tensor) -> tuple[Tensor, ...]:
        return tuple(given[0].new_empty(0 if given[at] is None else given[at].shape) for at in places)

    return backward


_SLOTS = ("trajectory", "trajectory_weight", "attention")
attend_backward = _gradients("attend_backward", "query", "key", *_SLOTS)
project_and_attend_backward = _gradients(
    "project_and_attend_backward",
    *("x", "query_weight", "query_bias", "key_weight", "key_bias", *_SLOTS, "trajectory_value"),
)
join_sides_backward = _gradients("join_sides_backward", "x", "weight", "bias", "callers", "norm_weight", "norm_bias")
perceptron_backward = _gradients(
    "perceptron_backward", "rows", "others", "hidden_weight", "hidden_bias", "weight", "bias"
)
edge_dot_backward = _gradients("edge_dot_backward", "source", "target")
