"""Envoy's own metrics, for sidecars without a mesh."""

from serve_app.collect.prometheus.query import MILLISECONDS, Dialect, Query, by, escape, rate_queries
from serve_app.settings.roles import Role


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
        selector = f'$match {cluster}=~"{escape(names)}"'
        failed = f'envoy_cluster_upstream_rq_xx{{{selector},envoy_response_code_class="5"}}'
        return rate_queries(
            labels,
            f"envoy_cluster_upstream_rq_completed{{{selector}}}",
            (failed,),
            f"envoy_cluster_upstream_rq_time_bucket{{{selector}}}",
            MILLISECONDS,
        )

    def with_callee(query: Query) -> Query:
        promql = query.promql
        for group, label in enumerate(callee, 1):
            promql = f'label_replace({promql}, "{label}", "${group}", "{cluster}", "{escape(outbound)}")'
        return Query(promql, service + callee, query.unit)

    services = queries_of(inbound, service)
    in_use = f'sum by ({by(service)}) (envoy_cluster_upstream_cx_active{{$match {cluster}=~"{escape(inbound)}"}})'
    services["connections"] = Query(in_use, service)
    calls = {role: with_callee(query) for role, query in queries_of(outbound, (*service, cluster)).items()}
    return Dialect("envoy", services, calls, ("envoy_cluster_upstream_rq_completed{$match}",))
