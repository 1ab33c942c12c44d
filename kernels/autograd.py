"""The derivative of each op: what its forward saves, and the op that its backward calls.

The backward passes are ops of their own (``tagae::<op>_backward``), so they trace and export like the forward passes.
"""

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor

from kernels.errors import NotDifferentiable


def setup_with_number(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Save tensors and the number after them."""
    *tensors, ctx.number = inputs
    ctx.save_for_backward(*tensors)


def attend(ctx: Any, grad_values: Tensor, grad_trajectories: Tensor) -> tuple[Tensor | None, ...]:
    grads = torch.ops.tagae.attend_backward(grad_values, grad_trajectories, *ctx.saved_tensors, ctx.number)
    return (*grads, None, None, None, None)


def project_and_attend(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    grads = torch.ops.tagae.project_and_attend_backward(grad, *ctx.saved_tensors, ctx.number)
    return (*grads, None, None, None, None)


def join_sides(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, bias, sides, *norm = torch.ops.tagae.join_sides_backward(grad, *ctx.saved_tensors, ctx.number)
    return (x, weight, bias, sides, sides, *norm, None)


def setup_tensors(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def perceptron(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    rows, others, *weights = torch.ops.tagae.perceptron_backward(grad, *ctx.saved_tensors)
    return (rows, None if ctx.saved_tensors[1] is None else others, None, *weights)


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
_FORWARD: dict[str, tuple[Callable[..., None], Callable[..., Any]]] = {
    "attend": (setup_with_number, attend),
    "project_and_attend": (setup_with_number, project_and_attend),
    "join_sides": (setup_with_number, join_sides),
    "perceptron": (setup_tensors, perceptron),
    "edge_dot": (setup_tensors, edge_dot),
}
FORMULAS = _FORWARD | {f"{op}_backward": (setup_nothing, refuse) for op in _FORWARD}
