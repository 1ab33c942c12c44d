"""Rules for front-door objectives: how fast each one uses its error budget, and when that raises an alert.

Each objective has two recorded rates over five minutes: its requests, and its bad requests. Longer windows
are sums of these, so that Prometheus reads a mesh's own series once, and only five minutes of them. The alerts are the
multiwindow, multi-burn-rate alerts of Google's Site Reliability Workbook, chapter 5: an alert needs a long window, so
that it is worth waking someone, and a short one, so that it ends soon after the fault.

Rules and the collector's queries are built from the same dialect, so they count the same requests as failed.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from model.names import original_name
from model.verdict import Objective
from serve_app.collect.prometheus.long_requests import infinite_bound
from serve_app.collect.prometheus.query import EVERYTHING, Dialect, Match, Query
from serve_app.collect.prometheus.rules import rule_lines

RATE_SECONDS = 300.0
INTERVAL_SECONDS = 30.0
REQUESTS, BAD, RATIO = (f"tagae_objective:{name}" for name in ("requests:rate5m", "bad_requests:rate5m", "bad_ratio"))
_RATIOS = {"5m": f"{RATIO}:rate5m"} | {
    window: f"{RATIO}:sum_rate{window}" for window in ("30m", "1h", "2h", "6h", "1d", "3d")
}


# Alerts: how many times faster than allowed the budget is used, the long and short window, and the severity. Within its
# long window, each uses 2 to 10% of a 30-day budget.
BURNS = (
    (14.4, "1h", "5m", "critical"),
    (6, "6h", "30m", "critical"),
    (3, "1d", "2h", "warning"),
    (1, "3d", "6h", "warning"),
)


@dataclass(frozen=True, slots=True)
class MeshObjectives:
    """One mesh's front-door objectives."""

    mesh: str
    dialect: Dialect
    objectives: tuple[Objective, ...]
    match: Match = EVERYTHING


def render_objective_rules(meshes: Iterable[MeshObjectives]) -> str:
    """Return a rule file for Prometheus (YAML), with one group for each mesh.

    Raises:
        ValueError: a source has no buckets, which a latency objective needs.
    """
    lines = ["# Written by `tagae rules --objectives`: error budgets of front doors, and alerts on their burn rates."]
    lines.append("groups:")
    for mesh in meshes:
        lines += [f"  - name: tagae-objectives-{mesh.mesh}", f"    interval: {INTERVAL_SECONDS:g}s", "    rules:"]
        for objective in mesh.objectives:
            lines += _rules_of(mesh, objective)
    return "\n".join(lines) + "\n"


def _rules_of(mesh: MeshObjectives, objective: Objective) -> list[str]:
    labels = {"mesh": mesh.mesh, "service": original_name(objective.service), "objective": objective.kind}
    selector = "{" + ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items()) + "}"
    requests = _of_service(mesh.dialect.services["requests"], mesh, objective)
    bad = _bad_requests(mesh, objective, requests)
    lines = rule_lines(f"record: {REQUESTS}", requests, labels=labels)
    lines += rule_lines(f"record: {BAD}", bad, labels=labels)
    for window, name in _RATIOS.items():
        ratio = (
            f"{BAD}{selector} / ({REQUESTS}{selector} > 0)"
            if window == "5m"
            else f"sum_over_time({BAD}{selector}[{window}]) / (sum_over_time({REQUESTS}{selector}[{window}]) > 0)"
        )
        lines += rule_lines(f"record: {name}", ratio, labels=labels)
    return [*lines, *_alerts(objective, selector, labels), *_unknown(selector, labels)]


def _bad_requests(mesh: MeshObjectives, objective: Objective, requests: str) -> str:
    """Return PromQL for an objective's bad requests, 1/s. A service without failures has no failure series. Without
    requests, or without the objective's bound, there is no result, since nothing is known."""
    if objective.latency_seconds is None:
        failures = _of_service(mesh.dialect.services["failures"], mesh, objective)
        return f"({failures})\nor 0 * ({requests})"
    buckets = mesh.dialect.services.get("buckets")
    if buckets is None:
        raise ValueError(
            f"{objective.service}: expected a source with buckets for an objective of latency, got "
            f"{mesh.dialect.name}; remove latency_ms"
        )
    every, fast = [], []
    for promql, unit in buckets.views or ((buckets.promql, buckets.unit),):
        view = replace(buckets, promql=promql, views=())
        every.append(_of_service(view, mesh, objective, infinite_bound()))
        fast.append(_of_service(view, mesh, objective, f'le=~"{_spellings(objective.latency_seconds / unit)}"'))
    return f"({' or '.join(every)})\n- ({' or '.join(fast)})"


def _of_service(query: Query, mesh: MeshObjectives, objective: Objective, matcher: str = "") -> str:
    """Return PromQL for the sum of a service's series. If several proxies report the same requests, the one that
    reports the most counts."""
    query_of_bound = query.where(matcher) if matcher else query
    promql = query_of_bound.at(RATE_SECONDS, match=mesh.match)
    reporter = [label.removeprefix("?") for label in query.labels[2:]]
    names: dict[str, str] = {}
    namespace, _, service = objective.service.partition("/")
    for label, value, label_name in zip(
        query.labels, (namespace, service), ("tagae_namespace", "tagae_name"), strict=False
    ):
        if "|" in label:  # alternatives, of which a series has one
            parts = ", ".join(f'"{part}"' for part in label.split("|"))
            promql, names[label_name] = f'label_join({promql}, "{label_name}", "", {parts})', value
        elif not label.startswith("="):  # a constant names nothing
            names[label.removeprefix("?")] = value
    service_series = f"({promql}) and on ({', '.join(names)}) {_vector(names)}"
    if reporter:
        return f"max(sum by ({', '.join(reporter)}) ({service_series}))"
    return f"sum({service_series})"


def _vector(labels: dict[str, str]) -> str:
    """Return PromQL for one series with these labels, for a join: some dialects' queries derive the names, so that no
    selector can use them."""
    vector = "vector(1)"
    for label, value in labels.items():
        vector = f'label_replace({vector}, "{label}", {json.dumps(original_name(value))}, "", "")'
    return vector


def _spellings(bound: float) -> str:
    """Return a regular expression for a bound's spellings in exporters."""
    return f"{bound:g}".replace(".", "[.]").replace("+", "[+]") + "(?:[.]0+)?"


def _alerts(objective: Objective, selector: str, labels: dict[str, str]) -> Iterator[str]:
    for rate, long, short, severity in BURNS:
        limit = f"{rate:g} * {1 - objective.target:.6g}"
        text = (
            f"{labels['service']} uses the {objective.days:g}-day error budget of its {objective.kind} "
            f"({100 * objective.target:.6g}%) {rate:g} times faster than allowed"
        )
        description = f"In the last {long} {{{{ $value | humanizePercentage }}}} of its requests were bad."
        yield from rule_lines(
            "alert: TagaeErrorBudgetBurn",
            f"{_RATIOS[long]}{selector} > {limit}\nand {_RATIOS[short]}{selector} > {limit}",
            labels={**labels, "severity": severity, "window": long},
            annotations={"summary": text, "description": description},
        )


def _unknown(selector: str, labels: dict[str, str]) -> list[str]:
    """Return an alert on an objective without data: its name or its bound may be wrong."""
    text = (
        f"nothing is known of the {labels['objective']} of {labels['service']}: no series, or no bucket of this bound"
    )
    labels = {**labels, "severity": "warning"}
    return rule_lines(
        "alert: TagaeObjectiveUnknown",
        f"absent({BAD}{selector})",
        "for: 1h",
        labels=labels,
        annotations={"summary": text},
    )
