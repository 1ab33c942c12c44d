"""Recording rules for large meshes, whose histogram buckets are too many to fetch with each poll.

Prometheus evaluates the rules once per interval. Rules and the queries that read them are built from the same dialect,
so they cannot drift apart. A rule's name contains the rate window; another window needs other rules.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from serve_app.collect.prometheus.long_requests import (
    Border,
    infinite_bound,
    long_bounds,
    long_requests,
    short_bounds,
    without_long,
)
from serve_app.collect.prometheus.query import EVERYTHING, Dialect, Match, Query, by
from serve_app.settings.roles import SHARES, Role

SERVICE, CALL, MESH = "tagae_service", "tagae_call", "tagae_mesh"  # prefixes of rule names
MAX_INTERVALS = 3.0  # the rules are behind if recorded values are older than this number of intervals
_NAMES: dict[Role, str] = {
    "requests": "requests:rate{window}",
    "failures": "failures:rate{window}",
    "cancelled": "cancelled:rate{window}",
    "p50": "latency_seconds:p50_rate{window}",
    "p99": "latency_seconds:p99_rate{window}",
    "connections": "connections:sum{window}",
    "in_flight": "in_flight:rate{window}",
    "long_requests": "long_requests:rate{window}",
}


@dataclass(frozen=True, slots=True)
class Rule:
    """A recorded series, named ``level:metric:operations``, and the expression that computes it."""

    record: str
    expr: str


@dataclass(frozen=True, slots=True)
class RecordingRules:
    """The recording rules of a dialect.

    Attributes:
        dialect: queries for the recorded series, with the same keys, and quantiles instead of buckets.
        calls: query for the number of recorded calls; its result is empty if the rules are missing or behind.
        rules: all rules; a rule uses only rules before it.
    """

    dialect: Dialect
    calls: Query
    rules: tuple[Rule, ...]


def recording_rules(
    dialect: Dialect, interval_seconds: float, window_seconds: float, match: Match = EVERYTHING
) -> RecordingRules:
    """Create a dialect's rules, for evaluation every ``interval_seconds`` with rates over ``window_seconds``.

    ``match`` restricts what is recorded. The series that are read have its labels, too: from the rules, or as external
    labels of the Prometheus that evaluates them.
    """
    window = _duration(window_seconds)
    source = dialect.name.replace("-", "_")
    rules: list[Rule] = []
    queries: dict[str, dict[Role, Query]] = {SERVICE: {}, CALL: {}}
    for level, originals in ((SERVICE, dialect.services), (CALL, dialect.calls)):
        needs_long = level == SERVICE and dialect.in_flight_of_durations
        for role, query in _recorded_queries(originals, window_seconds, needs_long):
            name = f"{level}:{source}_{_NAMES[role].format(window=window)}"
            rules.append(Rule(name, query.at(window_seconds, match=match)))
            # max, because two Prometheus servers may record the same mesh. Other labels mean other requests.
            queries[level][role] = Query(
                f"max by ({by(query.labels)}) ({name}{{$match}})",
                query.labels,
                joined_by="max" if role in SHARES else "sum",
            )
    count = f"{MESH}:{source}_calls:count_rate{window}"
    names = tuple(label for label in dialect.calls["requests"].labels if not label.startswith("?"))  # once for a call
    recorded_calls = f"max by ({by(names)}) ({CALL}:{source}_{_NAMES['requests'].format(window=window)} > 0)"
    rules.append(Rule(count, f"count({recorded_calls})"))
    fresh = f"time() - timestamp({count}{{$match}}) <= {MAX_INTERVALS * interval_seconds:g}"
    reading = replace(dialect, services=queries[SERVICE], calls=queries[CALL])
    return RecordingRules(reading, Query(f"max({count}{{$match}} and {fresh})", ()), tuple(rules))


def render_rules(
    dialects: Mapping[str, Dialect], interval_seconds: float, window_seconds: float, match: Match = EVERYTHING
) -> str:
    """Return a rule file for Prometheus (YAML). Each dialect is a group, whose rules are evaluated at the same instant.

    Recorded series get the labels of ``match``, which must have one value per label.
    """
    labels = {label: values[0] for label, values in match.values.items()}
    lines = ["# Written by `tagae rules`: recording rules that TAGAE reads for large meshes.", "groups:"]
    for name, dialect in dialects.items():
        lines += [f"  - name: tagae-{name}", f"    interval: {_duration(interval_seconds)}", "    rules:"]
        for rule in recording_rules(dialect, interval_seconds, window_seconds, match).rules:
            lines += rule_lines(f"record: {rule.record}", rule.expr, labels=labels)
    return "\n".join(lines) + "\n"


def rule_lines(name: str, expr: str, more: str = "", **tables: Mapping[str, str]) -> list[str]:
    """Return the lines of one rule (YAML).

    Args:
        name: ``record: NAME`` or ``alert: NAME``.
        tables: such as ``labels``; empty ones are left out.
    """
    lines = [f"      - {name}", "        expr: |-", *(f"          {line}" for line in expr.splitlines())]
    lines += [f"        {more}"] if more else []
    for table, values in tables.items():
        if values:
            pairs = (f"          {key}: {json.dumps(value, ensure_ascii=False)}" for key, value in values.items())
            lines += [f"        {table}:", *pairs]
    return lines


def _recorded_queries(
    queries: Mapping[Role, Query], window_seconds: float, needs_long: bool
) -> Iterator[tuple[Role, Query]]:
    """Yield the query to record for each role, in our units, one series per key; quantiles instead of buckets."""
    for role, query in queries.items():
        if role != "buckets":
            yield role, _convert_unit(query, _sum_by_key(query))
            continue
        border, keys = Border.of(window_seconds, query.unit), by(query.labels)
        short, long, infinite = (
            _sum_by_key(query.where(matcher), "le")
            for matcher in (short_bounds(border), long_bounds(border), infinite_bound())
        )
        buckets = without_long(short, long, keys)
        for name, share in SHARES.items():
            yield name, _convert_unit(query, f"histogram_quantile({share:g}, {buckets})")
        if needs_long:
            yield "long_requests", Query(long_requests(infinite, long, keys), query.labels)


def _sum_by_key(query: Query, *more: str) -> str:
    """Reduce a query to one series per key."""
    grouping = f"sum by ({by(query.labels, *more)})"
    return query.promql if query.promql.startswith(grouping) else f"{grouping} ({query.promql})"


def _convert_unit(query: Query, promql: str) -> Query:
    return Query(promql if query.unit == 1 else f"({promql}) * {query.unit:g}", query.labels)


def _duration(seconds: float) -> str:
    """Return the format a duration for Prometheus, in the largest unit without a fraction."""
    milliseconds = round(seconds * 1000)
    unit, size = next(
        (u, s) for u, s in (("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)) if not milliseconds % s
    )
    return f"{milliseconds // size}{unit}"
