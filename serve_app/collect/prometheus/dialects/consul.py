"""Consul's service mesh."""

from serve_app.collect.prometheus.dialects.envoy_mesh import cluster_queries, serving, sidecar_queries
from serve_app.collect.prometheus.naming import CALLEE, CALLER, NO_NAMESPACE, Derived, Keys, first_of
from serve_app.collect.prometheus.query import Dialect, Gap, Query, by


def consul() -> Dialect:
    """The sidecars of Consul's service mesh: metrics of Envoy with the labels that Consul adds.

    A sidecar is named by ``consul_source_service``, else by ``local_cluster``. The cluster ``local_app`` has the
    requests into the service; clusters with ``consul_destination_service`` have its calls. The namespace is Consul's,
    ``default`` where it has no others. A terminating gateway counts the requests to external services again. It has no
    service of its own, and it lets no requests into the mesh, as API gateways and ingress gateways do.

    Source: ``command/connect/envoy`` and ``agent/xds/listeners_ingress.go`` of Consul, and
    https://developer.hashicorp.com/consul/docs/observe/grafana.
    """
    inbound, outbound = 'envoy_cluster_name=~"local_app(_.*)?"', 'consul_destination_service!=""'
    service, caller = _sidecar(CALLEE), _sidecar(CALLER)
    callee = (
        Derived(CALLEE[0], ("consul_destination_namespace",), otherwise=NO_NAMESPACE),
        Derived(CALLEE[1], ("consul_destination_service",)),
    )
    keys, callers, metric = Keys(service), Keys(caller), "envoy_cluster_upstream_rq_xx"
    no_relays = (
        f"{metric}{{$match {inbound}}}",
        f"envoy_cluster_upstream_cx_active{{$match {inbound}}}",
        'envoy_http_downstream_rq_xx{$match envoy_http_conn_manager_prefix=~"ingress_upstream_.*"}',
    )
    relays = callers.sum(f"{metric}{{$match {outbound}}}"), callers.sum(" or ".join(no_relays))
    return Dialect(
        "consul",
        sidecar_queries(keys, f'{inbound},local_cluster!=""'),
        cluster_queries(Keys(caller + callee), outbound),
        (f'{metric}{{$match consul_source_service!=""}}', f"{metric}{{$match {outbound}}}"),
        serves=serving(keys, f'{inbound},local_cluster!=""'),
        relays=Query(f" unless on ({by(callers.labels)}) ".join(relays), callers.labels),
        default_namespace=NO_NAMESPACE,
        gaps=(
            Gap(
                "HTTP metrics",
                "count(envoy_cluster_upstream_cx_active{$match "
                f'{inbound},local_cluster!=""}}) unless on () count({metric}{{$match {inbound}}})',
                "services have no requests: Consul treats them as TCP",
                'set protocol = "http" (or "grpc") in proxy-defaults or in the service-defaults of each service',
            ),
        ),
    )


def _sidecar(labels: tuple[str, str]) -> tuple[Derived, Derived]:
    return (
        Derived(labels[0], ("consul_source_namespace",), otherwise=NO_NAMESPACE),
        first_of(labels[1], "consul_source_service", "local_cluster"),
    )
