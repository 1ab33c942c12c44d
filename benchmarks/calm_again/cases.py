"""Scenarios: changes in the mesh, and their lengths in snapshots."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from benchmarks.calm_again.mesh import FRONT, NAMES, USUAL_RATES, Scenario, World

BEGIN = 180  # first snapshot of a fault
LATER = BEGIN + 120  # first snapshot of the second fault of ``residue``
NIGHT_FAULTS, NIGHT_SPACING, NIGHT_LASTS = 40, 60, 12  # faults, snapshots between two starts, snapshots of each


@dataclass(frozen=True, slots=True)
class Case:
    """A scenario with a seed."""

    name: str
    seed: int
    snapshots: int


def cases(seed: int) -> list[Case]:
    """Return every case with this seed, the longest first."""
    return [Case(name, seed, length) for name, length in sorted(LENGTHS.items(), key=lambda item: -item[1])]


def scenario(case: Case) -> Scenario:
    return SCENARIOS[case.name](case.seed)


def residue(position: int, world: World) -> None:
    """web is 2 s slower for three minutes, and cache answers in 1.1 ms instead of 0.5 ms from its start on. Half an
    hour later, pay fails for three minutes."""
    if BEGIN <= position < BEGIN + 12:
        world.own_ms["web"] += 2000
    if position >= BEGIN:
        world.own_ms["cache"] += 0.6
    if LATER <= position < LATER + 12:
        world.fail["pay"] = 0.4


def step(position: int, world: World) -> None:
    """promo answers in 7.4 ms instead of 3.1 ms permanently: 1 ms of the 100 that a user waits."""
    if position >= BEGIN:
        world.own_ms["promo"] += 4.3


def swing(position: int, world: World) -> None:
    """Traffic falls to 45% for two minutes, then rises to 1.7 times; a daily swing continues."""
    if BEGIN <= position < BEGIN + 8:
        world.entry *= 0.45
    elif position >= BEGIN + 8:
        world.entry *= min(1.7, 1 + 0.1 * (position - BEGIN - 8))


def network(position: int, world: World) -> None:
    """Every call by web takes 2.4 s longer; its callees are as fast as usual."""
    if position >= BEGIN:
        world.out_ms["web"] = 2400


def cpu(position: int, world: World) -> None:
    """web is at 100% CPU instead of 32% and three times as slow by itself; promodb takes 3 ms instead of 0.5 ms."""
    if position >= BEGIN:
        world.cpu["web"], world.own_ms["web"] = 1.0, 40.0
        world.own_ms["promodb"] = 3.0


@dataclass(frozen=True, slots=True)
class NightFault:
    """A fault: first snapshot, service, and ``slow``, ``fail`` or ``cpu``."""

    at: int
    service: str
    kind: str


@dataclass(frozen=True)
class Night:
    """Ten hours with a fault of three minutes every quarter of an hour; each leaves a step of a few milliseconds."""

    seed: int

    @cached_property
    def _plan(self) -> tuple[tuple[NightFault, ...], tuple[tuple[int, str, float], ...]]:
        rng = np.random.default_rng(1000 + self.seed)
        names = [name for name in NAMES if USUAL_RATES[name] >= 8 and name != FRONT]
        faults = tuple(
            NightFault(BEGIN + NIGHT_SPACING * k, str(rng.choice(names)), str(rng.choice(["slow", "fail", "cpu"])))
            for k in range(NIGHT_FAULTS)
        )
        return faults, tuple((fault.at, str(rng.choice(names)), float(rng.uniform(0.3, 1.5))) for fault in faults)

    @property
    def faults(self) -> tuple[NightFault, ...]:
        return self._plan[0]

    @property
    def steps(self) -> tuple[tuple[int, str, float], ...]:
        """Each step's first snapshot, service and ms."""
        return self._plan[1]

    def __call__(self, position: int, world: World) -> None:
        for at, name, ms in self.steps:
            if position >= at:
                world.own_ms[name] += ms
        for fault in self.faults:
            if fault.at <= position < fault.at + NIGHT_LASTS:
                harm(fault, world)


def harm(fault: NightFault, world: World) -> None:
    if fault.kind == "fail":
        world.fail[fault.service] = 0.3
        return
    world.own_ms[fault.service] = world.own_ms[fault.service] * 4 + 300
    if fault.kind == "cpu":
        world.cpu[fault.service] = 0.98


SCENARIOS: Mapping[str, Callable[[int], Scenario]] = {
    "residue": lambda seed: residue,
    "step": lambda seed: step,
    "swing": lambda seed: swing,
    "network": lambda seed: network,
    "cpu": lambda seed: cpu,
    "night": Night,
}
LENGTHS: Mapping[str, int] = {  # snapshots
    "residue": BEGIN + 240,
    "step": BEGIN + 240,
    "swing": BEGIN + 120,
    "network": BEGIN + 24,
    "cpu": BEGIN + 24,
    "night": BEGIN + NIGHT_SPACING * NIGHT_FAULTS,
}
