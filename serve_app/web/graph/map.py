"""The map of a mesh, as JSON: services with positions; in a larger mesh, each namespace is one node."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from model.features import Array
from model.snapshot import NODE_METRICS, BoolArray, EdgeMetric, FloatArray, IntArray, MeshSnapshot, namespace_of
from serve_app.api.schemas.verdict import IncidentDocument
from serve_app.stores.history import highest
from serve_app.web.front_door import way_in
from serve_app.web.graph.layout import Layout
from serve_app.web.graph.propagation import spread
from serve_app.web.history import five_digits, instant
from serve_app.web.in_common import in_common
from serve_app.web.moment import Moment

FOLD_FROM = 200  # services, above which namespaces are one node each
MAX_SERVICES = 5000  # drawn one by one, in expanded namespaces
MAX_INVOLVED, MAX_NEIGHBOURS = 300, 100  # services of incidents, their callers and callees, drawn one by one
UNUSUAL = 3.0  # anomaly score (log10), above which a service is unusual
EVERYTHING = "/*"  # after a namespace: all its services
RATE, ERROR, P99 = EdgeMetric.REQUESTS_PER_SECOND, EdgeMetric.ERROR_RATE, EdgeMetric.P99_LATENCY


@dataclass(frozen=True, slots=True, eq=False)
class MapContent:
    """The services of a snapshot, then suspected or affected services that disappeared, and their calls.

    Attributes:
        names: ``[N]``.
        gone: bool ``[N]``, whether a service disappeared.
        silent: bool ``[N]``, whether a service is in the snapshot without any metric of its own.
        edge_index: int64 ``[2, E]``; of services that disappeared, their last calls.
        rates: requests/s ``[E]``, NaN for calls of services that disappeared.
        errors: share of the requests that fail ``[E]``; NaN: not observed.
        latencies: p99 ``[E]``, s; NaN: not observed.
        services, calls: anomaly scores (log10) ``[N]`` and ``[E]``; NaN: not scored.
        traffic: requests/s ``[N]`` that a service receives, or sends if nothing calls it.
    """

    names: tuple[str, ...]
    gone: BoolArray
    silent: BoolArray
    edge_index: IntArray
    rates: FloatArray
    errors: FloatArray
    latencies: FloatArray
    services: Array
    calls: Array
    traffic: NDArray[np.float64]


def map_document(
    moment: Moment,
    layout: Layout,
    before: Sequence[MeshSnapshot],
    expand: Collection[str],
    entry_points: Collection[str],
    front_door: dict[str, Any] | None = None,
) -> bytes:
    """Return JSON of a ``MapDocument``; of a past moment, of a ``PastMapDocument``.

    Args:
        layout: positions of the moment's services and of those that disappeared.
        before: kept snapshots before the moment, oldest first. They have the last calls of services that disappeared,
            and show what is usual.
        expand: namespaces to draw service by service, up to ``MAX_SERVICES``.
        front_door: a ``MapFrontDoor``; None: of a past moment.
    """
    content = _content(moment, before)
    incidents = _incidents(moment)
    folded_names = _services_to_fold(content, incidents, expand)
    node, names = _nodes(content.names, folded_names)
    # The worst incident counts.
    node_incidents = {_node_name(name, folded_names): incident for name, incident in reversed(incidents.items())}
    source, destination, rates, errors, latencies, deviation = _edges(content, node, np.bincount(node))
    snapshot, alerts = moment.snapshot, moment.alerts
    return msgspec.json.encode(
        {
            "observed_at": instant(snapshot.observed_at),
            "status": moment.status,
            "services": snapshot.num_nodes,
            "calls": snapshot.num_edges,
            "collapsed": sorted({namespace_of(name) for name in folded_names}),
            "nodes": _node_columns(content, layout, node, names, node_incidents),
            "edges": {
                "source": source.tolist(),
                "destination": destination.tolist(),
                "requests_per_second": _round(rates, 2),
                "error_rate": _round(errors, 4),
                "p99_latency": _round(latencies, 4),
                "deviation": _round(deviation, 2),
            },
            "spread": {
                incident.id: _spread(incident, folded_names, names, np.stack([source, destination]), rates)
                for incident in moment.incidents
            },
            "front_door": front_door,
            "ways": {alert.id: _way(alert, content, entry_points) for alert in alerts},
            "in_common": {alert.id: in_common(snapshot, before, alert) for alert in alerts},
            **(_past_columns(moment, names) if moment.source else {}),
        }
    )


def _node_columns(
    content: MapContent, layout: Layout, node: IntArray, names: Sequence[str], incidents: Mapping[str, str]
) -> dict[str, list[Any]]:
    """Return the columns of ``MapNodes``; ``node``: the node of each service."""
    place = {name: i for i, name in enumerate(layout.names)}
    positions = layout.positions[[place[name] for name in content.names]]
    counts = np.bincount(node)
    x, y = (np.bincount(node, positions[:, axis]) / counts for axis in (0, 1))
    return {
        "name": list(names),
        "services": counts.tolist(),
        "unusual": np.bincount(node, np.nan_to_num(content.services) > UNUSUAL).astype(np.int64).tolist(),
        "x": _round(x, 2),
        "y": _round(y, 2),
        "requests_per_second": _round(np.bincount(node, content.traffic), 2),
        "deviation": _round(highest(content.services, node, len(names)), 2),
        "incident": [incidents.get(name) for name in names],
        "gone": (np.bincount(node, content.gone) == counts).tolist(),
        "silent": (np.bincount(node, content.silent) == counts).tolist(),
    }


def _spread(
    incident: IncidentDocument,
    folded_names: Collection[str],
    names: Sequence[str],
    edge_index: IntArray,
    rates: FloatArray,
) -> dict[str, list[Any]]:
    """Return the columns of ``MapSpread``."""
    began = [_node_name(name, folded_names) for name in incident.began_at]
    affected_nodes = {_node_name(name, folded_names) for name in incident.affected}
    hops = spread(began, affected_nodes, names, edge_index, rates)
    edge = {(names[a], names[b]): e for e, (a, b) in enumerate(edge_index.T.tolist())}
    return {
        "edge": [edge[hop.call] for hop in hops],
        "step": [hop.distance for hop in hops],
        "is_down": [hop.is_down for hop in hops],
    }


def _way(incident: IncidentDocument, content: MapContent, entry_points: Collection[str]) -> list[str]:
    """Return the services from the front door to the cause, which may be the calls of one caller."""
    ends = [end for end in (incident.caller, incident.first_suspect) if end]
    if not ends:
        return []
    hops = spread(ends[:1], incident.affected, content.names, content.edge_index, content.rates)
    way = way_in(ends[0], hops, content.names, content.edge_index, entry_points)
    return [*way, *ends[1:]] if way else []


def _past_columns(past: Moment, names: Sequence[str]) -> dict[str, Any]:
    """Return the fields that only a ``PastMapDocument`` has."""
    snapshot = past.snapshot
    row = {name: i for i, name in enumerate(snapshot.node_ids)}
    rows = [row.get(name, len(row)) for name in names]
    values = np.where(snapshot.node_observed, snapshot.node_features, np.float32(np.nan))
    table = np.concatenate([values, np.full((1, values.shape[1]), np.nan, np.float32)])[rows]
    return {
        "source": past.source,
        "step_seconds": past.step_seconds,
        "mesh_score": past.mesh_score,
        "threshold": past.threshold,
        "metrics": {name: five_digits(table[:, i]) for i, name in enumerate(NODE_METRICS)},
    }


def gone_services(moment: Moment) -> list[str]:
    """Return the suspected or affected services that are missing from the snapshot."""
    return sorted({*moment.suspects, *_incidents(moment)} - set(moment.snapshot.node_ids))


def _incidents(moment: Moment) -> dict[str, str]:
    """Map first suspects and affected services to their worst alert, worst first. Other suspects may be unrelated."""
    incidents: dict[str, str] = {}
    for incident in moment.alerts:
        for service in filter(None, (incident.first_suspect, *incident.affected)):
            incidents.setdefault(service, incident.id)
    return incidents


def _content(moment: Moment, before: Sequence[MeshSnapshot]) -> MapContent:
    snapshot, missing = moment.snapshot, gone_services(moment)
    names = (*snapshot.node_ids, *missing)
    row = {name: i for i, name in enumerate(names)}
    last_calls = sorted({ends for name in missing for ends in _last_calls(name, row, before)})
    unknown = np.full(len(last_calls), np.nan, np.float32)
    metrics = np.where(snapshot.edge_observed, snapshot.edge_features, np.float32(np.nan))
    rates = np.nan_to_num(snapshot.edge_features[:, RATE])
    outgoing, incoming = (np.bincount(ends, rates, len(names)) for ends in snapshot.edge_index)
    return MapContent(
        names,
        np.arange(len(names)) >= snapshot.num_nodes,
        np.concatenate([~snapshot.node_observed.any(axis=1), np.zeros(len(missing), np.bool_)]),
        np.concatenate([snapshot.edge_index, np.array(last_calls, np.int64).reshape(-1, 2).T], axis=1),
        np.concatenate([snapshot.edge_features[:, RATE], unknown]),
        np.concatenate([metrics[:, ERROR], unknown]),
        np.concatenate([metrics[:, P99], unknown]),
        np.concatenate([moment.deviations.services, np.full(len(missing), np.nan, np.float32)]),
        np.concatenate([moment.deviations.calls, unknown]),
        np.where(incoming > 0, incoming, outgoing),
    )


def _last_calls(name: str, row: dict[str, int], before: Sequence[MeshSnapshot]) -> list[tuple[int, int]]:
    """Return the last known calls from and to a service, between services of the map."""
    snapshot = next((snapshot for snapshot in reversed(before) if name in snapshot.node_ids), None)
    if snapshot is None:
        return []
    at = snapshot.node_ids.index(name)
    ids = snapshot.node_ids
    ends = snapshot.edge_index[:, (snapshot.edge_index == at).any(axis=0)].T.tolist()
    return [(row[ids[s]], row[ids[d]]) for s, d in ends if ids[s] in row and ids[d] in row]


def _services_to_fold(content: MapContent, incident: Collection[str], expand: Iterable[str]) -> set[str]:
    """Return a large mesh's services that are drawn as one node with others of their namespace.

    An incident's services, their callers and their callees are drawn one by one, and so are namespaces in ``expand``
    while there is room.
    """
    if len(content.names) <= FOLD_FROM:
        return set()
    alone = _services_around(content, incident)
    members: dict[str, list[str]] = {}
    for name in content.names:
        if name not in alone:
            members.setdefault(namespace_of(name), []).append(name)
    room = MAX_SERVICES - len(alone) - len(members)
    for namespace in dict.fromkeys(expand):
        size = len(members.get(namespace, ()))
        if size and size <= room:
            room -= size
            del members[namespace]
    return {name for names in members.values() if len(names) > 1 for name in names}


def _services_around(content: MapContent, incident: Collection[str]) -> set[str]:
    """Return the services of incidents, and their busiest callers and callees."""
    rows = [i for i, name in enumerate(content.names) if name in incident][:MAX_INVOLVED]
    inside = np.zeros(len(content.names), np.bool_)
    inside[rows] = True
    source, destination = content.edge_index
    across = np.flatnonzero(inside[source] != inside[destination])
    busiest = across[np.argsort(-np.nan_to_num(content.rates[across]), kind="stable")]
    neighbours = np.where(inside[source[busiest]], destination[busiest], source[busiest])
    near = list(dict.fromkeys(neighbours.tolist()))[:MAX_NEIGHBOURS]
    return {content.names[i] for i in (*rows, *near)}


def _node_name(name: str, folded_names: Collection[str]) -> str:
    return namespace_of(name) + EVERYTHING if name in folded_names else name


def _nodes(names: Sequence[str], folded_names: Collection[str]) -> tuple[IntArray, list[str]]:
    """Return the node of each service ``[N]``, and the names of the nodes."""
    position: dict[str, int] = {}
    node = np.empty(len(names), np.int64)
    for i, name in enumerate(names):
        node[i] = position.setdefault(_node_name(name, folded_names), len(position))
    return node, list(position)


def _edges(
    content: MapContent, node: IntArray, services: IntArray
) -> tuple[IntArray, IntArray, FloatArray, FloatArray, FloatArray, Array]:
    """Return the calls between nodes that stand for this many ``services``, and of one service to itself: their ends
    ``[E']``, the sum of requests/s, the share of the requests that fail, the mean p99, and the highest anomaly score.
    """
    ends, count = node[content.edge_index], len(services)
    apart = (ends[0] != ends[1]) | (services[ends[0]] == 1)
    pairs, edge = np.unique(ends[0][apart] * count + ends[1][apart], return_inverse=True)
    rate = content.rates[apart]
    is_known = np.bincount(edge, ~np.isnan(rate), len(pairs)) > 0
    rates = np.where(is_known, np.bincount(edge, np.nan_to_num(rate), len(pairs)), np.nan).astype(np.float32)
    errors, latencies = (_mean(values[apart], rate, edge, len(pairs)) for values in (content.errors, content.latencies))
    return pairs // count, pairs % count, rates, errors, latencies, highest(content.calls[apart], edge, len(pairs))


def _mean(values: FloatArray, weights: FloatArray, group: IntArray, groups: int) -> FloatArray:
    """Return each group's weighted mean of the known values; NaN without any weight."""
    is_known = ~np.isnan(values) & (weights > 0)
    total = np.bincount(group[is_known], weights[is_known], groups)
    part = np.bincount(group[is_known], (weights * values)[is_known], groups)
    mean = np.full(groups, np.nan, np.float32)
    mean[total > 0] = part[total > 0] / total[total > 0]
    return mean


def _round(values: NDArray[np.floating[Any] | np.integer[Any]], digits: int) -> list[float | None]:
    """Round to a list; ``msgspec`` writes NaN as null."""
    numbers: list[float | None] = np.round(values.astype(np.float64), digits).tolist()
    return numbers
