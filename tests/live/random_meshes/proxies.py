"""Proxies that name both ends of a request: Istio's, Linkerd's and Hubble's."""

from collections.abc import Iterator
from random import Random

from tests.live.random_meshes.processes import Counter, Labels, Scraping
from tests.live.random_meshes.world import Service, World, outcomes, total

WORKLOADS = ("deployment", "statefulset", "daemonset", "replicaset")
CONTEXTS = ("workload", "app", "names", "pods")  # how Hubble names an end
_NAMESPACE, _NAME = "destination_service_namespace", "destination_service_name"
_LATE = (  # labels of Istio up to 1.22 that are not filled if a call is refused
    (_NAMESPACE, "destination_workload", "destination_workload_namespace"),
    (_NAME,),
    (_NAMESPACE, _NAME),
    (_NAMESPACE, "destination_service"),
    ("destination_cluster", _NAMESPACE),
)


def istio_series(world: World, rng: Random, scraping: Scraping) -> Iterator[Counter]:
    """Sidecars on both ends; or waypoints of some services, which report what a sidecar of the caller reports too."""
    waypoints = {one for one in world.services if rng.random() < rng.choice((0.0, 0.0, 0.5, 1.0))}
    late = rng.choice(_LATE) if scraping.condition == "late labels" else ()
    for one in world.traffic:
        to, grpc = one.destination, rng.random() < 0.3
        labels = {
            "source_workload_namespace": one.source.namespace if one.source else "unknown",
            "source_workload": one.source.workload if one.source else "unknown",
            "source_canonical_service": _canonical(world, one.source) if one.source else "unknown",
            "destination_workload_namespace": to.namespace,
            "destination_workload": to.workload,
            "destination_canonical_service": _canonical(world, to),
            _NAMESPACE: to.namespace,
            _NAME: to.name,
            "destination_service": f"{to.name}.{to.namespace}.svc.cluster.local",
            "destination_cluster": "east",
            "request_protocol": "grpc" if grpc else "http",
        }
        good = {"response_code": "200", "response_flags": "-", **({"grpc_response_status": "0"} if grpc else {})}
        bad = {**good, "grpc_response_status": "14"} if grpc else {"response_code": "503", "response_flags": "UF"}
        reporters = [("waypoint" if to in waypoints else "destination", to)]
        if one.source and (to not in waypoints or rng.random() < 0.5):
            reporters.append(("source", one.source))
        for reporter, at in reporters:
            for process, share in scraping.processes(rng, at.workload):
                for outcome, some in outcomes([one], good, bad):
                    own = {"reporter": reporter, **labels, **outcome}
                    if late and outcome is bad and reporter == "source":
                        own |= dict.fromkeys(late, "unknown")
                    yield process.counter("istio_requests_total", own, total(some) * share)
                    yield from process.histogram("istio_request_duration_milliseconds", own, some, share, unit=1e-3)


def _canonical(world: World, service: Service) -> str:
    """The canonical name: of a controller the one of its chart, else the workload's."""
    return service.workload if service in world.services else service.name


def linkerd_series(world: World, rng: Random, scraping: Scraping) -> Iterator[Counter]:
    """Proxies of all kinds of workloads."""
    kind = {one: rng.choice(WORKLOADS) for one in world.services}
    for one in world.traffic:
        to = one.destination
        sides = [("inbound", to, {"namespace": to.namespace, kind[to]: to.workload})]
        if one.source:
            outbound = {
                "namespace": one.source.namespace,
                kind[one.source]: one.source.workload,
                "dst_namespace": to.namespace,
                "dst_service": to.name,
                f"dst_{kind[to]}": to.workload,
            }
            sides.append(("outbound", one.source, outbound))
        for direction, at, labels in sides:
            for process, share in scraping.processes(rng, at.workload):
                # Each caller has a client id of its own, or the inbound series of two callers would be the same.
                own = {"direction": direction, **labels, "client_id": one.source.id if one.source else ""}
                yield process.counter("request_total", own, one.rate * share)
                for outcome, some in outcomes([one], "success", "failure"):
                    counted = {**own, "classification": outcome}
                    yield process.counter("response_total", counted, total(some) * share)
                yield from process.histogram("response_latency_ms", own, [one], share, unit=1e-3)


def hubble_series(world: World, rng: Random, scraping: Scraping) -> Iterator[Counter]:
    """Agents of the nodes. A policy makes requests visible where they leave a pod, where they enter one, or both."""
    context = rng.choice(CONTEXTS)
    entered = {one for one in world.services if world.into(one)[0].source is None or rng.random() < 0.6}
    left = {one for one in world.services if rng.random() < 0.5}
    left |= {one.source for one in world.traffic if one.source and one.destination not in entered}
    for one in world.traffic:
        ends = {**_end("source", one.source, context), **_end("destination", one.destination, context)}
        for reporter, is_seen in (("client", one.source in left), ("server", one.destination in entered)):
            for process, share in scraping.processes(rng, "cilium") if is_seen else ():
                own = {**ends, "method": "GET", "reporter": reporter}
                for status, some in outcomes([one], "200", "503"):
                    counted = {**own, "protocol": "HTTP/1.1", "status": status}
                    yield process.counter("hubble_http_requests_total", counted, total(some) * share)
                yield from process.histogram("hubble_http_request_duration_seconds", own, [one], share, unit=1.0)


def _end(end: str, service: Service | None, context: str) -> Labels:
    namespace, name = (service.namespace, service.name) if service else ("", "")
    if context in ("workload", "app"):
        return {f"{end}_namespace": namespace, f"{end}_{context}": name}
    if service is None:
        return {end: "reserved:world" if context == "names" else ""}
    return {end: f"{namespace}/{name}" + ("-7d9f8b6c5d-x7k2p" if context == "pods" else "")}
