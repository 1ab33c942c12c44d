"""A network of your own: graph attention from PyTorch Geometric in place of TAGAE's autoencoder.

    tagae train out/gatv2.safetensors --network examples.gatv2_network:GATv2Network
    tagae serve --set model.network=examples.gatv2_network:GATv2Network --set model.weights=out/gatv2.safetensors

The contract, and the columns of the inputs: model/network/contract.py. Its tests: lab/contracts/networks.py.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATv2Conv

from model.network import contract as c
from model.network.layers import Neighbourhoods


@dataclass(frozen=True)
class Sizes:
    """Widths of the layers; part of every checkpoint."""

    hidden: int = 64
    embedding: int = 32
    heads: int = 4
    neighbours: int = 6


class GATv2Network(nn.Module):
    """Two layers of GATv2 in each direction. Expectations read the first layer: load from callers, symptoms from
    callees."""

    Config: ClassVar = Sizes

    def __init__(self, config: Sizes) -> None:
        super().__init__()
        self.config = config
        h, d = config.hidden, config.embedding
        self.first = nn.ModuleList(attention(c.NODE_INPUTS, h, config.heads) for _ in range(2))
        self.second = nn.ModuleList(attention(h, d, config.heads) for _ in range(2))
        self.own, self.norm, self.embed = nn.Linear(c.NODE_INPUTS, h), nn.LayerNorm(h), nn.Linear(h, d)
        self.load = perceptron(2 * c.C_NODE + h, 1)
        self.symptoms = perceptron(2 * c.C_NODE + c.LOAD_INPUTS + h, c.C_NODE - 1)
        self.call_load = perceptron(2 * c.C_EDGE + c.LOAD_INPUTS, 2)
        self.call_symptoms = perceptron(2 * c.C_EDGE + 2 * c.C_NODE, 3)
        self.target = nn.Linear(d, d)

    def forward(self, graph: c.MeshGraph) -> c.Decoding:
        x, (source, target) = graph.nodes, graph.edge_index
        from_callers, from_callees = both_sides(self.first, x, graph)
        h = self.norm(self.own(x) + from_callers + from_callees).relu()
        z = (self.embed(h) + torch.stack(both_sides(self.second, h, graph)).sum(0)).tanh()
        past, call_past, own_load = x[:, c.NODE_PAST], graph.edges[:, c.EDGE_PAST], x[:, c.OWN_LOAD]
        load = self.load(torch.cat([past, from_callers], 1))
        symptoms = self.symptoms(torch.cat([past, own_load, from_callees], 1))
        call_load = self.call_load(torch.cat([call_past, own_load[source]], 1))
        call_symptoms = self.call_symptoms(torch.cat([call_past, x[target, c.CURRENT]], 1))
        node_expected = torch.cat([load, symptoms], 1).clamp(-c.EXPECTED_LIMIT, c.EXPECTED_LIMIT)
        edge_expected = torch.cat([call_load[:, :1], call_symptoms, call_load[:, 1:]], 1)
        edge_expected = edge_expected.clamp(-c.EXPECTED_LIMIT, c.EXPECTED_LIMIT)
        return c.Decoding(z, node_expected, edge_expected, self.structure(z, z, source, target))

    def structure(self, z_source: Tensor, z_target: Tensor, source: Tensor, target: Tensor) -> Tensor:
        logits: Tensor = (z_source[source] * self.target(z_target)[target]).sum(1) - 2
        return logits


def attention(inputs: int, outputs: int, heads: int) -> GATv2Conv:
    return GATv2Conv(inputs, outputs // heads, heads, edge_dim=c.EDGE_INPUTS, add_self_loops=False)


def perceptron(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, outputs))


def both_sides(layers: nn.ModuleList, x: Tensor, graph: c.MeshGraph) -> list[Tensor]:
    """What each service receives from its callers and from its callees, ``[N, outputs]`` each."""

    def attend(layer: GATv2Conv, side: Neighbourhoods) -> Tensor:
        listener = torch.repeat_interleave(side.indptr.diff())
        received: Tensor = layer(x, torch.stack([side.indices, listener]), graph.edges[side.edges])
        return received

    return [attend(layer, side) for layer, side in zip(layers, (graph.callers, graph.callees), strict=True)]
