"""The temporal-attentive graph autoencoder.

The encoder has two :class:`~model.network.layers.MeshLayer` over services, with the embedding of each call's trajectory
in weight and value. The decoder predicts the directed structure, sigmoid(Z_source Z_target^T), and the expected
channels of each service and call now.

An expectation never reads what it predicts. A service's load is predicted from its callers; its latency, errors and
resources from its own load and its callees; a call's traffic from its source; a call's latency and errors from its
destination; and everything from its own past. So the part of a deviation that neighbours explain is expected, and a
fault that starts here is not.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from kernels import ops
from model.network.contract import (
    C_EDGE,
    C_NODE,
    CALL_LOAD,
    CALL_SYMPTOMS,
    CURRENT,
    EDGE_INPUTS,
    EDGE_PAST,
    EXPECTED_LIMIT,
    LOAD_INPUTS,
    NODE_INPUTS,
    NODE_PAST,
    OWN_LOAD,
    Decoding,
    MeshGraph,
)
from model.network.layers import MeshLayer, Perceptron


@dataclass(frozen=True, slots=True)
class AutoencoderConfig:
    """Sizes of the network; part of every checkpoint.

    Attributes:
        embedding: width of the second, D.
        trajectory: width of a call's temporal embedding, T.
        neighbours: most callers and most callees that a service attends to
            (:func:`model.state.topology.sample_neighbours`).
    """

    hidden: int = 128
    embedding: int = 64
    heads: int = 4
    trajectory: int = 16
    neighbours: int = 6
    slope: float = 0.2


class Autoencoder(nn.Module):
    """See the module's docstring. No parameter belongs to a node, and nodes mix only along calls."""

    Config: ClassVar = AutoencoderConfig

    def __init__(self, config: AutoencoderConfig) -> None:
        super().__init__()
        self.config = config
        h, d, t = config.hidden, config.embedding, config.trajectory
        self.trajectory = Perceptron(EDGE_INPUTS, 2 * t, t)
        self.first = MeshLayer(NODE_INPUTS, h, config.heads, t, config.slope)
        self.second = MeshLayer(h, d, config.heads, t, config.slope)
        self.as_source = nn.Linear(d, d, bias=False)
        self.as_target = nn.Linear(d, d, bias=False)
        self.sparsity = nn.Parameter(torch.tensor(-2.0))
        self.load = Perceptron(2 * C_NODE + h, 64, 1)
        self.symptoms = Perceptron(2 * C_NODE + LOAD_INPUTS + h, 64, C_NODE - 1)
        self.call_load = Perceptron(2 * C_EDGE + LOAD_INPUTS, 32, len(CALL_LOAD))
        self.call_symptoms = Perceptron(2 * C_EDGE + 2 * C_NODE, 32, len(CALL_SYMPTOMS))

    def forward(self, graph: MeshGraph) -> Decoding:
        """Run one pass over services and calls. All calls of the graph are decoded, present or vanished."""
        h_t = self.trajectory(graph.edges)  # [E, T]
        h, from_callers, from_callees = self.first(graph.nodes, h_t, graph.callers, graph.callees)  # [N, hidden] each
        z, _, _ = self.second(h, h_t, graph.callers, graph.callees)  # [N, D]
        source, target = graph.edge_index
        return Decoding(
            z,
            self._expected_nodes(graph.nodes, from_callers, from_callees),
            self._expected_edges(graph.nodes, graph.edges, source, target),
            self.structure(z, z, source, target),
        )

    def structure(self, z_source: Tensor, z_target: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Return logits ``[E]`` of calls between rows of two sets of embeddings ``[*, D]``."""
        return ops.edge_dot(z_source, self._as_seen_by_sources(z_target), source, target) + self.sparsity

    def structure_of_pairs(self, z_source: Tensor, z_target: Tensor) -> Tensor:
        """Return the same logits ``[S, T]`` for all pairs, in one matrix product."""
        return torch.addmm(self.sparsity, z_source, self._as_seen_by_sources(z_target).t())

    def _as_seen_by_sources(self, z_target: Tensor) -> Tensor:
        """Return ``[*, D]`` whose product with the embedding of a source is the logit without ``sparsity``."""
        projection = (
            self.as_source.weight.t() @ self.as_target.weight
        )  # <S a, T b> = <a, S^T T b>: one projection, not two
        return nn.functional.linear(z_target, projection)

    def _expected_nodes(self, nodes: Tensor, from_callers: Tensor, from_callees: Tensor) -> Tensor:
        past = nodes[:, NODE_PAST]
        load = self.load(past, from_callers)
        symptoms = self.symptoms(torch.cat([past, nodes[:, OWN_LOAD]], 1), from_callees)
        return torch.cat([load, symptoms], 1).clamp(-EXPECTED_LIMIT, EXPECTED_LIMIT)  # RATE is the first channel

    def _expected_edges(self, nodes: Tensor, edges: Tensor, source: Tensor, target: Tensor) -> Tensor:
        past = edges[:, EDGE_PAST]
        load = self.call_load(past, nodes[:, OWN_LOAD], source)
        symptoms = self.call_symptoms(past, nodes[:, CURRENT], target)
        expected = torch.cat([load[:, :1], symptoms, load[:, 1:]], 1)
        return expected.clamp(-EXPECTED_LIMIT, EXPECTED_LIMIT)
