"""Linkerd's proxies."""

from serve_app.collect.prometheus.query import MILLISECONDS, Dialect, Query, by, rate_queries
from serve_app.settings.roles import Role


def linkerd() -> Dialect:
    """Linkerd's proxies [doc]: requests into a deployment, and requests from a deployment to a service."""
    service = ("namespace", "deployment")
    call = ("namespace", "deployment", "dst_namespace", "dst_service")

    def queries_of(direction: str, labels: tuple[str, ...]) -> dict[Role, Query]:
        side = f'$match direction="{direction}"' + (',dst_service!=""' if direction == "outbound" else "")
        return rate_queries(
            labels,
            f"request_total{{{side}}}",
            (f'response_total{{{side},classification="failure"}}',),
            f"response_latency_ms_bucket{{{side}}}",
            MILLISECONDS,
        )

    services = queries_of("inbound", service)
    services["connections"] = Query(
        f'sum by ({by(service)}) (tcp_open_connections{{$match direction="inbound"}})', service
    )
    return Dialect("linkerd", services, queries_of("outbound", call), ("response_latency_ms_bucket{$match}",))
