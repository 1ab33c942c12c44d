"""The service graph of OpenTelemetry's connector and of Tempo."""

from serve_app.collect.prometheus.query import SECONDS, Dialect, Query, rate_queries
from serve_app.settings.roles import Role


def opentelemetry() -> Dialect:
    """The service graph metrics of OpenTelemetry's connector and of Tempo [doc].

    ``client`` and ``server`` have no namespace by default. All values are measured by the callers.
    """
    server, client = ("=default", "server"), ("=default", "client")
    total, failed = (f"traces_service_graph_request_{kind}{{$match}}" for kind in ("total", "failed_total"))

    def queries_by(side: str, labels: tuple[str, ...]) -> dict[Role, Query]:
        return rate_queries(
            labels, total, (failed,), f"traces_service_graph_request_{side}_seconds_bucket{{$match}}", SECONDS
        )

    return Dialect(
        "opentelemetry",
        queries_by("server", server),
        queries_by("client", client + server),
        (total,),
        frozenset({"user", "unknown"}),
    )
