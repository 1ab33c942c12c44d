"""The ops: each calls ``torch.ops.tagae.<op>``, for which ``reference.py`` has the contract and the PyTorch form.

``InvalidArgument`` names an argument that does not fit. Contents of index tensors are checked on a CPU only.

Every op has the derivatives of its PyTorch form. It runs under ``torch.inference_mode``, and traces under
``torch.compile(fullgraph=True)`` and ``torch.export`` as one node of the graph.

Determinism: on a CPU the same input gives the same bits, forwards and backwards, at one thread count. On a GPU the
backwards adds with atomics in no fixed order unless ``torch.use_deterministic_algorithms(True)`` is set.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch

from kernels import _registry as _registry  # defines torch.ops.tagae
from kernels import checks, reference

P = ParamSpec("P")
R = TypeVar("R")


def _op(body: Callable[P, R]) -> Callable[P, R]:
    """Return the op with this PyTorch form. If its body refuses the arguments, the op finds out which one is wrong."""
    name, signature = body.__name__, inspect.signature(body)
    count, tensors = len(signature.parameters), len(checks.SIZES[name])

    @wraps(body)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        arguments: tuple[Any, ...] = args
        if kwargs or len(args) != count:  # only then, since binding takes longer than some ops
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            arguments = bound.args
        try:
            return getattr(torch.ops.tagae, name)(*arguments)
        except RuntimeError:
            checks.check_arguments(name, *arguments[:tensors])
            checks.check_contents(name, *arguments[:tensors])
            raise

    return call


attend = _op(reference.attend)
project_and_attend = _op(reference.project_and_attend)
join_sides = _op(reference.join_sides)
perceptron = _op(reference.perceptron)
edge_dot = _op(reference.edge_dot)
