"""A mesh with 21 services and a known truth.

A scenario changes a service's or a call's own behaviour: latency, failures, traffic, CPU, memory, lost calls, retries,
limits. The others' latencies, errors and load follow from it.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np

from model.snapshot import MeshSnapshot, PlannedChange

# caller -> {callee: calls per request}
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
OWN_MS: dict[str, float] = {  # latency without calls; callers before callees
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
NAMES = tuple(OWN_MS)
FRONT = NAMES[0]
FRONT_RATE = 100.0  # requests/s
USUAL_FAILURES = 0.0008  # share of requests that fail by themselves
HOP_MS = 1.0  # network time per call
TAIL = 4.0  # 99th percentile over the median
WINDOW_SECONDS = 45.0  # over which a snapshot counts requests
STEP_SECONDS = 15.0
ROUNDS = 20  # of retries, until requests settle
PROPAGATED = 0.8  # share of finally failed calls that fails its request
NAMESPACE = "shop"
START = datetime(2026, 3, 3, 9, 0, tzinfo=UTC)


def usual_rates() -> dict[str, float]:
    """Return each service's requests/s at the usual traffic."""
    return World(FRONT_RATE).traffic()[0]


@dataclass(slots=True)
class World:
    """A snapshot's truth, which a scenario changes; by service unless noted.

    Attributes:
        entry: requests/s at the gateway.
        calls: as ``CALLS``.
        own_ms: latency without calls, ms.
        fail: share of requests that fail by themselves.
        out_ms: time that the network adds to each outgoing call, ms.
        cpu, memory: unusual utilisation, 0..1.
        lost: share of outgoing calls that fail on the way: names that do not resolve, denied egress.
        retries: maximum retries of a failed call to the service.
        limits: requests/s above which the service refuses.
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
        """Return each service's arriving requests/s, and calls/s by caller and callee, with retries."""
        rate, call_rate = self._flow(dict.fromkeys(NAMES, 0.0))
        for _ in range(ROUNDS if self.retries else 0):
            rate, call_rate = self._flow(self.responses(rate)[1])
        return rate, call_rate

    def _flow(self, failing: dict[str, float]) -> tuple[dict[str, float], dict[tuple[str, str], float]]:
        rate, call_rate = {**dict.fromkeys(NAMES, 0.0), FRONT: self.entry}, {}
        for caller in NAMES:
            served_rate = rate[caller] * (1 - self._refused_share(caller, rate[caller]))
            for callee, share in self.calls.get(caller, {}).items():
                call_rate[caller, callee] = served_rate * share * self._attempts(caller, callee, failing)
                rate[callee] += call_rate[caller, callee] * (1 - self.lost.get(caller, 0.0))
        return rate, call_rate

    def _refused_share(self, name: str, rate: float) -> float:
        return max(0.0, 1 - self.limits[name] / max(rate, 1e-9)) if name in self.limits else 0.0

    def _attempts(self, caller: str, callee: str, failing: dict[str, float]) -> float:
        failing_share = self.failing_calls(caller, callee, failing)
        return sum((failing_share**again for again in range(1, self.retries.get(callee, 0) + 1)), 1.0)

    def failing_calls(self, caller: str, callee: str, failing: dict[str, float]) -> float:
        """Return the share of calls that fail, given each service's share of failing requests."""
        lost_share = self.lost.get(caller, 0.0)
        return 1 - (1 - failing[callee]) * (1 - lost_share) if lost_share else failing[callee]

    def responses(self, rate: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
        """Return each service's median latency, ms, and share of failed requests, including its calls, by the arriving
        requests/s."""
        latency: dict[str, float] = {}
        failing: dict[str, float] = {}
        for name in reversed(NAMES):
            ms, success = self.own_ms[name], (1 - self.fail[name]) * (1 - self._refused_share(name, rate[name]))
            for callee, share in self.calls.get(name, {}).items():
                attempts = self._attempts(name, callee, failing)
                ms += min(share, 1.5) * attempts * (latency[callee] + HOP_MS + self.out_ms[name])
                fails = self.failing_calls(name, callee, failing) ** (1 + self.retries.get(callee, 0))
                success *= 1 - min(share, 1.0) * fails * PROPAGATED
            latency[name], failing[name] = ms, 1 - success
        return latency, failing


Scenario = Callable[[int, World], None]  # changes the world at a position, counted in snapshots


def snapshots(
    scenario: Scenario, count: int, seed: int, homes: Mapping[str, str] | None = None
) -> Iterator[MeshSnapshot]:
    """Yield a scenario's snapshots, 15 s apart. Equal arguments give equal snapshots. ``homes`` are the services'
    namespaces; None: all are in the same one."""
    ids = {name: f"{(homes or {}).get(name, NAMESPACE)}/{name}" for name in NAMES}
    rng, drift = np.random.default_rng(seed), 0.0
    for position in range(count):
        drift = 0.97 * drift + rng.normal(0, 0.008)
        swing = 1 + 0.1 * math.sin(position / 240 * 2 * math.pi / 3)
        world = World(FRONT_RATE * (math.exp(drift) * swing))
        scenario(position, world)
        yield observe(world, rng, START + timedelta(seconds=STEP_SECONDS * position), ids)


def observe(world: World, rng: np.random.Generator, at: datetime, ids: Mapping[str, str]) -> MeshSnapshot:
    """Draw a world's telemetry: counts of requests, and noise. ``ids`` are the services' ids by name."""
    rate, call_rate = world.traffic()
    latency, failing = world.responses(rate)
    nodes = [_node(world, name, rate[name], latency[name], failing[name], rng) for name in NAMES]
    calls = {
        call: row
        for call, per_second in call_rate.items()
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
    """Draw a service's values, ``[7]``; NaN for values of requests if there are none."""
    requests = int(rng.poisson(rate * WINDOW_SECONDS))
    request_values = [math.nan] * 3
    if requests:
        failing_share = rng.binomial(requests, min(max(failing, 0), 1)) / requests
        request_values = [failing_share, *_quantiles(ms, requests, rng)]
    usual_cpu = 0.12 + 0.25 * rate / USUAL_RATES[name]
    return [
        requests / WINDOW_SECONDS,
        *request_values,
        min(world.cpu.get(name, usual_cpu) * _noise(0.05, rng), 1),
        min(world.memory.get(name, 0.45) * _noise(0.01, rng), 1),
        max(2 + rate * ms / 500, 1) * _noise(0.05, rng),
    ]


def _call(
    world: World, call: tuple[str, str], per_second: float, ms: float, failing: float, rng: np.random.Generator
) -> list[float]:
    """Draw a call's values, ``[4]``; empty if none was made."""
    requests = int(rng.poisson(per_second * WINDOW_SECONDS))
    if not requests:
        return []
    failing_share = rng.binomial(requests, min(failing, 1)) / requests
    return [requests / WINDOW_SECONDS, failing_share, *_quantiles(ms + HOP_MS + world.out_ms[call[0]], requests, rng)]


def _quantiles(ms: float, requests: int, rng: np.random.Generator) -> tuple[float, float]:
    """Draw a sample's median and 99th percentile, s."""
    p50 = ms / 1000 * _noise(0.03 + 0.3 / math.sqrt(requests), rng)
    return p50, max(p50, ms / 1000 * TAIL * _noise(0.08 + 0.8 / math.sqrt(requests), rng))


def _noise(sigma: float, rng: np.random.Generator) -> float:
    return math.exp(rng.normal(0, sigma))


USUAL_RATES = usual_rates()
