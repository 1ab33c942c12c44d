"""A mesh of 21 services with a known truth.

A scenario changes what a service or a call does by itself: own latency, failures, traffic, CPU, memory, calls that are
lost, retries, limits. Latencies, errors and load of the others follow from it.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np

from model.snapshot import MeshSnapshot, PlannedChange

# caller -> {callee: calls for each request}
CALLS: dict[str, dict[str, float]] = {
    "gw": {"web": 0.8, "login": 0.1, "api": 0.3},
    "web": {"cart": 0.5, "search": 0.6, "pay": 0.12, "promo": 0.3},
    "api": {"cart": 0.6, "search": 0.5, "pay": 0.2},
    "cart": {"stock": 0.7, "price": 0.9, "cache": 1.5},
    "search": {"index": 1.0, "cache": 0.5},
    "pay": {"bank": 0.9, "ledger": 1.0, "fraud": 0.8},
    "login": {"users": 1.2},
    "stock": {"stockdb": 1.3},
    "price": {"pricedb": 0.4},
    "ledger": {"ledgerdb": 2.0},
    "promo": {"promodb": 0.6},
    "users": {"usersdb": 1.0},
}
OWN_MS: dict[str, float] = {  # latency without calls, of each service before those that it calls
    "gw": 2,
    "web": 12,
    "api": 8,
    "login": 9,
    "cart": 6,
    "search": 15,
    "pay": 20,
    "promo": 3.1,
    "users": 4,
    "stock": 5,
    "price": 4,
    "ledger": 6,
    "bank": 70,
    "fraud": 25,
    "cache": 0.5,
    "index": 30,
    "stockdb": 3,
    "pricedb": 2,
    "ledgerdb": 4,
    "promodb": 0.5,
    "usersdb": 2,
}
NAMES = tuple(OWN_MS)  # callers before callees
FRONT = NAMES[0]
FRONT_RATE = 100.0  # requests/s
USUAL_FAILURES = 0.0008  # share of the requests that fail by themselves
HOP_MS = 1.0  # of the network, for each call
TAIL = 4.0  # 99th percentile over the median
WINDOW_SECONDS = 45.0  # over which a snapshot counts requests
STEP_SECONDS = 15.0
ROUNDS = 20  # of retries that fail and are retried, until requests settle
PROPAGATED = 0.8  # of the calls that finally fail, the share that fails its request
NAMESPACE = "shop"
START = datetime(2026, 3, 3, 9, 0, tzinfo=UTC)


def usual_rates() -> dict[str, float]:
    """Requests/s of each service at the usual traffic."""
    return World(FRONT_RATE).traffic()[0]


@dataclass(slots=True)
class World:
    """The truth of one snapshot, which a scenario changes.

    Attributes:
        entry: requests/s at the gateway.
        calls: as ``CALLS``.
        own_ms: latency of each service without its calls, ms.
        fail: share of the requests of each service that fail by themselves.
        out_ms: time that the network adds to every call of a service, ms.
        cpu, memory: utilisation of the services where it is not the usual one, 0..1.
        lost: share of the calls of a service that fail on the way: names that do not resolve, egress that is denied.
        retries: most retries of a failed call to a service.
        limits: requests/s above which a service refuses.
        changes: planned changes that this snapshot announces, as kind and service.
    """

    entry: float
    calls: dict[str, dict[str, float]] = field(default_factory=lambda: {name: dict(to) for name, to in CALLS.items()})
    own_ms: dict[str, float] = field(default_factory=lambda: dict(OWN_MS))
    fail: dict[str, float] = field(default_factory=lambda: dict.fromkeys(NAMES, USUAL_FAILURES))
    out_ms: dict[str, float] = field(default_factory=lambda: dict.fromkeys(NAMES, 0.0))
    cpu: dict[str, float] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)
    lost: dict[str, float] = field(default_factory=dict)
    retries: dict[str, int] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    changes: list[tuple[str, str]] = field(default_factory=list)

    def traffic(self) -> tuple[dict[str, float], dict[tuple[str, str], float]]:
        """Requests/s that arrive at each service, and calls/s by caller and callee, retries included."""
        rate, sent = self._flow(dict.fromkeys(NAMES, 0.0))
        for _ in range(ROUNDS if self.retries else 0):
            rate, sent = self._flow(self.responses(rate)[1])
        return rate, sent

    def _flow(self, failing: dict[str, float]) -> tuple[dict[str, float], dict[tuple[str, str], float]]:
        rate, sent = {**dict.fromkeys(NAMES, 0.0), FRONT: self.entry}, {}
        for caller in NAMES:
            served = rate[caller] * (1 - self._refused_share(caller, rate[caller]))
            for callee, share in self.calls.get(caller, {}).items():
                sent[caller, callee] = served * share * self._attempts(caller, callee, failing)
                rate[callee] += sent[caller, callee] * (1 - self.lost.get(caller, 0.0))
        return rate, sent

    def _refused_share(self, name: str, rate: float) -> float:
        return max(0.0, 1 - self.limits[name] / max(rate, 1e-9)) if name in self.limits else 0.0

    def _attempts(self, caller: str, callee: str, failing: dict[str, float]) -> float:
        failed = self.failing_calls(caller, callee, failing)
        return sum((failed**again for again in range(1, self.retries.get(callee, 0) + 1)), 1.0)

    def failing_calls(self, caller: str, callee: str, failing: dict[str, float]) -> float:
        """Share of the calls that fail, given the share of the requests of each service that fail."""
        lost = self.lost.get(caller, 0.0)
        return 1 - (1 - failing[callee]) * (1 - lost) if lost else failing[callee]

    def responses(self, rate: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
        """Median latency, ms, and share of failed requests of each service, with everything that it calls.

        Args:
            rate: requests/s that arrive at each service.
        """
        latency: dict[str, float] = {}
        failing: dict[str, float] = {}
        for name in reversed(NAMES):
            ms, works = self.own_ms[name], (1 - self.fail[name]) * (1 - self._refused_share(name, rate[name]))
            for callee, share in self.calls.get(name, {}).items():
                attempts = self._attempts(name, callee, failing)
                ms += min(share, 1.5) * attempts * (latency[callee] + HOP_MS + self.out_ms[name])
                fails = self.failing_calls(name, callee, failing) ** (1 + self.retries.get(callee, 0))
                works *= 1 - min(share, 1.0) * fails * PROPAGATED
            latency[name], failing[name] = ms, 1 - works
        return latency, failing


Scenario = Callable[[int, World], None]  # changes the world at a position, counted in snapshots


def snapshots(
    scenario: Scenario, count: int, seed: int, homes: Mapping[str, str] | None = None
) -> Iterator[MeshSnapshot]:
    """Yield the snapshots of a scenario, 15 s apart. Equal arguments give equal snapshots.

    Args:
        scenario: what changes.
        count: of snapshots.
        seed: of all draws.
        homes: namespace of each service; None: all are in the same one.
    """
    ids = {name: f"{(homes or {}).get(name, NAMESPACE)}/{name}" for name in NAMES}
    rng, drift = np.random.default_rng(seed), 0.0
    for position in range(count):
        drift = 0.97 * drift + rng.normal(0, 0.008)
        swing = 1 + 0.1 * math.sin(position / 240 * 2 * math.pi / 3)
        world = World(FRONT_RATE * (math.exp(drift) * swing))
        scenario(position, world)
        yield observe(world, rng, START + timedelta(seconds=STEP_SECONDS * position), ids)


def observe(world: World, rng: np.random.Generator, at: datetime, ids: Mapping[str, str]) -> MeshSnapshot:
    """Draw what telemetry shows of a world: counts of requests, and noise. ``ids`` are the services' ids by name."""
    rate, sent = world.traffic()
    latency, failing = world.responses(rate)
    nodes = [_node(world, name, rate[name], latency[name], failing[name], rng) for name in NAMES]
    calls = {
        call: row
        for call, per_second in sent.items()
        if (row := _call(world, call, per_second, latency[call[1]], world.failing_calls(*call, failing), rng))
    }
    return MeshSnapshot.create(
        node_ids=[ids[name] for name in NAMES],
        edge_index=np.array([[NAMES.index(name) for name in call] for call in calls]).T,
        node_features=np.array(nodes),
        edge_features=np.array(list(calls.values())),
        observed_at=at,
        changes=tuple(PlannedChange(kind, ids[name]) for kind, name in world.changes),
    )


def _node(world: World, name: str, rate: float, ms: float, failing: float, rng: np.random.Generator) -> list[float]:
    """Values of a service, ``[7]``; NaN for values of requests if there are none."""
    requests = int(rng.poisson(rate * WINDOW_SECONDS))
    of_requests = [math.nan] * 3
    if requests:
        failed = rng.binomial(requests, min(max(failing, 0), 1)) / requests
        of_requests = [failed, *_quantiles(ms, requests, rng)]
    usual_cpu = 0.12 + 0.25 * rate / USUAL_RATES[name]
    return [
        requests / WINDOW_SECONDS,
        *of_requests,
        min(world.cpu.get(name, usual_cpu) * _noise(0.05, rng), 1),
        min(world.memory.get(name, 0.45) * _noise(0.01, rng), 1),
        max(2 + rate * ms / 500, 1) * _noise(0.05, rng),
    ]


def _call(
    world: World, call: tuple[str, str], per_second: float, ms: float, failing: float, rng: np.random.Generator
) -> list[float]:
    """Values of a call, ``[4]``; empty if none was made."""
    requests = int(rng.poisson(per_second * WINDOW_SECONDS))
    if not requests:
        return []
    failed = rng.binomial(requests, min(failing, 1)) / requests
    return [requests / WINDOW_SECONDS, failed, *_quantiles(ms + HOP_MS + world.out_ms[call[0]], requests, rng)]


def _quantiles(ms: float, requests: int, rng: np.random.Generator) -> tuple[float, float]:
    """Median and 99th percentile of a sample of requests, s."""
    p50 = ms / 1000 * _noise(0.03 + 0.3 / math.sqrt(requests), rng)
    return p50, max(p50, ms / 1000 * TAIL * _noise(0.08 + 0.8 / math.sqrt(requests), rng))


def _noise(sigma: float, rng: np.random.Generator) -> float:
    return math.exp(rng.normal(0, sigma))


USUAL_RATES = usual_rates()
