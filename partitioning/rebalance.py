"""A plan for a mesh that has changed, with few services moved."""

from dataclasses import replace

import numpy as np

from partitioning.errors import InvalidGraph
from partitioning.graph import BoolArray, FloatArray, IntArray, check_limit, check_mesh, induced_subgraph
from partitioning.plan import PartitionPlan, assemble, plan, topology_digest
from partitioning.strategies import cut


def rebalance(
    old: PartitionPlan,
    kept: IntArray,
    namespaces: IntArray,
    edge_index: IntArray,
    edge_weight: FloatArray,
    attended_callers: BoolArray,
    attended_callees: BoolArray,
    limit: int = 2000,
    seed: int = 0,
    factor: float = 1.25,
) -> PartitionPlan:
    """Carry a plan over to a changed mesh.

    Kept services stay in their part. A new service joins the part with most of its traffic, else of its namespace. A
    new namespace joins as a whole. Parts above the limit are cut. The plan is made from scratch if the result is worse
    by ``factor``, in balance, replication or traffic cut, than the last plan from scratch *and* than a plan from
    scratch now. An unchanged mesh keeps ``old`` itself.

    Args:
        old: plan of the previous mesh; arguments after ``kept`` as in :func:`~partitioning.plan.plan`.
        kept: int ``[N]``, old position of each service of the new mesh, -1 if it is new.
        factor: how much worse is clearly worse, at least 1.

    Raises:
        InvalidGraph: an argument has a wrong shape, type or value.
        MissingMetis: METIS is needed and not installed.
    """
    check_limit(limit, seed)
    mesh = (namespaces, edge_index, edge_weight, attended_callers, attended_callees)
    check_mesh(*mesh)
    _check_kept(kept, len(namespaces), len(old.part_of))
    attended = (attended_callers, attended_callees)
    digest = topology_digest(namespaces, edge_index, *attended)
    is_same_mesh = old.digest == digest and np.array_equal(kept, np.arange(len(old.part_of)))
    if is_same_mesh and all(len(part.core) <= limit for part in old.parts):
        return old
    survivors = kept >= 0
    if len(namespaces) <= limit or not survivors.any():
        return plan(*mesh, limit=limit, seed=seed)
    part_of = np.full(len(namespaces), -1, dtype=np.int64)
    part_of[survivors] = old.part_of[kept[survivors]]
    part_of = _place_new(part_of, namespaces, edge_index, edge_weight, limit, seed)
    part_of = _cut_large(part_of, edge_index, edge_weight, limit, seed)
    local = assemble(np.unique(part_of, return_inverse=True)[1], edge_index, edge_weight, *attended, digest)
    if not local.quality.clearly_worse_than(old.fresh_quality, factor):
        return replace(local, fresh_quality=old.fresh_quality)
    fresh = plan(*mesh, limit=limit, seed=seed)
    if local.quality.clearly_worse_than(fresh.quality, factor):
        return fresh
    return replace(local, fresh_quality=fresh.quality)


def _check_kept(kept: IntArray, num_nodes: int, old_nodes: int) -> None:
    if kept.shape != (num_nodes,) or kept.dtype != np.int64:
        raise InvalidGraph(
            f"kept: expected int64 [{num_nodes}], one old position for each service, got {kept.dtype} "
            f"{list(kept.shape)}",
            argument="kept",
        )
    positions = kept[kept >= 0]
    outside = np.flatnonzero((kept < -1) | (kept >= old_nodes))
    if len(outside):
        i = int(outside[0])
        raise InvalidGraph(
            f"kept: service {i} claims old position {kept[i]}, expected -1 (new) or 0 to {old_nodes - 1}",
            argument="kept",
        )
    if len(np.unique(positions)) < len(positions):
        twice = int(np.flatnonzero(np.bincount(positions) > 1)[0])
        raise InvalidGraph(
            f"kept: old position {twice} is claimed by several services; only one can be its continuation, the others "
            "are new (-1)",
            argument="kept",
        )


def _place_new(
    part_of: IntArray, namespaces: IntArray, edge_index: IntArray, edge_weight: FloatArray, limit: int, seed: int
) -> IntArray:
    unit, sizes = _units(part_of, namespaces, edge_index, edge_weight, limit, seed)
    if not len(sizes):
        return part_of
    parts = int(part_of.max()) + 1
    traffic = _traffic(unit, part_of, edge_index, edge_weight, len(sizes), parts)
    neighbours = _namesakes(unit, part_of, namespaces, len(sizes), parts)
    room = np.concatenate(
        [
            limit - np.bincount(part_of[part_of >= 0], minlength=parts),
            np.zeros(len(sizes), dtype=np.int64),  # parts not opened yet: at most one for each unit
        ]
    )
    part_of_unit = np.empty(len(sizes), dtype=np.int64)
    for u in np.argsort(-traffic.sum(axis=1), kind="stable"):
        fitting = np.flatnonzero(room >= sizes[u])
        if not len(fitting):
            part_of_unit[u] = parts
            room[parts] = limit
            parts += 1
        else:
            old = fitting[fitting < traffic.shape[1]]
            choice = np.lexsort((-room[old], -neighbours[u, old], -traffic[u, old]))
            part_of_unit[u] = old[choice[0]] if len(old) else fitting[0]
        room[part_of_unit[u]] -= sizes[u]
    new_part_of = part_of.copy()
    new_part_of[unit >= 0] = part_of_unit[unit[unit >= 0]]
    return new_part_of


def _units(
    part_of: IntArray, namespaces: IntArray, edge_index: IntArray, edge_weight: FloatArray, limit: int, seed: int
) -> tuple[IntArray, IntArray]:
    """Return the units that are placed together: a new namespace (cut if above the limit), else one new service.

    Returns:
        ``(unit [N], sizes [U])``, unit -1 if a service has its part already.
    """
    unit = np.full(len(part_of), -1, dtype=np.int64)
    new = part_of < 0
    single = np.flatnonzero(new & np.isin(namespaces, namespaces[~new]))
    unit[single] = np.arange(len(single))
    count = len(single)
    whole = np.flatnonzero(new & (unit < 0))
    for namespace in np.unique(namespaces[whole]):
        members = whole[namespaces[whole] == namespace]
        unit[members] = count + _cut_nodes(members, len(part_of), edge_index, edge_weight, limit, seed)
        count = int(unit[members].max()) + 1
    return unit, np.bincount(unit[unit >= 0], minlength=count)


def _traffic(
    unit: IntArray, part_of: IntArray, edge_index: IntArray, edge_weight: FloatArray, units: int, parts: int
) -> FloatArray:
    """Return the traffic, both ways, between each unit and each part: ``[U, P]``."""
    total = np.zeros(units * parts)
    for near, far in (edge_index, edge_index[::-1]):
        joins = (unit[near] >= 0) & (part_of[far] >= 0)
        pair = unit[near[joins]] * parts + part_of[far[joins]]
        total += np.bincount(pair, weights=edge_weight[joins], minlength=units * parts)
    return total.reshape(units, parts)


def _namesakes(unit: IntArray, part_of: IntArray, namespaces: IntArray, units: int, parts: int) -> IntArray:
    """Return how many services of the unit's namespace are in each part: ``[U, P]``."""
    _, space = np.unique(namespaces, return_inverse=True)
    spaces = int(space.max()) + 1
    has_part = part_of >= 0
    counts = np.bincount(space[has_part] * parts + part_of[has_part], minlength=spaces * parts).reshape(spaces, parts)
    space_of_unit = np.empty(units, dtype=np.int64)
    space_of_unit[unit[unit >= 0]] = space[unit >= 0]
    return counts[space_of_unit]


def _cut_large(part_of: IntArray, edge_index: IntArray, edge_weight: FloatArray, limit: int, seed: int) -> IntArray:
    """Cut parts above the limit; the largest piece keeps the part's number."""
    part_of = part_of.copy()
    parts = int(part_of.max()) + 1
    for part in np.flatnonzero(np.bincount(part_of) > limit):
        members = np.flatnonzero(part_of == part)
        piece = _cut_nodes(members, len(part_of), edge_index, edge_weight, limit, seed)
        sizes = np.bincount(piece)
        number = np.empty(len(sizes), dtype=np.int64)
        number[np.argsort(-sizes, kind="stable")] = np.concatenate([[part], np.arange(parts, parts + len(sizes) - 1)])
        part_of[members] = number[piece]
        parts += len(sizes) - 1
    return part_of


def _cut_nodes(
    nodes: IntArray, num_nodes: int, edge_index: IntArray, edge_weight: FloatArray, limit: int, seed: int
) -> IntArray:
    """Cut ``nodes`` and return the piece of each, from 0."""
    graph = induced_subgraph(nodes, num_nodes, edge_index, edge_weight)
    return cut(graph, np.ones(len(nodes), dtype=np.int64), limit, seed)
