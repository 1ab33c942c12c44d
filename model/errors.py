"""Errors of the model floor.

    ModelError
    ├── InvalidSnapshot      a snapshot that contradicts itself or holds an impossible value
    ├── OutOfOrder           a snapshot older than the newest one seen
    └── IncompatibleWeights  a checkpoint or state made for another feature schema

Catch ``ModelError`` for anything this floor refuses. Errors cross process boundaries, so each carries one text and
keyword details, and rebuilds itself from both.
"""

from collections.abc import Callable
from functools import partial
from typing import Any


class ModelError(ValueError):
    """What was expected, what came, where, and what to do about it."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def __reduce__(self) -> tuple[Callable[..., "ModelError"], tuple[str]]:
        return partial(type(self), **self.details), (self.message,)


class InvalidSnapshot(ModelError):
    """A snapshot is refused; ``details["place"]`` says where: ("nodes", 3, "error_rate"), ("edges", 17), ..."""


class OutOfOrder(ModelError):
    """A snapshot is older than the newest one seen of its mesh."""


class IncompatibleWeights(ModelError):
    """A checkpoint or a saved state does not fit this version's feature schema."""
