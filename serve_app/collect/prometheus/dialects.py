"""The metrics of each kind of mesh: queries by role, the labels that name services, the unit.

Labels of a result are not renamed: a query lists which of them are namespace and name. ``$window`` is the rate window.
It should be at least four scrape intervals long, or a late scrape leaves gaps.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from serve_app.settings.roles import Role

SECONDS, MILLISECONDS = 1.0, 1e-3
_GRPC_FAULT = 'grpc_response_status=~"2|4|8|10|12|13|14|15"'  # server errors, from UNKNOWN to DATA_LOSS


@dataclass(frozen=True, slots=True)
class Query:
    """PromQL for an instant vector, and the meaning of its samples.

    Attributes:
        promql: the query, with ``$window`` for the rate window and ``$since`` for the time since the previous poll.
        labels: labels of namespace and name; for calls, of the source and then of the destination. ``=text`` stands for
            the constant text, for meshes without namespaces.
        unit: factor that converts a value to s, 1/s or a ratio.
    """

    promql: str
    labels: tuple[str, ...]
    unit: float = 1.0

    def at(self, window_seconds: float, since_seconds: float = 15.0) -> str:
        """The query for this rate window, and for this time since the previous poll."""
        promql = self.promql
        for name, seconds in (("$window", window_seconds), ("$since", since_seconds)):
            promql = promql.replace(name, f"{round(seconds * 1000)}ms")  # PromQL allows no decimal point in a duration
        return promql


@dataclass(frozen=True, slots=True)
class Dialect:
    """The queries for one kind of mesh.

    Attributes:
        name: value of the setting ``source``.
        services, calls: queries by role. ``requests`` is required. A service without a ``failures`` series had no
            failure. Latencies come from ``buckets``, or from ``p50`` and ``p99``.
        signature: at least one of these series exists in every mesh of this kind.
        external: names of callers that are not services; their calls count as traffic from outside.
        serves: which workload serves which service: namespace and name of both. None if they have the same name.
    """

    name: str
    services: Mapping[Role, Query]
    calls: Mapping[Role, Query]
    signature: tuple[str, ...]
    external: frozenset[str] = field(default_factory=frozenset)
    serves: Query | None = None


def istio(*, ambient: bool = False) -> Dialect:
    """Istio's standard metrics, from sidecars or from the waypoints of ambient mode [doc].

    A service is named as its callers address it, so a dead service is still visible. A caller is named by its canonical
    service.
    """
    destination = ("destination_service_namespace", "destination_service_name")
    source = ("source_workload_namespace", "source_canonical_service")
    real_services = (
        'destination_service_name!~"unknown|BlackHoleCluster|PassthroughCluster|InboundPassthroughCluster.*"'
    )

    def queries_by(reporters: str, labels: tuple[str, ...]) -> dict[Role, Query]:
        selector = f'reporter=~"{reporters}",{real_services}'
        requests = f"istio_requests_total{{{selector}"
        # Server errors: 5xx or no response at all; for gRPC the gRPC status, because the HTTP status is 200.
        failures = (f'{requests},response_code=~"5..|0"}}', f'{requests},response_code!~"5..|0",{_GRPC_FAULT}}}')
        time = "istio_request_duration_milliseconds"
        return {
            **_rate_queries(labels, f"{requests}}}", failures, f"{time}_bucket{{{selector}}}", MILLISECONDS),
            "in_flight": Query(
                f"sum by ({by(labels)}) (rate({time}_sum{{{selector}}}[$window]))", labels, MILLISECONDS
            ),
        }

    callee, caller = ("waypoint|destination", "waypoint|source") if ambient else ("destination", "source")
    calls = queries_by(caller, source + destination)
    del calls["in_flight"]
    serving = ("destination_workload_namespace", "destination_workload", *destination)
    serves = f'group by ({by(serving)}) (istio_requests_total{{reporter=~"{callee}",{real_services}}})'
    return Dialect(
        "istio-ambient" if ambient else "istio",
        queries_by(callee, destination),
        calls,
        (f'istio_requests_total{{reporter="{callee.split("|")[0]}"}}',),
        frozenset({"unknown"}),
        Query(serves, serving),
    )


def opentelemetry() -> Dialect:
    """The service graph metrics of OpenTelemetry's connector and of Tempo [doc].

    ``client`` and ``server`` have no namespace by default. All values are measured by the callers.
    """
    server, client = ("=default", "server"), ("=default", "client")
    total, failed = "traces_service_graph_request_total", "traces_service_graph_request_failed_total"

    def queries_by(side: str, labels: tuple[str, ...]) -> dict[Role, Query]:
        return _rate_queries(labels, total, (failed,), f"traces_service_graph_request_{side}_seconds_bucket", SECONDS)

    return Dialect(
        "opentelemetry",
        queries_by("server", server),
        queries_by("client", client + server),
        (total,),
        frozenset({"user", "unknown"}),
    )


def linkerd() -> Dialect:
    """Linkerd's proxies [doc]: requests into a deployment, and requests from a deployment to a service."""
    service = ("namespace", "deployment")
    call = ("namespace", "deployment", "dst_namespace", "dst_service")

    def queries_of(direction: str, labels: tuple[str, ...]) -> dict[Role, Query]:
        side = f'direction="{direction}"' + (',dst_service!=""' if direction == "outbound" else "")
        return _rate_queries(
            labels,
            f"request_total{{{side}}}",
            (f'response_total{{{side},classification="failure"}}',),
            f"response_latency_ms_bucket{{{side}}}",
            MILLISECONDS,
        )

    services = queries_of("inbound", service)
    services["connections"] = Query(f'sum by ({by(service)}) (tcp_open_connections{{direction="inbound"}})', service)
    return Dialect("linkerd", services, queries_of("outbound", call), ("response_latency_ms_bucket",))


def envoy(*, inbound: str = "inbound.*", outbound: str = "outbound_([^_]+)_(.+)") -> Dialect:
    """Envoy's own metrics, for sidecars without a mesh.

    The scrape configuration must add the labels ``namespace`` and ``service`` of the sidecar's service. The name of the
    Envoy cluster identifies the callee. Requests are completed requests: ``upstream_rq_total`` does not count requests
    that got no connection, so a dead service would lose its callers.

    Args:
        inbound: Envoy clusters of the service itself, a regular expression for the whole name.
        outbound: Envoy clusters of the callees; the first two groups are namespace and name. An underscore separates
            them, because Kubernetes names have none.
    """
    service, callee = ("namespace", "service"), ("destination_namespace", "destination_service")
    cluster = "envoy_cluster_name"

    def queries_of(names: str, labels: tuple[str, ...]) -> dict[Role, Query]:
        selector = f'{cluster}=~"{_escape(names)}"'
        failed = f'envoy_cluster_upstream_rq_xx{{{selector},envoy_response_code_class="5"}}'
        return _rate_queries(
            labels,
            f"envoy_cluster_upstream_rq_completed{{{selector}}}",
            (failed,),
            f"envoy_cluster_upstream_rq_time_bucket{{{selector}}}",
            MILLISECONDS,
        )

    def with_callee(query: Query) -> Query:
        promql = query.promql
        for group, label in enumerate(callee, 1):
            promql = f'label_replace({promql}, "{label}", "${group}", "{cluster}", "{_escape(outbound)}")'
        return Query(promql, service + callee, query.unit)

    services = queries_of(inbound, service)
    in_use = f'sum by ({by(service)}) (envoy_cluster_upstream_cx_active{{{cluster}=~"{_escape(inbound)}"}})'
    services["connections"] = Query(in_use, service)
    calls = {role: with_callee(query) for role, query in queries_of(outbound, (*service, cluster)).items()}
    return Dialect("envoy", services, calls, ("envoy_cluster_upstream_rq_completed",))


def _escape(expression: str) -> str:
    """Escape text for a string in PromQL."""
    return expression.replace("\\", "\\\\").replace('"', '\\"')


def by(labels: tuple[str, ...], *more: str) -> str:
    """The labels of a ``by`` clause, without constants."""
    return ", ".join((*(name for name in labels if not name.startswith("=")), *more))


def _rate_queries(
    labels: tuple[str, ...], requests: str, failures: tuple[str, ...], bucket: str, unit: float
) -> dict[Role, Query]:
    """The queries that all meshes share. Requests and failures are separate queries: a service without failures has no
    failure series, so a ratio in PromQL would be missing instead of zero."""
    failed = " or ".join(f"rate({series}[$window])" for series in failures)
    return {
        "requests": Query(f"sum by ({by(labels)}) (rate({requests}[$window]))", labels),
        "failures": Query(f"sum by ({by(labels)}) ({failed}) > 0", labels),  # drop the many series without failures
        "buckets": Query(f"sum by ({by(labels, 'le')}) (rate({bucket}[$window]))", labels, unit),
    }


KNOWN = {one.name: one for one in (istio(ambient=True), istio(), opentelemetry(), linkerd(), envoy())}
