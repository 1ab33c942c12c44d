"""Create the source of a configured mesh; detect the kind of mesh from its metrics if the settings do not name it."""

from collections.abc import Mapping
from datetime import datetime
from itertools import takewhile

from serve_app.collect.prometheus.client import Prometheus, QueryAnswer
from serve_app.collect.prometheus.combine import combine
from serve_app.collect.prometheus.dialects.known import KNOWN
from serve_app.collect.prometheus.gaps import FoundGap, find_gaps
from serve_app.collect.prometheus.native import HistogramForm, native
from serve_app.collect.prometheus.query import Dialect, Query
from serve_app.collect.prometheus.signals import Queues
from serve_app.collect.prometheus.source import Poll, PrometheusSource, QueryOptions, Role
from serve_app.collect.prometheus.workloads import WorkloadServices
from serve_app.net.google import GoogleTokens
from serve_app.net.tokens import OAuth2Client, OAuth2Tokens, TokenSource
from serve_app.settings import CollectorSettings, GenericSettings, MeshSettings
from serve_app.settings.roles import SHARES

DETECTION = ("detection", "metrics")


class MeshSource:
    """Polls the snapshots of one configured mesh.

    Args:
        mesh: settings of the mesh.
        collector: settings of all meshes.
    """

    def __init__(self, mesh: MeshSettings, collector: CollectorSettings) -> None:
        endpoint = mesh.endpoint(mesh.prometheus)
        self._origin = endpoint.origin
        self._prometheus = Prometheus(
            endpoint,
            collector.queries_at_once,
            compressed=mesh.compressed,
            tokens=_token_source(mesh),
            harmless_warnings=mesh.harmless_warnings,
        )
        self._options = _query_options(collector)
        dialect = configured_dialect(mesh)
        self._queues = Queues(mesh.queues, mesh.queue_query)
        self._source = self._open(dialect) if dialect else None

    def poll(self, at: datetime) -> Poll:
        """Poll the snapshot of one instant."""
        if self._source is None:
            dialect, answers = detect_dialect(self._prometheus, at, self._options.within_seconds)
            if dialect is None:
                return Poll(at, None, answers, why=_detection_problem(answers, self._origin))
            self._source = self._open(dialect)
        poll = self._source.poll(at)
        within = self._options.within_seconds
        if other := self._histograms.other_dialect(self._prometheus, poll.answers, at, within):
            self._source = self._open_with(other)
            poll = self._source.poll(at)
        return poll

    def _open(self, dialect: Dialect) -> PrometheusSource:
        self._histograms = HistogramForm(dialect)
        return self._open_with(dialect)

    def _open_with(self, dialect: Dialect) -> PrometheusSource:
        return PrometheusSource(self._prometheus, dialect, self._options, self._queues)

    @property
    def workload_services(self) -> WorkloadServices:
        """Known services of each workload."""
        return self._source.workload_services if self._source else {}

    def gaps(self, at: datetime) -> list[FoundGap]:
        """What the sources of this mesh are not configured for; of all sources if none is known."""
        dialects = [self._histograms.dialect] if self._source else KNOWN.values()
        return find_gaps(self._prometheus, dialects, at, self._options.within_seconds)

    def close(self) -> None:
        """Cancel running queries and close the connections."""
        self._prometheus.close()


def configured_dialect(mesh: MeshSettings) -> Dialect | None:
    """The dialect of the settings, or all of them combined; None if it must be detected."""
    if mesh.source == "auto":
        return None
    own = {"generic": generic_dialect(mesh.generic)} if mesh.generic else {}
    return combine([own.get(name) or KNOWN[name] for name in mesh.sources])


def generic_dialect(settings: GenericSettings) -> Dialect:
    """The dialect with the queries of the settings."""
    services, calls = (
        {
            role: Query(query.promql, labels, query.unit, "max" if role in SHARES else "sum")
            for role, query in queries.items()
        }
        for queries, labels in ((settings.services, settings.service_labels), (settings.calls, settings.call_labels))
    )
    return Dialect(
        "generic",
        services,
        calls,
        (),
        frozenset(settings.external),
        in_flight_of_durations="long_requests" in services,
    )


def detect_dialect(
    prometheus: Prometheus, at: datetime, within: float
) -> tuple[Dialect | None, Mapping[Role, QueryAnswer]]:
    """Find the first known dialect whose metrics exist, with the ingress controllers that exist beside it.

    Returns:
        The dialect, or None; and the results of the queries.
    """
    results = prometheus.ask({name: _signature_query(one) for name, one in KNOWN.items()}, at, within)
    found = [one for name, one in KNOWN.items() if len(results[name].samples)]
    mesh = next((one for one in found if not one.front_door), None)
    front_doors = [one for one in found if one.front_door]
    dialect = combine([mesh, *front_doors] if mesh else front_doors) if found else None
    # A failed query may be about a dialect that comes first, or about an ingress controller.
    earlier = list(takewhile(lambda one: one is not mesh, KNOWN.values()))
    if any(results[one.name].failed for one in KNOWN.values() if one.front_door or one in earlier):
        dialect = None
    return dialect, {(DETECTION[0], name): answer for name, answer in results.items()}


def _signature_query(dialect: Dialect) -> str:
    signature = dict.fromkeys((*dialect.signature, *native(dialect).signature))
    return Query(" or ".join(f"count({series})" for series in signature), ()).at(0)


def _detection_problem(answers: Mapping[Role, QueryAnswer], origin: str) -> str:
    failed = next((answer for answer in answers.values() if answer.failed), None)
    if failed:
        reach = "cannot reach Prometheus" if failed.failed == "unreachable" else f"{failed.failed}: Prometheus"
        return f"{reach} at {origin}: {failed.detail}"
    series = ", ".join(Query(name, ()).at(0) for one in KNOWN.values() for name in one.signature)
    return (
        f"expected the metrics of a mesh, found none of {series}; check that this Prometheus scrapes the mesh, or set "
        "source = generic with queries of your own"
    )


def _token_source(mesh: MeshSettings) -> TokenSource | None:
    if mesh.oauth2 is not None:
        return OAuth2Tokens(
            OAuth2Client(
                mesh.oauth2.token_url,
                mesh.oauth2.client_id,
                mesh.oauth2.client_secret_file,
                mesh.oauth2.scopes,
                mesh.oauth2.parameters,
                mesh.oauth2.ca_file,
            )
        )
    return GoogleTokens() if mesh.google else None


def _query_options(collector: CollectorSettings) -> QueryOptions:
    return QueryOptions(
        collector.interval_seconds,
        collector.window_seconds,
        collector.deadline_seconds,
        collector.keep_seconds,
        collector.recorded_from_calls,
    )
