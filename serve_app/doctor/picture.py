"""A mesh's picture from one snapshot, with its oddities."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from model.front_door import Values, find_entry_points, measure_entries
from model.names import list_first
from model.snapshot import BoolArray, EdgeMetric, FloatArray, MeshSnapshot, NodeMetric, mark_services

BUSIEST = 5  # services that are shown
MAX_NAMED = 3  # services that a line names
RATE, P50, P99 = NodeMetric.REQUEST_RATE, NodeMetric.P50_LATENCY, NodeMetric.P99_LATENCY
MAX_CALLERS_RATIO = 1.5  # callers that report a larger multiple of a service's requests must be wrong
MAX_UNEXPLAINED_SHARE = 0.5  # share of a called service's requests without a caller; above it, callers are missing


@dataclass(frozen=True, slots=True)
class BusyService:
    id: str
    request_rate: float  # 1/s


@dataclass(frozen=True, slots=True)
class MeshPicture:
    """A picture in which readers should recognise their own mesh."""

    services: int
    calls: int
    entry_points: tuple[str, ...]  # services with requests from outside, the busiest first
    busiest: tuple[BusyService, ...]  # services with known requests
    odd: tuple[str, ...]  # oddities, one sentence each


def draw_picture(snapshot: MeshSnapshot, entry_points: Collection[str] = ()) -> MeshPicture:
    """Draw a snapshot's picture; ``entry_points`` are the ids in the settings."""
    ids = snapshot.node_ids
    is_entry = find_entry_points(ids, snapshot.edge_index, entry_points)
    requests = _requests(snapshot, is_entry)
    order = np.argsort(-requests, kind="stable")  # unknown ones last
    return MeshPicture(
        services=len(ids),
        calls=snapshot.num_edges,
        entry_points=tuple(ids[i] for i in order.tolist() if is_entry[i]),
        busiest=tuple(
            BusyService(ids[i], float(requests[i])) for i in order[~np.isnan(requests[order])][:BUSIEST].tolist()
        ),
        odd=(
            *_unusual_entry_points(snapshot, is_entry, mark_services(ids, entry_points), requests),
            *_without_requests(snapshot, requests),
            *(text for check in _CHECKS for text in check(snapshot)),
        ),
    )


def _requests(snapshot: MeshSnapshot, is_entry: BoolArray) -> Values:
    """Return the services' requests ``[N]``, 1/s; NaN if unknown. A gateway reports requests only as their source, so
    the requests that it passes on count for it."""
    is_known = snapshot.node_observed[:, RATE]
    requests = np.where(is_known, snapshot.node_features[:, RATE].astype(np.float64), np.nan)
    rows = np.flatnonzero(is_entry)
    call_rates = snapshot.edge_features[:, EdgeMetric.REQUESTS_PER_SECOND, None].astype(np.float64)
    requests[rows] = measure_entries(rows, requests[rows, None], snapshot.edge_index, call_rates.__getitem__)[:, 0]
    return requests


def _unusual_entry_points(
    snapshot: MeshSnapshot, is_entry: BoolArray, is_configured: BoolArray, requests: Values
) -> Iterator[str]:
    """Describe services without callers that the settings do not name as entry points, or, without such settings, all
    but the busiest. A mesh without entry points is unusual, too."""
    if not is_entry.any():
        yield (
            "every service is called by another one, so all requests count as requests from outside: name the services "
            "that get these in `entry_points`"
        )
    roots = is_entry & ~is_configured
    if not is_configured.any() and roots.any():
        roots[np.argmax(np.where(roots, np.nan_to_num(requests), -1))] = False
    if roots.any():
        cause = _verb(
            roots,
            "has no callers: it may be an entry point too, or its callers",
            "have no callers: they may be entry points too, or their callers",
        )
        yield f"{_list(snapshot, roots)} {cause} are not scraped or have other names"


def _alone(snapshot: MeshSnapshot) -> Iterator[str]:
    """Describe services that neither call nor are called."""
    alone = np.ones(snapshot.num_nodes, bool)
    alone[snapshot.edge_index.ravel()] = False
    if snapshot.num_nodes > 1 and alone.any():
        yield f"{_list(snapshot, alone)} neither {_verb(alone, 'calls', 'call')} nor {_verb(alone, 'is', 'are')} called"


def _in_pieces(snapshot: MeshSnapshot) -> Iterator[str]:
    """Describe a graph that consists of pairs, because callers and callees have different names."""
    is_caller, is_callee = (np.zeros(snapshot.num_nodes, bool) for _ in range(2))
    is_caller[snapshot.edge_index[0]], is_callee[snapshot.edge_index[1]] = True, True
    if snapshot.num_edges > 1 and is_caller.sum() > 1 and not (is_caller & is_callee).any():
        yield "no service both calls and is called: a service may have one name as a caller and another as a callee"


def _without_requests(snapshot: MeshSnapshot, requests: Values) -> Iterator[str]:
    """Describe called services that do not measure their own requests."""
    unknown = np.isnan(requests)
    if unknown.any():
        names = _list(snapshot, unknown)
        yield f"{names} {_verb(unknown, 'has', 'have')} no request rate: only their calls are known"


def _quantiles_crossed(snapshot: MeshSnapshot) -> Iterator[str]:
    """Describe services and calls with a p99 below the p50."""
    crossed_services = _is_crossed(snapshot.node_observed, snapshot.node_features, P50, P99)
    if crossed_services.any():
        yield f"p99 is below p50 for {_list(snapshot, crossed_services)}: check the queries of latencies"
    crossed_calls = _is_crossed(
        snapshot.edge_observed, snapshot.edge_features, EdgeMetric.P50_LATENCY, EdgeMetric.P99_LATENCY
    )
    if crossed_calls.any():
        caller, callee = snapshot.edge_index[:, int(np.flatnonzero(crossed_calls)[0])]
        yield (
            f"p99 is below p50 for {int(crossed_calls.sum())} of {snapshot.num_edges} calls, for example "
            f"{snapshot.node_ids[caller]} → {snapshot.node_ids[callee]}: check the queries of latencies"
        )


def _is_crossed(observed: BoolArray, values: FloatArray, p50: int, p99: int) -> BoolArray:
    return observed[:, [p50, p99]].all(axis=1) & (values[:, p99] < values[:, p50] * (1 - 1e-6))


def _slow(snapshot: MeshSnapshot) -> Iterator[str]:
    """Describe latencies that may have a wrong unit: medians of minutes."""
    is_known = snapshot.node_observed[:, P50]
    slow = is_known & (snapshot.node_features[:, P50] > 60)
    if slow.any():
        yield f"the median latency of {_list(snapshot, slow)} is above a minute: check the unit of its histogram"


def _callers_disagree(snapshot: MeshSnapshot) -> Iterator[str]:
    """Describe services that received far fewer requests than their callers sent, or far more."""
    requests = snapshot.edge_features[:, EdgeMetric.REQUESTS_PER_SECOND]
    sent_rates = np.bincount(snapshot.edge_index[1], requests, snapshot.num_nodes)
    received_rates = np.where(snapshot.node_observed[:, RATE], snapshot.node_features[:, RATE], 0)
    is_comparable = (received_rates > 0) & (sent_rates > 0)
    is_overcounted = is_comparable & (sent_rates > MAX_CALLERS_RATIO * received_rates)
    if is_overcounted.any():
        yield (
            f"the callers of {_list(snapshot, is_overcounted)} report over {MAX_CALLERS_RATIO:g} times the requests "
            f"that {_verb(is_overcounted, 'it', 'they')} got: one may be counted twice, or proxies of some pods are "
            "not scraped"
        )
    has_unknown_callers = is_comparable & (received_rates - sent_rates > MAX_UNEXPLAINED_SHARE * received_rates)
    if has_unknown_callers.sum() > 1:
        yield (
            f"the callers of most requests to {_list(snapshot, has_unknown_callers)} are unknown: they are outside the "
            "mesh, or are not scraped"
        )


_CHECKS: Sequence[Callable[[MeshSnapshot], Iterator[str]]] = (
    _alone,
    _in_pieces,
    _quantiles_crossed,
    _slow,
    _callers_disagree,
)


def _list(snapshot: MeshSnapshot, is_listed: BoolArray) -> str:
    return list_first([snapshot.node_ids[i] for i in np.flatnonzero(is_listed)], MAX_NAMED)


def _verb(subject: BoolArray, singular: str, plural: str) -> str:
    return singular if subject.sum() == 1 else plural
