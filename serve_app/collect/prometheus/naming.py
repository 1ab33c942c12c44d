"""Derives names from labels, and unites metrics that exist under several names.

Systems write the same thing in different ways: a namespace may be in one of three labels, a service may be part of a
longer name, a counter may have been renamed. A dialect's queries unite these, so that Prometheus returns one series for
each key.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from serve_app.collect.prometheus.query import MILLISECONDS, Query, by, escape
from serve_app.collect.service_labels import SAFE
from serve_app.settings.roles import Role

SEPARATOR = r"\x1f"  # between joined labels; no name contains it
NO_NAMESPACE = "default"  # namespace of a service whose labels name none
CALLEE = ("callee_namespace", "callee")
CALLER = ("caller_namespace", "caller")
NO_SEPARATOR = f"[^{SEPARATOR}]"
POD = f"-{SAFE}"
# A pod of a Deployment or DaemonSet, a StatefulSet, or anything else; the workload is $1$2$3.
POD_NAME = f"(?:({NO_SEPARATOR}+?)(?:{POD}{{1,10}})?{POD}{{5}}|({NO_SEPARATOR}+?)-[0-9]+|({NO_SEPARATOR}+))"


@dataclass(frozen=True, slots=True)
class Derived:
    """A label that is derived from other labels.

    Attributes:
        label: its name. No series has it, or :func:`first_of` prefers the series' own value.
        labels: their values are joined in this order, each behind :data:`SEPARATOR`.
        pattern: regular expression for the whole joined text.
        value: the new value, with ``$1`` for the first group.
        otherwise: the value if the result is empty. If this is empty, too, the series is left out.
    """

    label: str
    labels: tuple[str, ...]
    pattern: str = "(.+)"
    value: str = "$1"
    otherwise: str = ""

    def add_to(self, promql: str, *, is_new: bool = False) -> str:
        """Add this label to each series of the expression.

        Args:
            is_new: whether no series has the label. VictoriaMetrics 1.79 writes stale memory into a new label if the
                pattern does not match, so the pattern always matches.
        """
        source = self.labels[0]
        if self.labels == (self.label,) and (self.pattern, self.value) == ("(.+)", "$1"):
            return promql  # a label that the series have
        if len(self.labels) > 1:
            source = "joined"
            names = ", ".join(f'"{name}"' for name in self.labels)
            promql = f'label_join({promql}, "{source}", "{SEPARATOR}", {names})'
        pattern = escape(f"{self.pattern}|.*" if is_new else self.pattern)
        promql = f'label_replace({promql}, "{self.label}", "{self.value}", "{source}", "{pattern}")'
        if self.otherwise:
            promql = f'label_replace({promql}, "{self.label}", "{self.otherwise}", "{self.label}", "")'
        return promql


def first_of(label: str, *labels: str, otherwise: str = "") -> Derived:
    """Return the first of several labels that is not empty."""
    if len(labels) == 1:
        return Derived(label, labels, otherwise=otherwise)
    return Derived(label, labels, f"{SEPARATOR}*([^{SEPARATOR}]+)(?:{SEPARATOR}.*)?", otherwise=otherwise)


@dataclass(frozen=True, slots=True)
class Keys:
    """The namespace and name labels of a service, or both ends' labels of a call.

    Attributes:
        derived: these labels, in the key's order.
        helpers: intermediate labels from which they are derived.
    """

    derived: tuple[Derived, ...]
    helpers: tuple[Derived, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(part.label for part in self.derived)

    def sum(self, promql: str, *more: str) -> str:
        """Return the sum an expression by key, and by ``more`` labels."""
        steps = (*self.helpers, *self.derived)
        # Sum by the original labels first: labels are then derived for a few series instead of all.
        original_labels: dict[str, None] = {}
        for number, step in enumerate(steps):
            derived_labels = {earlier.label for earlier in steps[:number]}
            original_labels |= dict.fromkeys(name for name in step.labels if name not in derived_labels)
        promql = f"sum by ({by(tuple(original_labels), *more)}) ({promql})"
        if tuple(original_labels) == self.labels:
            return promql
        existing_labels = set(original_labels)
        for step in steps:
            promql = step.add_to(promql, is_new=step.label not in existing_labels)
            existing_labels.add(step.label)
        return f"sum by ({by(self.labels, *more)}) ({promql})"


@dataclass(frozen=True, slots=True)
class View:
    """One way to see the requests of a key: rates as PromQL, before they are summed by key.

    Attributes:
        buckets: rates of histogram buckets, 1/s, and the factor that converts their bounds to s. A histogram counts for
            keys that no histogram before it has.
    """

    requests: str
    failures: str
    buckets: tuple[tuple[str, float], ...]


def view_queries(keys: Keys, *views: View) -> dict[Role, Query]:
    """Return the queries for requests, failures and buckets. Only the first view that knows a key counts for this key,
    so the same request is never counted twice. Requests and failures are separate queries: a service without failures
    has no failure series, so a ratio in PromQL would be missing instead of zero."""
    requests: list[str] = []
    failures: list[str] = []
    buckets: list[tuple[str, float]] = []
    for view in views:
        failures.append(_unless(keys, keys.sum(view.failures), requests))
        better = list(requests)
        for rates_of_buckets, unit in view.buckets:
            buckets.append((_unless(keys, keys.sum(rates_of_buckets, "le"), better), unit))
            better.append(keys.sum(rates_of_buckets.replace("_bucket{", "_count{")))
        requests.append(keys.sum(view.requests))
    units = {unit for _, unit in buckets}
    has_mixed_units = len(units) > 1
    queries: dict[Role, Query] = {
        "requests": Query(" or ".join(requests), keys.labels),
        "failures": Query(" or ".join(f"{text} > 0" for text in failures), keys.labels),
    }
    if buckets:
        queries["buckets"] = Query(
            " or ".join(_in_seconds(text, unit) if has_mixed_units else text for text, unit in buckets),
            keys.labels,
            1.0 if has_mixed_units else units.pop(),
            views=tuple(buckets) if has_mixed_units else (),
        )
    return queries


def both(first: dict[Role, Query], second: dict[Role, Query]) -> dict[Role, Query]:
    """Unite queries for different keys with the same labels and units."""
    return {
        role: Query(
            f"{query.promql} or {second[role].promql}" if role in second else query.promql, query.labels, query.unit
        )
        for role, query in first.items()
    }


def rates(*series: str) -> str:
    return " or ".join(f"rate({selector}[$window])" for selector in series)


def added(*expressions: str) -> str:
    """Return all series of the expressions, whose different metrics may have the same labels."""
    return " or ".join(
        f'label_replace({expression}, "metric", "{number}", "", "")' if number else expression
        for number, expression in enumerate(expressions)
    )


def _unless(keys: Keys, promql: str, better: Sequence[str]) -> str:
    """Return the expression, without keys that one of ``better`` has."""
    return f"({promql} unless on ({by(keys.labels)}) ({' or '.join(better)}))" if better else promql


def _in_seconds(buckets: str, unit: float) -> str:
    """Convert the bounds of buckets. PromQL cannot calculate with labels, but can append an exponent, or move the point
    of a number that has one: 2.5e+02 becomes 0.0025e+02."""
    if unit == 1:
        return buckets
    if unit != MILLISECONDS:
        raise ValueError(f"expected buckets in s or ms, got the unit {unit:g} s")
    scientific = f'label_replace({buckets}, "le", "0.00$1$2$3", "le", "([0-9])(?:[.]([0-9]*))?([eE][-+]?[0-9]+)")'
    return f'label_replace({scientific}, "le", "${{1}}e-3", "le", "([0-9.]+)")'
