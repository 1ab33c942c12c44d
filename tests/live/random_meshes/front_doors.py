"""Ingress controllers in front of Istio."""

from collections.abc import Callable, Iterator
from random import Random

from tests.live.random_meshes.envoys import cluster
from tests.live.random_meshes.processes import Counter, Scraping
from tests.live.random_meshes.proxies import istio_series
from tests.live.random_meshes.world import FrontDoor, Service, World, outcomes, total

_NGINX = "nginx_ingress_controller"
NGINX_DOORS = (
    FrontDoor(Service("ingress-nginx", "ingress-nginx-controller", "ingress-nginx-controller"), in_mesh=False),
    FrontDoor(Service("ingress-nginx", "ingress-nginx", "ingress-nginx-controller"), in_mesh=True),
)
TRAEFIK_DOORS = tuple(FrontDoor(Service("traefik", "traefik", "traefik"), in_mesh) for in_mesh in (False, True))
KONG_DOORS = tuple(FrontDoor(Service("kong", "kong", "kong"), in_mesh) for in_mesh in (False, True))
CONTOUR_DOORS, GATEWAY_DOORS, HAPROXY_DOORS = (
    tuple(FrontDoor(Service(namespace, name, name), in_mesh, counts_all=False) for in_mesh in (False, True))
    for namespace, name in (
        ("projectcontour", "envoy"),
        ("envoy-gateway-system", "envoy-default-eg"),
        ("ingress", "haproxy"),
    )
)


def nginx_series(world: World, rng: Random, scraping: Scraping) -> Iterator[Counter]:
    """ingress-nginx. The scrape may rename labels of the Ingress, statuses may be classes."""
    door = _door(world)
    is_renamed, has_classes = rng.random() < 0.5, rng.random() < 0.5
    prefix = "exported_" if is_renamed else ""
    target = {"namespace": door.namespace, "service": f"{door.workload}-metrics"} if is_renamed else {}
    inside, outside = world.out_of(door), world.into(door)
    for process, share in scraping.processes(rng, door.workload):
        controller = {"controller_namespace": door.namespace, "controller_pod": process.pod, **target}
        # The whole requests, one by one those that the controller passes on; the others match no Ingress.
        for whole, passed in zip(reversed(outside), [*reversed(inside), None], strict=False):
            to = passed.destination if passed else None
            own = {**controller, "ingress": f"{to.name}-public" if to else rng.choice(("", "-"))}
            own |= {f"{prefix}namespace": to.namespace, f"{prefix}service": to.name} if to else {}
            good = "200" if passed else "404"
            statuses = (f"{good[0]}xx", "5xx") if has_classes else (good, "503")
            for status, some in outcomes([whole], *statuses):
                labels = {**own, "status": status}
                yield process.counter(f"{_NGINX}_requests", labels, total(some) * share)
                yield from process.histogram(f"{_NGINX}_request_duration_seconds", labels, some, share, unit=1.0)
            for status, some in outcomes([passed], *statuses) if passed else ():
                labels = {**own, "status": status}
                yield from process.histogram(f"{_NGINX}_response_duration_seconds", labels, some, share, unit=1.0)
    yield from istio_series(world.behind, rng, scraping)


def traefik_series(world: World, rng: Random, scraping: Scraping) -> Iterator[Counter]:
    """Traefik. The metrics of entry points may be left out, if they show the same as the metrics of services."""
    door = _door(world)
    label = rng.choice(("service", "exported_service"))
    ending = rng.choice(("80@kubernetes", "http-web@kubernetescrd", "web@kubernetescrd", "8080@kubernetesgateway"))
    inside, outside = world.out_of(door), world.into(door)
    has_entry_points = len(outside) > len(inside) or rng.random() < 0.5
    for process, share in scraping.processes(rng, door.workload):
        target = {"namespace": door.namespace, "job": "traefik/traefik"}
        ends = [
            ("service", [one], {label: f"{one.destination.namespace}-{one.destination.name}-{ending}"})
            for one in inside
        ]
        ends.append(("service", inside, {label: "api@internal"}))
        if has_entry_points:
            ends.append(("entrypoint", outside, {"entrypoint": "websecure"}))
            ends.append(("entrypoint", inside, {"entrypoint": "metrics"}))
        for metric, traffic, labels in ends:
            for code, some in outcomes(traffic, "200", "502"):
                own = {**target, **labels, "code": code, "protocol": "http"}
                yield process.counter(f"traefik_{metric}_requests_total", own, total(some) * share)
                yield from process.histogram(f"traefik_{metric}_request_duration_seconds", own, some, share, unit=1.0)
    yield from istio_series(world.behind, rng, scraping)


def contour_series(world: World, rng: Random, scraping: Scraping) -> Iterator[Counter]:
    """The Envoys of Contour, which also stream their configuration from it."""
    yield from _envoy_series(world, rng, scraping, lambda to: f"{to.namespace}_{to.name}_8080")
    yield from istio_series(world.behind, rng, scraping)


def envoy_gateway_series(world: World, rng: Random, scraping: Scraping) -> Iterator[Counter]:
    """Envoy Gateway. Its clusters are named by routes, which have the names of services here, or name services too."""
    shared = f"{rng.choice(('http', 'grpc'))}route"
    if rng.random() < 0.5:
        yield from _envoy_series(world, rng, scraping, lambda to: f"{shared}/{to.namespace}/{to.name}/rule/0")
    else:
        backend = "apps/routes/rule/{}"
        names = {to.destination: backend.format(i) for i, to in enumerate(world.out_of(_door(world)))}
        yield from _envoy_series(world, rng, scraping, lambda to: f"{shared}/{names[to]}/{to.namespace}/{to.name}")
    yield from istio_series(world.behind, rng, scraping)


def _envoy_series(world: World, rng: Random, scraping: Scraping, name: Callable[[Service], str]) -> Iterator[Counter]:
    door = _door(world)
    for process, share in scraping.processes(rng, door.workload):
        own = {"namespace": door.namespace, "job": "monitoring/envoys"}
        for one in world.out_of(door):
            yield from cluster(process, {**own, "envoy_cluster_name": name(one.destination)}, [one], share)
        for other in ("projectcontour_contour_8001", "envoy-admin", "service-stats", "prometheus_stats"):
            yield from cluster(process, {**own, "envoy_cluster_name": other}, world.out_of(door), share)


def haproxy_series(world: World, rng: Random, scraping: Scraping) -> Iterator[Counter]:
    """HAProxy behind either of its ingress controllers. It has no histograms."""
    door = _door(world)
    backend = rng.choice(("{}_{}_8080", "{}_{}_http", "{}_svc_{}_http"))
    for process, share in scraping.processes(rng, door.workload):
        own = {"namespace": door.namespace, "job": "haproxy"}
        ends = [(backend.format(one.destination.namespace, one.destination.name), [one]) for one in world.out_of(door)]
        for proxy, traffic in [*ends, ("stats", world.out_of(door)), ("_default_backend", world.out_of(door))]:
            labels = {**own, "proxy": proxy}
            yield process.counter("haproxy_backend_http_requests_total", labels, total(traffic) * share)
            for code, some in outcomes(traffic, "2xx", "5xx"):
                coded = {**labels, "code": code}
                yield process.counter("haproxy_backend_http_responses_total", coded, total(some) * share)
    yield from istio_series(world.behind, rng, scraping)


def kong_series(world: World, rng: Random, scraping: Scraping) -> Iterator[Counter]:
    """Kong with its ingress controller. Requests without a route have no service."""
    door = _door(world)
    label, port = rng.choice(("service", "exported_service")), rng.choice(("80", "http", "pnum-8080"))
    inside, outside = world.out_of(door), world.into(door)
    for process, share in scraping.processes(rng, door.workload):
        own = {"namespace": door.namespace, "job": "kong/kong", "workspace": "default"}
        for whole, passed in zip(reversed(outside), [*reversed(inside), None], strict=False):
            labels = {**own, label: "", "route": ""}
            if passed:
                to = passed.destination
                labels = {**own, label: f"{to.namespace}.{to.name}.{port}", "route": f"{to.namespace}.{to.name}.00"}
                yield from process.histogram("kong_upstream_latency_ms", labels, [passed], share, unit=1e-3)
            yield from process.histogram("kong_request_latency_ms", labels, [whole], share, unit=1e-3)
            for code, some in outcomes([whole], "200" if passed else "404", "503"):
                yield process.counter("kong_http_requests_total", {**labels, "code": code}, total(some) * share)
    yield from istio_series(world.behind, rng, scraping)


def _door(world: World) -> Service:
    assert world.front, "expected a naming with front doors"
    return world.front.service
