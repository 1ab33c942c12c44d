"""The queries for one kind of mesh: PromQL by role, the labels that name services, the unit.

A result's labels are not renamed: a query lists which of them are namespace and name. ``$window`` is the rate window.
It should be at least four scrape intervals long, or a late scrape leaves gaps. ``$long_milliseconds`` is a regular
expression for the bounds of buckets that count long requests.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from serve_app.collect.prometheus.long_requests import Border, numerals_from
from serve_app.collect.service_labels import LATE
from serve_app.settings.roles import Role

TEXT = r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`"""  # PromQL's three kinds of strings
_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
BRACES = rf"\{{(?:[^\"'`{{}}]|{TEXT})*\}}"
_RANGE = re.compile(rf"((?:{_NAME})?{BRACES}|{_NAME})\[\$window\]")
_MATCHED = re.compile(rf"({_NAME})?\{{\$match ?")
_RATE = re.compile(rf"\brate(\((?:(?:{_NAME})?{BRACES}|{_NAME})\[\$window\]\))")
# Labels that Istio fills only after a connection, with the caller's label that replaces each in calls without one.
_FILLED_LATE = {
    "destination_cluster": "source_cluster",
    "destination_service_namespace": "source_workload_namespace",
    "destination_workload_namespace": "source_workload_namespace",
}
RECORDED_FROM_CALLS = 2000  # number of calls; smaller meshes are read from counters, since their rules save little


@dataclass(frozen=True, slots=True)
class Match:
    """Matchers for one mesh's series.

    Attributes:
        values: allowed values by label; literal, never patterns.
        allows_none: whether a series may lack a label: exporters beside a mesh often lack its cluster label.
    """

    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    allows_none: bool = False

    def __bool__(self) -> bool:
        return bool(self.values)

    def matchers(self) -> str:
        """Matchers, each with a comma behind it: ``cluster="prod",``. Empty without a restriction."""
        none = ("",) if self.allows_none else ()
        return "".join(_matcher(label, tuple(dict.fromkeys((*texts, *none)))) for label, texts in self.values.items())

    def apply(self, promql: str) -> str:
        """Replace each ``$match`` with the matchers. Rates also include series that fail to match only by labels that
        were not filled."""
        late = [label for label in self.values if label in _FILLED_LATE]
        if late:
            kinds = [self, *map(self._unfilled, dict.fromkeys([*((label,) for label in late), tuple(late)]))]
            promql = _RATE.sub(lambda rate: f"({' or '.join(match._restrict(rate[0]) for match in kinds)})", promql)
        return self._restrict(promql)

    def _unfilled(self, labels: tuple[str, ...]) -> "Match":
        """Return matchers for series whose ``labels`` were not filled."""
        of_callers = {_FILLED_LATE[label]: self.values[label] for label in labels}
        return replace(self, values={**of_callers, **self.values, **dict.fromkeys(labels, (LATE,))})

    def _restrict(self, promql: str) -> str:
        promql = promql.replace("$match ", self.matchers()).replace("$match", self.matchers())
        return promql.replace("{}", "")


EVERYTHING = Match()


def _matcher(label: str, values: tuple[str, ...]) -> str:
    if len(values) == 1:
        return f'{label}="{escape(values[0])}",'
    return f'{label}=~"{escape("|".join(map(re.escape, values)))}",'


def escape(expression: str) -> str:
    """Escape text for a string in PromQL."""
    return expression.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def range_selectors(promql: str) -> tuple[str, ...]:
    """Return the selectors of a query whose rates are over ``$window``, each once."""
    return tuple(dict.fromkeys(_RANGE.findall(promql)))


def matched_metrics(promql: str) -> Iterator[str]:
    """Yield the names of the metrics that a query selects with ``$match``."""
    yield from (name for name in _MATCHED.findall(promql) if name)


SECONDS, MILLISECONDS = 1.0, 1e-3
Join = Literal["sum", "max"]


@dataclass(frozen=True, slots=True)
class Query:
    """PromQL for an instant vector, and the meaning of its samples.

    Attributes:
        promql: the query, with ``$window`` for the rate window, ``$since`` for the time since the previous poll and
            ``$match`` at the start of each selector for the matchers of the settings.
        labels: namespace and name labels; for calls, of the source, then of the destination. ``=text`` stands for
            the constant text, for meshes without namespaces, ``?label`` for one that a series may lack, and ``a|b`` for
            the first of several that is not empty.
        unit: factor that converts a value to s, 1/s or a ratio.
        joined_by: how to join the values of series with the same key: rates, counts and buckets are added; for
            quantiles, states, recorded values and groups, the largest counts.
        is_verbatim: its rates stay unchanged, in a query from the settings or one that also has other functions.
        views: for a bucket query that unites metrics with different units: each metric's PromQL and unit. ``promql``
            has all of them in the same unit. Empty if there is one metric.
    """

    promql: str
    labels: tuple[str, ...]
    unit: float = 1.0
    joined_by: Join = "sum"
    is_verbatim: bool = False
    views: tuple[tuple[str, float], ...] = ()

    def at(
        self, window_seconds: float, since_seconds: float = 15.0, match: Match = EVERYTHING, *, per_second: bool = True
    ) -> str:
        """Return the query for one poll, only for series that fit ``match``.

        A rate is read as the increase over the window. They are the same in Prometheus. In VictoriaMetrics, a series
        that has ended keeps its full rate for a whole window, so a restart would double its service's rate.

        Args:
            per_second: whether the values are rates, 1/s; otherwise they are increases within the window.
        """
        promql, count = match.apply(self.promql), 0
        if not self.is_verbatim:
            promql, count = _RATE.subn(r"increase\1", promql)
        if count and per_second and "histogram_quantile(" not in promql:
            promql = f"({promql}) / {window_seconds:g}"
        if "$long_milliseconds" in promql:
            long = numerals_from(Border.of(window_seconds, MILLISECONDS).first_long)
            promql = promql.replace("$long_milliseconds", long)
        for name, seconds in (("$window", window_seconds), ("$since", since_seconds)):
            promql = promql.replace(name, f"{round(seconds * 1000)}ms")  # PromQL allows no decimal point in a duration
        return promql

    def where(self, matcher: str) -> "Query":
        """Return the query with one more matcher; for built-in queries only."""
        return replace(self, promql=self.promql.replace("$match", f"$match {matcher},"))


@dataclass(frozen=True, slots=True)
class Gap:
    """Telemetry that a dialect lacks because a system is not configured for it.

    Attributes:
        name: what is missing, in a few words.
        promql: the number of affected series; an empty result or 0 if nothing is missing.
        remedy: what to configure in that system, or in ours.
        of_calls: whether calls are missing, which is no gap if another source of the mesh has them.
    """

    name: str
    promql: str
    cost: str
    remedy: str
    of_calls: bool = False


@dataclass(frozen=True, slots=True)
class Dialect:
    """The queries for one kind of mesh.

    Attributes:
        name: value of the setting ``source``.
        services, calls: queries by role. ``requests`` is required. A service without a ``failures`` series had no
            failure. Latencies come from ``buckets``, or from ``p50`` and ``p99``.
        signature: every mesh of this kind has at least one of these series.
        external: names of callers that are not services; their calls count as traffic from outside.
        serves: which workload serves which service: namespace and name of both, and how many requests it has answered.
            None if they have the same name.
        callers: which caller, as calls name it, runs as which workload: namespace and name of both. None if calls name
            the workload.
        relays: callers that may pass on the requests of others: to a service that is not measured itself, and that
            others call. Those requests count once. None if there are no such proxies.
        names_workloads: whether services, too, are named by their workload and need the names that ``serves`` gives.
        reporters: the proxies that report requests of services, and those for calls, the preferred one first. The
            queries have the label ``reporter`` after the names. Empty if each request is reported once.
        in_flight_of_durations: whether requests in flight are computed from the duration of requests that ended. They
            are unknown while long requests end.
        front_door: an ingress controller, which measures its own requests and its calls. Beside another dialect its
            measurements of the services behind it do not count.
        default_namespace: namespace of services that name none in their labels; empty if all do.
        joined_names: namespace and name are one text with hyphens, so the boundary is a guess.
        gaps: telemetry that may be missing in a mesh of this kind.
        beside: further dialects of the same mesh. They add services and calls that this one does not measure.
    """

    name: str
    services: Mapping[Role, Query]
    calls: Mapping[Role, Query]
    signature: tuple[str, ...]
    external: frozenset[str] = field(default_factory=frozenset)
    serves: Query | None = None
    callers: Query | None = None
    relays: Query | None = None
    names_workloads: bool = False
    reporters: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    in_flight_of_durations: bool = False
    front_door: bool = False
    default_namespace: str = ""
    joined_names: bool = False
    gaps: tuple[Gap, ...] = ()
    beside: tuple["Dialect", ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Its name, and the names of dialects beside it."""
        return (self.name, *(part.name for part in self.beside))


def by(labels: tuple[str, ...], *more: str) -> str:
    """Return the labels of a ``by`` clause, without constants."""
    names = (name for label in labels if not label.startswith("=") for name in label.removeprefix("?").split("|"))
    return ", ".join(dict.fromkeys((*names, *more)))
