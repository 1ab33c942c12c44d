"""Istio: sidecars, the waypoints of ambient mode, or both in one mesh."""

from dataclasses import replace

from serve_app.collect.prometheus.naming import both
from serve_app.collect.prometheus.query import MILLISECONDS, Dialect, Query, by
from serve_app.collect.service_labels import LATE
from serve_app.settings.roles import Role

REPORTER = "?reporter"
# Envoy's response flags of a client that left: it closed the connection (DC) or reset the stream (DR).
_LEFT = "(.*,)?(DC|DR)(,.*)?"
_CLOSED = "2|13|14"  # gRPC statuses with which, among others, a server or proxy closes a stream
_FAULT = "4|8|10|12|15"  # the other gRPC statuses of server errors
_NOT_REAL = "BlackHoleCluster|PassthroughCluster|InboundPassthroughCluster.*"
_NAMESPACE, _NAME, _HOST = "destination_service_namespace", "destination_service_name", "destination_service"
_REAL = f'{_NAME}!~"{LATE}|{_NOT_REAL}",{_NAMESPACE}!="{LATE}"'
# Up to version 1.22, a destination's labels are not filled if no connection reached it. Its host is known.
_UNFILLED = (
    f'{_NAME}!~"{LATE}|{_NOT_REAL}",{_NAMESPACE}="{LATE}"',
    f'{_NAME}="{LATE}",{_HOST}=~".+[.].+"',
)


def istio(*, ambient: bool = False) -> Dialect:
    """Istio's standard metrics, from sidecars and waypoints [doc].

    A service is named as its callers address it, so a dead service is still visible. A caller is named by its canonical
    service until its Service is known.

    Args:
        ambient: for meshes with waypoints: calls that only the sidecar of the destination reports are read too. This
            doubles the work in a mesh of sidecars, where the source reports them all.
    """
    destination = (_NAMESPACE, _NAME)
    source = ("source_workload_namespace", "source_canonical_service")
    workload = ("destination_workload_namespace", "destination_workload")
    reporters = ("destination", "waypoint"), ("source", "waypoint", *(("destination",) if ambient else ()))
    server_side, caller_side = (f'$match reporter=~"{"|".join(names)}"' for names in reporters)
    callee, caller = f"{server_side},{_REAL}", f"{caller_side},{_REAL}"
    calls = _queries(caller, (*source, *destination, REPORTER))
    del calls["in_flight"], calls["cancelled"]
    # Hosts are read only where labels are not filled, because they make answers longer.
    by_host = (*source, f"{_NAMESPACE}|{_HOST}", f"{_NAME}|{_HOST}", REPORTER)
    for matchers in _UNFILLED:
        calls = both(calls, _queries(f"{caller_side},{matchers}", by_host))
    serving, running = (*workload, *destination), (*source, "source_workload_namespace", "source_workload")
    running_labels = by((*source, "source_workload"))
    return Dialect(
        "istio-ambient" if ambient else "istio",
        _queries(callee, (*destination, REPORTER)),
        {role: replace(query, labels=by_host) for role, query in calls.items()},
        (f'istio_requests_total{{$match reporter="{"waypoint" if ambient else "destination"}"}}',),
        frozenset({LATE}),
        Query(f"sum by ({by(serving)}) (istio_requests_total{{{callee}}})", serving, joined_by="max"),
        Query(f"group by ({running_labels}) (istio_requests_total{{{caller}}})", running, joined_by="max"),
        reporters=reporters,
        in_flight_of_durations=True,
    )


def _queries(selector: str, labels: tuple[str, ...]) -> dict[Role, Query]:
    requests, duration = f"istio_requests_total{{{selector}", "istio_request_duration_milliseconds"
    keys = by(labels)
    # Server errors: 5xx, or no response although the client waited. For gRPC the HTTP status is 200.
    failures = (
        f'{requests},response_code=~"5.."}}',
        f'{requests},response_code="0",response_flags!~"{_LEFT}"}}',
        f'{requests},response_code!~"5..|0",grpc_response_status=~"{_FAULT}"}}',
    )
    # A stream ends with one of these statuses when its server restarts, or at a connection's maximum age. That is not a
    # failure, so long requests are left out if durations are measured.
    closed_streams = f'{selector},response_code!~"5..|0",grpc_response_status=~"{_CLOSED}"'
    short = f'{duration}_bucket{{{closed_streams},le=~"$long_milliseconds"}}'
    short = f"min by ({keys}) (sum by ({keys}, le) (rate({short}[$window])))"
    closed_streams = f"({short} or sum by ({keys}) (rate(istio_requests_total{{{closed_streams}}}[$window])))"
    # A websocket ends when its client leaves, which does not count as giving up.
    cancellations = (
        f'{requests},response_code!~"5..|101",response_flags=~"{_LEFT}",grpc_response_status!~"{_CLOSED}|{_FAULT}"}}',
        f'{requests},response_code="499",response_flags!~"{_LEFT}"}}',
        f'{requests},response_code!~"5..|0|101|499",response_flags!~"{_LEFT}",grpc_response_status="1"}}',
    )
    failure_rates, cancellation_rates = (
        " or ".join(f"rate({series}[$window])" for series in several) for several in (failures, cancellations)
    )
    buckets = f"sum by ({by(labels, 'le')}) (rate({duration}_bucket{{{selector}}}[$window]))"
    in_flight = f"sum by ({keys}) (rate({duration}_sum{{{selector}}}[$window]))"
    return {
        "requests": Query(f"sum by ({keys}) (rate({requests}}}[$window]))", labels),
        "failures": Query(f"sum by ({keys}) ({failure_rates} or {closed_streams}) > 0", labels),
        "buckets": Query(buckets, labels, MILLISECONDS),
        "cancelled": Query(f"sum by ({keys}) ({cancellation_rates}) > 0", labels),
        "in_flight": Query(in_flight, labels, MILLISECONDS),
    }


def istio_ambient() -> Dialect:
    """Istio in ambient mode: :func:`istio` with waypoints and ztunnels."""
    return istio(ambient=True)
