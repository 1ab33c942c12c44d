"""Which dialect a mesh has: the one of the settings, or the first whose metrics exist."""

from collections.abc import Mapping
from datetime import datetime
from itertools import takewhile

from serve_app.collect.base import Role
from serve_app.collect.prometheus.client import Prometheus, QueryAnswer
from serve_app.collect.prometheus.combine import combine
from serve_app.collect.prometheus.dialects.shipped import KNOWN
from serve_app.collect.prometheus.native import native
from serve_app.collect.prometheus.query import Dialect, Match, Query, range_selectors
from serve_app.settings import GenericSettings, MeshSettings
from serve_app.settings.roles import SHARES

DETECTION = ("detection", "metrics")
SUPERSETS = {"istio": "istio-ambient"}  # kinds that read all that another reads, and more


def configured_dialect(mesh: MeshSettings) -> Dialect | None:
    """The dialect of the settings, or all of them combined; None if it must be detected."""
    if mesh.source == "auto":
        return None
    own = {"generic": generic_dialect(mesh.generic)} if mesh.generic else {}
    return combine([own.get(name) or KNOWN[name] for name in mesh.sources])


def generic_dialect(settings: GenericSettings) -> Dialect:
    services, calls = (
        {
            role: Query(
                promql,
                labels,
                settings.bucket_unit if role == "buckets" else 1.0,
                "max" if role in SHARES else "sum",
                is_verbatim=True,
            )
            for role, promql in queries.items()
        }
        for queries, labels in ((settings.services, settings.service_labels), (settings.calls, settings.call_labels))
    )
    return Dialect("generic", services, calls, (), in_flight_of_durations="long_requests" in services)


def detect_dialect(
    prometheus: Prometheus, at: datetime, within: float, match: Match
) -> tuple[Dialect | None, Mapping[Role, QueryAnswer]]:
    """Find the first known dialect whose metrics exist, with the ingress controllers that exist beside it.

    Returns:
        The dialect, or None; and the results of the queries.
    """
    results = prometheus.ask({name: _signature_query(one, match) for name, one in KNOWN.items()}, at, within)
    found = [one for name, one in KNOWN.items() if len(results[name].samples)]
    mesh = next((one for one in found if not one.front_door), None)
    front_doors = [one for one in found if one.front_door]
    dialect = combine([mesh, *front_doors] if mesh else front_doors) if found else None
    # A failed query may be about a dialect that comes first, or about an ingress controller.
    earlier = list(takewhile(lambda one: one is not mesh, KNOWN.values()))
    if any(results[one.name].failed for one in KNOWN.values() if one.front_door or one in earlier):
        dialect = None
    return dialect, {(DETECTION[0], name): answer for name, answer in results.items()}


def has_requests(prometheus: Prometheus, dialect: Dialect, at: datetime, within: float, match: Match) -> bool | None:
    """Whether series of a dialect's requests exist; None if the query failed."""
    selectors = range_selectors(dialect.services["requests"].promql)
    text = " or ".join(f"count({match.apply(one)})" for one in selectors)
    answer = prometheus.ask({"requests": text}, at, within)["requests"]
    return None if answer.failed else len(answer.samples) > 0


def is_better(now: Dialect, before: Dialect, *, has_series: bool | None) -> bool:
    """Whether a mesh is read with the dialect that was detected now.

    A mesh keeps its kind while its series exist, so that a second kind of telemetry beside it changes nothing; except
    for a kind that reads all that the present one reads, and more. An ingress controller is added, but does not replace
    a mesh.

    Args:
        has_series: whether series of the dialect ``before`` exist; None: unknown.
    """
    found, known = set(now.names), set(before.names)
    if found <= known or has_series is None:
        return False
    return not has_series or known < found or SUPERSETS.get(before.name) == now.name


def _signature_query(dialect: Dialect, match: Match) -> str:
    signature = dict.fromkeys((*dialect.signature, *native(dialect).signature))
    return Query(" or ".join(f"count({series})" for series in signature), ()).at(0, match=match)
