"""A checkpoint's network with flat inputs and outputs, traced by ``torch.export``.

======================= ======= ================== ============================================================
input                   type    shape              content
======================= ======= ================== ============================================================
``nodes``               float32 ``[services, 45]`` see :mod:`model.network.contract`
``edges``               float32 ``[calls, 21]``    see :mod:`model.network.contract`
``edge_index``          int64   ``[2, calls]``     caller and callee of each call, as rows of ``nodes``
``attended_callers``    bool    ``[calls]``        whether the callee attends to the caller
``attended_callees``    bool    ``[calls]``        whether the caller attends to the callee
======================= ======= ================== ============================================================

The outputs are the fields of :class:`~model.network.contract.Decoding`, in its order. One program serves any number of
services, calls and neighbours; several meshes can stand side by side.
"""

import warnings
from dataclasses import fields

import torch
from torch import Tensor, nn

from model.network.contract import EDGE_INPUTS, NODE_INPUTS, Decoding, MeshGraph, MeshNetwork
from model.network.layers import Neighbourhoods
from model.scoring.score import PartitionTask

INPUTS = ("nodes", "edges", "edge_index", "attended_callers", "attended_callees")
OUTPUTS = tuple(field.name for field in fields(Decoding))
SIZES = ({0: "services"}, {0: "calls"}, {1: "calls"}, {0: "calls"}, {0: "calls"})  # dimensions of each input that vary


class FlatNetwork(nn.Module):
    """A network that takes and returns tensors only."""

    def __init__(self, network: MeshNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(
        self, nodes: Tensor, edges: Tensor, edge_index: Tensor, attended_callers: Tensor, attended_callees: Tensor
    ) -> tuple[Tensor, ...]:
        source, target = edge_index[0], edge_index[1]
        callers = _neighbourhoods(target, source, attended_callers, nodes)
        callees = _neighbourhoods(source, target, attended_callees, nodes)
        decoding = self.network(MeshGraph(nodes, edges, edge_index, callers, callees))
        return tuple(getattr(decoding, name) for name in OUTPUTS)


def trace(network: MeshNetwork) -> torch.export.ExportedProgram:
    """Trace a network on the CPU, with our ops inside.

    Raises:
        torch.export.UserError: the network's forward depends on values in an untraceable way.
    """
    dimensions = {name: torch.export.Dim(name) for name in ("services", "calls")}
    shapes = tuple({axis: dimensions[name] for axis, name in sizes.items()} for sizes in SIZES)
    flat = FlatNetwork(network).eval()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)  # torch uses what it deprecates
        return torch.export.export(flat, _any_inputs(), dynamic_shapes=shapes)


def inputs_of(task: PartitionTask) -> tuple[Tensor, ...]:
    """Return the inputs of a program for one mesh, named ``INPUTS``."""
    return (
        torch.from_numpy(task.nodes),
        torch.from_numpy(task.edges),
        torch.from_numpy(task.edge_index).long(),
        torch.from_numpy(task.attended_callers),
        torch.from_numpy(task.attended_callees),
    )


def _any_inputs() -> tuple[Tensor, ...]:
    """Return inputs for tracing: any sizes that differ from each other, and from 0 and 1, which are special."""
    services, calls = 5, 7
    ends = torch.arange(calls)
    return (
        torch.zeros(services, NODE_INPUTS),
        torch.zeros(calls, EDGE_INPUTS),
        torch.stack([ends % services, (ends + 2) % services]),
        torch.ones(calls, dtype=torch.bool),
        torch.ones(calls, dtype=torch.bool),
    )


def _neighbourhoods(listener: Tensor, speaker: Tensor, attended: Tensor, nodes: Tensor) -> Neighbourhoods:
    """Compute :func:`~model.state.topology.sort_neighbours` in traceable operators."""
    edges = torch.nonzero(attended).squeeze(1)
    owners = listener[edges]
    position = torch.arange(edges.shape[0], device=edges.device)
    order = torch.sort(owners * edges.shape[0] + position).indices  # ONNX has no stable sort, so no two keys are equal
    edges = edges[order]
    counts = torch.zeros_like(nodes[:, 0], dtype=torch.int64).scatter_add(0, owners, torch.ones_like(owners))
    return Neighbourhoods(torch.cat([counts.new_zeros(1), counts.cumsum(0)]), speaker[edges], edges)
