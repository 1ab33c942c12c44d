"""A student: expectations from each service's and each call's own values, without messages between services."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from model.network import contract as c
from model.network.layers import Perceptron


@dataclass(frozen=True, slots=True)
class StudentConfig:
    """Sizes of the student.

    Attributes:
        embedding: width of the embeddings, D.
        hidden: width of the perceptrons of services.
        hidden_of_calls: width of the perceptrons of calls.
        neighbours: callers and callees that are prepared for a service; the student reads none.
    """

    embedding: int = 32
    hidden: int = 64
    hidden_of_calls: int = 32
    neighbours: int = 6


class Student(nn.Module):
    """Perceptrons over a service's past and its own load, and over a call's past. It runs our fused op for each."""

    Config: ClassVar = StudentConfig

    def __init__(self, config: StudentConfig) -> None:
        super().__init__()
        self.config = config
        past, d = 2 * c.C_NODE, config.embedding
        self.load = Perceptron(past, config.hidden, 1)
        self.symptoms = Perceptron(past + c.LOAD_INPUTS, config.hidden, c.C_NODE - 1)
        self.calls = Perceptron(2 * c.C_EDGE, config.hidden_of_calls, c.C_EDGE)
        self.embed = Perceptron(c.NODE_INPUTS, config.hidden, d)
        self.blame = nn.Linear(d, 1)
        self.target = nn.Linear(d, d, bias=False)
        self.sparsity = nn.Parameter(torch.tensor(-2.0))

    def forward(self, graph: c.MeshGraph) -> c.Decoding:
        """Run one pass. The graph's neighbourhoods are not read."""
        nodes, (source, target) = graph.nodes, graph.edge_index
        past = nodes[:, c.NODE_PAST].contiguous()
        load = self.load(past)
        symptoms = self.symptoms(torch.cat([past, nodes[:, c.OWN_LOAD]], 1))
        z = self.embed(nodes)
        limit = c.EXPECTED_LIMIT
        return c.Decoding(
            z,
            torch.cat([load, symptoms], 1).clamp(-limit, limit),
            self.calls(graph.edges[:, c.EDGE_PAST].contiguous()).clamp(-limit, limit),
            self.structure(z, z, source, target),
            self.blame(z).squeeze(1),
        )

    def structure(self, z_source: Tensor, z_target: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Return logits ``[E]`` of calls between rows of two sets of embeddings ``[*, D]``."""
        logits: Tensor = (z_source[source] * self.target(z_target)[target]).sum(1) + self.sparsity
        return logits
