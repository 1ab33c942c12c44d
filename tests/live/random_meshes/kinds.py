"""All kinds of random meshes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from tests.live.random_meshes.envoys import consul_series, envoy_series, kuma_series
from tests.live.random_meshes.front_doors import NGINX_DOORS, TRAEFIK_DOORS, nginx_series, traefik_series
from tests.live.random_meshes.processes import Counter, Scraping
from tests.live.random_meshes.proxies import hubble_series, istio_series, linkerd_series
from tests.live.random_meshes.spans import graph_series, http_series, span_series
from tests.live.random_meshes.world import HOSTS, NAMES, OTHER_NAMES, UNPROTECTED, Naming, Service, World


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of mesh: how its series are written, and its names, of which one naming is drawn."""

    write: Callable[[World, Random, Scraping], Iterator[Counter]]
    namings: tuple[Naming, ...] = (Naming(),)


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
}
# Only the controller in front of them measures these, so their latency is known of calls only.
WITHOUT_LATENCY: tuple[Service, ...] = (UNPROTECTED,)
