"""Graph attention over callers and callees with a temporal embedding on every call."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from kernels import ops


@dataclass(frozen=True, slots=True)
class Neighbourhoods:
    """Whom each of N nodes hears in one direction, as CSR.

    Attributes:
        indptr: int64 ``[N + 1]``.
        indices: int64 ``[S]`` neighbours.
        edges: int64 ``[S]`` the call between, as a row of the trajectories.
    """

    indptr: Tensor
    indices: Tensor
    edges: Tensor

    @classmethod
    def of(cls, listener: Tensor, speaker: Tensor, attended: Tensor, num_nodes: int) -> Self:
        """From the ends of E calls ``[E]`` and the mask of those that are heard."""
        edges = torch.nonzero(attended).flatten()
        edges = edges[torch.argsort(listener[edges], stable=True)]
        indptr = torch.zeros(num_nodes + 1, dtype=torch.int64, device=listener.device)
        indptr[1:] = torch.cumsum(torch.bincount(listener[edges], minlength=num_nodes), 0)
        return cls(indptr, speaker[edges], edges)


class Attention(nn.Module):
    """What a node hears from one side: alpha_ij = softmax(a · LeakyReLU(W [h_i || h_j || h_t])).

    GATv2 form (Brody et al., ICLR 2022), where h_t is the temporal embedding of the call between them. h_t enters the
    value too: a node with a single caller, whose softmax is always 1, still hears a change of that call.
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
        """``x [N, inputs]``, ``trajectories [E, T]`` -> ``[N, outputs]``; zeros for who hears nobody."""
        values, heard = ops.attend(
            self.query(x),
            self.key(x),
            trajectories,
            self.trajectory,
            self.attention,
            neighbours.indptr,
            neighbours.indices,
            neighbours.edges,
            self.slope,
        )
        changes = torch.einsum("nht,hct->nhc", heard, self.trajectory_value)
        return values + changes.flatten(1)  # [N, outputs]


class MeshLayer(nn.Module):
    """A self term and, with weights of their own, attention over callers and over callees.

    Trouble climbs from callee to caller and load runs the other way, so the two sides are never mixed before the sum.
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
        """-> embedding ``[N, outputs]`` and what was heard from callers and from callees, ``[N, outputs]`` each."""
        from_callers = self.callers(x, trajectories, callers)
        from_callees = self.callees(x, trajectories, callees)
        return functional.gelu(self.norm(self.own(x) + from_callers + from_callees)), from_callers, from_callees


def perceptron(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Two linear layers with a GELU between them."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, outputs))
