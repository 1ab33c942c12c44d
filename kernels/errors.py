"""Errors of the kernels floor.

    KernelError
    ├── InvalidArgument      an op was given a tensor of the wrong shape, type, device or content
    ├── UnavailableBackend   TAGAE_KERNELS asks for something that is not there
    └── NotDifferentiable    a second derivative was asked for

Catch ``KernelError`` for anything this floor refuses. Errors cross process boundaries, so each carries one text and
keyword details, and rebuilds itself from both.
"""

from collections.abc import Callable
from functools import partial
from typing import Any


class KernelError(ValueError):
    """What was expected, what came, where, and what to do about it."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def __reduce__(self) -> tuple[Callable[..., "KernelError"], tuple[str]]:
        return partial(type(self), **self.details), (self.message,)


class InvalidArgument(KernelError):
    """A tensor does not fit the op; ``details["argument"]`` is its name in the op's signature."""


class UnavailableBackend(KernelError):
    """``TAGAE_KERNELS`` holds an unknown word, or requires a compiled library where there is none."""


class NotDifferentiable(KernelError):
    """The backward of an op was differentiated; the ops have first derivatives only."""
