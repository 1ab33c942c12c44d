"""The ``tagae::`` torch ops: graph attention over trajectories, perceptrons, and products of edge ends.

The ops are imported when one of them is first used, and torch with them. That takes two seconds and 180 MB; processes
that do not score save them.
"""

from typing import TYPE_CHECKING, Any

from kernels.errors import InvalidArgument, KernelError, UnavailableBackend

if TYPE_CHECKING:
    from kernels._registry import backend, backend_reason, load_cuda
    from kernels.ops import attend, edge_dot, join_sides, perceptron, project_and_attend

__all__ = [
    "InvalidArgument",
    "KernelError",
    "UnavailableBackend",
    "attend",
    "backend",
    "backend_reason",
    "edge_dot",
    "join_sides",
    "load_cuda",
    "perceptron",
    "project_and_attend",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kernels import _registry, ops

    return getattr(_registry if hasattr(_registry, name) else ops, name)
