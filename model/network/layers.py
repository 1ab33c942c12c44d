"""Graph attention over callers and callees with a temporal embedding on every call."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kernels import ops


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor of the CPU to ``device``. A GPU reads it from pinned memory, while this thread continues."""
    return tensor.to(device) if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


def to_arrays(tensors: Sequence[Tensor]) -> list[NDArray[Any]]:
    """Return tensors of one device as numpy arrays. For a GPU, wait once, for all of them."""
    if all(tensor.device.type == "cpu" for tensor in tensors):
        return [tensor.numpy() for tensor in tensors]
    copies = [torch.empty_like(tensor, device="cpu", pin_memory=True) for tensor in tensors]
    for copy, tensor in zip(copies, tensors, strict=True):
        copy.copy_(tensor, non_blocking=True)
    torch.cuda.current_stream(tensors[0].device).synchronize()
    # Copied again, because pinned memory is scarce, and scores may be kept for long.
    return [np.array(copy.numpy()) for copy in copies]


class Neighbourhoods(NamedTuple):
    """The neighbours that each of N nodes attends to in one direction, as CSR; of arrays, it is a
    :class:`~model.state.topology.SortedNeighbours`.

    Attributes:
        indptr: int64 ``[N + 1]``.
        indices: int64 ``[S]`` neighbours.
        edges: int64 ``[S]`` the call to each, as a row of the trajectories.
    """

    indptr: Tensor
    indices: Tensor
    edges: Tensor


class Attention(nn.Module):
    """Attention over one side: alpha_ij = softmax(a · LeakyReLU(W [h_i || h_j || h_t])).

    This is the GATv2 form (Brody et al., ICLR 2022), where h_t is the temporal embedding of the call between them. h_t
    also enters the value: a node with a single caller, whose softmax is always 1, still receives a change of that call.
    """

    def __init__(self, inputs: int, outputs: int, heads: int, trajectory: int, slope: float) -> None:
        super().__init__()
        self.heads, self.slope = heads, slope
        self.query = nn.Linear(inputs, outputs)
        self.key = nn.Linear(inputs, outputs)
        self.trajectory = nn.Parameter(torch.empty(outputs, trajectory))
        self.attention = nn.Parameter(torch.empty(heads, outputs // heads))
        self.trajectory_value = nn.Parameter(torch.empty(heads, outputs // heads, trajectory))
        for weight in (self.trajectory, self.attention, self.trajectory_value):
            nn.init.xavier_uniform_(weight)

    def forward(self, x: Tensor, trajectories: Tensor, neighbours: Neighbourhoods) -> Tensor:
        """Map ``x [N, inputs]`` and ``trajectories [E, T]`` to ``[N, outputs]``; zeros for nodes without neighbours."""
        return ops.project_and_attend(
            x,
            self.query.weight,
            self.query.bias,
            self.key.weight,
            self.key.bias,
            trajectories,
            self.trajectory,
            self.attention,
            self.trajectory_value,
            neighbours.indptr,
            neighbours.indices,
            neighbours.edges,
            self.slope,
        )


class MeshLayer(nn.Module):
    """A self term, and separate attention over callers and over callees.

    Faults spread from callee to caller and load from caller to callee, so the two sides are not mixed before the sum.
    """

    def __init__(self, inputs: int, outputs: int, heads: int, trajectory: int, slope: float) -> None:
        super().__init__()
        self.own = nn.Linear(inputs, outputs)
        self.callers = Attention(inputs, outputs, heads, trajectory, slope)
        self.callees = Attention(inputs, outputs, heads, trajectory, slope)
        self.norm = nn.LayerNorm(outputs)

    def forward(
        self, x: Tensor, trajectories: Tensor, callers: Neighbourhoods, callees: Neighbourhoods
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the embedding ``[N, outputs]``, and the attention results of callers and of callees, ``[N, outputs]``
        each."""
        from_callers = self.callers(x, trajectories, callers)
        from_callees = self.callees(x, trajectories, callees)
        own, norm = self.own, self.norm
        embedding = ops.join_sides(
            x, own.weight, own.bias, from_callers, from_callees, norm.weight, norm.bias, norm.eps
        )
        return embedding, from_callers, from_callees


class Perceptron(nn.Module):
    """Two linear layers with a GELU between them."""

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        # Checkpoints have the names of a Sequential with the GELU as number 1.
        self.add_module("0", nn.Linear(inputs, hidden))
        self.add_module("2", nn.Linear(hidden, outputs))

    def forward(self, rows: Tensor, others: Tensor | None = None, positions: Tensor | None = None) -> Tensor:
        """Map ``rows [R, I]`` to ``[R, outputs]``. Beside each row stands its row of ``others``, at ``positions``."""
        hidden, output = cast(nn.Linear, getattr(self, "0")), cast(nn.Linear, getattr(self, "2"))
        return ops.perceptron(rows, others, positions, hidden.weight, hidden.bias, output.weight, output.bias)
