"""What each kind of mesh calls its numbers: queries by role, the labels that name the ends, the unit.

Labels of an answer are renamed nowhere: a query says which of its labels are namespace and name. ``$window`` is the
rate window; four scrape intervals at least, or a late scrape leaves holes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from serve_app.settings.roles import Role

SECONDS, MILLISECONDS = 1.0, 1e-3
_GRPC_FAULT = 'grpc_response_status=~"2|4|8|10|12|13|14|15"'  # unknown, late, exhausted, aborted, ..., data loss


@dataclass(frozen=True, slots=True)
class Query:
    """PromQL for an instant vector, and what its samples are.

    Attributes:
        promql: with ``$window`` where a range stands.
        labels: namespace and name; of calls those of the source, then those of the destination. A label that begins
            with ``=`` is no label but a constant, where a source knows no namespaces.
        unit: of a value in ours (s, 1/s, ratio).
    """

    promql: str
    labels: tuple[str, ...]
    unit: float = 1.0

    def at(self, window_seconds: float) -> str:
        """The text to send."""
        return self.promql.replace("$window", f"{round(window_seconds * 1000)}ms")  # a duration may have no point


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one kind of mesh is asked.

    Attributes:
        name: as settings have it.
        services, calls: queries by role. ``requests`` are there in any case; ``failures`` that have no series are no
            failures; ``buckets`` give p50 and p99, or ``p50`` and ``p99`` are asked for.
        signature: series one of which is there if the mesh speaks this dialect.
        external: names of ends that are no service: calls from them are traffic from outside.
        serves: which workload serves which service: namespace and name of either; None: they have the same name.
    """

    name: str
    services: Mapping[Role, Query]
    calls: Mapping[Role, Query]
    signature: tuple[str, ...]
    external: frozenset[str] = field(default_factory=frozenset)
    serves: Query | None = None


def istio(*, ambient: bool = False) -> Dialect:
    """Istio's standard metrics, of sidecars or of ambient mode's waypoints [doc].

    A service is what its callers address, by which a dead one is still seen; a caller is its canonical service.
    """
    destination = ("destination_service_namespace", "destination_service_name")
    source = ("source_workload_namespace", "source_canonical_service")
    nobody = 'destination_service_name!~"unknown|BlackHoleCluster|PassthroughCluster|InboundPassthroughCluster.*"'

    def seen_by(reporters: str, labels: tuple[str, ...]) -> dict[Role, Query]:
        seen = f'reporter=~"{reporters}",{nobody}'
        requests = f"istio_requests_total{{{seen}"
        # What a server answers for: 5xx or no answer at all; over gRPC the status, as HTTP says 200.
        failures = (f'{requests},response_code=~"5..|0"}}', f'{requests},response_code!~"5..|0",{_GRPC_FAULT}}}')
        time = "istio_request_duration_milliseconds"
        return {
            **_rates(labels, f"{requests}}}", failures, f"{time}_bucket{{{seen}}}", MILLISECONDS),
            "in_flight": Query(f"sum by ({by(labels)}) (rate({time}_sum{{{seen}}}[$window]))", labels, MILLISECONDS),
        }

    callee, caller = ("waypoint|destination", "waypoint|source") if ambient else ("destination", "source")
    calls = seen_by(caller, source + destination)
    del calls["in_flight"]
    serving = ("destination_workload_namespace", "destination_workload", *destination)
    serves = f'group by ({by(serving)}) (istio_requests_total{{reporter=~"{callee}",{nobody}}})'
    return Dialect(
        "istio-ambient" if ambient else "istio",
        seen_by(callee, destination),
        calls,
        (f'istio_requests_total{{reporter="{callee.split("|")[0]}"}}',),
        frozenset({"unknown"}),
        Query(serves, serving),
    )


def opentelemetry(*, prefix: str = "traces_service_graph", namespaces: bool = False) -> Dialect:
    """The service graph of OpenTelemetry's connector and of Tempo [doc].

    ``client`` and ``server`` have no namespace unless ``client_service_namespace`` and its like were made dimensions;
    the prefix depends on the exporter. A service is what its callers measured of it, as there is nothing else.
    """
    server = ("server_service_namespace", "server") if namespaces else ("=default", "server")
    client = ("client_service_namespace", "client") if namespaces else ("=default", "client")

    def seen_by(side: str, labels: tuple[str, ...]) -> dict[Role, Query]:
        seconds = f"{prefix}_request_{side}_seconds_bucket"
        return _rates(labels, f"{prefix}_request_total", (f"{prefix}_request_failed_total",), seconds, SECONDS)

    return Dialect(
        "opentelemetry",
        seen_by("server", server),
        seen_by("client", client + server),
        (f"{prefix}_request_total",),
        frozenset({"user", "unknown"}),
    )


def linkerd() -> Dialect:
    """Linkerd's proxies [doc]: what comes into a deployment, and what goes out of one to a service."""
    service = ("namespace", "deployment")
    call = ("namespace", "deployment", "dst_namespace", "dst_service")

    def seen(direction: str, labels: tuple[str, ...]) -> dict[Role, Query]:
        side = f'direction="{direction}"' + (',dst_service!=""' if direction == "outbound" else "")
        return _rates(
            labels,
            f"request_total{{{side}}}",
            (f'response_total{{{side},classification="failure"}}',),
            f"response_latency_ms_bucket{{{side}}}",
            MILLISECONDS,
        )

    services = seen("inbound", service)
    services["connections"] = Query(f'sum by ({by(service)}) (tcp_open_connections{{direction="inbound"}})', service)
    return Dialect("linkerd", services, seen("outbound", call), ("response_latency_ms_bucket",))


def envoy(*, inbound: str = "inbound.*", outbound: str = "outbound_([^_]+)_(.+)") -> Dialect:
    """Sidecars without a mesh around them, as Envoy counts by itself.

    Whose a sidecar is, its scrape must say: ``namespace`` and ``service`` are labels of the target. Whom it calls, the
    cluster's name says. Requests are those that were completed: ``upstream_rq_total`` leaves out what found no
    connection, and a dead service would be called by nobody.

    Args:
        inbound: clusters of the service itself (a regular expression of all of the name).
        outbound: clusters of those it calls; the first two groups are namespace and name. No name of a namespace or a
            service in Kubernetes has an underscore, so that one may part them.
    """
    service, callee = ("namespace", "service"), ("destination_namespace", "destination_service")
    cluster = "envoy_cluster_name"

    def seen(names: str, labels: tuple[str, ...]) -> dict[Role, Query]:
        of = f'{cluster}=~"{_quoted(names)}"'
        failed = f'envoy_cluster_upstream_rq_xx{{{of},envoy_response_code_class="5"}}'
        return _rates(
            labels,
            f"envoy_cluster_upstream_rq_completed{{{of}}}",
            (failed,),
            f"envoy_cluster_upstream_rq_time_bucket{{{of}}}",
            MILLISECONDS,
        )

    def called(query: Query) -> Query:
        promql = query.promql
        for group, label in enumerate(callee, 1):
            promql = f'label_replace({promql}, "{label}", "${group}", "{cluster}", "{_quoted(outbound)}")'
        return Query(promql, service + callee, query.unit)

    services = seen(inbound, service)
    in_use = f'sum by ({by(service)}) (envoy_cluster_upstream_cx_active{{{cluster}=~"{_quoted(inbound)}"}})'
    services["connections"] = Query(in_use, service)
    calls = {role: called(query) for role, query in seen(outbound, (*service, cluster)).items()}
    return Dialect("envoy", services, calls, ("envoy_cluster_upstream_rq_completed",))


def _quoted(expression: str) -> str:
    """As the inside of a string of PromQL."""
    return expression.replace("\\", "\\\\").replace('"', '\\"')


def by(labels: tuple[str, ...], *more: str) -> str:
    """The labels of a grouping; constants are none."""
    return ", ".join((*(name for name in labels if not name.startswith("=")), *more))


def _rates(
    labels: tuple[str, ...], requests: str, failures: tuple[str, ...], bucket: str, unit: float
) -> dict[Role, Query]:
    """What all meshes have alike. Failures and requests are asked for apart: where nothing failed there is no series,
    and a quotient would be missing, not zero."""
    failed = " or ".join(f"rate({series}[$window])" for series in failures)
    return {
        "requests": Query(f"sum by ({by(labels)}) (rate({requests}[$window]))", labels),
        "failures": Query(f"sum by ({by(labels)}) ({failed}) > 0", labels),  # most of a mesh does not fail
        "buckets": Query(f"sum by ({by(labels, 'le')}) (rate({bucket}[$window]))", labels, unit),
    }


KNOWN = {one.name: one for one in (istio(ambient=True), istio(), opentelemetry(), linkerd(), envoy())}
