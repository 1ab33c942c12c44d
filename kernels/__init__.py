"""The ``tagae::`` torch ops: graph attention over trajectories, perceptrons, and products of edge ends."""

from kernels._registry import backend, backend_reason
from kernels.errors import InvalidArgument, KernelError, NotDifferentiable, UnavailableBackend
from kernels.ops import attend, edge_dot, join_sides, perceptron, project_and_attend

__all__ = [
    "InvalidArgument",
    "KernelError",
    "NotDifferentiable",
    "UnavailableBackend",
    "attend",
    "backend",
    "backend_reason",
    "edge_dot",
    "join_sides",
    "perceptron",
    "project_and_attend",
]
