"""Errors of the package ``kernels``.

    KernelError
    ├── InvalidArgument      a tensor has the wrong shape, type, device or content
    └── UnavailableBackend   TAGAE_KERNELS names a backend that is not available, or a GPU computes wrong results

Catch ``KernelError`` for all of them. Errors cross process boundaries, so each has one text and keyword details, and
can be rebuilt from both.
"""

from collections.abc import Callable
from functools import partial
from typing import Any


class DetailedError(ValueError):
    """Says what was expected and received, where, and what to do."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def __reduce__(self) -> tuple[Callable[..., "DetailedError"], tuple[str]]:
        return partial(type(self), **self.details), (self.message,)


class KernelError(DetailedError):
    """An error of this package."""


class InvalidArgument(KernelError):
    """A tensor does not fit the op; ``details["argument"]`` is its name in the op's signature."""


class UnavailableBackend(KernelError):
    """``TAGAE_KERNELS`` has an unknown value, or requires a compiled library that does not exist; or the ops fail their
    check on a GPU."""
