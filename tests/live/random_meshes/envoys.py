"""Sidecars that export only the metrics of Envoy, which counts the requests of all callers together."""

from collections.abc import Iterator, Sequence
from random import Random

from tests.live.random_meshes.processes import Counter, Labels, Process, Scraping
from tests.live.random_meshes.world import Service, Traffic, World, outcomes, total

_UPSTREAM = "envoy_cluster_upstream"
_KUMA_INBOUND = ("localhost_8080", "self_inbound_http", "self_inbound_8080")
_OF_KUMA = ("kuma_envoy_admin", "ads_cluster", "inbound_passthrough_ipv4", "_kuma_metrics_prometheus_mesh")


def envoy_series(world: World, rng: Random, scraping: Scraping) -> Iterator[Counter]:
    """Sidecars without a mesh."""
    for service in world.services:
        own = {"namespace": service.namespace, "service": service.name}
        clusters = [("inbound", world.into(service))]
        clusters += [
            (f"outbound_{one.destination.namespace}_{one.destination.name}", [one]) for one in world.out_of(service)
        ]
        for process, share in scraping.processes(rng, service.workload):
            for name, traffic in clusters:
                yield from cluster(process, {**own, "envoy_cluster_name": name}, traffic, share)


def kuma_series(world: World, rng: Random, scraping: Scraping) -> Iterator[Counter]:
    """Sidecars of Kuma in Kubernetes or, without namespaces, in Universal mode."""
    form = rng.choice(("services", "mesh-services", "identifiers"))
    is_completed = rng.random() < 0.5  # a profile of metrics may leave these out
    inbound = rng.choice(_KUMA_INBOUND)
    for service in world.services:
        own = {"mesh": "default", "kuma_io_service": _kuma_name(service, "services", world), "namespace": "kuma"}
        own |= {"namespace": service.namespace} if world.naming.has_namespaces else {}
        clusters = [(inbound, world.into(service))]
        clusters += [(_kuma_name(one.destination, form, world), [one]) for one in world.out_of(service)]
        clusters += [(name, world.into(service)) for name in _OF_KUMA]
        for process, share in scraping.processes(rng, service.workload):
            for name, traffic in clusters:
                yield from cluster(process, {**own, "envoy_cluster_name": name}, traffic, share, is_completed)


def _kuma_name(service: Service, form: str, world: World) -> str:
    if not world.naming.has_namespaces:
        return service.name
    namespace, name = service.namespace, service.name
    return {
        "services": f"{name}_{namespace}_svc_8080",
        "mesh-services": f"default_{name}_{namespace}_zone-1_msvc_8080",
        "identifiers": f"kri_msvc_default_zone-1_{namespace}_{name}_http",
    }[form]


def consul_series(world: World, rng: Random, scraping: Scraping) -> Iterator[Counter]:
    """Sidecars of Consul, which knows namespaces in its Enterprise edition only. A call may be split by subset."""
    is_old = rng.random() < 0.5  # with labels of earlier versions too
    subsets = rng.choice((("",), ("v1", "v2")))
    for service in world.services:
        own = {
            "local_cluster": service.name,
            "consul_source_service": service.name,
            "consul_source_namespace": service.namespace,
            "consul_source_datacenter": "dc1",
        }
        clusters = [({"envoy_cluster_name": rng.choice(("local_app", "local_app_8080"))}, world.into(service), 1.0)]
        clusters.append(({"envoy_cluster_name": "consul-dataplane"}, world.into(service), 1.0))
        for one in world.out_of(service):
            to = one.destination
            labels = {
                "envoy_cluster_name": to.name,
                "consul_destination_service": to.name,
                "consul_destination_namespace": to.namespace,
                "consul_destination_datacenter": "dc1",
                **({"consul_service": to.name, "consul_namespace": to.namespace} if is_old else {}),
            }
            clusters += [
                (labels | {"consul_destination_service_subset": subset}, [one], 1 / len(subsets)) for subset in subsets
            ]
        for process, share in scraping.processes(rng, service.workload):
            for labels, traffic, part in clusters:
                yield from cluster(process, {**own, **labels}, traffic, share * part)


def cluster(
    process: Process, labels: Labels, traffic: Sequence[Traffic], share: float, is_completed: bool = True
) -> Iterator[Counter]:
    if is_completed:
        yield process.counter(f"{_UPSTREAM}_rq_completed", labels, total(traffic) * share)
    for digit, some in outcomes(traffic, "2", "5"):
        classed = {**labels, "envoy_response_code_class": digit}
        yield process.counter(f"{_UPSTREAM}_rq_xx", classed, total(some) * share)
    yield from process.histogram(f"{_UPSTREAM}_rq_time", labels, traffic, share, unit=1e-3)
