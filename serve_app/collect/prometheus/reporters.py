"""One row for each service and for each call, although several proxies report a request, and names differ.

A gateway or a sidecar reports a request as its source, a waypoint on the way reports it again, and the sidecar of the
destination a third time. Each sees all requests of a call or, while a mesh moves from sidecars to waypoints, some of
them. So the reporters of a call are never added: the one with most requests counts. Latencies come from the preferred
reporter that sees nearly all requests, and never from several, because each one measures another way.

The sidecar of a destination behind a waypoint may take the waypoint for the caller. A caller that nothing else knows,
of a destination whose requests a waypoint reports, is this waypoint, and its calls are left out. A gateway that passes
requests on to an external service is left out like this, too.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping

from serve_app.collect.prometheus.frames import Column, Columns, Key
from serve_app.collect.prometheus.service_names import NO_SERVICE

NEARLY_ALL = 0.8  # of the requests; scrapes at different times make smaller differences
MIN_SHARE = 0.01  # of the requests of a row, from which a part of it can move the p99
LARGEST = ("requests", "failures", "cancelled", "long_requests")  # counts, of the reporter that sees most
QUANTILES = ("p50", "p99")
WAYPOINT, DESTINATION = "waypoint", "destination"  # reporters

_ByReporter = dict[Key, dict[str, float]]  # by the names of a row, and by reporter


def join_rows(columns: Columns, reporters: tuple[str, ...], names: Mapping[Key, Key]) -> dict[str, Column]:
    """Columns of services, or of calls, with one row for each.

    Args:
        columns: by role; ``requests`` is required. Keys have the names, and behind them the reporter if ``reporters``
            are given.
        reporters: the preferred one first. Others count after these.
        names: to show for the names of a key.
    """
    if not reporters and all(key == name for key, name in names.items()):
        return dict(columns)
    parts = len(next(iter(names), ()))
    every = {key: names[key[:parts]] for key in set().union(*columns.values())}
    rows = Counter(every.values())
    shown = {key: (name, key[parts] if reporters else "") for key, name in every.items() if rows[name] > 1}
    alone = {key: name for key, name in every.items() if key not in shown} if shown else every
    order = dict.fromkeys((*reporters, *(reporter for _, reporter in shown.values())))
    requests = _sums(columns["requests"], shown)
    best = {name: _best(of, order) for name, of in requests.items()}
    left_out = {name for name in rows if "" in name and NO_SERVICE in (name[:2], name[2:])}
    if parts == 4 and {WAYPOINT, DESTINATION} <= set(reporters):
        left_out |= _calls_of_waypoints(_sums(columns["requests"], {key: (every[key], key[parts]) for key in every}))

    def join(role: str, column: Column) -> Column:
        joined = {alone[key]: value for key, value in column.items() if key in alone}
        if role in QUANTILES:
            values = _quantiles(role, column, columns["requests"], shown, requests)
        else:
            values = _sums(column, shown)
        usual = next(iter(order), "")
        for name, of in values.items():
            joined[name] = _largest(of.values()) if role in LARGEST else of.get(best.get(name, usual), math.nan)
        return {name: value for name, value in joined.items() if name not in left_out} if left_out else joined

    return {role: join(role, column) for role, column in columns.items()}


def _best(by_reporter: Mapping[str, float], order: Iterable[str]) -> str:
    """The preferred reporter that sees nearly all requests; the first one if no requests are known."""
    most = _largest(by_reporter.values())
    seen = [one for one in order if by_reporter.get(one, math.nan) >= NEARLY_ALL * most]
    return (seen or list(order))[0]


def _largest(values: Iterable[float]) -> float:
    return max((value for value in values if not math.isnan(value)), default=math.nan)


def _calls_of_waypoints(requests: _ByReporter) -> set[Key]:
    """Calls whose caller is a waypoint."""
    seen = {name: {reporter for reporter, rate in of.items() if rate > 0} for name, of in requests.items()}
    passed = {name[2:] for name, by in seen.items() if WAYPOINT in by}
    known = {name[2:] for name, by in seen.items() if by} | {
        name[:2] for name, by in seen.items() if by - {DESTINATION}
    }
    return {name for name, by in seen.items() if by == {DESTINATION} and name[2:] in passed and name[:2] not in known}


def without_relayed(requests: Column, services: Column, relays: Collection[Key]) -> Column:
    """The requests of calls, without those that a relay passes on to a service that is not measured itself and that
    others call.

    Args:
        services: requests of the services that are measured themselves.
    """
    if not relays:
        return requests
    passed = {key[2:] for key in requests if key[:2] not in relays} - services.keys()
    return {key: rate for key, rate in requests.items() if key[:2] not in relays or key[2:] not in passed}


def _sums(column: Column, shown: Mapping[Key, tuple[Key, str]]) -> _ByReporter:
    """Sums of rows; NaN where nothing is known."""
    sums: _ByReporter = defaultdict(dict)
    for key in column.keys() & shown.keys():
        (name, reporter), value = shown[key], column[key]
        before = sums[name].get(reporter, math.nan)
        sums[name][reporter] = before if math.isnan(value) else value if math.isnan(before) else before + value
    return sums


def _quantiles(
    role: str, column: Column, weights: Column, shown: Mapping[Key, tuple[Key, str]], requests: _ByReporter
) -> _ByReporter:
    """Quantiles. Where several rows become one, the row with most requests gives the p50, and the slowest row with a
    notable share of the requests the p99."""
    found: dict[Key, dict[str, tuple[float, float]]] = defaultdict(dict)  # rank and value
    for key in column.keys() & shown.keys():
        (name, reporter), value = shown[key], column[key]
        weight = weights.get(key, math.nan)
        weight = -1.0 if math.isnan(weight) else weight
        is_part = role == "p50" or not weight < MIN_SHARE * requests.get(name, {}).get(reporter, math.nan)
        rank = math.nan if math.isnan(value) or not is_part else weight if role == "p50" else value
        best = found[name].get(reporter, (-math.inf, math.nan))
        found[name][reporter] = (rank, value) if rank >= best[0] else best
    return {name: {reporter: value for reporter, (_, value) in of.items()} for name, of in found.items()}
