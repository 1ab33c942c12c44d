"""Envoy's own metrics, for sidecars without a mesh."""

from serve_app.collect.prometheus.dialects import contour, envoy_gateway
from serve_app.collect.prometheus.dialects.envoy_mesh import cluster_queries, sidecar_queries
from serve_app.collect.prometheus.naming import Derived, Keys, first_of
from serve_app.collect.prometheus.query import Dialect

CLUSTER = "envoy_cluster_name"
_INBOUND, _OUTBOUND = "inbound.*", "outbound_([^_]+)_(.+)"
_OF_GATEWAYS = f"{contour.CLUSTERS}|{envoy_gateway.CLUSTERS}|envoy-admin|service-stats.*|prometheus_stats|xds_cluster"


def envoy() -> Dialect:
    """Envoy's own metrics, for sidecars without a mesh.

    The scrape configuration must add the labels ``namespace`` and ``service`` of the sidecar's service. The name of the
    Envoy cluster identifies the callee: an underscore separates namespace and name, because Kubernetes names have none.
    """
    service = tuple(first_of(label, label) for label in ("namespace", "service"))
    callee = (
        Derived("destination_namespace", (CLUSTER,), _OUTBOUND, "$1"),
        Derived("destination_service", (CLUSTER,), _OUTBOUND, "$2"),
    )
    into, out_of = (f'{CLUSTER}=~"{names}"' for names in (_INBOUND, _OUTBOUND))
    return Dialect(
        "envoy",
        sidecar_queries(Keys(service), into),
        cluster_queries(Keys(service + callee), out_of),
        (f'envoy_cluster_upstream_rq_completed{{$match {CLUSTER}!~"{_OF_GATEWAYS}"}}',),
    )
