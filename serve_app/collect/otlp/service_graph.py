"""Snapshots from the counters of a service graph: pure functions of a state and the data points that arrive.

Time is the time of the data. The first points that are an interval newer than the current interval end it: its snapshot
is then built from the points that arrived before. So all requests of one flush are in the same snapshot, even if a
collector splits a flush or several collectors send.

A rate needs two points of a cumulative series. A new series counts from zero if it began to count after the last
interval, as after a restart, or if other series with the same start are known. If not, it is not observed at first. A
counter that falls has been reset, and also counts from zero.

A delta counts the requests since its own start, and is absent if there are none. Its rate is over the time that the
interval's deltas cover, or over its own time if that is longer. So a pause before it does not matter, deltas of two
collectors add up, and their order does not matter.
"""

from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np

from model.errors import InvalidSnapshot
from model.snapshot import MeshSnapshot
from serve_app.collect.otlp.decode import Attributes, Measure, Point, has_connection_type, virtual_end
from serve_app.collect.prometheus.client import Numbers
from serve_app.collect.prometheus.dialects.opentelemetry import UNKNOWN, USER
from serve_app.collect.prometheus.frames import bucket_quantile
from serve_app.collect.prometheus.keys import Column, Key, KeyTable
from serve_app.collect.prometheus.known_calls import KnownCalls
from serve_app.collect.prometheus.snapshot import assemble
from serve_app.collect.service_labels import ServiceLabels
from serve_app.settings.roles import SHARES

NAMESPACE = "default"  # service graphs have no namespaces
EARLY = 0.8  # share of the interval after which a flush can end it: flushes come a little early or late
KEEP_INTERVALS = 20  # a series without a point is forgotten after this many intervals
SECOND = 10**9  # ns
MAX_DELTAS = 16  # per series and interval; further deltas are merged into the last one
MAX_MERGED = 256  # merged deltas that are recognized if they come again
COMMON = 0.1  # of the points at the most common time; rarer times, as of late points, do not extend the covered time
JITTER = 0.1  # share of a delta's time by which it may overlap the delta before it

Counts = tuple[float, ...]
Series = tuple[Measure, str, str, Attributes, int, tuple[float, ...]]
Totals = dict[Key, tuple[tuple[float, ...], Numbers]]  # bounds and rates by key


@dataclass(frozen=True, slots=True)
class Sample:
    """Cumulative counts at a time, ns of Unix time."""

    at: int
    counts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Counter:
    """A series in the current interval: its newest sample before the interval, and its newest sample. Samples of deltas
    have times, but no counts. The counts of deltas are by their start and end, ns of Unix time; 0 is an unknown
    start. Deltas that were merged into the last one are only remembered."""

    before: Sample
    newest: Sample
    deltas: Mapping[tuple[int, int], Counts] = field(default_factory=dict)
    merged: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True, slots=True)
class ServiceGraph:
    """The counters of one mesh.

    Attributes:
        began: time of the current interval's first data, ns of Unix time; 0: no data yet.
        counters: by series.
        starts: the newest time before the interval, by the start of counting that its series share.
        known_calls: calls that are listed.
    """

    began: int = 0
    counters: Mapping[Series, Counter] = field(default_factory=dict)
    starts: Mapping[int, int] = field(default_factory=dict)
    known_calls: KnownCalls = field(default_factory=KnownCalls)


def add_points(
    graph: ServiceGraph, points: Iterable[Point], interval_seconds: float
) -> tuple[ServiceGraph, MeshSnapshot | None]:
    """Add points. Returns the state, and the snapshot of an interval if the points end it.

    Points that were counted before, or are older than their series' last interval, are ignored, so repeating a request
    changes nothing.
    """
    new_points = list(points)
    if not new_points:
        return graph, None
    first, snapshot = min(point.at for point in new_points), None
    if graph.began and first - graph.began >= EARLY * interval_seconds * SECOND:
        snapshot, known_calls = _snapshot(graph, interval_seconds)
        graph = _next_interval(replace(graph, known_calls=known_calls), interval_seconds)
    counters = dict(graph.counters)
    for point in new_points:
        series = _series(point)
        counters[series] = _count(counters.get(series), point, graph.starts)
    return replace(graph, began=graph.began or first, counters=counters), snapshot


def _series(point: Point) -> Series:
    """Return the identity of a point's series. Counters that began at different times belong to different processes."""
    start = 0 if point.is_delta else point.start
    return point.measure, point.client, point.server, point.attributes, start, point.bounds


def _count(counter: Counter | None, point: Point, starts: Mapping[int, int]) -> Counter:
    zero = (0.0,) * len(point.counts)
    if point.is_delta:
        return _count_delta(counter or Counter(Sample(0, zero), Sample(0, zero)), point)
    if counter is None:
        newest = Sample(point.at, point.counts)
        if point.start and point.start in starts:
            return Counter(Sample(starts[point.start], zero), newest)
        if max(starts.values(), default=point.at) <= point.start < point.at:
            return Counter(Sample(point.start, zero), newest)
        return Counter(newest, newest)
    if point.at <= counter.newest.at:
        return counter
    newest, before = Sample(point.at, point.counts), counter.before
    if any(b < a for a, b in zip(counter.newest.counts, point.counts, strict=True)):  # was reset without a new start
        earlier = zip(before.counts, counter.newest.counts, strict=True)
        before = Sample(before.at, tuple(a - b for a, b in earlier))  # keeps what was counted before the reset
    return Counter(before, newest)


def _count_delta(counter: Counter, point: Point) -> Counter:
    deltas, period, counts = dict(counter.deltas), (point.start, point.at), point.counts
    if period in deltas or period in counter.merged or point.at <= counter.before.at:
        return counter
    merged = counter.merged
    if len(deltas) == MAX_DELTAS:
        last_period, last_counts = deltas.popitem()
        if len(merged) < MAX_MERGED:
            merged |= {last_period, period}
        period = min(last_period[0], point.start), max(last_period[1], point.at)
        counts = tuple(a + b for a, b in zip(last_counts, counts, strict=True))
    newest = replace(counter.newest, at=max(counter.newest.at, point.at))
    return replace(counter, newest=newest, deltas={**deltas, period: counts}, merged=merged)


def _next_interval(graph: ServiceGraph, interval_seconds: float) -> ServiceGraph:
    oldest = graph.began - KEEP_INTERVALS * interval_seconds * SECOND
    counters_in_use = {series: counter for series, counter in graph.counters.items() if counter.newest.at >= oldest}
    starts: dict[int, int] = {}
    for (*_, start, _), counter in counters_in_use.items():
        starts[start] = max(counter.newest.at, starts.get(start, 0))
    counters = {series: Counter(counter.newest, counter.newest) for series, counter in counters_in_use.items()}
    return ServiceGraph(0, counters, starts, graph.known_calls)


def _covered(counters: Iterable[Counter], interval_seconds: float) -> int:
    """Return the time that an interval's deltas cover, ns. If deltas of two collectors overlap, the first counts."""
    tally = Tally((at, start) for counter in counters for start, at in counter.deltas if 0 < start < at)
    rare = COMMON * max(tally.values(), default=0)
    total, end = 0, 0
    common = (period for period, count in tally.items() if count >= rare)
    for at, start in sorted(common, key=lambda period: (period[0], -period[1])):
        if start >= end - JITTER * (at - start):
            total += at - max(start, end)
            end = at
    return total or round(interval_seconds * SECOND)


def _rates(counter: Counter, covered_ns: int) -> Numbers | None:
    """Return the requests in an interval, 1/s; None if they are not known."""
    if counter.deltas:
        durations = np.array([[max(at - start if start else 0, covered_ns)] for start, at in counter.deltas])
        rates: Numbers = (np.array([*counter.deltas.values()]) * SECOND / durations).sum(axis=0)
        return rates
    nanoseconds = counter.newest.at - counter.before.at
    if nanoseconds <= 0:
        return None
    return (np.array(counter.newest.counts) - counter.before.counts) * (SECOND / nanoseconds)


def _snapshot(graph: ServiceGraph, interval_seconds: float) -> tuple[MeshSnapshot | None, KnownCalls]:
    """Return the interval's snapshot, None if no series has a rate; and the known calls."""
    covered_ns = _covered(graph.counters.values(), interval_seconds)
    counters = graph.counters.items()
    rates = {series: rates for series, counter in counters if (rates := _rates(counter, covered_ns)) is not None}
    services, calls = _totals(rates)
    if not services["requests"]:
        return None, graph.known_calls
    latest = max(graph.counters[series].newest.at for series in rates)
    keys = KeyTable()
    of_services, of_calls = _columns(services, "server_buckets", keys), _columns(calls, "client_buckets", keys)
    known_calls = graph.known_calls.see_calls(of_calls["requests"], latest / SECOND)
    # A collector that sends cumulative counts always sends all of them: a caller without any is silent.
    callers = of_services["requests"]
    if not any(counter.deltas for counter in graph.counters.values()):
        callers = Column.of({}, keys)
    # No call's callee measures itself here.
    of_calls["requests"] = known_calls.list_all(of_calls["requests"], callers, latest / SECOND)[1]
    at, outside = datetime.fromtimestamp(latest / SECOND, UTC), _outside_by_name(graph.counters.keys())
    try:
        return assemble(of_services, of_calls, at, external=outside), known_calls
    except InvalidSnapshot:  # no service: all names belong to callers from outside
        return None, known_calls


def _totals(rates_by_series: Mapping[Series, Numbers]) -> tuple[dict[Measure, Totals], dict[Measure, Totals]]:
    """Return the rates of services and calls, by measure and key."""
    services: dict[Measure, Totals] = defaultdict(dict)
    calls: dict[Measure, Totals] = defaultdict(dict)
    virtual_servers: Totals = {}
    names = ServiceLabels()
    for (measure, client, server, attributes, _, bounds), rates in rates_by_series.items():
        virtual = virtual_end(client, attributes)
        if virtual == "server" and server == UNKNOWN:
            continue  # calls to many different callees
        caller, callee = (names.read((NAMESPACE,), (name,), is_fixed=True) for name in (client, server))
        if not callee[1]:
            continue
        if virtual != "client" and caller[1]:
            _add(calls[measure], caller + callee, bounds, rates)
        if virtual != "server":
            _add(services[measure], callee, bounds, rates)
        elif measure == "client_buckets":  # a virtual server has no durations of its own, but zeros
            _add(virtual_servers, callee, bounds, rates)
        elif measure != "server_buckets":
            _add(services[measure], callee, bounds, rates)
    services["server_buckets"] = virtual_servers | services["server_buckets"]
    return services, calls


def _outside_by_name(counters: Collection[Series]) -> frozenset[str]:
    """Return the callers that are not services in versions without connection types: the names of virtual nodes that
    are never called."""
    if any(has_connection_type(attributes) for _, _, _, attributes, *_ in counters):
        return frozenset()
    return frozenset({USER, UNKNOWN} - {server for _, _, server, *_ in counters})


def _add(totals: Totals, key: Key, bounds: tuple[float, ...], rates: Numbers) -> None:
    """Add a series' rates. A histogram is left out if its bounds differ from the first of its key."""
    known_bounds, sums = totals.get(key, (bounds, np.zeros_like(rates)))
    if known_bounds == bounds:
        totals[key] = known_bounds, sums + rates


def _columns(totals: Mapping[Measure, Totals], buckets: Measure, keys: KeyTable) -> dict[str, Column]:
    """Return the columns by role: requests and failures, 1/s, and quantiles of the latency, s."""
    columns = {
        role: Column.of({key: float(rates[0]) for key, (_, rates) in totals[role].items()}, keys)
        for role in ("requests", "failures")
    }
    of_bounds: dict[tuple[float, ...], dict[Key, Numbers]] = defaultdict(dict)
    for key, (bounds, rates) in totals[buckets].items():
        of_bounds[bounds][key] = rates
    for role, share in SHARES.items():
        quantiles: dict[Key, float] = {}
        for bounds, by_key in of_bounds.items():
            counts = np.stack([*by_key.values()]).cumsum(axis=1)
            quantiles |= zip(by_key, bucket_quantile(counts, np.array([*bounds, np.inf]), share).tolist(), strict=True)
        columns[role] = Column.of(quantiles, keys)
    return columns
