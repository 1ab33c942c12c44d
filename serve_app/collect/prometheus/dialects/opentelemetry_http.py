"""The HTTP and RPC metrics of OpenTelemetry's semantic conventions, as its SDKs, agents and Beyla export them."""

from serve_app.collect.prometheus.dialects.opentelemetry_names import peer_names, service_names
from serve_app.collect.prometheus.naming import CALLEE, CALLER, NO_NAMESPACE, Keys, View, added, view_queries
from serve_app.collect.prometheus.query import MILLISECONDS, SECONDS, Dialect, Gap, Query

# A process exports one of them, or two during a migration. Then both count the same requests, and the first is read.
_HTTP = (
    ("http_{}_request_duration_seconds", SECONDS),
    ("http_{}_duration_seconds", SECONDS),
    ("http_{}_duration_milliseconds", MILLISECONDS),
)
_RPC = (
    ("rpc_{}_call_duration_seconds", SECONDS),
    ("rpc_{}_duration_seconds", SECONDS),
    ("rpc_{}_duration_milliseconds", MILLISECONDS),
)
_PROCESS = "job, instance, exported_job, exported_instance, service_name, service_instance_id, k8s_pod_name"
_CANCELLED = "(?i:.*(cancel|abort).*)"  # the client went away
# A status tells what failed; without a status, there was an error or an exception.
_HTTP_FAILED = (
    'http_response_status_code=~"5.."',
    'http_status_code=~"5.."',
    f'http_response_status_code="",http_status_code="",error_type!~"|{_CANCELLED}"',
)
_RPC_FAILED = (
    'rpc_grpc_status_code=~"2|4|8|10|12|13|14|15"',
    'rpc_response_status_code=~"2|4|8|10|12|13|14|15|UNKNOWN|DEADLINE_EXCEEDED|RESOURCE_EXHAUSTED|ABORTED|'
    'UNIMPLEMENTED|INTERNAL|UNAVAILABLE|DATA_LOSS"',
    f'rpc_grpc_status_code="",rpc_response_status_code="",error_type!~"|{_CANCELLED}"',
)


def opentelemetry_http() -> Dialect:
    """HTTP and RPC durations: of servers for the services, of clients for the calls.

    Metric names of current and older conventions are read, in seconds or milliseconds as they say; see
    :func:`service_names` and :func:`peer_names` for service names. Requests of both protocols are added. A service that
    has histograms in seconds and in milliseconds has the latency of the first.

    Source: https://opentelemetry.io/docs/specs/semconv/http/http-metrics/,
    https://opentelemetry.io/docs/specs/semconv/rpc/rpc-metrics/ and
    https://grafana.com/docs/beyla/latest/metrics/.
    """
    service = Keys(service_names(CALLEE, "service_name"))
    helpers, callee = peer_names(CALLEE)
    call = Keys(service_names(CALLER, "service_name") + callee, helpers)
    # A call to the client's own host stays in the pod.
    to_others = 'server_address!="localhost",net_peer_name!="localhost",'
    services = view_queries(service, _view("server", ""))
    services["connections"] = Query(service.sum("http_server_active_requests{$match}"), service.labels)
    clients = "http_client_request_duration_seconds_count"
    enable = (
        "show server_address in them; Beyla hides it: add server_address to http_client_request_duration and "
        "rpc_client_duration in attributes.select, or enable its service graph and use "
        'source = ["opentelemetry", "opentelemetry-http"]'
    )
    return Dialect(
        "opentelemetry-http",
        services,
        view_queries(call, _view("client", to_others)),
        tuple(f"{name.format('server')}_count{{$match}}" for name, _ in (*_HTTP, *_RPC)),
        default_namespace=NO_NAMESPACE,
        gaps=(
            Gap(
                "client metrics",
                f"count({_all('server')}) unless on () count({_all('client')})",
                "calls are missing: there are services without a graph",
                "export the client metrics of OpenTelemetry too, or add a source with calls, such as "
                'source = ["opentelemetry", "opentelemetry-http"]',
                of_calls=True,
            ),
            Gap(
                "names of callees",
                f'count({clients}{{$match service_peer_name="",peer_service="",server_address="",net_peer_name=""}})',
                "calls of these clients are missing",
                enable,
                of_calls=True,
            ),
        ),
    )


def _all(side: str) -> str:
    return " or ".join(f"{name.format(side)}_count{{$match}}" for name, _ in (*_HTTP, *_RPC))


def _view(side: str, matchers: str) -> View:
    def every(part: str, names: tuple[tuple[str, float], ...], matcher: str = "") -> list[tuple[str, float]]:
        """Return the rates and units of all names, without processes that an earlier name counts."""
        rates: list[tuple[str, float]] = []
        for number, (name, unit) in enumerate(names):
            selector = f"$match {matchers}{matcher}" if matchers or matcher else "$match"
            rate = f"rate({name.format(side)}_{part}{{{selector}}}[$window])"
            if number:
                earlier = " or ".join(f"{before.format(side)}_count{{$match}}" for before, _ in names[:number])
                rate = f"({rate} unless on ({_PROCESS}) ({earlier}))"
            rates.append((rate, unit))
        return rates

    counts = [rate for names in (_HTTP, _RPC) for rate, _ in every("count", names)]
    buckets = [bucket for names in (_HTTP, _RPC) for bucket in every("bucket", names)]
    failures = [
        rate
        for names, failure_matchers in ((_HTTP, _HTTP_FAILED), (_RPC, _RPC_FAILED))
        for matcher in failure_matchers
        for rate, _ in every("count", names, matcher)
    ]
    seconds = added(*(rate for rate, unit in buckets if unit == SECONDS))
    milliseconds = added(*(rate for rate, unit in buckets if unit == MILLISECONDS))
    return View(added(*counts), added(*failures), ((seconds, SECONDS), (milliseconds, MILLISECONDS)))
