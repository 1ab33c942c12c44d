"""Errors of the package ``model``.

    ModelError
    ├── InvalidSnapshot      a snapshot that contradicts itself or has an impossible value
    ├── OutOfOrder           a snapshot older than the newest one of its mesh
    └── IncompatibleWeights  a checkpoint or state with another feature schema

Catch ``ModelError`` for all of them. Errors cross process boundaries, so each has one text and keyword details, and can
be rebuilt from both.
"""

from kernels.errors import DetailedError


class ModelError(DetailedError):
    """An error of this package."""


class InvalidSnapshot(ModelError):
    """A snapshot is refused; ``details["place"]`` says where: ("nodes", 3, "error_rate"), ("edges", 17), ..."""


class OutOfOrder(ModelError):
    """A snapshot is older than the newest one of its mesh."""


class IncompatibleWeights(ModelError):
    """A checkpoint or a saved state does not fit this version's feature schema."""
