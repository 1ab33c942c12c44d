"""The shapes of each op's result without its values, for tracing by ``torch.compile`` and ``torch.export``.

They apply to every body, so a compiled body must return results of these shapes, contiguous, as the reference does.
"""

from torch import Tensor


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
        query.new_empty(query.shape),
        key.new_empty(key.shape),
        trajectory.new_empty(trajectory.shape),
        trajectory_weight.new_empty(trajectory_weight.shape),
        attention.new_empty(attention.shape),
    )


def edge_dot(source: Tensor, target: Tensor, source_index: Tensor, target_index: Tensor) -> Tensor:
    return source.new_empty(source_index.shape[0])


def edge_dot_backward(
    grad: Tensor, source: Tensor, target: Tensor, source_index: Tensor, target_index: Tensor
) -> tuple[Tensor, Tensor]:
    return source.new_empty(source.shape), target.new_empty(target.shape)
