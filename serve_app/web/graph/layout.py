"""Positions of services: callers left of what they call, inside their namespace, and stable over time.

Services of a namespace stand in columns, by the number of calls from a service that nothing in it calls. The circles
around the namespaces stand in columns in the same way.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.snapshot import IntArray, namespace_of

GAP = 1  # around a namespace's circle, for its border and its name
TALL = 1.2  # height of the columns, relative to a square of the same area
KNOWN_SHARE = 0.5  # share of the services with a position, from which they keep it


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Positions of services ``[N, 2]``, x to the right. Nearest neighbours are 1 apart, namespaces at least 2."""

    names: tuple[str, ...]
    positions: IntArray


def arrange(names: Sequence[str], edge_index: IntArray, before: Layout | None = None) -> Layout:
    """Return a layout of N services and their calls ``[2, E]``. It is deterministic.

    Services of the layout ``before`` keep their positions, and new ones are placed beside their callers and callees.
    If a namespace or more than half of the services are new, all are placed from the start.
    """
    ids = tuple(names)
    if before is not None and before.names == ids:
        return before
    number = {space: i for i, space in enumerate(dict.fromkeys(map(namespace_of, ids)))}
    spaces = np.array([number[namespace_of(name)] for name in ids], np.int64)
    if before is not None:
        row = {name: i for i, name in enumerate(before.names)}
        rows = np.array([row.get(name, -1) for name in ids], np.int64)
        is_known = np.bincount(spaces[rows >= 0], minlength=len(number)).all()
        if is_known and (rows >= 0).sum() >= KNOWN_SHARE * len(ids):
            return Layout(ids, _place_new(spaces, edge_index, before.positions[rows], rows >= 0))
    positions = np.zeros((len(ids), 2), np.int64)
    sizes = np.zeros(len(number), np.int64)
    for space in range(len(number)):
        members = np.flatnonzero(spaces == space)
        positions[members] = _place(np.ones(len(members), np.int64), _calls_inside(edge_index, members, len(ids)))
        sizes[space] = 2 * (GAP + np.ceil(np.hypot(*positions[members].T).max() + 0.5))
    return Layout(ids, positions + _place(sizes, spaces[edge_index])[spaces])


def _calls_inside(edge_index: IntArray, members: IntArray, count: int) -> IntArray:
    """Return the calls between some services, with ends as positions among them."""
    place = np.full(count, -1, np.int64)
    place[members] = np.arange(len(members))
    ends = place[edge_index]
    return ends[:, (ends >= 0).all(axis=0)]


def _place(sizes: IntArray, calls: IntArray) -> IntArray:
    """Return the middles ``[n, 2]`` of squares with these sizes, in columns around the origin, callers on the left. In
    a column, each is near the middle of its callers."""
    depth = _depths(len(sizes), calls)
    tallest = max(int(TALL * np.sqrt((sizes**2).sum())), int(sizes.max()))
    middles = np.zeros((len(sizes), 2), np.int64)
    x = 0
    for level in range(depth.max() + 1):
        source, destination = calls[:, depth[calls[1]] == level]
        callers = np.bincount(destination, depth[source] < level, len(sizes))
        wish = np.bincount(destination, middles[source, 1] * (depth[source] < level), len(sizes)) / np.maximum(
            callers, 1
        )
        members = np.flatnonzero(depth == level)
        members = members[np.argsort(wish[members], kind="stable")]
        below = np.cumsum(sizes[members]) - sizes[members]
        for column in range(below[-1] // tallest + 1):
            group = members[below // tallest == column]
            size = sizes[group]
            middles[group, 1] = np.cumsum(size) - size // 2 - size.sum() // 2
            middles[group, 0] = x + size.max() // 2
            x += int(size.max())
    positions: IntArray = middles - (middles.min(axis=0) + middles.max(axis=0)) // 2
    return positions


def _depths(count: int, calls: IntArray) -> IntArray:
    """Return the length of the longest way to each node ``[n]``, in calls; nodes in a circle of calls count as one."""
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_nodes_from(range(count))
    graph.add_edges_from(calls.T.tolist())
    circles = nx.condensation(graph)
    depth = np.zeros(count, np.int64)
    for level, members in enumerate(nx.topological_generations(circles)):
        for circle in members:
            depth[list(circles.nodes[circle]["members"])] = level
    return depth


def _place_new(
    spaces: IntArray, edge_index: IntArray, old_positions: IntArray, is_placed: NDArray[np.bool_]
) -> IntArray:
    """Return positions ``[N, 2]`` of all services. Services without one get the free position nearest to their callers
    and callees in their namespace, or to its middle."""
    positions, has_place = old_positions.copy(), is_placed.copy()
    places = set(map(tuple, positions[has_place].tolist()))
    for row in np.flatnonzero(~has_place).tolist():
        source, destination = edge_index
        beside = np.concatenate([destination[source == row], source[destination == row]])
        home = has_place & (spaces == spaces[row])
        near = beside[home[beside]]
        wish = np.rint(positions[near if len(near) else home].mean(axis=0)).astype(np.int64)
        positions[row] = _nearest_free(wish, places)
        places.add(tuple(positions[row].tolist()))
        has_place[row] = True
    return positions


def _nearest_free(wish: IntArray, places: set[tuple[int, ...]]) -> tuple[int, int]:
    """Return the free position that is nearest to another one."""
    reach = 1
    while True:
        steps = np.arange(-reach, reach + 1)
        around = np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2)
        for x, y in (wish + around[np.argsort((around**2).sum(axis=1), kind="stable")]).tolist():
            if (x, y) not in places:
                return x, y
        reach *= 2
