"""Create the source of a configured mesh; detect the kind of mesh from its metrics if the settings do not name it."""

from collections.abc import Mapping
from datetime import datetime

from serve_app.collect.prometheus.client import Prometheus, QueryAnswer
from serve_app.collect.prometheus.dialects.known import KNOWN
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
        dialect = generic_dialect(mesh.generic) if mesh.generic else KNOWN.get(mesh.source)
        self._queues = Queues(mesh.queues, mesh.queue_query)
        self._source = self._open(dialect) if dialect else None

    def poll(self, at: datetime) -> Poll:
        """Poll the snapshot of one instant."""
        if self._source is None:
            dialect, answers = detect_dialect(self._prometheus, at, self._options.within_seconds)
            if dialect is None:
                return Poll(at, None, answers, why=_detection_problem(answers, self._origin))
            self._source = self._open(dialect)
        return self._source.poll(at)

    def _open(self, dialect: Dialect) -> PrometheusSource:
        return PrometheusSource(self._prometheus, dialect, self._options, self._queues)

    @property
    def workload_services(self) -> WorkloadServices:
        """Known services of each workload."""
        return self._source.workload_services if self._source else {}

    def close(self) -> None:
        """Cancel running queries and close the connections."""
        self._prometheus.close()


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
    """Find the first known dialect whose metrics exist.

    Returns:
        The dialect, or None; and the results of the queries.
    """
    results = prometheus.ask({name: _signature_query(one) for name, one in KNOWN.items()}, at, within)
    found = (one for name, one in KNOWN.items() if len(results[name].samples))
    return next(found, None), {(DETECTION[0], name): answer for name, answer in results.items()}


def _signature_query(dialect: Dialect) -> str:
    return Query(" or ".join(f"count({series})" for series in dialect.signature), ()).at(0)


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
