"""Errors of the package ``partitioning``.

    PartitioningError
    ├── InvalidGraph   arrays that contradict each other or have an impossible value
    └── MissingMetis   neither pymetis nor metis can be imported

Errors cross process boundaries, so each has one text and keyword details, and can be rebuilt from both.
"""

from collections.abc import Callable
from functools import partial
from typing import Any


class PartitioningError(ValueError):
    """Says what was expected and received, where, and what to do."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def __reduce__(self) -> tuple[Callable[..., "PartitioningError"], tuple[str]]:
        return partial(type(self), **self.details), (self.message,)


class InvalidGraph(PartitioningError):
    """An argument is refused; ``details["argument"]`` names it."""


class MissingMetis(PartitioningError):
    """A mesh above the limit needs METIS, and no binding of it is installed."""
