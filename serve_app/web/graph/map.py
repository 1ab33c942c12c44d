"""A mesh as it is drawn: services in their places, a large mesh's quiet namespaces as one node each. JSON out."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from model.features import Array
from model.snapshot import BoolArray, FloatArray, IntArray, MeshSnapshot, namespace_of
from serve_app.api.schemas.verdict import VerdictDocument
from serve_app.web.graph.layout import Layout
from serve_app.web.history import instant
from serve_app.web.moments import Moment

MOST_SERVICES = 5000  # drawn one by one; in a larger mesh namespaces are told as one node each
EVERYTHING = "/*"  # after a namespace: all services of it
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """What a map shows: the services of a snapshot, and behind them those that are gone and suspected or missed.

    Attributes:
        names: ``[N]``.
        gone: bool ``[N]``.
        edge_index: int64 ``[2, E]``; calls of those that are gone as they were last.
        rates: requests/s ``[E]``, NaN for the calls of those that are gone.
        services, calls: how strange, ``[N]`` and ``[E]``, decades; NaN: not scored.
    """

    names: tuple[str, ...]
    gone: BoolArray
    edge_index: IntArray
    rates: FloatArray
    services: Array
    calls: Array


def map_document(moment: Moment, layout: Layout, before: Sequence[MeshSnapshot], expand: Collection[str]) -> bytes:
    """JSON of a ``MapDocument``.

    Args:
        moment: what is drawn.
        layout: places of its services and of those that are gone.
        before: kept snapshots before it, oldest first, where the calls of what is gone are looked up.
        expand: namespaces whose services are told one by one after those of incidents, as far as ``MOST_SERVICES``
            reaches.
    """
    drawn = _drawn(moment, before)
    incident = _incidents(moment.verdict)
    collapsed = _collapsed(drawn.names, [*map(namespace_of, incident), *expand])
    node, names = _nodes(drawn.names, collapsed)
    suspicion = _told(((one.service, one.score) for one in moment.verdict.suspects), collapsed)
    incidents = _told(incident.items(), collapsed)
    place = {name: i for i, name in enumerate(layout.names)}
    positions = layout.positions[[place[name] for name in drawn.names]]
    counts = np.bincount(node, minlength=len(names))
    x, y = (np.bincount(node, positions[:, axis], len(names)) / counts for axis in (0, 1))
    gone = np.bincount(node, drawn.gone, len(names)) == counts
    source, destination, rates, deviation = _edges(drawn, node, counts)
    snapshot = moment.snapshot
    return msgspec.json.encode(
        {
            "observed_at": instant(snapshot.observed_at),
            "status": moment.verdict.status,
            "services": snapshot.num_nodes,
            "calls": snapshot.num_edges,
            "collapsed": sorted(collapsed),
            "nodes": {
                "name": names,
                "services": counts.tolist(),
                "x": _rounded(x, 2),
                "y": _rounded(y, 2),
                "deviation": _rounded(_most(drawn.services, node, len(names)), 2),
                "suspicion": [suspicion.get(name) for name in names],
                "incident": [incidents.get(name) for name in names],
                "gone": gone.tolist(),
            },
            "edges": {
                "source": source.tolist(),
                "destination": destination.tolist(),
                "requests_per_second": _rounded(rates, 2),
                "deviation": _rounded(deviation, 2),
            },
        }
    )


def gone_services(moment: Moment) -> list[str]:
    """Those that the verdict suspects or misses and the snapshot does not have."""
    told = {suspect.service for suspect in moment.verdict.suspects} | set(_incidents(moment.verdict))
    return sorted(told - set(moment.snapshot.node_ids))


def _incidents(verdict: VerdictDocument) -> dict[str, str]:
    """The id of the open incident that a service is part of, the worst one, worst first: whose doing it is and whom it
    affects. Who is suspected after the first may have nothing to do with it."""
    found: dict[str, str] = {}
    for incident in verdict.incidents:
        for service in (*(suspect.service for suspect in incident.suspects[:1]), *incident.affected):
            found.setdefault(service, incident.id)
    return found


def _drawn(moment: Moment, before: Sequence[MeshSnapshot]) -> Drawn:
    snapshot, gone = moment.snapshot, gone_services(moment)
    names = (*snapshot.node_ids, *gone)
    row = {name: i for i, name in enumerate(names)}
    lost = sorted({ends for name in gone for ends in _last_calls(name, row, before)})
    unknown = np.full(len(lost), np.nan, np.float32)
    return Drawn(
        names,
        np.arange(len(names)) >= snapshot.num_nodes,
        np.concatenate([snapshot.edge_index, np.array(lost, np.int64).reshape(-1, 2).T], axis=1),
        np.concatenate([snapshot.edge_features[:, 0], unknown]),
        np.concatenate([moment.deviations.services, np.full(len(gone), np.nan, np.float32)]),
        np.concatenate([moment.deviations.calls, unknown]),
    )


def _last_calls(name: str, row: dict[str, int], before: Sequence[MeshSnapshot]) -> list[tuple[int, int]]:
    """The calls from and to a service when it was last there, between those that are drawn."""
    snapshot = next((snapshot for snapshot in reversed(before) if name in snapshot.node_ids), None)
    if snapshot is None:
        return []
    at = snapshot.node_ids.index(name)
    ids = snapshot.node_ids
    ends = snapshot.edge_index[:, (snapshot.edge_index == at).any(axis=0)].T.tolist()
    return [(row[ids[s]], row[ids[d]]) for s, d in ends if ids[s] in row and ids[d] in row]


def _collapsed(names: Sequence[str], expand: Sequence[str]) -> set[str]:
    """The namespaces of a large mesh but those to expand, in their order, as far as there is room."""
    if len(names) <= MOST_SERVICES:
        return set()
    sizes: dict[str, int] = {}
    for name in names:
        namespace = namespace_of(name)
        sizes[namespace] = sizes.get(namespace, 0) + 1
    shown, collapsed = len(sizes), set(sizes)
    for namespace in dict.fromkeys(expand):
        if namespace in collapsed and shown + sizes[namespace] - 1 <= MOST_SERVICES:
            shown += sizes[namespace] - 1
            collapsed.discard(namespace)
    return collapsed


def _told(services: Iterable[tuple[str, T]], collapsed: Collection[str]) -> dict[str, T]:
    """By the nodes that show them, what is told of services, the worst first."""
    found: dict[str, T] = {}
    for name, told in services:
        namespace = namespace_of(name)
        found.setdefault(namespace + EVERYTHING if namespace in collapsed else name, told)
    return found


def _nodes(names: Sequence[str], collapsed: Collection[str]) -> tuple[IntArray, list[str]]:
    """The node of each service ``[N]``, and the nodes' names."""
    if not collapsed:
        return np.arange(len(names)), list(names)
    position: dict[str, int] = {}
    node = np.empty(len(names), np.int64)
    for i, name in enumerate(names):
        namespace = namespace_of(name)
        node[i] = position.setdefault(namespace + EVERYTHING if namespace in collapsed else name, len(position))
    return node, list(position)


def _edges(drawn: Drawn, node: IntArray, services: IntArray) -> tuple[IntArray, IntArray, FloatArray, Array]:
    """Calls between nodes that stand for so many ``services``, and of one service to itself: ends ``[E']``, requests/s
    added up, the strangest of their deviations."""
    ends, count = node[drawn.edge_index], len(services)
    apart = (ends[0] != ends[1]) | (services[ends[0]] == 1)
    pairs, edge = np.unique(ends[0][apart] * count + ends[1][apart], return_inverse=True)
    told = drawn.rates[apart]
    known = np.bincount(edge, ~np.isnan(told), len(pairs)) > 0
    rates = np.where(known, np.bincount(edge, np.nan_to_num(told), len(pairs)), np.nan).astype(np.float32)
    return pairs // count, pairs % count, rates, _most(drawn.calls[apart], edge, len(pairs))


def _most(values: Array, group: IntArray, groups: int) -> Array:
    """The largest of each group's known values; NaN where none is known."""
    most = np.full(groups, -np.inf, np.float32)
    known = ~np.isnan(values)
    np.maximum.at(most, group[known], values[known])
    return np.where(np.isinf(most), np.float32(np.nan), most)


def _rounded(values: NDArray[np.floating[Any]], digits: int) -> list[float | None]:
    """NaN is null: ``msgspec`` writes it so."""
    told: list[float | None] = np.round(values.astype(np.float64), digits).tolist()
    return told
