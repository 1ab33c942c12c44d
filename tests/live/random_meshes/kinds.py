"""All kinds of random meshes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from tests.live.random_meshes.envoys import consul_series, envoy_series, kuma_series
from tests.live.random_meshes.front_doors import (
    CONTOUR_DOORS,
    GATEWAY_DOORS,
    HAPROXY_DOORS,
    KONG_DOORS,
    NGINX_DOORS,
    TRAEFIK_DOORS,
    contour_series,
    envoy_gateway_series,
    haproxy_series,
    kong_series,
    nginx_series,
    traefik_series,
)
from tests.live.random_meshes.processes import Counter, Scraping
from tests.live.random_meshes.proxies import hubble_series, istio_series, linkerd_series
from tests.live.random_meshes.spans import graph_series, http_series, span_series
from tests.live.random_meshes.world import HOSTS, NAMES, OTHER_NAMES, UNPROTECTED, Naming, Service, World


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of mesh.

    Attributes:
        write: writes its series.
        namings: of which one is drawn.
        has_latency: whether its front door measures latencies.
    """

    write: Callable[[World, Random, Scraping], Iterator[Counter]]
    namings: tuple[Naming, ...] = (Naming(),)
    has_latency: bool = True


SAME = Naming(other_workloads=False)
HOST_NAMES = Naming(HOSTS, other_workloads=False)
ONE_NAMESPACE = Naming(HOSTS, has_namespaces=False, other_workloads=False)
ANY_NAME = Naming(NAMES + OTHER_NAMES, has_namespaces=False, other_workloads=False)
KINDS = {
    "istio": Kind(istio_series),
    "linkerd": Kind(linkerd_series, (Naming(entry_has_service=False),)),
    "hubble": Kind(hubble_series, (SAME,)),
    "envoy": Kind(envoy_series, (SAME,)),
    "kuma": Kind(kuma_series, (HOST_NAMES, HOST_NAMES, ONE_NAMESPACE)),
    "consul": Kind(consul_series, (HOST_NAMES, ONE_NAMESPACE)),
    "opentelemetry": Kind(graph_series, (ANY_NAME,)),
    "opentelemetry-http": Kind(http_series, (HOST_NAMES, ONE_NAMESPACE)),
    "span-metrics": Kind(span_series, (HOST_NAMES, ANY_NAME)),
    "nginx-ingress": Kind(nginx_series, (Naming(front_doors=NGINX_DOORS),)),
    "traefik": Kind(traefik_series, (Naming(front_doors=TRAEFIK_DOORS),)),
    "contour": Kind(contour_series, (Naming(front_doors=CONTOUR_DOORS),)),
    "envoy-gateway": Kind(envoy_gateway_series, (Naming(front_doors=GATEWAY_DOORS),)),
    "haproxy-ingress": Kind(haproxy_series, (Naming(front_doors=HAPROXY_DOORS),), has_latency=False),
    "kong": Kind(kong_series, (Naming(HOSTS, front_doors=KONG_DOORS),)),  # whose names split Services at dots
}
# Only the controller in front of them measures these, so their latency is known of calls only.
WITHOUT_LATENCY: tuple[Service, ...] = (UNPROTECTED,)
