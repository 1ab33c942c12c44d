"""Random meshes with known rates, latencies and failures."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TypeVar

from model.names import escape_name, escape_namespace

HOSTS = ("web", "cart", "pay", "ship", "mail", "user", "item", "rate", "lens", "auth", "tax-4")  # without a dot
NAMES = (*HOSTS, "geo.v2")
OTHER_NAMES = ("订单服务", "支付服务", "bank gateway", "bank/gateway", "café", "Übersicht")  # OpenTelemetry allows any
NAMESPACES = ("shop", "bank", "core-1")
Outcome = TypeVar("Outcome")  # what tells it: a label's value, or labels
SPREAD = 0.5  # of the logarithm of a duration


@dataclass(frozen=True, slots=True)
class Service:
    """A service; its workload may have another name."""

    namespace: str
    name: str
    workload: str

    @property
    def id(self) -> str:
        return f"{escape_namespace(self.namespace)}/{escape_name(self.name)}"


UNPROTECTED = Service("office", "wiki", "wiki")  # behind a front door, but not in the mesh


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

    @property
    def mean(self) -> float:
        """Of the durations, s."""
        return self.median * math.exp(SPREAD**2 / 2)


@dataclass(frozen=True, slots=True)
class FrontDoor:
    """An ingress controller.

    Attributes:
        service: its name in the mesh.
        in_mesh: whether it has a sidecar of the mesh.
        counts_all: whether it measures requests that it does not pass on, and the time of slow clients.
    """

    service: Service
    in_mesh: bool
    counts_all: bool = True


@dataclass(frozen=True, slots=True)
class Naming:
    """The names of a kind of mesh, and what the kind cannot know.

    Attributes:
        names: of its services.
        has_namespaces: whether it knows namespaces.
        other_workloads: whether a workload may have another name than its service.
        entry_has_service: whether the service of a workload is known without a caller in the mesh.
        front_doors: ingress controllers, one of which is in front of the mesh.
    """

    names: tuple[str, ...] = NAMES
    has_namespaces: bool = True
    other_workloads: bool = True
    entry_has_service: bool = True
    front_doors: tuple[FrontDoor, ...] = ()


@dataclass(frozen=True, slots=True)
class World:
    """A mesh: its services in an order in which each calls later ones only, and the traffic.

    Attributes:
        naming: of its kind.
        front: what stands in front of the mesh and is its first service.
    """

    naming: Naming
    services: tuple[Service, ...]
    traffic: tuple[Traffic, ...]
    front: FrontDoor | None = None

    def into(self, service: Service) -> list[Traffic]:
        return [one for one in self.traffic if one.destination == service]

    def out_of(self, service: Service) -> list[Traffic]:
        return [one for one in self.traffic if one.source == service]

    @property
    def behind(self) -> "World":
        """What the mesh behind the front door sees."""
        front = self.front
        if front is None:
            return self
        services = tuple(one for one in self.services if one not in (front.service, UNPROTECTED))
        traffic = [one for one in self.traffic if one.destination in services]
        if not front.in_mesh:
            traffic = [replace(one, source=None) if one.source == front.service else one for one in traffic]
        return World(self.naming, services, tuple(traffic))

    def without_some_calls(self, rng: Random) -> "World":
        """The same mesh while some calls are not made, to services that others still call."""
        idle = {
            one
            for one in self.traffic
            if one.source in self.behind.services and len(self.into(one.destination)) > 1 and rng.random() < 0.5
        }
        idle -= {self.into(one.destination)[0] for one in idle}
        return replace(self, traffic=tuple(replace(one, rate=0.0) if one in idle else one for one in self.traffic))


def total(traffic: Sequence[Traffic]) -> float:
    """Requests, 1/s."""
    return sum(one.rate for one in traffic)


def outcomes(traffic: Sequence[Traffic], good: Outcome, bad: Outcome) -> Iterator[tuple[Outcome, list[Traffic]]]:
    """The requests that succeed and, if there are any, those that fail."""
    yield good, [replace(one, rate=one.rate * (1 - one.failing)) for one in traffic]
    if any(one.failing for one in traffic):
        yield bad, [replace(one, rate=one.rate * one.failing) for one in traffic]


def random_world(rng: Random, naming: Naming) -> World:
    count = rng.randint(3, 8)
    services = []
    for i, name in enumerate(rng.sample(naming.names, count)):
        namespace = rng.choice(NAMESPACES) if naming.has_namespaces else "default"
        may_differ = naming.other_workloads and (i > 0 or naming.entry_has_service)
        services.append(Service(namespace, name, f"{name}-app" if may_differ and rng.random() < 0.4 else name))
    traffic = [_draw(rng, None, services[0])]
    for i in range(1, count):  # each service has a caller, so the mesh is connected
        callers = rng.sample(range(i), rng.randint(1, min(i, 2)))
        traffic += [_draw(rng, services[caller], services[i]) for caller in callers]
    world = World(naming, tuple(services), tuple(traffic))
    return _behind_a_door(rng, world, rng.choice(naming.front_doors)) if naming.front_doors else world


def _draw(rng: Random, source: Service | None, destination: Service) -> Traffic:
    rate, median = math.exp(rng.uniform(-1, 6)), math.exp(rng.uniform(math.log(0.002), math.log(0.8)))
    return Traffic(source, destination, rate, median, rng.choice((0.0, 0.0, rng.uniform(0.01, 0.6))))


def _behind_a_door(rng: Random, world: World, front: FrontDoor) -> World:
    """The mesh with an ingress controller, through which all requests from outside come."""
    entry, *others = world.services
    open_to_all = [entry, *rng.sample(others, rng.randint(0, 2)), *rng.choice(([], [UNPROTECTED]))]
    inside = [_draw(rng, front.service, one) for one in open_to_all]
    outside = [replace(one, source=None, destination=front.service) for one in inside]
    if front.counts_all and rng.random() < 0.5:  # clients are slow, and ask for what is not there
        lost = replace(_draw(rng, None, front.service), failing=0.0)
        outside = [lost, *(replace(one, median=one.median * 1.5) for one in outside)]
    traffic = (*outside, *inside, *(one for one in world.traffic if one.source))
    services = (front.service, *world.services, *(one for one in open_to_all if one == UNPROTECTED))
    return World(world.naming, services, traffic, front)
