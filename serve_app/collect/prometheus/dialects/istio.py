"""Istio: sidecars, or the waypoints of ambient mode."""

from serve_app.collect.prometheus.query import GRPC_FAULT, MILLISECONDS, Dialect, Query, by, rate_queries
from serve_app.settings.roles import Role


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
        selector = f'$match reporter=~"{reporters}",{real_services}'
        requests = f"istio_requests_total{{{selector}"
        # Server errors: 5xx or no response at all; for gRPC the gRPC status, because the HTTP status is 200.
        failures = (f'{requests},response_code=~"5..|0"}}', f'{requests},response_code!~"5..|0",{GRPC_FAULT}}}')
        time = "istio_request_duration_milliseconds"
        return {
            **rate_queries(labels, f"{requests}}}", failures, f"{time}_bucket{{{selector}}}", MILLISECONDS),
            "in_flight": Query(
                f"sum by ({by(labels)}) (rate({time}_sum{{{selector}}}[$window]))", labels, MILLISECONDS
            ),
        }

    callee, caller = ("waypoint|destination", "waypoint|source") if ambient else ("destination", "source")
    calls = queries_by(caller, source + destination)
    del calls["in_flight"]
    serving = ("destination_workload_namespace", "destination_workload", *destination)
    serves = f'group by ({by(serving)}) (istio_requests_total{{$match reporter=~"{callee}",{real_services}}})'
    return Dialect(
        "istio-ambient" if ambient else "istio",
        queries_by(callee, destination),
        calls,
        (f'istio_requests_total{{$match reporter="{callee.split("|")[0]}"}}',),
        frozenset({"unknown"}),
        Query(serves, serving, joined_by="max"),
    )
