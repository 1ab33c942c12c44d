"""Envoy Gateway, an implementation of Kubernetes' Gateway API, as the front door of a mesh."""

from serve_app.collect.prometheus.dialects.envoy_mesh import cluster_view
from serve_app.collect.prometheus.dialects.front_door import front_door, one_label
from serve_app.collect.prometheus.query import Dialect, Gap

_BY_SERVICE = "(?:http|grpc)route/[^/]+/[^/]+/rule/[^/]+/([^/|]+)/([^/|]+)"
_BY_ROUTE = "(?:http|grpc)route/([^/]+)/([^/]+)/rule/.+"  # also where a rule has several Services
CLUSTERS = "(?:http|grpc)route/.+"
_NAME = "%ROUTE_KIND%/%ROUTE_NAMESPACE%/%ROUTE_NAME%/rule/%ROUTE_RULE_NUMBER%/%BACKEND_REFS%"


def envoy_gateway() -> Dialect:
    """The Envoys of Envoy Gateway, which name a cluster by the rule of a route: ``httproute/namespace/name/rule/0``.

    By default, the Service behind the rule is not known, so it has the name of the route. With ``clusterStatName``,
    the cluster's name ends with ``/namespace/name`` of the Service. Requests without a route are not counted.

    Source: ``api/v1alpha1/envoyproxy_metric_types.go`` of Envoy Gateway and
    https://gateway.envoyproxy.io/docs/tasks/observability/proxy-metric/.
    """
    selector = f'envoy_cluster_name=~"{CLUSTERS}"'
    metric = "envoy_cluster_upstream_rq_completed"
    return front_door(
        "envoy-gateway",
        "envoy",
        one_label("envoy_cluster_name", f"{_BY_SERVICE}|{_BY_ROUTE}", "$1$3", "$2$4"),
        cluster_view(selector),
        (f"{metric}{{$match {selector}}}",),
        gaps=(
            Gap(
                "names of services",
                f'count({metric}{{$match {selector},envoy_cluster_name!~"{_BY_SERVICE}.*"}})',
                "services behind the gateway have the names of their routes",
                f'set telemetry.metrics.clusterStatName to "{_NAME}" in the EnvoyProxy',
            ),
        ),
    )
