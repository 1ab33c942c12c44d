"""Snapshots from the counters of a service graph: pure functions of a state and the data points that arrive.

Time is the time of the data. The first points that are an interval newer than the current interval end it: then the
snapshot of the interval is built from what had arrived before. So all requests of one flush are in the same snapshot,
even if a collector splits a flush or several collectors send.

A rate needs two points of a series. A series that is new has none, so it is not observed: after a restart of the
service or of a collector, one interval is missing. A series that appears while others of the same start are known
counts from zero.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np

from model.errors import InvalidSnapshot
from model.names import escape_name
from model.snapshot import MeshSnapshot
from serve_app.collect.otlp.decode import Attributes, Measure, Point, has_connection_type, virtual_end
from serve_app.collect.prometheus.dialects.opentelemetry import UNKNOWN, USER
from serve_app.collect.prometheus.frames import Column, Key, bucket_quantile
from serve_app.collect.prometheus.snapshot import assemble
from serve_app.settings.roles import SHARES

NAMESPACE = "default"  # service graphs have no namespaces
EARLY = 0.8  # share of the interval after which a flush can end it: flushes come a little early or late
KEEP_INTERVALS = 20  # a series without a point is forgotten after this many intervals
SECOND = 10**9  # ns

Series = tuple[Measure, str, str, Attributes, int, tuple[float, ...]]
Totals = dict[Key, tuple[tuple[float, ...], np.ndarray]]  # bounds and rates by key


@dataclass(frozen=True, slots=True)
class Sample:
    """Cumulative counts at a time, ns of Unix time."""

    at: int
    counts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Counter:
    """A series in the current interval: its newest sample before the interval, and its newest sample."""

    before: Sample
    newest: Sample


@dataclass(frozen=True, slots=True)
class ServiceGraph:
    """The counters of one mesh.

    Attributes:
        began: time of the first data of the current interval, ns of Unix time; 0: no data yet.
        counters: by series.
        starts: by start of counting, the newest time of its series before the interval.
    """

    began: int = 0
    counters: Mapping[Series, Counter] = field(default_factory=dict)
    starts: Mapping[int, int] = field(default_factory=dict)


def add_points(
    graph: ServiceGraph, points: Iterable[Point], interval_seconds: float
) -> tuple[ServiceGraph, MeshSnapshot | None]:
    """The state with these points, and the snapshot of the interval that they end, if they end one.

    Points that are not newer than the newest point of their series are left out, so repeating a request changes
    nothing.
    """
    arrived = list(points)
    if not arrived:
        return graph, None
    first, snapshot = min(point.at for point in arrived), None
    if graph.began and first - graph.began >= EARLY * interval_seconds * SECOND:
        snapshot = _snapshot(graph)
        graph = _next_interval(graph, interval_seconds)
    counters = dict(graph.counters)
    for point in arrived:
        series = _series(point)
        counters[series] = _count(counters.get(series), point, graph.starts)
    return replace(graph, began=graph.began or first, counters=counters), snapshot


def _series(point: Point) -> Series:
    """The identity of a point's series. Counters that began at different times are of different processes."""
    start = 0 if point.is_delta else point.start
    return point.measure, point.client, point.server, point.attributes, start, point.bounds


def _count(counter: Counter | None, point: Point, starts: Mapping[int, int]) -> Counter:
    zero = (0.0,) * len(point.counts)
    if counter is None:
        newest = Sample(point.at, point.counts)
        if point.is_delta:
            return Counter(Sample(point.start or point.at, zero), newest)
        if point.start and point.start in starts:
            return Counter(Sample(starts[point.start], zero), newest)
        return Counter(newest, newest)
    if point.at <= counter.newest.at:
        return counter
    pairs = list(zip(counter.newest.counts, point.counts, strict=True))
    if point.is_delta:
        return replace(counter, newest=Sample(point.at, tuple(a + b for a, b in pairs)))
    newest = Sample(point.at, point.counts)
    if any(b < a for a, b in pairs):  # began again without a new start
        return Counter(newest, newest)
    return replace(counter, newest=newest)


def _next_interval(graph: ServiceGraph, interval_seconds: float) -> ServiceGraph:
    oldest = graph.began - KEEP_INTERVALS * interval_seconds * SECOND
    kept = {series: one for series, one in graph.counters.items() if one.newest.at >= oldest}
    starts: dict[int, int] = {}
    for (*_, start, _), one in kept.items():
        starts[start] = max(one.newest.at, starts.get(start, 0))
    return ServiceGraph(0, {series: Counter(one.newest, one.newest) for series, one in kept.items()}, starts)


def _snapshot(graph: ServiceGraph) -> MeshSnapshot | None:
    """The snapshot of the interval; None if no series has a rate."""
    services: dict[Measure, Totals] = defaultdict(dict)
    calls: dict[Measure, Totals] = defaultdict(dict)
    virtual_servers: Totals = {}
    latest = 0
    for (measure, client, server, attributes, _, bounds), one in graph.counters.items():
        nanoseconds = one.newest.at - one.before.at
        if nanoseconds <= 0:
            continue
        latest = max(latest, one.newest.at)
        rates = (np.array(one.newest.counts) - one.before.counts) * (SECOND / nanoseconds)
        virtual = virtual_end(client, attributes)
        if virtual == "server" and server == UNKNOWN:
            continue  # calls to many different callees
        caller, callee = ((NAMESPACE, escape_name(name)) for name in (client, server))
        if virtual != "client":
            _add(calls[measure], caller + callee, bounds, rates)
        if virtual != "server":
            _add(services[measure], callee, bounds, rates)
        elif measure == "client_buckets":  # a virtual server has no durations of its own, but zeros
            _add(virtual_servers, callee, bounds, rates)
        elif measure != "server_buckets":
            _add(services[measure], callee, bounds, rates)
    if not services["requests"]:
        return None
    services["server_buckets"] = virtual_servers | services["server_buckets"]
    at = datetime.fromtimestamp(latest / SECOND, UTC)
    outside = _outside_by_name(graph.counters.keys())
    try:
        return assemble(_columns(services, "server_buckets"), _columns(calls, "client_buckets"), at, external=outside)
    except InvalidSnapshot:  # no service: all names are of callers from outside
        return None


def _outside_by_name(counters: Collection[Series]) -> frozenset[str]:
    """Callers that are not services in versions without connection types: the names of virtual nodes that are never
    called."""
    if any(has_connection_type(attributes) for _, _, _, attributes, *_ in counters):
        return frozenset()
    return frozenset({USER, UNKNOWN} - {server for _, _, server, *_ in counters})


def _add(totals: Totals, key: Key, bounds: tuple[float, ...], rates: np.ndarray) -> None:
    """Add rates of a series. Histograms with other bounds than the first of their key are left out."""
    known, sums = totals.get(key, (bounds, np.zeros_like(rates)))
    if known == bounds:
        totals[key] = known, sums + rates


def _columns(totals: Mapping[Measure, Totals], buckets: Measure) -> dict[str, Column]:
    """Columns by role: requests and failures, 1/s, and quantiles of the latency, s."""
    columns = {
        role: Column.create({key: float(rates[0]) for key, (_, rates) in totals[role].items()})
        for role in ("requests", "failures")
    }
    of_bounds: dict[tuple[float, ...], dict[Key, np.ndarray]] = defaultdict(dict)
    for key, (bounds, rates) in totals[buckets].items():
        of_bounds[bounds][key] = rates
    for role, share in SHARES.items():
        found: dict[Key, float] = {}
        for bounds, by_key in of_bounds.items():
            counts = np.stack([*by_key.values()]).cumsum(axis=1)
            found |= zip(by_key, bucket_quantile(counts, np.array([*bounds, np.inf]), share).tolist(), strict=True)
        columns[role] = Column.create(found)
    return columns
