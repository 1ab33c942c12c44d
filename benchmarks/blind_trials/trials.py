"""Trials at services that the seed draws, and their right answers.

Each uses the mesh of ``calm_again``, spread over three namespaces.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.calm_again.mesh import CALLS, NAMES, Scenario, World, usual_rates

BEGIN, LASTS = 160, 24  # a fault's first snapshot, and its length
RATES = usual_rates()
HOMES = {
    **dict.fromkeys(("gw", "web", "api", "login", "promo", "users", "promodb", "usersdb"), "shop"),
    **dict.fromkeys(("cart", "stock", "price", "cache", "stockdb", "pricedb", "search", "index"), "catalog"),
    **dict.fromkeys(("pay", "bank", "ledger", "ledgerdb", "fraud"), "payments"),
}
IDS = {name: f"{HOMES[name]}/{name}" for name in NAMES}
CALLERS = {callee: [name for name in NAMES if callee in CALLS.get(name, {})] for callee in NAMES}
# Services with several callees, with several callers, and with enough traffic.
FAN_OUT = [name for name in NAMES if len(CALLS.get(name, {})) > 1 and name != "gw"]
SHARED = [name for name in NAMES if len(CALLERS[name]) > 1]
BUSY = [name for name in NAMES if name != "gw" and RATES[name] >= 10]
LOOK_AT_IT, NETWORK, LIMIT = "look at {} itself", "network, the node and the proxy of {}", "scale {} out"
LOST_CALLS = "dns and egress of {}"


@dataclass(frozen=True, slots=True)
class Answer:
    """A right answer: an alert whose first suspect is one of the ids in ``first``, and whose next step contains one of
    the texts in ``action``, in lower case."""

    first: tuple[str, ...]
    action: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Trial:
    """Events from ``BEGIN`` on, and the answer to each fault; without answers, no alert is due."""

    happens: Callable[[World, int], None]
    answers: tuple[Answer, ...] = ()

    @property
    def scenario(self) -> Scenario:
        return lambda position, world: self.happens(world, position - BEGIN) if position >= BEGIN else None


def own_fault(kind: str, name: str, action: str = LOOK_AT_IT) -> Trial:
    """A service is slow or fails by itself."""

    def happens(world: World, _: int) -> None:
        if kind == "slow":
            world.own_ms[name] += 400
        else:
            world.fail[name] = 0.4

    return Trial(happens, (Answer((IDS[name],), (action.format(IDS[name]),)),))


def two_faults(rng: np.random.Generator, kinds: tuple[str, str]) -> Trial:
    """Two services that do not call each other degrade at the same time."""
    first, second = (str(name) for name in rng.choice([n for n in BUSY if n not in ("web", "api")], 2, replace=False))
    if second in _behind(first) or first in _behind(second):
        return two_faults(rng, kinds)
    faults = own_fault(kinds[0], first, "look at {}"), own_fault(kinds[1], second, "look at {}")

    def happens(world: World, since: int) -> None:
        for trial in faults:
            trial.happens(world, since)

    return Trial(happens, (*faults[0].answers, *faults[1].answers))


def lost_calls(rng: np.random.Generator, names: list[str], namespace: str = "") -> Trial:
    """Outgoing calls of one service, or of all in a namespace, fail on the way."""
    share = rng.uniform(0.4, 0.95)

    def happens(world: World, _: int) -> None:
        world.lost = dict.fromkeys(names, share)

    subject = f"namespace {namespace}" if namespace else IDS[names[0]]
    return Trial(happens, (Answer(tuple(IDS[name] for name in names), (LOST_CALLS.format(subject),)),))


def namespace_dns(rng: np.random.Generator) -> Trial:
    """Names do not resolve in one namespace."""
    namespace = str(rng.choice(sorted(set(HOMES.values()))))
    return lost_calls(rng, [name for name in NAMES if HOMES[name] == namespace and CALLS.get(name)], namespace)


def storm(rng: np.random.Generator, fails: float, capacity: float, retries: int) -> Trial:
    """A shared service loses capacity, or fails, and all its callers retry."""
    name = str(rng.choice(SHARED))

    def happens(world: World, since: int) -> None:
        world.fail[name] = fails
        world.limits[name] = capacity * RATES[name]
        world.retries[name] = min(retries, since + 1)
        world.own_ms[name] *= 3
        world.cpu[name] = 0.97

    return Trial(happens, (Answer((IDS[name],), (LIMIT.format(IDS[name]), LOOK_AT_IT.format(IDS[name]))),))


def flood(rng: np.random.Generator) -> Trial:
    """A caller sends a service eight times its usual calls, and the service refuses most."""
    name = str(rng.choice(SHARED))
    caller = str(rng.choice(CALLERS[name]))

    def happens(world: World, _: int) -> None:
        world.calls[caller][name] *= 8
        world.limits[name] = 1.5 * RATES[name]
        world.cpu[name] = 0.97

    return Trial(happens, (Answer((IDS[caller],), (f"limit the retries of {IDS[caller]}",)),))


def misroute(rng: np.random.Generator) -> Trial:
    """A fifth of a caller's calls goes to another service, which cannot answer them."""
    caller = str(rng.choice(FAN_OUT))
    right = str(rng.choice([name for name in CALLS[caller] if RATES[name] >= 10] or list(CALLS[caller])))
    later = NAMES[NAMES.index(caller) + 1 :]
    targets = [name for name in later if name not in CALLS[caller] and RATES[name] >= 10]
    wrong = str(rng.choice([name for name in targets if name not in _behind(caller)] or targets))

    def happens(world: World, _: int) -> None:
        share = 0.2 * world.calls[caller][right]
        world.calls[caller][right] -= share
        world.calls[caller][wrong] = share
        world.fail[caller] += 0.8 * share

    return Trial(happens, (Answer((IDS[caller], IDS[wrong], IDS[right]), ("routing",)),))


def slow_network(rng: np.random.Generator) -> Trial:
    """Every call out of a service takes longer."""
    name, delay = str(rng.choice(FAN_OUT)), rng.uniform(300, 2400)

    def happens(world: World, _: int) -> None:
        world.out_ms[name] = delay

    return Trial(happens, (Answer((IDS[name],), (NETWORK.format(IDS[name]),)),))


def full_cpu(rng: np.random.Generator) -> Trial:
    """A service is at its CPU limit and three times as slow; a callee takes a few milliseconds longer."""
    name = str(rng.choice([name for name in FAN_OUT if name != "api"]))
    small = str(rng.choice(sorted(_behind(name))))

    def happens(world: World, _: int) -> None:
        world.cpu[name] = 1.0
        world.own_ms[name] = 3 * world.own_ms[name] + 30
        world.own_ms[small] += 2.5

    return Trial(happens, (Answer((IDS[name],), (f"uses the cpu of {IDS[name]}",)),))


def benign_change(rng: np.random.Generator, kind: str) -> Trial:
    """A service gets more replicas, or a new version that is a little slow while it starts."""
    name = str(rng.choice(BUSY))

    def happens(world: World, since: int) -> None:
        if not since:
            world.changes.append((kind, name))
        world.cpu[name] = 0.2 if kind == "scale_out" else 0.4 if since < 6 else 0.3
        world.own_ms[name] *= 0.9 if kind == "scale_out" else 1.6 if since < 6 else 1.05

    return Trial(happens)


def _behind(name: str) -> set[str]:
    direct = set(CALLS.get(name, {}))
    return direct.union(*(_behind(callee) for callee in direct))


TRIALS: Mapping[str, Callable[[np.random.Generator], Trial]] = {
    "two faults: slow and failing": lambda rng: two_faults(rng, ("slow", "fail")),
    "two faults: both failing": lambda rng: two_faults(rng, ("fail", "fail")),
    "DNS of a namespace": namespace_dns,
    "DNS or egress of a service": lambda rng: lost_calls(rng, [str(rng.choice(FAN_OUT))]),
    "overload with retries": lambda rng: storm(rng, 0.001, 0.6, 3),
    "retry storm": lambda rng: storm(rng, 0.5, 1.3, 4),
    "flood of one caller": flood,
    "misroute of a fifth": misroute,
    "slow network of a caller": slow_network,
    "full CPU beside milliseconds": full_cpu,
    "failing callee": lambda rng: own_fault("fail", str(rng.choice([name for name in BUSY if name not in CALLS]))),
    "scale-out": lambda rng: benign_change(rng, "scale_out"),
    "deploy": lambda rng: benign_change(rng, "deploy"),
}
