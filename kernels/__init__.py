"""The ``tagae::`` torch ops: graph attention over trajectories, edge products, neighbourhood means."""

from kernels._registry import backend
from kernels.errors import InvalidArgument, KernelError, NotDifferentiable, UnavailableBackend
from kernels.ops import attend, edge_dot, segment_mean

__all__ = [
    "InvalidArgument",
    "KernelError",
    "NotDifferentiable",
    "UnavailableBackend",
    "attend",
    "backend",
    "edge_dot",
    "segment_mean",
]
