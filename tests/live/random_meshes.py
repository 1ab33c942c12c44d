"""Random meshes with known rates, latencies and failures, and the series in which each kind of mesh would report them.

What differs between real meshes, and must not change what is read, is drawn at random: how many pods measure a call,
when each is scraped, how it spells the bounds of its buckets, when its counters start again, which proxies report, and
whether two Prometheus servers have scraped everything.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import IO

from model.names import escape_name, escape_namespace

NAMES = ("web", "cart", "pay", "ship", "mail", "user", "item", "rate", "lens", "auth", "tax-4", "geo.v2")
OTHER_NAMES = ("订单服务", "支付服务", "bank gateway", "bank/gateway", "café", "Übersicht")  # OpenTelemetry allows any
NAMESPACES = ("shop", "bank", "core-1")
BOUNDS_MS = (0.5, 1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000)
SPREAD = 0.5  # of the logarithm of a duration
SPELLINGS: tuple[Callable[[float], str], ...] = (
    lambda bound: f"{bound:g}",
    lambda bound: f"{bound:.1f}" if bound >= 1 or bound == 0.5 else f"{bound:.4f}",
    lambda bound: f"{bound:.6f}",
    lambda bound: f"{bound:e}",
)
WORKLOADS = ("deployment", "statefulset", "daemonset", "replicaset")


@dataclass(frozen=True, slots=True)
class Service:
    """A service; its workload may have another name."""

    namespace: str
    name: str
    workload: str

    @property
    def id(self) -> str:
        """The id of its node."""
        return f"{escape_namespace(self.namespace)}/{escape_name(self.name)}"


@dataclass(frozen=True, slots=True)
class Traffic:
    """The requests from one service to another; without a source, from outside.

    Attributes:
        rate: 1/s.
        median: of the durations, s.
        failing: share of the requests.
    """

    source: Service | None
    destination: Service
    rate: float
    median: float
    failing: float

    def faster(self, seconds: float) -> float:
        """Requests a second that take at most this long."""
        return self.rate * 0.5 * (1 + math.erf(math.log(seconds / self.median) / (SPREAD * math.sqrt(2))))


@dataclass(frozen=True, slots=True)
class World:
    """A mesh: its services in an order in which each calls later ones only, and the traffic."""

    services: tuple[Service, ...]
    traffic: tuple[Traffic, ...]

    def into(self, service: Service) -> list[Traffic]:
        """The traffic to a service."""
        return [one for one in self.traffic if one.destination == service]


@dataclass(frozen=True, slots=True)
class Counter:
    """A series whose value grows at a constant rate and starts again at some reads."""

    name: str
    rate: float
    offset: float
    resets: frozenset[int] = frozenset()

    def write(self, out: IO[str], begin: float, reads: int, step: float) -> None:
        """Write its samples as OpenMetrics text."""
        total = 1000.0 + self.rate * self.offset
        for read in range(reads):
            total = self.rate * step if read in self.resets else total + self.rate * step
            out.write(f"{self.name} {total:.6f} {begin + self.offset + read * step:.3f}\n")


@dataclass(slots=True)
class Proxy:
    """One process that measures: when it is scraped, how it spells, when it started again, its labels."""

    rng: Random
    step: float
    reads: int
    labels: Mapping[str, str]
    offset: float = field(init=False)
    spell: Callable[[float], str] = field(init=False)
    resets: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.offset = self.rng.uniform(0, 0.9) * self.step
        self.spell = self.rng.choice(SPELLINGS)
        self.resets = frozenset({self.rng.randrange(self.reads)} if self.rng.random() < 0.3 else ())

    def counter(self, metric: str, labels: Mapping[str, str], rate: float) -> Counter:
        """A counter of this process."""
        text = ",".join(f'{key}="{value}"' for key, value in {**labels, **self.labels}.items())
        return Counter(f"{metric}{{{text}}}", rate, self.offset, self.resets)

    def histogram(
        self, metric: str, labels: Mapping[str, str], one: Traffic, share: float, unit: float
    ) -> Iterator[Counter]:
        """The buckets and the sum of this process's share of the traffic; ``unit`` is the unit of the bounds, s."""
        for bound in BOUNDS_MS:
            seconds = bound / 1000
            bounded = {**labels, "le": self.spell(round(seconds / unit, 9))}
            yield self.counter(f"{metric}_bucket", bounded, one.faster(seconds) * share)
        yield self.counter(f"{metric}_bucket", {**labels, "le": "+Inf"}, one.rate * share)
        mean = one.median * math.exp(SPREAD**2 / 2)
        yield self.counter(f"{metric}_sum", labels, one.rate * share * mean / unit)
        yield self.counter(f"{metric}_count", labels, one.rate * share)


@dataclass(frozen=True, slots=True)
class Naming:
    """The names of a kind of mesh.

    Attributes:
        names: of its services.
        has_namespaces: whether it knows namespaces.
        other_workloads: whether a workload may have another name than its service.
        entry_has_service: whether the service of a workload is known without a caller in the mesh.
    """

    names: tuple[str, ...] = NAMES
    has_namespaces: bool = True
    other_workloads: bool = True
    entry_has_service: bool = True


def random_world(rng: Random, naming: Naming) -> World:
    """Draw a mesh."""
    count = rng.randint(3, 8)
    services = []
    for i, name in enumerate(rng.sample(naming.names, count)):
        namespace = rng.choice(NAMESPACES) if naming.has_namespaces else "default"
        may_differ = naming.other_workloads and (i > 0 or naming.entry_has_service)
        services.append(Service(namespace, name, f"{name}-app" if may_differ and rng.random() < 0.4 else name))

    def draw(source: Service | None, destination: Service) -> Traffic:
        rate, median = math.exp(rng.uniform(-1, 6)), math.exp(rng.uniform(math.log(0.002), math.log(0.8)))
        return Traffic(source, destination, rate, median, rng.choice((0.0, 0.0, rng.uniform(0.01, 0.6))))

    traffic = [draw(None, services[0])]
    for i in range(1, count):  # each service has a caller, so the mesh is connected
        traffic += [draw(services[caller], services[i]) for caller in rng.sample(range(i), rng.randint(1, min(i, 2)))]
    return World(tuple(services), tuple(traffic))


def _shares(rng: Random, count: int) -> list[float]:
    """Random shares of ``count`` pods; they sum to 1."""
    weights = [rng.uniform(0.2, 1) for _ in range(count)]
    return [weight / sum(weights) for weight in weights]


@dataclass(frozen=True, slots=True)
class Scraping:
    """How the series of a mesh are scraped: every ``step`` s, ``reads`` times, by each of the ``replicas``."""

    step: float
    reads: int
    replicas: tuple[Mapping[str, str], ...] = ({},)

    def proxies(self, rng: Random, name: str) -> Iterator[tuple[Proxy, float]]:
        """Yield the pods that measure for a workload, each once for a replica, and their shares of the traffic."""
        for i, share in enumerate(_shares(rng, rng.randint(1, 3))):
            seed = rng.random()
            for replica in self.replicas:
                own = Random(seed)  # one process: replicas differ in the time of their scrapes only
                proxy = Proxy(own, self.step, self.reads, {"pod": f"{name}-{i}", **replica})
                proxy.offset = rng.uniform(0, 0.9) * self.step
                yield proxy, share


def istio_series(world: World, rng: Random, scraping: Scraping) -> Iterator[Counter]:
    """Sidecars on both ends; or waypoints of some services, which report what a sidecar of the caller reports too."""
    waypoints = {one for one in world.services if rng.random() < rng.choice((0.0, 0.0, 0.5, 1.0))}
    for one in world.traffic:
        to, grpc = one.destination, rng.random() < 0.3
        labels = {
            "source_workload_namespace": one.source.namespace if one.source else "unknown",
            "source_workload": one.source.workload if one.source else "unknown",
            "source_canonical_service": one.source.workload if one.source else "unknown",
            "destination_workload_namespace": to.namespace,
            "destination_workload": to.workload,
            "destination_canonical_service": to.workload,
            "destination_service_namespace": to.namespace,
            "destination_service_name": to.name,
            "request_protocol": "grpc" if grpc else "http",
        }
        good = {"response_code": "200", "response_flags": "-", **({"grpc_response_status": "0"} if grpc else {})}
        bad = {**good, "grpc_response_status": "14"} if grpc else {"response_code": "503", "response_flags": "UF"}
        reporters = [("waypoint" if to in waypoints else "destination", to)]
        if one.source and (to not in waypoints or rng.random() < 0.5):
            reporters.append(("source", one.source))
        for reporter, at in reporters:
            for proxy, share in scraping.proxies(rng, at.workload):
                own = {"reporter": reporter, **labels}
                failed = one.rate * one.failing * share
                yield proxy.counter("istio_requests_total", {**own, **good}, one.rate * share - failed)
                yield proxy.counter("istio_requests_total", {**own, **bad}, failed)
                yield from proxy.histogram(
                    "istio_request_duration_milliseconds", {**own, **good}, one, share, unit=1e-3
                )


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
            for proxy, share in scraping.proxies(rng, at.workload):
                own, failed = {"direction": direction, **labels}, one.rate * one.failing * share
                # Each caller has a client id of its own, or the inbound series of two callers would be the same.
                own = {**own, "client_id": one.source.id if one.source else ""}
                yield proxy.counter("request_total", own, one.rate * share)
                yield proxy.counter("response_total", {**own, "classification": "success"}, one.rate * share - failed)
                yield proxy.counter("response_total", {**own, "classification": "failure"}, failed)
                yield from proxy.histogram("response_latency_ms", own, one, share, unit=1e-3)


def opentelemetry_series(world: World, rng: Random, scraping: Scraping) -> Iterator[Counter]:
    """The service graph of one or more collectors."""
    for one in world.traffic:
        labels = {
            "client": one.source.name if one.source else "user",
            "server": one.destination.name,
            "connection_type": "" if one.source else "virtual_node",
        }
        for proxy, share in scraping.proxies(rng, "collector"):
            graph = "traces_service_graph_request"
            yield proxy.counter(f"{graph}_total", labels, one.rate * share)
            yield proxy.counter(f"{graph}_failed_total", labels, one.rate * one.failing * share)
            for side in ("server", "client"):
                yield from proxy.histogram(f"{graph}_{side}_seconds", labels, one, share, unit=1.0)


def envoy_series(world: World, rng: Random, scraping: Scraping) -> Iterator[Counter]:
    """Sidecars without a mesh. An Envoy counts the requests of all callers together."""
    for one in world.traffic:
        to = one.destination
        sides = [(to, "inbound", one.source.name if one.source else "outside")]
        if one.source:
            sides.append((one.source, f"outbound_{to.namespace}_{to.name}", ""))
        for at, cluster, listener in sides:
            own = {"namespace": at.namespace, "service": at.name, "envoy_cluster_name": cluster}
            own |= {"listener": listener} if listener else {}
            for proxy, share in scraping.proxies(rng, at.workload):
                failed = one.rate * one.failing * share
                yield proxy.counter("envoy_cluster_upstream_rq_completed", own, one.rate * share)
                for digit, rate in (("2", one.rate * share - failed), ("5", failed)):
                    labels = {**own, "envoy_response_code_class": digit}
                    yield proxy.counter("envoy_cluster_upstream_rq_xx", labels, rate)
                yield from proxy.histogram("envoy_cluster_upstream_rq_time", own, one, share, unit=1e-3)
