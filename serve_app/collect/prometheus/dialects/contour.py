"""The ingress controller Contour, as the front door of a mesh."""

from serve_app.collect.prometheus.dialects.envoy_mesh import cluster_view
from serve_app.collect.prometheus.dialects.front_door import front_door, one_label
from serve_app.collect.prometheus.query import Dialect

CLUSTERS = "([^_]+)_([^_]+)_[0-9]+"  # namespace, Service and port


def contour() -> Dialect:
    """The Envoys of Contour, which name a cluster by its Service: ``namespace_name_port``.

    Requests without a route are not counted. Contour itself, which configures the Envoys, does not count as a service
    behind them.

    Source: ``internal/envoy/cluster.go`` of Contour and https://projectcontour.io/docs/main/guides/prometheus/.
    """
    clusters = f'envoy_cluster_name=~"{CLUSTERS}",envoy_cluster_name!~"outbound_.*|local_app_.*|.+_contour_8001"'
    selector = f'{clusters},kuma_io_service=""'  # sidecars of Kuma have clusters like self_inbound_8080
    view = cluster_view(selector)
    callee = one_label("envoy_cluster_name", CLUSTERS, "$1", "$2")
    return front_door("contour", "envoy", callee, view, (f"envoy_cluster_upstream_rq_completed{{$match {selector}}}",))
