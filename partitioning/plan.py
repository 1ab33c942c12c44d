"""Plans: which services a part scores, and what it must read for that."""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partitioning.graph import BoolArray, FloatArray, IntArray, check_limit, check_mesh, stable_order
from partitioning.halo import AttendedCalls
from partitioning.quality import Quality, measure
from partitioning.strategies import by_namespace

LAYERS = 2  # graph-attention layers of the model: an exact halo is as deep


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """One part of a mesh, as positions in the mesh's arrays; all int64, ascending, read-only.

    Attributes:
        core: services whose embeddings and scores come from this part; each service is core of exactly one part.
        halo: services that are only read.
        edges: calls that the part reads: the attended calls within two layers of its core, and its owned calls. Both
            ends are in core or halo.
        owned_edges: calls that this part scores, those whose source is core. Each call is owned by exactly one part.
    """

    core: IntArray
    halo: IntArray
    edges: IntArray
    owned_edges: IntArray

    @property
    def nodes(self) -> IntArray:
        """Core, then halo: rows ``[:len(core)]`` of any result on them belong to the part."""
        return np.concatenate([self.core, self.halo])


@dataclass(frozen=True, slots=True, eq=False)
class PartitionPlan:
    """The division of a mesh of N services and E calls into parts.

    Attributes:
        parts: the parts; none has more core services than the limit.
        part_of: int64 ``[N]``, the part whose core has each service.
        crossing: int64, ids of the calls whose ends are in different parts, ascending.
        digest: :func:`topology_digest` of its mesh; the plan fits no other.
        quality: of this plan.
        fresh_quality: of the last plan from scratch, the reference for local changes.
    """

    parts: tuple[Partition, ...]
    part_of: IntArray
    crossing: IntArray
    digest: str
    quality: Quality
    fresh_quality: Quality


def plan(
    namespaces: IntArray,
    edge_index: IntArray,
    edge_weight: FloatArray,
    attended_callers: BoolArray,
    attended_callees: BoolArray,
    limit: int = 2000,
    seed: int = 0,
) -> PartitionPlan:
    """Cut a mesh from scratch: along namespaces, each part with an exact two-hop halo.

    A mesh of up to ``limit`` services is one part without a halo. The same arguments give the same plan.

    Args:
        namespaces: int ``[N]``, equal numbers for services of one namespace.
        edge_index: int ``[2, E]``, source and destination of each call.
        edge_weight: ``[E]``, traffic of each call in any unit, at least 0.
        attended_callers: bool ``[E]``, whether the destination attends to the source (see
            :func:`partitioning.halo.closure`).
        attended_callees: bool ``[E]``, whether the source attends to the destination.
        limit: most core services of a part.
        seed: of METIS, 0 to 2^31 - 1.

    Raises:
        InvalidGraph: an argument has a wrong shape, type or value.
        MissingMetis: the mesh is above the limit and METIS is not installed.
    """
    check_limit(limit, seed)
    check_mesh(namespaces, edge_index, edge_weight, attended_callers, attended_callees)
    part_of = by_namespace(namespaces, edge_index, edge_weight, limit, seed)
    digest = topology_digest(namespaces, edge_index, attended_callers, attended_callees)
    return assemble(part_of, edge_index, edge_weight, attended_callers, attended_callees, digest)


def assemble(
    part_of: IntArray,
    edge_index: IntArray,
    edge_weight: FloatArray,
    attended_callers: BoolArray,
    attended_callees: BoolArray,
    digest: str,
) -> PartitionPlan:
    """Build a plan from an assignment of services to parts 0..P-1, none empty. It takes time in proportion to the
    calls that all parts read together."""
    source, destination = edge_index
    count = int(part_of.max()) + 1 if len(part_of) else 0
    cores = _groups(part_of, count)
    owned_edges = _groups(part_of[source], count)
    attended = AttendedCalls.of(len(part_of), edge_index, attended_callers, attended_callees)
    parts = tuple(_part(core, edges, attended) for core, edges in zip(cores, owned_edges, strict=True))
    crossing = np.flatnonzero(part_of[source] != part_of[destination])
    quality = measure(
        crossing,
        edge_weight,
        [len(part.core) for part in parts],
        [len(part.halo) for part in parts],
        [len(part.edges) for part in parts],
    )
    return PartitionPlan(parts, _frozen(part_of), _frozen(crossing), digest, quality, quality)


def topology_digest(
    namespaces: IntArray, edge_index: IntArray, attended_callers: BoolArray, attended_callees: BoolArray
) -> str:
    """Return a hex digest of everything a plan depends on except traffic. The plan fits as long as it stays equal."""
    h = hashlib.blake2b(digest_size=16)
    h.update(f"{len(namespaces)} {edge_index.shape[1]}".encode())  # so that arrays cannot share bytes
    for integers in (namespaces, edge_index):
        h.update(np.ascontiguousarray(integers, dtype=np.int64).data)
    for mask in (attended_callers, attended_callees):
        h.update(np.packbits(mask).data)
    return h.hexdigest()


def _part(core: IntArray, owned_edges: IntArray, attended: AttendedCalls) -> Partition:
    nodes, edges = attended.closure(core, LAYERS)
    # An unattended call is still scored, from the features of both its ends.
    nodes[attended.edge_index[1, owned_edges]] = True
    edges[owned_edges] = True
    nodes[core] = False
    return Partition(
        _frozen(core), _frozen(np.flatnonzero(nodes)), _frozen(np.flatnonzero(edges)), _frozen(owned_edges)
    )


def _groups(labels: IntArray, count: int) -> list[IntArray]:
    """Positions of each label 0..count-1, ascending."""
    order = stable_order(labels, count)
    ends = np.cumsum(np.bincount(labels, minlength=count))
    return np.split(order, ends[:-1]) if count else []


def _frozen(array: NDArray[np.int64]) -> IntArray:
    array = array.copy() if array.base is not None else array
    array.setflags(write=False)
    return array
