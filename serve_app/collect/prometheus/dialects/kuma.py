"""Kuma and Kong Mesh."""

from serve_app.collect.prometheus.dialects.envoy_mesh import cluster_queries, serving, sidecar_queries
from serve_app.collect.prometheus.naming import CALLEE, CALLER, NO_NAMESPACE, Derived, Keys
from serve_app.collect.prometheus.query import Dialect, Gap

_INBOUND = 'kuma_io_service!="",envoy_cluster_name=~"localhost_.*|self_.*"'
_OWN_CLUSTERS = (  # of the proxy itself
    "localhost_.*|self_.*|system_.*|_?kuma_.*|ads_cluster|access_log_sink|envoy_grpc_streams|meshtrace_.*|plugins_.*|"
    ".*pass_?through.*|prometheus.*"
)
_OUTBOUND = f'kuma_io_service!="",envoy_cluster_name!~"|{_OWN_CLUSTERS}"'


def kuma() -> Dialect:
    """The sidecars of Kuma and Kong Mesh: metrics of Envoy with the labels that a MeshMetric policy adds.

    A sidecar is named by ``kuma_io_service``, a callee by the name of the Envoy cluster. In Kubernetes both are
    ``name_namespace_svc_port``; clusters of a MeshService are named ``mesh_name_namespace_zone_msvc_port`` or
    ``kri_msvc_mesh_zone_namespace_name_port``. In Universal mode a name has no namespace. The clusters
    ``localhost_PORT`` or ``self_PORT`` carry the requests into the service.

    Source: the dashboards in ``app/kumactl/data/install/k8s/metrics/grafana`` and the decision record 077 of Kuma;
    https://kuma.io/docs/latest/policies/meshmetric/.
    """
    service = Keys(_names("kuma_io_service", CALLEE))
    call = Keys(_names("kuma_io_service", CALLER) + _names("envoy_cluster_name", CALLEE))
    metric = "envoy_cluster_upstream_rq_xx"
    return Dialect(
        "kuma",
        sidecar_queries(service, _INBOUND),
        cluster_queries(call, _OUTBOUND),
        (f'{metric}{{$match kuma_io_service!=""}}', 'envoy_cluster_upstream_rq_completed{$match kuma_io_service!=""}'),
        serves=serving(service, _INBOUND),
        gaps=(
            Gap(
                "HTTP metrics",
                f"count(envoy_cluster_upstream_cx_active{{$match {_INBOUND}}}) unless on () "
                f"count({metric}{{$match {_INBOUND}}})",
                "services have no requests: Kuma treats them as TCP",
                "set appProtocol: http (or grpc) on the ports of the Services",
            ),
        ),
    )


def _names(label: str, labels: tuple[str, str]) -> tuple[Derived, Derived]:
    part, any_part = "[^_]+", "[^_]*"
    resource = f"kri_[a-z]+_{any_part}_{any_part}_({any_part})_({part})_.*"
    kubernetes = f"({part})_({part})_svc(?:[_-].*)?"
    mesh_service = f"{part}_({part})_({any_part})_{any_part}_[a-z]*svc_.*"
    return (
        Derived(labels[0], (label,), f"{resource}|{kubernetes}|{mesh_service}", "$1$4$6", NO_NAMESPACE),
        Derived(labels[1], (label,), f"{resource}|{kubernetes}|{mesh_service}|(.+)", "$2$3$5$7"),
    )
