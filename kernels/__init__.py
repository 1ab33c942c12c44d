"""The ``tagae::`` torch ops: graph attention over trajectories, and products of edge ends."""

from kernels._registry import backend
from kernels.errors import InvalidArgument, KernelError, NotDifferentiable, UnavailableBackend
from kernels.ops import attend, edge_dot

__all__ = [
    "InvalidArgument",
    "KernelError",
    "NotDifferentiable",
    "UnavailableBackend",
    "attend",
    "backend",
    "edge_dot",
]
