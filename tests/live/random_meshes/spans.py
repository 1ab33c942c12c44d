"""Processes that report to OpenTelemetry: a service graph, metrics of HTTP and RPC, metrics of spans."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from tests.live.random_meshes.processes import Counter, Labels, Process, Scraping
from tests.live.random_meshes.world import HOSTS, Service, Traffic, World, outcomes, total

_NAMED_BY = ("peer_service", "service_peer_name")  # hold the name of a service, not of a host
_COLLECTOR = {"job": "otel-collector", "namespace": "observability", "service": "otel-collector"}


def graph_series(world: World, rng: Random, scraping: Scraping) -> Iterator[Counter]:
    """The service graph of one or more collectors."""
    graph = "traces_service_graph_request"
    for one in world.traffic:
        labels = {
            "client": one.source.name if one.source else "user",
            "server": one.destination.name,
            "connection_type": "" if one.source else "virtual_node",
        }
        for process, share in scraping.processes(rng, "collector"):
            yield process.counter(f"{graph}_total", labels, one.rate * share)
            yield process.counter(f"{graph}_failed_total", labels, one.rate * one.failing * share)
            for side in ("server", "client"):
                yield from process.histogram(f"{graph}_{side}_seconds", labels, [one], share, unit=1.0)


@dataclass(frozen=True, slots=True)
class _Convention:
    """How a version of the semantic conventions names requests.

    Attributes:
        metric: name with ``{}`` for the side.
        unit: of the durations, s.
        good, bad: labels of outcomes.
        host: label with the host of the callee.
    """

    metric: str
    unit: float
    good: Labels
    bad: Labels
    host: str = "server_address"


_STATUS, _OLD_STATUS, _OLD_HOST = "http_response_status_code", "http_status_code", "net_peer_name"
_GRPC = "rpc_grpc_status_code"
_HTTP = (
    _Convention("http_{}_request_duration_seconds", 1.0, {_STATUS: "200"}, {_STATUS: "503"}),
    _Convention("http_{}_request_duration_seconds", 1.0, {_STATUS: "404"}, {"error_type": "java.io.IOException"}),
    _Convention("http_{}_duration_milliseconds", 1e-3, {_OLD_STATUS: "200"}, {_OLD_STATUS: "500"}, _OLD_HOST),
    _Convention("http_{}_duration_seconds", 1.0, {_OLD_STATUS: "200"}, {_OLD_STATUS: "502"}, _OLD_HOST),
)
_RPC = (
    _Convention(
        "rpc_{}_call_duration_seconds",
        1.0,
        {"rpc_response_status_code": "OK"},
        {"rpc_response_status_code": "UNAVAILABLE", "error_type": "UNAVAILABLE"},
    ),
    _Convention("rpc_{}_duration_milliseconds", 1e-3, {_GRPC: "0"}, {_GRPC: "14"}),
    _Convention("rpc_{}_duration_seconds", 1.0, {_GRPC: "5"}, {_GRPC: "13"}),
)


def http_series(world: World, rng: Random, scraping: Scraping) -> Iterator[Counter]:
    """Instrumented processes, some of which are migrated to another convention and export both meanwhile."""
    protocol = {one: rng.choice((_HTTP, _HTTP, _RPC)) for one in world.services}
    # Without a namespace of Kubernetes, a host is taken to be in its caller's.
    one_namespace = len({one.namespace for one in world.services}) == 1
    resource = rng.choice((_scraped, _received, _collected))
    in_kubernetes = not one_namespace or (world.naming.has_namespaces and rng.random() < 0.5)
    named_by = "" if world.naming.has_namespaces else rng.choice(("", *_NAMED_BY))
    for service in world.services:
        sides = [("server", service, world.into(service))]
        sides += [("client", one.destination, [one]) for one in world.out_of(service)]
        for process, share in scraping.processes(rng, service.workload):
            own = resource(service, process, world)
            own |= {"k8s_namespace_name": service.namespace} if in_kubernetes else {}
            exported = {len(one): process.rng.choices(one, k=2) for one in (_HTTP, _RPC)}
            for side, to, traffic in sides:
                for convention in {one.metric: one for one in exported[len(protocol[to])]}.values():
                    peer = _peer(service, to, convention.host, named_by, process.rng) if side == "client" else {}
                    yield from _durations(process, {**own, **peer}, side, convention, traffic, share)


def _durations(
    process: Process, labels: Labels, side: str, convention: _Convention, traffic: list[Traffic], share: float
) -> Iterator[Counter]:
    for outcome, some in outcomes(traffic, convention.good, convention.bad):
        metric = convention.metric.format(side)
        yield from process.histogram(metric, {**labels, **outcome}, some, share, convention.unit)


def _scraped(service: Service, process: Process, world: World) -> dict[str, str]:
    """Labels of Beyla, or of an SDK that Prometheus scrapes."""
    job = _job(service, world)
    if not world.naming.has_namespaces:
        return {"service_name": service.name, "job": job}
    return {
        "service_name": service.name,
        "service_namespace": service.namespace,
        "k8s_pod_name": process.pod,
        "namespace": "monitoring",
        "job": job,
    }


def _received(service: Service, process: Process, world: World) -> dict[str, str]:
    """Labels of an SDK that sends to Prometheus."""
    return {"job": _job(service, world), "instance": f"id-of-{process.pod}", "pod": ""}


def _collected(service: Service, process: Process, world: World) -> dict[str, str]:
    """Labels of an SDK that sends to a collector, which Prometheus scrapes."""
    exported = {"exported_job": _job(service, world), "exported_instance": f"id-of-{process.pod}"}
    return {**exported, **_COLLECTOR, "instance": "10.0.0.9:8889", "pod": "otel-collector-0"}


def _job(service: Service, world: World) -> str:
    return f"{service.namespace}/{service.name}" if world.naming.has_namespaces else service.name


def _peer(source: Service, to: Service, host: str, named_by: str, rng: Random) -> Labels:
    """How a client names the callee."""
    if named_by:
        return {named_by: to.name, host: "10.2.3.4"}
    names = [f"{to.name}.{to.namespace}", f"{to.name}.{to.namespace}.svc.cluster.local"]
    return {host: rng.choice([*names, to.name]) if source.namespace == to.namespace else rng.choice(names)}


@dataclass(frozen=True, slots=True)
class _SpanMetrics:
    """The names of one system: what metrics begin with, the durations and their unit, s, the label of the service."""

    prefix: str
    duration: str
    unit: float
    service: str


_SPAN_METRICS = (
    _SpanMetrics("traces_span_metrics_", "duration_milliseconds", 1e-3, "service_name"),
    _SpanMetrics("traces_span_metrics_", "duration_seconds", 1.0, "service_name"),
    _SpanMetrics("traces_spanmetrics_", "latency", 1.0, "service"),
    _SpanMetrics("traces_spanmetrics_", "duration_seconds", 1.0, "service_name"),
    _SpanMetrics("", "duration_milliseconds", 1e-3, "service_name"),
    _SpanMetrics("", "duration_seconds", 1.0, "service_name"),
)


def span_series(world: World, rng: Random, scraping: Scraping) -> Iterator[Counter]:
    """The metrics of spans of one system, or of two that count the same spans."""
    systems = {one.prefix: one for one in rng.choices(_SPAN_METRICS, k=2)}
    are_hosts = all(one.name in HOSTS for one in world.services)
    named_by = "" if world.naming.has_namespaces else rng.choice(("", *_NAMED_BY) if are_hosts else _NAMED_BY)
    for system in systems.values():
        for one in world.traffic:
            spans: list[tuple[str, Service, Labels]] = []
            spans.append(("CONSUMER" if rng.random() < 0.2 else "SERVER", one.destination, {}))
            if one.source:
                peer = _peer(one.source, one.destination, "server_address", named_by, rng)
                spans.append(("PRODUCER" if rng.random() < 0.2 else "CLIENT", one.source, peer))
            for kind, at, more in spans:
                own = {"span_kind": f"SPAN_KIND_{kind}", "span_name": f"{one.source.id if one.source else ''} GET"}
                own |= {system.service: at.name, **more}
                own |= {"k8s_namespace_name": at.namespace} if world.naming.has_namespaces else {}
                for process, share in scraping.processes(rng, "collector"):
                    yield from _spans(process, system, own, one, share)


def _spans(process: Process, system: _SpanMetrics, own: Labels, one: Traffic, share: float) -> Iterator[Counter]:
    scraped = _COLLECTOR if system.service != "service" else {}
    for status, some in outcomes([one], "STATUS_CODE_UNSET", "STATUS_CODE_ERROR"):
        labels = {**scraped, **own, "status_code": status}
        yield process.counter(f"{system.prefix}calls_total", labels, total(some) * share)
        yield from process.histogram(f"{system.prefix}{system.duration}", labels, some, share, system.unit)
