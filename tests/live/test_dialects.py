"""Each kind of mesh, read from a real Prometheus that has the series which that system writes.

Every case is the same small mesh: web calls cart, and cart calls ledger in another namespace. The rates, failures and
latencies of all are known. Each case has a period of its own in the history of one Prometheus.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

import pytest

from model.snapshot import MeshSnapshot
from serve_app.collect.base import Poll
from serve_app.collect.prometheus.detect import FoundGap, MeshSource
from serve_app.collect.service_labels import ADDRESSES
from serve_app.settings import CollectorSettings, MeshSettings
from tests.live.history import prometheus_with_lines
from tests.live.programs import needs
from tests.live.written import LENGTH, Labels, Written, write

pytestmark = [pytest.mark.live, needs("prometheus", "promtool")]
PATIENT = CollectorSettings(deadline_seconds=60)
Service = tuple[str, str]


@dataclass(frozen=True)
class Traffic:
    """Requests, 1/s; the share that fails; the upper bound of the bucket of the latency, s."""

    rate: float
    failing: float
    latency: float

    @property
    def failures(self) -> float:
        return self.rate * self.failing

    @property
    def successes(self) -> float:
        return self.rate - self.failures


WEB, CART, LEDGER = ("shop", "web"), ("shop", "cart"), ("bank", "ledger")
SERVICES = {WEB: Traffic(30, 0.05, 0.25), CART: Traffic(20, 0.1, 0.1), LEDGER: Traffic(12, 0.25, 0.05)}
CALLS = {(WEB, CART): Traffic(20, 0.1, 0.1), (CART, LEDGER): Traffic(12, 0.25, 0.05)}
NAMED = {service: f"{service[0]}/{service[1]}" for service in SERVICES}


def responses(
    out: Written, labels: Labels, traffic: Traffic, good: Labels, bad: Labels, *, counter: str = "", histogram: str = ""
) -> None:
    """Write the requests that succeed and those that fail, which have other labels: their number, or their durations,
    or both."""
    for more, rate in ((good, traffic.successes), (bad, traffic.failures)):
        if counter:
            out.counter(counter, {**labels, **more}, rate)
        if histogram:
            out.histogram(histogram, {**labels, **more}, rate, traffic.latency)


def with_labels(write: Callable[[Written], None], change: Callable[[Labels], Labels]) -> Callable[[Written], None]:
    """The same series with other labels."""

    def write_with_labels(out: Written) -> None:
        plain = Written(out.begin)
        write(plain)
        for metric, rows in plain.rows.items():
            out.rows.setdefault(metric, []).extend((change(labels), grows, value) for labels, grows, value in rows)

    return write_with_labels


# ---------------------------------------------------------------------------------------------------------------------
# Hubble


def hubble_traffic(out: Written, labels: Labels, traffic: Traffic, reporter: str) -> None:
    own = {**labels, "method": "GET", "reporter": reporter}
    good, bad = ({"protocol": "HTTP/1.1", "status": status} for status in ("200", "503"))
    responses(out, own, traffic, good, bad, counter="hubble_http_requests_total")
    out.histogram("hubble_http_request_duration_seconds", own, traffic.rate, traffic.latency)


def hubble_plain(out: Written) -> None:
    """httpV2 without a labelsContext."""
    for reporter in ("client", "server"):
        for (source, destination), traffic in {**CALLS, (("", ""), WEB): SERVICES[WEB]}.items():
            ends = {"source_namespace": source[0], "destination_namespace": destination[0]}
            hubble_traffic(out, ends, traffic, reporter)


# ---------------------------------------------------------------------------------------------------------------------
# OpenTelemetry: semantic conventions, Beyla, span metrics


def beyla(out: Written) -> None:
    def own(service: Service) -> Labels:
        namespace, name = service
        return {
            "service_name": name,
            "service_namespace": namespace,
            "k8s_namespace_name": namespace,
            "k8s_deployment_name": name,
            "k8s_pod_name": f"{name}-7d9f8b6c5d-x7k2p",
            "instance": f"{namespace}.{name}-7d9f8b6c5d-x7k2p.{name}",
            "job": f"{namespace}/{name}",
        }

    good, bad = ({"http_response_status_code": status} for status in ("200", "500"))
    for service, traffic in SERVICES.items():
        labels = {**own(service), "http_request_method": "GET"}
        responses(out, labels, traffic, good, bad, histogram="http_server_request_duration_seconds")
    for (source, (namespace, name)), traffic in CALLS.items():
        host = name if namespace == source[0] else f"{name}.{namespace}"
        labels = {**own(source), "server_port": "8080", "server_address": host}
        responses(out, labels, traffic, good, bad, histogram="http_client_request_duration_seconds")


def sdk(out: Written) -> None:
    """An SDK whose metrics Prometheus receives over OTLP: the job names the service, requests fail by an exception,
    one service answers RPC with durations in milliseconds."""

    def own(service: Service) -> Labels:
        return {"job": "/".join(service), "instance": f"id-of-{service[1]}"}

    for service, traffic in SERVICES.items():
        ok, failed = {"http_response_status_code": "200"}, {"error_type": "java.lang.IllegalStateException"}
        metric = "http_server_request_duration_seconds"
        if service == LEDGER:
            ok, failed = {"rpc_grpc_status_code": "0"}, {"rpc_grpc_status_code": "13"}
            metric = "rpc_server_duration_milliseconds"
        responses(out, own(service), traffic, ok, failed, histogram=metric)
    for (source, destination), traffic in CALLS.items():
        ok, failed = {"http_response_status_code": "200"}, {"http_response_status_code": "502", "error_type": "502"}
        metric = "http_client_request_duration_seconds"
        if destination == LEDGER:
            ok, failed = {"rpc_grpc_status_code": "0"}, {"rpc_grpc_status_code": "14"}
            metric = "rpc_client_duration_milliseconds"
        labels = {**own(source), "server_address": destination[1], "server_port": "8080"}
        responses(out, labels, traffic, ok, failed, histogram=metric)
    # A call to the pod itself counts for no service. Addresses are one service.
    for address in ("localhost", "10.2.3.4", "fd00::1"):
        out.histogram("http_client_request_duration_seconds", {**own(WEB), "server_address": address}, 3, 0.05)


def old_convention(out: Written) -> None:
    """Durations in milliseconds through a collector that Prometheus scrapes. Cart reports both conventions while it is
    migrated."""

    def own(service: Service) -> Labels:
        return {
            "exported_job": "/".join(service),
            "exported_instance": f"id-of-{service[1]}",
            "job": "otel-collector",
            "instance": "10.0.0.9:8889",
            "namespace": "observability",
            "service": "otel-collector",
        }

    good, bad = {"http_status_code": "200"}, {"http_status_code": "503"}
    for service, traffic in SERVICES.items():
        responses(out, own(service), traffic, good, bad, histogram="http_server_duration_milliseconds")
    new = ({"http_response_status_code": status} for status in ("200", "503"))
    responses(out, own(CART), SERVICES[CART], *new, histogram="http_server_request_duration_seconds")
    for (source, (namespace, name)), traffic in CALLS.items():
        labels = {**own(source), "net_peer_name": f"{name}.{namespace}.svc.cluster.local"}
        responses(out, labels, traffic, good, bad, histogram="http_client_duration_milliseconds")


def spans(out: Written, calls: str, duration: str, name: str, peers: bool = True) -> None:
    good, bad = ({"status_code": f"STATUS_CODE_{status}"} for status in ("UNSET", "ERROR"))
    for service, traffic in SERVICES.items():
        own = {name: service[1], "span_kind": "SPAN_KIND_SERVER", "span_name": "GET /"}
        responses(out, own, traffic, good, bad, counter=calls, histogram=duration)
    for (source, destination), traffic in CALLS.items():
        own = {name: source[1], "span_kind": "SPAN_KIND_CLIENT", "span_name": "GET"}
        own |= {"server_address": destination[1]} if peers else {}
        responses(out, own, traffic, good, bad, counter=calls, histogram=duration)


def connector_spans(out: Written) -> None:
    spans(out, "traces_span_metrics_calls_total", "traces_span_metrics_duration_milliseconds", "service_name")


def with_dots(labels: Labels) -> Labels:
    """The callee is named as its service is, with a dot; also where its host is known."""
    named = {name: "ledger.v2" if text == "ledger" else text for name, text in labels.items()}
    if "server_address" in named:
        named |= {"peer_service": named["server_address"], "server_address": "a.host.elsewhere"}
    return named


POD = "-7d9f8b6c5d-x7k2p"


def with_pods(labels: Labels) -> Labels:
    """The peers of spans and of graphs are pods, or hosts with a port."""
    peers = {"client": f"web{POD}", "server": "cart.shop.svc.cluster.local:8080", "server_address": f"cart{POD}"}
    was = {"client": "web", "server": "cart", "server_address": "cart"}
    return {name: peers[name] if name in was and text == was[name] else text for name, text in labels.items()}


def with_visitors(labels: Labels) -> Labels:
    """Beyla's service graph: one client for each address of a visitor."""
    client = "203.0.113.7" if labels["client"] == "user" else labels["client"]
    return {**labels, "client": client, "connection_type": "virtual_node", "source": "beyla"}


def graph(out: Written) -> None:
    edges = {("user", WEB[1]): SERVICES[WEB], **{(a[1], b[1]): traffic for (a, b), traffic in CALLS.items()}}
    for (client, server), traffic in edges.items():
        labels = {"client": client, "server": server, "connection_type": "virtual_node" if client == "user" else ""}
        out.counter("traces_service_graph_request_total", labels, traffic.rate)
        out.counter("traces_service_graph_request_failed_total", labels, traffic.failures)
        for side in ("client", "server"):
            out.histogram(f"traces_service_graph_request_{side}_seconds", labels, traffic.rate, traffic.latency)


def spans_beside_graph(out: Written) -> None:
    spans(out, "traces_span_metrics_calls_total", "traces_span_metrics_duration_seconds", "service_name", peers=False)
    graph(out)


# ---------------------------------------------------------------------------------------------------------------------
# Kuma and Consul


def envoy_cluster(out: Written, labels: Labels, traffic: Traffic, cx: bool = False) -> None:
    metric = "envoy_cluster_upstream"
    out.counter(f"{metric}_rq_completed", labels, traffic.rate)
    out.counter(f"{metric}_rq_total", labels, traffic.successes)
    good, bad = ({"envoy_response_code_class": digit} for digit in "25")
    responses(out, labels, traffic, good, bad, counter=f"{metric}_rq_xx")
    out.histogram(f"{metric}_rq_time", labels, traffic.rate, traffic.latency)
    if cx:
        out.gauge(f"{metric}_cx_active", labels, 7)


def kuma_universal(out: Written) -> None:
    def own(service: Service) -> Labels:
        pod = f"{service[1]}-7d9f8b6c5d-x7k2p"
        return {"mesh": "default", "kuma_io_service": service[1], "namespace": service[0], "pod": pod}

    for service, traffic in SERVICES.items():
        envoy_cluster(out, {**own(service), "envoy_cluster_name": "localhost_8080"}, traffic, cx=True)
        for noise in ("kuma_envoy_admin", "ads_cluster", "inbound_passthrough_ipv4", "kuma_metrics_hijacker"):
            envoy_cluster(out, {**own(service), "envoy_cluster_name": noise}, Traffic(1, 0, 0.01))
    for (source, destination), traffic in CALLS.items():
        envoy_cluster(out, {**own(source), "envoy_cluster_name": destination[1]}, traffic)


def with_hashes(labels: Labels) -> Labels:
    """A route that splits by tags names clusters with a hash."""
    name = labels["envoy_cluster_name"]
    return {**labels, "envoy_cluster_name": f"{name}-4f3a9c1d2b5e6f70" if name in ("cart", "ledger") else name}


def consul(out: Written) -> None:
    def own(service: Service) -> Labels:
        return {
            "local_cluster": service[1],
            "consul_source_service": service[1],
            "consul_source_namespace": service[0],
            "consul_source_datacenter": "dc1",
            "namespace": service[0],
            "pod": f"{service[1]}-7d9f8b6c5d-x7k2p",
        }

    for service, traffic in SERVICES.items():
        envoy_cluster(out, {**own(service), "envoy_cluster_name": "local_app"}, traffic, cx=True)
        envoy_cluster(out, {**own(service), "envoy_cluster_name": "consul-dataplane"}, Traffic(1, 0, 0.01))
    for (source, destination), traffic in CALLS.items():
        to = {
            "envoy_cluster_name": destination[1],
            "consul_destination_service": destination[1],
            "consul_destination_namespace": destination[0],
            "consul_destination_datacenter": "dc1",
            "consul_service": destination[1],  # of earlier versions
            "consul_namespace": destination[0],
        }
        envoy_cluster(out, {**own(source), **to}, traffic)


PAYMENT, AUDIT = ("partners", "payment"), ("partners", "audit")


def consul_gateways(out: Written, gateway: Labels) -> None:
    """A terminating gateway passes on the requests to a service outside of the mesh: of a service, and of an API
    gateway. Those to another one come from a service without a sidecar."""
    consul(out)

    def to(service: Service) -> Labels:
        cluster = f"{service[1]}.{service[0]}.dc1.internal.consul"
        names = {"consul_destination_service": service[1], "consul_destination_namespace": service[0]}
        return {"envoy_cluster_name": cluster, **names}

    of_service, of_door = (
        {"local_cluster": name, "consul_source_service": name, "consul_source_namespace": "shop"}
        for name in ("cart", CONSUL_DOOR[1])
    )
    for labels, traffic in ((of_service, TO_PAYMENT), (of_door, TO_PAYMENT), (gateway, BOTH_TO_PAYMENT)):
        envoy_cluster(out, {**labels, **to(PAYMENT)}, traffic)
    envoy_cluster(out, {**gateway, **to(AUDIT)}, TO_PAYMENT)
    prefix = {"envoy_http_conn_manager_prefix": "ingress_upstream_8080", "envoy_response_code_class": "2"}
    out.counter("envoy_http_downstream_rq_xx", {**of_door, **prefix}, TO_PAYMENT.rate)


CONSUL_DOOR, EGRESS = ("shop", "api-gateway"), ("default", "egress")
TO_PAYMENT, BOTH_TO_PAYMENT = Traffic(5, 0.2, 0.25), Traffic(10, 0.2, 0.25)


# ---------------------------------------------------------------------------------------------------------------------
# Ingress controllers

INGRESS = ("ingress-nginx", "ingress-nginx-controller")
ADMIN = ("my-bank", "admin-ui")
DOOR = {(INGRESS, WEB): SERVICES[WEB], (INGRESS, ADMIN): Traffic(5, 0.2, 0.5)}
AT_THE_DOOR = Traffic(36, 2.5 / 36, 0.5)  # one request a second matches no Ingress


def nginx(out: Written, exported: bool = True, response: bool = True, classes: bool = False) -> None:
    prefix = "exported_" if exported else ""
    target = {"namespace": INGRESS[0], "service": "ingress-nginx-controller-metrics"} if exported else {}
    pods = ("ingress-nginx-controller-6f79748cff-x7k2p", "ingress-nginx-controller-6f79748cff-b4tzq")
    for pod in pods:
        controller = {
            "controller_class": "k8s.io/ingress-nginx",
            "controller_namespace": INGRESS[0],
            "controller_pod": pod,
            **target,
        }
        for (_, (namespace, name)), traffic in DOOR.items():
            ends = {f"{prefix}namespace": namespace, f"{prefix}service": name, "ingress": f"{name}-public"}
            labels = {**controller, **ends, "host": "shop.example", "path": "/", "method": "GET"}
            for status, rate in (("200", traffic.successes / 2), ("503", traffic.failures / 2)):
                own = {**labels, "status": f"{status[0]}xx" if classes else status}
                out.counter("nginx_ingress_controller_requests", own, rate)
                out.histogram("nginx_ingress_controller_request_duration_seconds", own, rate, 0.5)
                if response:
                    out.histogram("nginx_ingress_controller_response_duration_seconds", own, rate, traffic.latency)
        nothing = {**controller, "ingress": "", "status": "404", "method": "GET"}
        out.counter("nginx_ingress_controller_requests", nothing, 0.5)
        out.histogram("nginx_ingress_controller_request_duration_seconds", nothing, 0.5, 0.5)


def nginx_daemon(out: Written) -> None:
    """Labels of the scrape do not hide labels of the metric; statuses are classes; no response times."""
    nginx(out, exported=False, response=False, classes=True)


def istio(out: Written) -> None:
    def traffic_to(destination: Service, labels: Labels, traffic: Traffic, reporter: str) -> None:
        own = {
            "reporter": reporter,
            "destination_service_namespace": destination[0],
            "destination_service_name": destination[1],
            "destination_workload_namespace": destination[0],
            "destination_workload": destination[1],
            "destination_canonical_service": destination[1],
            **labels,
        }
        good, bad = {"response_code": "200"}, {"response_code": "503"}
        responses(out, own, traffic, good, bad, counter="istio_requests_total")
        out.histogram("istio_request_duration_milliseconds", own, traffic.rate, traffic.latency)

    def from_(source: Service) -> Labels:
        return {
            "source_workload_namespace": source[0],
            "source_workload": source[1],
            "source_canonical_service": source[1],
        }

    for (source, destination), traffic in CALLS.items():
        for reporter in ("source", "destination"):
            traffic_to(destination, from_(source), traffic, reporter)
    outside: Labels = dict.fromkeys(from_(WEB), "unknown")
    traffic_to(WEB, outside, SERVICES[WEB], "destination")


def nginx_before_istio(out: Written) -> None:
    nginx(out)
    istio(out)


# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A way to write the mesh, how it is read, and what must be read.

    Attributes:
        source: setting of the mesh.
        names: other names of services than their namespace and name.
        services, calls: what is read.
        detected: whether ``auto`` reads the same.
        without_latency: services whose latency only calls show, or is a mixture.
    """

    write: Callable[[Written], None]
    source: str | tuple[str, ...]
    names: Mapping[Service, str] = field(default_factory=dict)
    services: Mapping[Service, Traffic] = field(default_factory=lambda: SERVICES)
    calls: Mapping[tuple[Service, Service], Traffic] = field(default_factory=lambda: CALLS)
    detected: bool = True
    without_latency: frozenset[Service] = frozenset()


NO_NAMESPACES = {service: f"default/{service[1]}" for service in SERVICES}
FRONT = {WEB: SERVICES[WEB], ADMIN: DOOR[INGRESS, ADMIN]}
CASES = {
    "beyla": Case(beyla, "opentelemetry-http"),
    "spans-connector": Case(connector_spans, "span-metrics", names=NO_NAMESPACES),
    "consul": Case(consul, "consul"),
    "istio": Case(istio, "istio"),
    "graph": Case(graph, "opentelemetry", names=NO_NAMESPACES),
    "nginx-daemon": Case(
        nginx_daemon,
        "nginx-ingress",
        services={INGRESS: AT_THE_DOOR, **{one: Traffic(t.rate, t.failing, 0.5) for one, t in FRONT.items()}},
        calls={ends: Traffic(t.rate, t.failing, 0.5) for ends, t in DOOR.items()},
    ),
    "nginx-before-istio": Case(
        nginx_before_istio,
        ("nginx-ingress", "istio"),
        services={INGRESS: AT_THE_DOOR, ADMIN: FRONT[ADMIN], **SERVICES},
        calls={**DOOR, **CALLS},
        without_latency=frozenset({ADMIN}),
    ),
    "sdk": Case(
        sdk,
        "opentelemetry-http",
        names={**NAMED, LEDGER: "bank/ledger"},
        calls={
            (WEB, CART): CALLS[WEB, CART],
            (CART, ("shop", "ledger")): CALLS[CART, LEDGER],
            (WEB, ADDRESSES): Traffic(6, 0, 0.05),
        },
        services={**SERVICES, ("shop", "ledger"): Traffic(12, 0.25, 0), ADDRESSES: Traffic(6, 0, 0.05)},
        without_latency=frozenset({("shop", "ledger"), ADDRESSES}),
    ),
    "old-convention": Case(
        old_convention,
        "opentelemetry-http",
        calls={(WEB, CART): CALLS[WEB, CART], (CART, ("shop", "ledger")): CALLS[CART, LEDGER]},
        services={**SERVICES, ("shop", "ledger"): Traffic(12, 0.25, 0)},
        without_latency=frozenset({("shop", "ledger")}),
    ),
    "spans-dotted-names": Case(
        with_labels(connector_spans, with_dots), "span-metrics", names={**NO_NAMESPACES, LEDGER: "default/ledger.v2"}
    ),
    "spans-pods": Case(with_labels(connector_spans, with_pods), "span-metrics", names=NO_NAMESPACES),
    "beyla-pods": Case(with_labels(beyla, with_pods), "opentelemetry-http", detected=False),
    "spans-beside-graph": Case(
        spans_beside_graph, ("span-metrics", "opentelemetry"), names=NO_NAMESPACES, detected=False
    ),
    "graph-beside-spans": Case(
        spans_beside_graph, ("opentelemetry", "span-metrics"), names=NO_NAMESPACES, detected=False
    ),
    "kuma-hashed": Case(with_labels(kuma_universal, with_hashes), "kuma", names=NO_NAMESPACES, detected=False),
    **{
        f"consul-gateway-{name}": Case(
            partial(consul_gateways, gateway={"local_cluster": "egress", **own}),
            "consul",
            services={
                **SERVICES,
                **{PAYMENT: BOTH_TO_PAYMENT, AUDIT: TO_PAYMENT},
                **dict.fromkeys((CONSUL_DOOR, EGRESS), Traffic(0, 0, 0)),
            },
            calls={**CALLS, **dict.fromkeys(((CART, PAYMENT), (CONSUL_DOOR, PAYMENT), (EGRESS, AUDIT)), TO_PAYMENT)},
            detected=False,
            without_latency=frozenset({PAYMENT, AUDIT, CONSUL_DOOR, EGRESS}),
        )
        for name, own in {"named": {"consul_source_service": "egress"}, "nameless": {}}.items()
    },
    "graph-pods": Case(with_labels(graph, with_pods), "opentelemetry", names=NO_NAMESPACES, detected=False),
    "graph-visitors": Case(with_labels(graph, with_visitors), "opentelemetry", names=NO_NAMESPACES, detected=False),
}


def hubble_first_version(out: Written) -> None:
    labels = {"source_workload": "web", "destination_workload": "cart", "method": "GET", "reporter": "client"}
    out.counter("hubble_http_requests_total", labels, 5)
    out.counter("hubble_http_responses_total", {**labels, "status": "200"}, 5)


def beyla_defaults(out: Written) -> None:
    """Beyla hides the callee's name."""
    whole = Written(out.begin)
    beyla(whole)
    for metric, rows in whole.rows.items():
        for row, (labels, grows, value) in enumerate(rows):
            visible = {name: text for name, text in labels.items() if name != "server_address"}
            out.rows.setdefault(metric, []).append(({**visible, "row": str(row)}, grows, value))


def servers_only(out: Written) -> None:
    out.histogram("http_server_request_duration_seconds", {"service_name": "web", "job": "shop/web"}, 5, 0.1)


def spans_without_peers(out: Written) -> None:
    spans(out, "traces_spanmetrics_calls_total", "traces_spanmetrics_latency", "service", peers=False)


def traefik_entry_points_only(out: Written) -> None:
    out.counter("traefik_entrypoint_requests_total", {"entrypoint": "web", "code": "200", "job": "traefik"}, 5)


def consul_tcp(out: Written) -> None:
    labels = {"local_cluster": "web", "consul_source_service": "web", "envoy_cluster_name": "local_app"}
    out.gauge("envoy_cluster_upstream_cx_active", labels, 5)


# How a system is not configured for us, how it is read, and the names of the gaps.
NOT_CONFIGURED: dict[str, tuple[Callable[[Written], None], str | tuple[str, ...], list[str]]] = {
    "hubble-plain": (hubble_plain, "hubble", ["workload names of callers", "workload names of services"]),
    "hubble-first-version": (hubble_first_version, "auto", ["metric httpV2"]),
    "beyla-defaults": (beyla_defaults, "auto", ["names of callees"]),
    "servers-only": (servers_only, "opentelemetry-http", ["client metrics"]),
    "spans-without-peers": (spans_without_peers, "auto", ["names of callees"]),
    "spans-without-peers-beside-a-graph": (spans_beside_graph, ("opentelemetry", "span-metrics"), []),
    "traefik-entry-points": (traefik_entry_points_only, "auto", ["metrics of services"]),
    "consul-tcp": (consul_tcp, "consul", ["HTTP metrics"]),
}


def istio_of_sources(out: Written) -> None:
    """Only callers report, as where reports of destinations are dropped to save series."""
    out.counter("istio_requests_total", {"reporter": "source", "destination_service_name": "cart"}, 5)


def istio_without_namespaces(out: Written) -> None:
    out.counter("istio_requests_total", {"reporter": "destination", "destination_service_name": "cart"}, 5)


def other_clusters(out: Written) -> None:
    """Envoys whose clusters have names of their own."""
    for cluster in ("web", "ledger"):
        envoy_cluster(out, {"namespace": "shop", "envoy_cluster_name": cluster}, Traffic(5, 0.1, 0.1))


def spelled(name: str) -> Callable[[Written], None]:
    """A server whose metric has another spelling."""
    return lambda out: out.counter(name, {"service_name": "web", "http_response_status_code": "200"}, 5)


# Series that are there and cannot be read, and words of the reason.
UNREAD: dict[str, tuple[Callable[[Written], None], str, str]] = {
    "no-namespaces": (istio_without_namespaces, "auto", "name no service.* must add destination_service_namespace"),
    "clusters": (other_clusters, "auto", r'envoy_cluster_name="(web|ledger)".*envoy_cluster_name=~"inbound'),
    "escaped-dots": (spelled("http_dot_server_dot_request_dot_duration_seconds_count"), "auto", "names with dots"),
    "escaped-values": (
        spelled("U__http_2e_server_2e_request_2e_duration__seconds__count"), "opentelemetry-http", "names with dots"
    ),
    "another-system": (spelled("caddy_http_requests_total"), "auto", "caddy_http_requests_total, which no source"),
    "one-reporter": (istio_of_sources, "auto", 'reporter="source".*, where a source reads .*reporter="destination"'),
    "tcp-only": (spelled("istio_tcp_connections_opened_total"), "auto", "_opened_total, which no source"),
    "without-units": (spelled("http_server_request_duration_count"), "auto", "http_server_request_duration_count"),
}  # fmt: skip
WRITERS = {
    **{name: case.write for name, case in CASES.items()},
    **{name: writer for name, (writer, _, _) in UNREAD.items()},
    **{name: writer for name, (writer, _, _) in NOT_CONFIGURED.items()},
}
FIRST = int(datetime.now(UTC).timestamp()) // 3600 * 3600 - (len(WRITERS) + 2) * 3600
PERIODS = {name: FIRST + 3600 * number for number, name in enumerate(WRITERS)}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus with all cases, an hour apart."""
    folder = tmp_path_factory.mktemp("dialects")
    periods = []
    for name, writer in WRITERS.items():
        periods.append(Written(PERIODS[name]))
        writer(periods[-1])
    write(periods, folder / "series.txt")
    with prometheus_with_lines(folder / "series.txt", folder) as monitor:
        yield monitor.url


def poll(url: str, name: str, source: str | tuple[str, ...]) -> tuple[Poll, list[FoundGap]]:
    """Return what is read of a case, and the gaps in its configuration."""
    at = datetime.fromtimestamp(PERIODS[name] + LENGTH, UTC)
    with closing(MeshSource(MeshSettings(prometheus=url, source=source), PATIENT)) as mesh:
        return mesh.poll(at), mesh.gaps(at)


def snapshot_of(url: str, name: str, source: str | tuple[str, ...]) -> MeshSnapshot:
    found, _ = poll(url, name, source)
    assert {role: answer.detail for role, answer in found.answers.items() if answer.failed} == {}
    assert found.snapshot is not None, found.why
    return found.snapshot


@pytest.mark.parametrize("name", CASES)
def test_services_and_calls_are_read_as_they_are(url: str, name: str) -> None:
    case = CASES[name]
    check(case, snapshot_of(url, name, case.source))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.detected])
def test_the_sources_are_found(url: str, name: str) -> None:
    check(CASES[name], snapshot_of(url, name, "auto"))


def gaps(url: str, name: str, source: str | tuple[str, ...]) -> list[str]:
    _, found = poll(url, name, source)
    assert all(gap.series > 0 for gap in found)
    return [gap.gap.name for gap in found]


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_missing_in_a_configured_mesh(url: str, name: str) -> None:
    assert gaps(url, name, CASES[name].source) == []


@pytest.mark.parametrize("name", NOT_CONFIGURED)
def test_what_a_system_is_not_configured_for_is_found(url: str, name: str) -> None:
    _, source, missing = NOT_CONFIGURED[name]
    assert gaps(url, name, source) == missing


@pytest.mark.parametrize("name", UNREAD)
def test_what_is_there_and_not_read_is_named_with_the_reason(url: str, name: str) -> None:
    _, source, words = UNREAD[name]
    found, _ = poll(url, name, source)
    assert found.snapshot is None
    assert re.search(words, found.why)


def check(case: Case, snapshot: MeshSnapshot, latencies: bool = True) -> None:
    services, calls = case.services, case.calls

    def label_of(service: Service) -> str:
        return case.names.get(service, "/".join(service))

    read = dict(zip(snapshot.node_ids, snapshot.node_features, strict=True))
    assert sorted(read) == sorted(label_of(one) for one in services)
    for service, traffic in services.items():
        rate, failing, p50, p99 = read[label_of(service)][:4]
        assert rate == pytest.approx(traffic.rate, rel=0.01), service
        assert failing == pytest.approx(traffic.failing, rel=0.01, abs=1e-6), service
        if latencies and service not in case.without_latency:
            assert traffic.latency / 2.6 < p50 <= p99 <= traffic.latency * 1.01, service
    ends = snapshot.edge_index.T.tolist()
    made = {(snapshot.node_ids[a], snapshot.node_ids[b]): snapshot.edge_features[i] for i, (a, b) in enumerate(ends)}
    assert sorted(made) == sorted((label_of(a), label_of(b)) for a, b in calls)
    for (source, destination), traffic in calls.items():
        rate, failing, p50, p99 = made[label_of(source), label_of(destination)]
        assert rate == pytest.approx(traffic.rate, rel=0.01)
        assert failing == pytest.approx(traffic.failing, rel=0.01, abs=1e-6)
        if latencies:
            assert traffic.latency / 2.6 < p50 <= p99 <= traffic.latency * 1.01
