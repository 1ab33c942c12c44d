"""Positions of services: near the services they call, inside their namespace, and stable over time.

A mesh is laid out as nested discs. Services are discs of radius 1/2. Forces place the services of a namespace, which
then form one disc, and the same forces place the namespaces. The cost is quadratic, so METIS cuts large sets into
groups that are placed first. The forces follow Fruchterman and Reingold (1991); the ideal distance of two discs is the
sum of their radii.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from model.snapshot import namespace_of
from partitioning.graph import symmetric_csr
from partitioning.strategies import cut

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GROUP = 200  # most discs that are placed at once
GAP = 1.0  # space around a namespace, for its border and for new services
STEPS = 60  # of the forces, fewer for a few discs
PUSHES = 60  # steps that remove overlaps
CLOSEST = 0.55  # distance of a new service to others
GOLDEN = np.pi * (3 - np.sqrt(5))  # angle between the seeds of a sunflower


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Positions of services. Nearest neighbours are about 1 apart, namespaces at least 2.

    Attributes:
        names: N ids ``namespace/service``.
        positions: float32 ``[N, 2]``, x to the right; callers tend to be left of what they call.
    """

    names: tuple[str, ...]
    positions: NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class _CallRows:
    """Calls between discs: ``[E]`` each; ``weight`` is positive."""

    source: Ints
    destination: Ints
    weight: Floats

    def between(self, labels: Ints) -> "_CallRows":
        """Return the calls between groups with different ``labels``, as calls of the groups."""
        source, destination = labels[self.source], labels[self.destination]
        apart = source != destination
        return _CallRows(source[apart], destination[apart], self.weight[apart])

    def within(self, labels: Ints, place: Ints, groups: int) -> "list[_CallRows]":
        """Return the calls inside each group, with ends as the ``place`` in it; -1: no group."""
        label = labels[self.source]
        inside = np.flatnonzero((label == labels[self.destination]) & (label >= 0))
        inside = inside[np.argsort(label[inside], kind="stable")]
        ends = np.searchsorted(label[inside], np.arange(groups + 1))
        source, destination, weight = place[self.source[inside]], place[self.destination[inside]], self.weight[inside]
        slices = [slice(a, b) for a, b in pairwise(ends)]
        return [_CallRows(source[s], destination[s], weight[s]) for s in slices]


def arrange(
    names: Sequence[str],
    edge_index: Ints,
    rates: NDArray[np.floating],
    before: Layout | None = None,
) -> Layout:
    """Lay out a mesh. The result is deterministic.

    Services of the layout ``before`` keep their positions. A new service is placed beside its callers and callees.
    If more than half of the services are new, all are placed from the start.

    Args:
        names: N ids ``namespace/service``.
        edge_index: ``[2, E]``, source and destination of each call.
        rates: ``[E]``, requests per second; busier calls are shorter.
        before: the current layout.
    """
    ids = tuple(names)
    if before is not None and before.names == ids:
        return before
    calls = _CallRows(edge_index[0], edge_index[1], 1.0 + np.log1p(np.nan_to_num(rates).astype(np.float64)))
    if before is not None:
        row = {name: i for i, name in enumerate(before.names)}
        rows = np.fromiter((row.get(name, -1) for name in ids), np.int64, len(ids))
        if 2 * np.count_nonzero(rows >= 0) >= len(ids):
            return Layout(ids, _add(ids, calls, before.positions, rows))
    positions, _ = _place_groups(_spaces(ids), np.full(len(ids), 0.5), calls, GAP)
    return Layout(ids, positions.astype(np.float32))


def _spaces(ids: Sequence[str]) -> Ints:
    """Return the namespace of each service as a number."""
    number = {space: i for i, space in enumerate(dict.fromkeys(map(namespace_of, ids)))}
    return np.fromiter((number[namespace_of(name)] for name in ids), np.int64, len(ids))


def _place(radii: Floats, calls: _CallRows) -> tuple[Floats, float]:
    """Return positions ``[n, 2]`` of discs around the origin, without overlaps, and the radius of all together."""
    if len(radii) > GROUP:
        graph = symmetric_csr(len(radii), np.stack([calls.source, calls.destination]), calls.weight)
        return _place_groups(cut(graph, np.ones(len(radii), np.int64), GROUP, 0), radii, calls, 0.0)
    if len(radii) == 1:
        return np.zeros((1, 2)), float(radii[0])
    positions = _push_apart(_even_out(_settle(radii, calls), radii), radii)
    return positions, float((np.hypot(*positions.T) + radii).max())


def _place_groups(labels: Ints, radii: Floats, calls: _CallRows, gap: float) -> tuple[Floats, float]:
    """As :func:`_placed`, each group of ``labels`` first; ``gap`` is the space around each."""
    groups = int(labels.max(initial=-1)) + 1
    order = np.argsort(labels, kind="stable")
    members = np.split(order, np.searchsorted(labels[order], np.arange(1, groups)))
    place = np.empty(len(labels), np.int64)
    for rows in members:
        place[rows] = np.arange(len(rows))
    inside = calls.within(labels, place, groups)
    placed = [_place(radii[rows], own) for rows, own in zip(members, inside, strict=True)]
    centres, radius = _place(np.array([r + gap for _, r in placed]), calls.between(labels))
    positions = np.empty((len(labels), 2))
    for rows, (own, _), centre in zip(members, placed, centres, strict=True):
        positions[rows] = centre + own
    return positions, radius


def _settle(radii: Floats, calls: _CallRows) -> Floats:
    """Return positions ``[n, 2]`` where calls attract and all discs repel; discs may still overlap.

    It starts with callers on the left and callees on the right, and mostly keeps this order.
    """
    n = len(radii)
    flow = np.bincount(calls.source * n + calls.destination, calls.weight, n * n).reshape(n, n)
    out, into = flow.sum(1), flow.sum(0)
    side = (into - out) / np.maximum(into + out, 1e-9)
    reach = np.sqrt(n) * radii.mean()
    at: Floats = reach * (_sunflower(np.arange(n)) / np.sqrt(n) + np.stack([2 * side, 0 * side], 1))
    ideal = np.add.outer(radii, radii)
    pull = flow + flow.T
    pull = pull / max(pull.max(), 1e-9) / ideal
    np.fill_diagonal(pull, 0)
    push = ideal**2
    np.fill_diagonal(push, 0)
    steps = min(STEPS, 10 + n)
    for warmth in np.linspace(0.2, 0.01, steps):
        square = _squared_distances(at)
        force = push / square - pull * np.sqrt(square)
        move = at * force.sum(1)[:, None] - force @ at - 0.05 * at  # the last term holds discs without calls
        length = np.hypot(*move.T)
        at = at + move * (np.minimum(length, warmth * reach) / np.maximum(length, 1e-9))[:, None]
    return at


def _even_out(at: Floats, radii: Floats) -> Floats:
    """Keep the directions from the centre, but choose distances that fill a disc evenly."""
    at = at - np.average(at, axis=0, weights=radii**2)
    distance = np.hypot(*at.T)
    order = np.argsort(distance, kind="stable")
    area = radii[order] ** 2
    even = np.empty(len(at))
    even[order] = np.sqrt((np.cumsum(area) - area) * 1.2)  # the area inside, and a fifth for gaps
    evened: Floats = at * (even / np.maximum(distance, 1e-9))[:, None]
    return evened


def _push_apart(at: Floats, radii: Floats) -> Floats:
    """Push overlapping discs apart, larger ones less."""
    ideal = np.add.outer(radii, radii)
    np.fill_diagonal(ideal, 0)
    mass = radii**2
    yields = mass[None, :] / np.add.outer(mass, mass)
    for _ in range(PUSHES):
        distance = np.sqrt(_squared_distances(at))
        overlap = np.maximum(ideal - distance, 0)
        if overlap.max() < 0.02:
            break
        force = overlap * yields / distance
        at = at + at * force.sum(1)[:, None] - force @ at
    at = at - np.average(at, axis=0, weights=mass)
    widened: Floats = at * max(1.0, float((ideal / np.sqrt(_squared_distances(at))).max()))
    return widened


def _squared_distances(at: Floats) -> Floats:
    """Return squared distances ``[n, n]``, never 0."""
    x, y = at.T
    squares: Floats = np.subtract.outer(x, x) ** 2 + np.subtract.outer(y, y) ** 2 + 1e-6
    return squares


def _add(ids: tuple[str, ...], calls: _CallRows, known: NDArray[np.float32], rows: Ints) -> NDArray[np.float32]:
    """Return positions of all services: ``known[rows]``, and new ones (-1) beside those they have calls with."""
    positions, there, spaces = known[rows], rows >= 0, _spaces(ids)
    graph = symmetric_csr(len(ids), np.stack([calls.source, calls.destination]), calls.weight)
    beside = [graph.indices[graph.indptr[i] : graph.indptr[i + 1]] for i in range(len(ids))]
    lived_in = np.bincount(spaces[there], minlength=int(spaces.max()) + 1) > 0
    for space in dict.fromkeys(spaces[~lived_in[spaces]].tolist()):
        members = np.flatnonzero(spaces == space)
        others = np.concatenate([beside[i] for i in members])
        others = others[there[others]]
        wish = positions[others if len(others) else there].mean(axis=0)
        place = np.cumsum(spaces == space) - 1
        (own,) = calls.within(np.where(spaces == space, 0, -1), place, 1)
        local, radius = _place(np.full(len(members), 0.5), own)
        positions[members] = _free(wish, radius + GAP + 0.5, 0.0, positions[there]) + local
        there[members] = True
    waiting = np.flatnonzero(~there).tolist()
    while waiting:  # services with a placed neighbour go first
        for i in [i for i in waiting if there[beside[i]].any()] or waiting[:1]:
            home = there & (spaces == spaces[i])
            near = beside[i][home[beside[i]]]
            wish = positions[near if len(near) else home].mean(axis=0)
            positions[i] = _free(wish, CLOSEST, _turn(ids[i]), positions[there])
            there[i] = True
        waiting = [i for i in waiting if not there[i]]
    return positions


def _sunflower(k: Ints, turn: float = 0.0) -> Floats:
    """Return points ``k`` of a sunflower pattern, ``[n, 2]``, evenly spread; the radius of point k is its root."""
    angle = k * GOLDEN + turn
    seeds: Floats = np.sqrt(k)[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
    return seeds


def _turn(name: str) -> float:
    """Return an angle from the hash of a name."""
    return int.from_bytes(blake2b(name.encode(), digest_size=4).digest(), "big") / 2**32 * 2 * np.pi


def _free(wish: NDArray[np.float32], room: float, turn: float, taken: NDArray[np.float32]) -> Floats:
    """Return the first free point of a sunflower pattern around ``wish``, with no service nearer than ``room``."""
    distance = np.hypot(*(taken - wish).T)
    reach = 4.0 * room
    while True:  # four points per square of ``room``, more than others can occupy
        k = np.arange(1, int((2 * reach / room) ** 2))
        seeds = wish + _sunflower(k, turn) * room / 2
        near = taken[distance < reach + 2 * room]
        gaps = np.hypot(*(seeds[:, None] - near).transpose(2, 0, 1))
        free = np.flatnonzero((gaps >= room).all(axis=1))
        if len(free):
            return np.asarray(seeds[free[0]])
        reach *= 2
