"""Graphs padded to a few sizes, so that a CUDA graph or a compiled network serves many meshes.

Services that are added have no neighbours in the mesh. The slots that are added belong to them, a few to each, so that
no kernel has one long row.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from model.network.contract import MeshGraph
from model.network.layers import Neighbourhoods

LEAST_SPARE = 64  # services that are added at least


@dataclass(frozen=True, slots=True)
class Bucket:
    """A size: services, calls, and attended neighbours on each side."""

    nodes: int
    edges: int
    slots: int


def round_up(count: int) -> int:
    """The next of 1, 1.25, 1.5 and 1.75 times a power of two: at most a quarter more."""
    step = 1 << max(0, count.bit_length() - 3)
    return -(-count // step) * step


def bucket_of(graph: MeshGraph) -> Bucket:
    """The smallest bucket that takes a graph."""
    slots = max(len(graph.callers.indices), len(graph.callees.indices))
    return Bucket(
        round_up(len(graph.nodes) + LEAST_SPARE), round_up(len(graph.edges) + 1), round_up(slots + LEAST_SPARE)
    )


def size_of(graph: MeshGraph) -> Bucket:
    """The size of a padded graph, whose sides have equally many slots."""
    return Bucket(len(graph.nodes), len(graph.edges), len(graph.callers.indices))


def pad(graph: MeshGraph, bucket: Bucket) -> MeshGraph:
    """A graph of the size of a bucket, that gives the results of ``graph`` in its first rows."""
    last = bucket.nodes - 1
    return MeshGraph(
        _rows(graph.nodes, bucket.nodes),
        _rows(graph.edges, bucket.edges),
        _columns(graph.edge_index, bucket.edges, last),
        _neighbours(graph.callers, bucket),
        _neighbours(graph.callees, bucket),
    )


def tensors_of(graph: MeshGraph) -> tuple[Tensor, ...]:
    """All tensors of a graph, in the order of :func:`graph_of`."""
    sides = (graph.callers, graph.callees)
    return (
        *(graph.nodes, graph.edges, graph.edge_index),
        *(tensor for side in sides for tensor in (side.indptr, side.indices, side.edges)),
    )


def graph_of(*tensors: Tensor) -> MeshGraph:
    """The graph of its tensors."""
    nodes, edges, edge_index, *sides = tensors
    return MeshGraph(nodes, edges, edge_index, Neighbourhoods(*sides[:3]), Neighbourhoods(*sides[3:]))


def _rows(table: Tensor, count: int) -> Tensor:
    return torch.cat([table, table.new_zeros(count - len(table), table.shape[1])])


def _columns(index: Tensor, count: int, value: int) -> Tensor:
    return torch.cat([index, index.new_full((len(index), count - index.shape[1]), value)], dim=1)


def _neighbours(side: Neighbourhoods, bucket: Bucket) -> Neighbourhoods:
    spare_nodes, spare_slots = bucket.nodes + 1 - len(side.indptr), bucket.slots - len(side.indices)
    share = torch.arange(1, spare_nodes + 1, device=side.indptr.device)
    ends = len(side.indices) + share * spare_slots // spare_nodes
    return Neighbourhoods(
        torch.cat([side.indptr, ends]),
        torch.cat([side.indices, side.indices.new_full((spare_slots,), bucket.nodes - 1)]),
        torch.cat([side.edges, side.edges.new_full((spare_slots,), bucket.edges - 1)]),
    )
