"""Recording rules: Prometheus computes once an interval what is asked of a mesh whose buckets are too many to fetch.

Rules and the queries that read them come from the same dialect, so that neither can drift from what is asked without
them. A rule's name has the window in it: where another window is set, other rules are looked for.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from serve_app.collect.prometheus.dialects import Dialect, Query, by
from serve_app.settings.roles import SHARES, Role

SERVICE, CALL, MESH = "tagae_service", "tagae_call", "tagae_mesh"  # levels: of what each series is
MOST_INTERVALS = 3.0  # that the newest recorded values may be old; beyond, whoever evaluates the rules is behind
_NAMES: dict[Role, str] = {
    "requests": "requests:rate{window}",
    "failures": "failures:rate{window}",
    "p50": "latency_seconds:p50_rate{window}",
    "p99": "latency_seconds:p99_rate{window}",
    "connections": "connections:sum{window}",
    "in_flight": "in_flight:rate{window}",
}


@dataclass(frozen=True, slots=True)
class Rule:
    """A series, by Prometheus' convention ``level:metric:operations``, and what it is computed from."""

    record: str
    expr: str


@dataclass(frozen=True, slots=True)
class Recorded:
    """A dialect as its rules record it.

    Attributes:
        dialect: the same keys, units and meaning; quantiles in place of buckets.
        calls: PromQL for how many calls are recorded; nothing where there are no rules or they are behind.
        rules: all of them, in the order in which they build on each other.
    """

    dialect: Dialect
    calls: str
    rules: tuple[Rule, ...]


def recorded(dialect: Dialect, interval_seconds: float, window_seconds: float) -> Recorded:
    """What the rules of a dialect record, evaluated every interval, with rates over a window."""
    window = _duration(window_seconds)
    source = dialect.name.replace("-", "_")
    rules: list[Rule] = []
    queries: dict[str, dict[Role, Query]] = {SERVICE: {}, CALL: {}}
    for level, asked in ((SERVICE, dialect.services), (CALL, dialect.calls)):
        for role, query in _without_buckets(asked):
            name = f"{level}:{source}_{_NAMES[role].format(window=window)}"
            rules.append(Rule(name, query.at(window_seconds)))
            # The largest: two Prometheus that record the same mesh are two names of one number.
            queries[level][role] = Query(f"max by ({by(query.labels)}) ({name})", query.labels)
    count = f"{MESH}:{source}_calls:count_rate{window}"
    rules.append(Rule(count, f"count({CALL}:{source}_{_NAMES['requests'].format(window=window)} > 0)"))
    fresh = f"time() - timestamp({count}) <= {MOST_INTERVALS * interval_seconds:g}"
    reading = replace(dialect, services=queries[SERVICE], calls=queries[CALL])
    return Recorded(reading, f"max({count} and {fresh})", tuple(rules))


def document(dialects: Mapping[str, Dialect], interval_seconds: float, window_seconds: float) -> str:
    """Rules of several dialects as Prometheus reads them (YAML), a group each: all of a group are of one instant."""
    lines = [
        "# Written by `tagae rules`: what TAGAE asks of a large mesh, computed by its Prometheus once an interval.",
        "groups:",
    ]
    for name, dialect in dialects.items():
        lines += [f"  - name: tagae-{name}", f"    interval: {_duration(interval_seconds)}", "    rules:"]
        for rule in recorded(dialect, interval_seconds, window_seconds).rules:
            lines += [f"      - record: {rule.record}", f"        expr: |-\n          {rule.expr}"]
    return "\n".join(lines) + "\n"


def _without_buckets(asked: Mapping[Role, Query]) -> Iterator[tuple[Role, Query]]:
    """What is recorded of each role, in our units, one series a key."""
    for role, query in asked.items():
        if role != "buckets":
            yield role, _in_our_unit(query, _summed(query))
            continue
        for name, share in SHARES.items():
            yield name, _in_our_unit(query, f"histogram_quantile({share:g}, {_summed(query, 'le')})")


def _summed(query: Query, *more: str) -> str:
    """One series a key, where what is asked leaves several and they are added on arrival."""
    grouping = f"sum by ({by(query.labels, *more)})"
    return query.promql if query.promql.startswith(grouping) else f"{grouping} ({query.promql})"


def _in_our_unit(query: Query, promql: str) -> Query:
    return Query(promql if query.unit == 1 else f"({promql}) * {query.unit:g}", query.labels)


def _duration(seconds: float) -> str:
    """As Prometheus writes it, in the largest unit that leaves no fraction."""
    milliseconds = round(seconds * 1000)
    unit, size = next(
        (u, s) for u, s in (("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)) if not milliseconds % s
    )
    return f"{milliseconds // size}{unit}"
