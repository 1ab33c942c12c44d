"""How each op is differentiated: what its forward keeps, and the op that its backward calls.

The backwards are ops of their own (``tagae::<op>_backward``), so they trace and export as the forwards do.
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


def setup_edge_dot(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def edge_dot(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return (*torch.ops.tagae.edge_dot_backward(grad, *ctx.saved_tensors), None, None)


def setup_nothing(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """A backward op keeps nothing: it has no derivative."""


def refuse(ctx: Any, *grads: Tensor) -> NoReturn:
    """The backward of a backward op.

    Raises:
        NotDifferentiable: always; without it torch would leave the second derivative out with no more than a warning.
    """
    raise NotDifferentiable(
        "tagae ops: expected to be differentiated once, came a second derivative through one of them; "
        "leave out create_graph=True or compute that term without the op"
    )


# op: (what its forward keeps, its backward)
FORMULAS: dict[str, tuple[Callable[..., None], Callable[..., Any]]] = {
    "attend": (setup_attend, attend),
    "attend_backward": (setup_nothing, refuse),
    "edge_dot": (setup_edge_dot, edge_dot),
    "edge_dot_backward": (setup_nothing, refuse),
}
