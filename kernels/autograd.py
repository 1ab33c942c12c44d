"""The derivative of each op: what its forward saves, and the op that its backward calls.

The backward passes are ops of their own (``tagae::<op>_backward``), so they trace and export like the forward passes.
"""

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor

from kernels.errors import NotDifferentiable


def setup_attend(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *tensors, ctx.negative_slope = inputs
    ctx.save_for_backward(*tensors)


def attend(ctx: Any, grad_values: Tensor, grad_trajectories: Tensor) -> tuple[Tensor | None, ...]:
    grads = torch.ops.tagae.attend_backward(grad_values, grad_trajectories, *ctx.saved_tensors, ctx.negative_slope)
    return (*grads, None, None, None, None)


def setup_project_and_attend(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *tensors, ctx.negative_slope = inputs
    ctx.save_for_backward(*tensors)


def project_and_attend(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    grads = torch.ops.tagae.project_and_attend_backward(grad, *ctx.saved_tensors, ctx.negative_slope)
    return (*grads, None, None, None, None)


def setup_join_sides(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *tensors, ctx.eps = inputs
    ctx.save_for_backward(*tensors)


def join_sides(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, bias, sides, *norm = torch.ops.tagae.join_sides_backward(grad, *ctx.saved_tensors, ctx.eps)
    return (x, weight, bias, sides, sides, *norm, None)


def setup_perceptron(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def perceptron(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    rows, others, *weights = torch.ops.tagae.perceptron_backward(grad, *ctx.saved_tensors)
    return (rows, None if ctx.saved_tensors[1] is None else others, None, *weights)


def setup_edge_dot(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def edge_dot(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return (*torch.ops.tagae.edge_dot_backward(grad, *ctx.saved_tensors), None, None)


def setup_nothing(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Save nothing: a backward op has no derivative."""


def refuse(ctx: Any, *grads: Tensor) -> NoReturn:
    """Backward of a backward op.

    Raises:
        NotDifferentiable: always. Otherwise torch would leave out the second derivative with only a warning.
    """
    raise NotDifferentiable(
        "tagae ops: expected to be differentiated once, got a second derivative through one of them; "
        "leave out create_graph=True or compute that term without the op"
    )


# op: (what its forward keeps, its backward)
FORMULAS: dict[str, tuple[Callable[..., None], Callable[..., Any]]] = {
    "attend": (setup_attend, attend),
    "attend_backward": (setup_nothing, refuse),
    "project_and_attend": (setup_project_and_attend, project_and_attend),
    "project_and_attend_backward": (setup_nothing, refuse),
    "join_sides": (setup_join_sides, join_sides),
    "join_sides_backward": (setup_nothing, refuse),
    "perceptron": (setup_perceptron, perceptron),
    "perceptron_backward": (setup_nothing, refuse),
    "edge_dot": (setup_edge_dot, edge_dot),
    "edge_dot_backward": (setup_nothing, refuse),
}
