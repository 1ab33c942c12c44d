"""Random mesh topologies: namespaces, layers, names and calls."""

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from model.snapshot import EDGE_METRICS, NODE_METRICS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GATEWAYS = ("gateway", "ingress", "edge")
FRONTS = ("web", "storefront", "mobile", "bff", "console", "checkout", "portal")
MIDDLES = ("cart", "orders", "pricing", "search", "catalog", "payments", "shipping", "accounts", "basket", "offers")
LEAVES = ("tax", "stock", "currency", "images", "reviews", "email", "fraud", "geo", "ranking", "rates", "coupons")
STORES = ("orders-db", "users-db", "items-db", "events-db", "sessions-cache", "items-cache", "ledger-db", "queue")
SHARED_SERVICES = ("auth", "config", "flags", "identity")
SHARED_STORES = ("shared-db", "shared-cache", "audit-log", "message-bus")
SUBJECTS = ("shop", "pay", "media", "travel", "bank", "games", "news", "fleet", "health", "ads", "maps", "social")
PLATFORM = "platform"


@dataclass(frozen=True, slots=True)
class MeshSpec:
    """Specification of a simulated mesh. Equal specs give equal meshes and equal snapshots.

    Attributes:
        services: N, meant for 20 to 100,000.
        namespaces: with ``platform`` for the shared services; None: drawn from the seed.
        calls_per_service: mean out-degree, E / N.
        namespace_skew: Zipf exponent of namespace sizes; None: drawn from 0.9 to 1.5.
        start: time of the first snapshot, with a time zone.
        without_resources: share of services without CPU and memory metrics.
        without_connections: share of services without active connections.
        without_call_latency: share of calls without latencies.
        dropout: probability that a value in a snapshot is missing.
        missing_metrics, missing_call_metrics: metrics that no service or no call reports.
        silences_per_hour: periods per hour without the telemetry of one service, a group, a scrape shard or all.
        latent: services that can appear later (newcomers, canaries) over N; 0: none.
        crowds_per_day: flash crowds per day and namespace, within capacity; benign.
        batches: calls over N that multiply on a schedule for half a minute; benign.
        hiccups_per_hour: short slowdowns (garbage collection, noisy neighbours) per hour and service; benign.
        cold_strength: extra service time of a new process, as a factor; benign.
        cold_seconds: duration of the extra service time.
        day_amplitude: of the load over a day, 0 to 1; None: drawn from 0.12 to 0.32. ``physics.load.day_amplitude``
            computes it from the busiest over the quietest hour.
        weekend: load on Saturday and Sunday over the load on other days.
        load: factor on all requests from outside; capacity is sized for it.
        sized_for: load over the mean for which capacity is sized.
    """

    services: int = 60
    namespaces: int | None = None
    calls_per_service: float = 4.0
    namespace_skew: float | None = None
    interval_seconds: float = 15.0
    seed: int = 0
    start: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    without_resources: float = 0.1
    without_connections: float = 0.15
    without_call_latency: float = 0.05
    dropout: float = 0.002
    missing_metrics: tuple[str, ...] = ()
    missing_call_metrics: tuple[str, ...] = ()
    silences_per_hour: float = 0.0
    hiccups_per_hour: float = 0.05
    cold_strength: float = 0.5
    cold_seconds: float = 15.0
    latent: float = 0.08
    crowds_per_day: float = 0.0
    batches: float = 0.0
    day_amplitude: float | None = None
    weekend: float = 1.0
    load: float = 1.0
    sized_for: float = 1.4

    def __post_init__(self) -> None:
        if self.services < 8:
            raise ValueError(f"services: expected at least 8, got {self.services}; smaller meshes have no layers")
        if not 1.0 <= self.calls_per_service <= (self.services - 1) / 6:
            raise ValueError(
                f"calls_per_service: expected 1 to {(self.services - 1) / 6:.1f} for {self.services} services, "
                f"got {self.calls_per_service}; a layered mesh holds no more"
            )
        if self.namespaces is not None and not 1 <= self.namespaces <= self.services // 4:
            raise ValueError(
                f"namespaces: expected 1 to {self.services // 4} for {self.services} services, got {self.namespaces}"
            )
        for field, names in (("missing_metrics", NODE_METRICS), ("missing_call_metrics", EDGE_METRICS[1:])):
            unknown = set(getattr(self, field)) - set(names)
            if unknown:
                raise ValueError(f"{field}: expected some of {', '.join(names)}, got {', '.join(sorted(unknown))}")
        if self.interval_seconds <= 0:
            raise ValueError(f"interval_seconds: expected a time above 0, got {self.interval_seconds}")
        if self.day_amplitude is not None and not 0 <= self.day_amplitude <= 1:
            raise ValueError(f"day_amplitude: expected 0 to 1, got {self.day_amplitude}")
        for name in ("weekend", "load", "sized_for"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}: expected a factor above 0, got {getattr(self, name)}")
        if self.start.tzinfo is None:
            raise ValueError(f"start: expected a time with a zone, got {self.start.isoformat()}; add tzinfo=UTC")

    def time_of(self, index: int) -> datetime:
        return self.start + timedelta(seconds=index * self.interval_seconds)

    def stream(self, purpose: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(purpose,)))

    def stream_of(self, purpose: int, index: int) -> np.random.Generator:
        """Return the random generator for a purpose and a snapshot, independent of earlier draws."""
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(purpose, index)))


@dataclass(frozen=True, slots=True)
class Topology:
    """Services and calls. Services are sorted by layer, calls by source, so a layer is a slice of both.

    Attributes:
        node_ids: N ids ``namespace/service``; the service's name alone is unique, too.
        namespace: int64 ``[N]``, index of the namespace.
        layer: int64 ``[N]``, ascending; a call goes to a deeper layer, so the graph is a DAG.
        shared: bool ``[N]``, the platform's services and stores, called from everywhere.
        source, destination: int64 ``[E]``, positions in ``node_ids``.
        calls_per_request: float64 ``[E]``, mean calls per request to the source.
        node_slices, call_slices: each layer's services and their calls.
        latent: bool ``[N]``, services that do not exist yet; N includes them.
        latent_calls: bool ``[E]``, calls without traffic yet; ``calls_per_request`` applies once they are active.
    """

    node_ids: tuple[str, ...]
    namespace: Ints
    layer: Ints
    shared: NDArray[np.bool_]
    source: Ints
    destination: Ints
    calls_per_request: Floats
    node_slices: tuple[slice, ...]
    call_slices: tuple[slice, ...]
    latent: NDArray[np.bool_]
    latent_calls: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Plan:
    """Services without names, sorted by (namespace, layer), so that a call's possible destinations are a range."""

    namespace: Ints
    layer: Ints
    shared: NDArray[np.bool_]
    depth: int

    def first(self, namespace: Ints, layer: Ints) -> Ints:
        """Return the position of a namespace's first service in this or a deeper layer."""
        rank = self.namespace * (self.depth + 1) + self.layer
        return np.searchsorted(rank, namespace * (self.depth + 1) + layer)


def generate_topology(spec: MeshSpec, rng: np.random.Generator) -> Topology:
    """Draw a topology.

    Each service below the gateways has a caller in its own namespace. Further calls have heavy-tailed popularity; a
    random share goes to the platform's shared services, and a few percent go to other namespaces.
    """
    plan = _draw_services(spec, rng)
    source, destination = _draw_calls(plan, round(spec.services * spec.calls_per_service), rng)
    order = np.argsort(plan.layer, kind="stable")
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    source, destination = position[source], position[destination]
    by_source = np.lexsort((destination, source))
    source, destination = source[by_source], destination[by_source]
    names = _names(plan, rng)
    layer = plan.layer[order]
    bounds = np.searchsorted(layer, np.arange(plan.depth + 1))
    call_bounds = np.searchsorted(source, bounds)
    return Topology(
        node_ids=tuple(names[i] for i in order),
        namespace=plan.namespace[order],
        layer=layer,
        shared=plan.shared[order],
        source=source,
        destination=destination,
        calls_per_request=_draw_calls_per_request(source, spec.services, rng),
        node_slices=tuple(slice(a, b) for a, b in pairwise(bounds)),
        call_slices=tuple(slice(a, b) for a, b in pairwise(call_bounds)),
        latent=np.zeros(spec.services, np.bool_),
        latent_calls=np.zeros(len(source), np.bool_),
    )


def _draw_services(spec: MeshSpec, rng: np.random.Generator) -> _Plan:
    sizes, shared_count = _draw_namespace_sizes(spec, rng)
    namespace = np.repeat(np.arange(len(sizes)), sizes)
    depth = int(rng.integers(4, 6) if spec.services < 100 else rng.integers(5, 9))
    weights = np.concatenate([[0.03], rng.dirichlet(np.full(depth - 2, 4.0)) * 0.77, [0.20]])
    layer = rng.choice(depth, size=spec.services, p=weights)
    is_shared = np.zeros(spec.services, dtype=np.bool_)
    is_shared[spec.services - shared_count :] = True
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    layer[first] = 0
    layer[is_shared] = np.where(rng.random(shared_count) < 0.35, depth - 2, depth - 1)
    layer[-1] = depth - 1  # at least one shared store
    order = np.lexsort((layer, namespace))
    return _Plan(namespace[order], layer[order], is_shared[order], depth)


def _draw_namespace_sizes(spec: MeshSpec, rng: np.random.Generator) -> tuple[Ints, int]:
    """Draw Zipf sizes, the platform last if there is a second namespace, and the number of shared services."""
    shared_count = max(2, round(spec.services * rng.uniform(0.004, 0.012)))
    total = spec.namespaces or max(2, round(spec.services / rng.uniform(15, 60)))
    skew = spec.namespace_skew if spec.namespace_skew is not None else rng.uniform(0.9, 1.5)
    if total == 1:
        return np.array([spec.services]), shared_count
    count = total - 1
    smallest = min(3, (spec.services - shared_count) // count)
    share = np.arange(1, count + 1) ** -float(skew)
    free = spec.services - shared_count - smallest * count
    sizes = smallest + np.floor(share / share.sum() * free).astype(np.int64)
    sizes[0] += spec.services - shared_count - sizes.sum()
    return np.concatenate([sizes, [shared_count]]), shared_count


def _draw_calls(plan: _Plan, total: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Draw E distinct calls: one caller for each service, then heavy-tailed extra calls."""
    count = len(plan.layer)
    keys = np.unique(np.concatenate([_backbone(plan, rng), _calls_to_shared(plan, rng)]))
    to_shared, across = rng.uniform(0.10, 0.22), rng.uniform(0.01, 0.07)
    activity = np.where((plan.layer < plan.depth - 1) & ~plan.shared, rng.lognormal(0, 1.0, count), 0.0)
    popularity = np.concatenate([[0.0], np.cumsum(np.where(plan.shared, 0.0, rng.lognormal(0, 1.2, count)))])
    for _ in range(60):
        missing = total - len(keys)
        if missing <= 0:
            break
        source = rng.choice(count, size=2 * missing + 16, p=activity / activity.sum())
        kind = rng.random(len(source))
        destination = _draw_within(plan, source, popularity, rng)
        destination = np.where(kind < to_shared, _draw_shared(plan, len(source), rng), destination)
        elsewhere = np.searchsorted(popularity, rng.random(len(source)) * popularity[-1], side="right") - 1
        destination = np.where(kind > 1 - across, elsewhere, destination)
        valid = (destination >= 0) & (plan.layer[destination] > plan.layer[source])
        candidates = np.unique(source[valid] * count + destination[valid])
        fresh = candidates[~np.isin(candidates, keys)]
        keys = np.concatenate([keys, rng.permutation(fresh)[:missing]])
    return keys // count, keys % count


def _backbone(plan: _Plan, rng: np.random.Generator) -> Ints:
    """Draw a caller in the same namespace for every service below the gateways, from the layer above if it has one."""
    callee = np.flatnonzero((plan.layer > 0) & ~plan.shared)
    namespace, layer = plan.namespace[callee], plan.layer[callee]
    end = plan.first(namespace, layer)
    above = plan.first(namespace, layer - 1)
    start = np.where(above < end, above, plan.first(namespace, np.zeros_like(layer)))
    # Squaring favours the start of the range, so that a few callers have many callees.
    caller = start + np.floor(rng.random(len(callee)) ** 2 * (end - start)).astype(np.int64)
    return caller * len(plan.layer) + callee


def _calls_to_shared(plan: _Plan, rng: np.random.Generator) -> Ints:
    """Draw two callers for each shared service, so that none is idle, and a store for each shared service."""
    hub = np.repeat(np.flatnonzero(plan.shared), 2)
    callers = np.flatnonzero(~plan.shared & (plan.layer < plan.depth - 2))
    into = rng.choice(callers, size=len(hub)) * len(plan.layer) + hub
    services = np.flatnonzero(plan.shared & (plan.layer < plan.depth - 1))
    stores = np.flatnonzero(plan.shared & (plan.layer == plan.depth - 1))
    return np.concatenate([into, services * len(plan.layer) + rng.choice(stores, size=len(services))])


def _draw_within(plan: _Plan, source: Ints, popularity: Floats, rng: np.random.Generator) -> Ints:
    """Draw a deeper service in the source's own namespace by popularity; -1 where there is none."""
    namespace, layer = plan.namespace[source], plan.layer[source]
    start, end = plan.first(namespace, layer + 1), plan.first(namespace + 1, np.zeros_like(layer))
    low, high = popularity[start], popularity[end]
    position = np.searchsorted(popularity, low + rng.random(len(source)) * (high - low), side="right") - 1
    return np.where(high > low, position, -1)


def _draw_shared(plan: _Plan, size: int, rng: np.random.Generator) -> Ints:
    hubs = np.flatnonzero(plan.shared)
    weights = np.arange(1, len(hubs) + 1) ** -0.8
    return hubs[rng.choice(len(hubs), size=size, p=weights / weights.sum())]


def _draw_calls_per_request(source: Ints, count: int, rng: np.random.Generator) -> Floats:
    """Draw uneven shares of a source's fan-out. Their sum does not depend on the out-degree, so load stays finite."""
    share = rng.lognormal(0, 1.1, len(source))
    share /= np.bincount(source, share, count)[source]
    fan_out = rng.lognormal(np.log(rng.uniform(1.2, 2.2)), 0.35, count)
    return np.clip(share * fan_out[source], 0.004, 4.0)


def _names(plan: _Plan, rng: np.random.Generator) -> list[str]:
    words = np.array([*SUBJECTS])[rng.permutation(len(SUBJECTS))]
    is_single = plan.namespace[-1] == 0
    namespaces = [f"{words[i % len(words)]}-{i + 1:02d}" for i in range(plan.namespace[-1] + 1)]
    if not is_single:
        namespaces[-1] = PLATFORM
    picks = rng.integers(0, 1 << 30, len(plan.layer))
    numbers: Counter[str] = Counter()
    names = []
    for namespace, layer, shared, pick in zip(plan.namespace, plan.layer, plan.shared, picks, strict=True):
        vocabulary = _vocabulary(int(layer), plan.depth, bool(shared))
        word = vocabulary[pick % len(vocabulary)]
        numbers[word] += 1
        names.append(f"{namespaces[namespace]}/{word}-{numbers[word]}")
    return names


def _vocabulary(layer: int, depth: int, shared: bool) -> tuple[str, ...]:
    if shared:
        return SHARED_STORES if layer == depth - 1 else SHARED_SERVICES
    if layer == 0:
        return GATEWAYS
    if layer == depth - 1:
        return STORES
    if layer == 1:
        return FRONTS
    return LEAVES if layer == depth - 2 else MIDDLES
