"""Defines ``torch.ops.tagae.<op>``: the schemas, and for each op its PyTorch form, its trace and its derivative.

The PyTorch form is registered under CompositeExplicitAutograd, the key that every device falls back to. A compiled body
registered for one device is more specific and takes precedence there. Trace and derivative apply to it unchanged.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernels import checks, reference
from kernels.errors import UnavailableBackend
from kernels.library import REFERENCE, Backend, check_apart, choose_backend, choose_cuda, read_setting
from kernels.schemas import SCHEMAS

Results = Tensor | tuple[Tensor, ...]


def backend(device: str = "cpu") -> str:
    """Return which bodies run on a ``device``: ``cpu-avx512``, ``cpu-avx2``, ``cpu-neon``, ``cuda``, or
    ``reference``, the PyTorch form.

    Health and every benchmark report it.
    """
    return _BACKENDS[device].name


def backend_reason(device: str = "cpu") -> str | None:
    """Return why the reference runs on a ``device``; None if compiled bodies run."""
    return _BACKENDS[device].reason


def load_cuda() -> None:
    """Register the compiled bodies for a GPU in this process, if torch sees a GPU and they pass a check on it. If they
    do not, check the PyTorch form of the ops, which then runs there.

    Each check starts a process and takes a few seconds, so it is done only once. Processes that use only the CPU do not
    call this, and leave CUDA alone.

    Raises:
        UnavailableBackend: no form of the ops passes, so nothing should be scored on this GPU; or
            ``TAGAE_KERNELS=require``, and the compiled bodies cannot run.
    """
    if _BACKENDS["cuda"] is _NOT_LOADED:
        _BACKENDS["cuda"] = _choose_on_gpu()
    if not _BACKENDS["cuda"].works:
        raise UnavailableBackend(f"{_BACKENDS['cuda'].reason}")


def _choose_on_gpu() -> Backend:
    if not torch.cuda.is_available():
        return Backend(REFERENCE, "torch sees no GPU")
    choice = choose_cuda(read_setting())
    failure = check_apart("cuda") if choice.name == REFERENCE else None
    return Backend(REFERENCE, f"the check of the ops on the GPU {failure}", works=False) if failure else choice


def _define() -> torch.library.Library:
    library = torch.library.Library("tagae", "DEF")  # type: ignore[no-untyped-call]
    for op, schema in SCHEMAS.items():
        name = f"tagae::{op}"
        library.define(op + schema, tags=torch.Tag.pt2_compliant_tag)  # type: ignore[no-untyped-call]
        library.impl(op, _checked(op), "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
        torch.library.register_fake(name, _trace_of(op), lib=library)
        torch.library.register_autograd(name, _derivative_of(op), setup_context=_keep, lib=library)
    return library


def _checked(op: str) -> Callable[..., Results]:
    """Return the PyTorch form of an op, after the checks of its arguments."""
    body, tensors = getattr(reference, op), len(checks.SIZES[op])

    def run(*arguments: Any) -> Results:
        checks.check_arguments(op, *arguments[:tensors])
        checks.check_contents(op, *arguments[:tensors])
        return body(*arguments)

    return run


def _trace_of(op: str) -> Callable[..., Results]:
    """The sizes of an op's results without their values, for ``torch.compile`` and ``torch.export``. A compiled body
    must return results of these sizes, contiguous, as the PyTorch form does."""
    tensors = len(checks.SIZES[op])

    def trace(*arguments: Any) -> Results:
        sizes = checks.check_arguments(op, *arguments[:tensors])
        results = tuple(
            arguments[0].new_empty([checks.size_of(dimension, sizes) for dimension in form.split(", ")])
            for form in checks.RESULTS[op]
        )
        return results if len(results) > 1 else results[0]

    return trace


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Save what the derivative needs: the tensors, and the number that may come after them."""
    ctx.save_for_backward(*(value for value in inputs if not isinstance(value, float)))
    ctx.numbers = tuple(value for value in inputs if isinstance(value, float))


def _derivative_of(op: str) -> Callable[..., tuple[Tensor | None, ...]]:
    """Return the derivative of an op's PyTorch form, which is computed again instead of kept."""
    body = getattr(reference, op)

    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        needs_gradient = ctx.needs_input_grad
        with torch.enable_grad():
            inputs = [
                value.view_as(value) if need else value
                for value, need in zip((*ctx.saved_tensors, *ctx.numbers), needs_gradient, strict=True)
            ]
            results = body(*inputs)
        variables = [value for value, need in zip(inputs, needs_gradient, strict=True) if need]
        again = torch.is_grad_enabled()
        gradients = iter(torch.autograd.grad(results, variables, grads, create_graph=again, materialize_grads=True))
        return tuple(next(gradients) if need else None for need in needs_gradient)

    return backward


_LIBRARY = _define()  # kept: torch forgets the ops when their library is collected
_NOT_LOADED = Backend(REFERENCE, "load_cuda() was not called")
_BACKENDS = {"cpu": choose_backend(read_setting()), "cuda": _NOT_LOADED}  # by kind of device
