"""Plans a run's faults and benign changes."""

from collections.abc import Sequence

import numpy as np

from lab.simulator.events.churn import plan_churn
from lab.simulator.events.faults import CATALOGUE, LEVELS, Fault, FaultKind, Level, candidates
from lab.simulator.events.operations import BenignChange
from lab.simulator.mesh.parameters import build_mesh
from lab.simulator.mesh.topology import Ints, MeshSpec
from lab.simulator.physics.propagation import MeshPhysics

AFTER_A_CHANGE = 0.4  # share of faults that begin within minutes of a benign change next to the culprit
SOON = 12  # snapshots that count as "within minutes"
DURATION = (16, 40)  # bounds of a fault's length, snapshots
QUIET = (40, 80)  # bounds of the period after it, snapshots


def plan_scenario(
    spec: MeshSpec,
    kinds: Sequence[FaultKind],
    seed: int,
    *,
    snapshots: int = 960,
    first: int = 160,
    duration: tuple[int, int] = DURATION,
    quiet: tuple[int, int] = QUIET,
    churn_per_hour: float = 6.0,
    minimum_rate: float = 5.0,
    levels: Sequence[Level] = LEVELS,
) -> tuple[tuple[Fault, ...], tuple[BenignChange, ...]]:
    """Plan random faults with quiet periods between them, and benign changes that are independent of the faults.

    Real incidents often begin with a rollout. A fault that is due after a benign change therefore often hits a service
    next to it, so that a nearby change is weak evidence of a fault.

    Args:
        kinds: kinds of faults, in shuffled rounds; empty for benign changes only. Kinds that do not fit the mesh or
            have none of the ``levels`` are left out.
        seed: seed of the plan; the mesh has its own.
        snapshots: length of the run.
        first: earliest start of a fault, snapshot index.
        duration, quiet: bounds of a fault's length, and of the quiet period after it, snapshots.
        churn_per_hour: benign changes per hour in the whole mesh.
        minimum_rate: minimum usual request rate of a culprit, 1/s.
        levels: severities to draw from; a level that occurs twice is drawn twice as often.
    """
    mesh = build_mesh(spec)
    faults_seed, churn_seed = np.random.SeedSequence(seed, spawn_key=(9,)).spawn(2)
    hours = snapshots * spec.interval_seconds / 3600.0
    changes = plan_churn(mesh, np.random.default_rng(churn_seed), snapshots, churn_per_hour * hours)
    rng = np.random.default_rng(faults_seed)
    spells = _draw_spells(rng, snapshots, first, duration, quiet) if kinds else ()
    return _plan_faults(mesh, kinds, levels, rng, spells, changes, minimum_rate), changes


def latest_end(first: int, duration: tuple[int, int] = DURATION, quiet: tuple[int, int] = QUIET) -> int:
    """Return the latest snapshot at which the first fault can end: a run of this length has one with any seed."""
    return first + quiet[1] - quiet[0] + duration[1]


def _draw_spells(
    rng: np.random.Generator, snapshots: int, first: int, duration: tuple[int, int], quiet: tuple[int, int]
) -> tuple[tuple[int, int], ...]:
    spells: list[tuple[int, int]] = []
    start = first + int(rng.integers(0, quiet[1] - quiet[0] + 1))
    while True:
        end = start + int(rng.integers(duration[0], duration[1] + 1))
        if end > snapshots:
            return tuple(spells)
        spells.append((start, end))
        start = end + int(rng.integers(quiet[0], quiet[1] + 1))


def _plan_faults(
    mesh: MeshPhysics,
    kinds: Sequence[FaultKind],
    levels: Sequence[Level],
    rng: np.random.Generator,
    spells: Sequence[tuple[int, int]],
    changes: Sequence[BenignChange],
    minimum_rate: float,
) -> tuple[Fault, ...]:
    position = {name: i for i, name in enumerate(mesh.topology.node_ids)}
    deleted = [position[c.service] for c in changes if c.kind == "deletion"]
    choices = {kind: np.setdiff1d(candidates(mesh, kind, minimum_rate), deleted) for kind in kinds}
    sizes = {k: [CATALOGUE[k].levels[level] for level in levels if level in CATALOGUE[k].levels] for k in kinds}
    possible = [kind for kind in kinds if len(choices[kind]) and sizes[kind]]
    if not possible:
        return ()
    faults: list[Fault] = []
    remaining: list[FaultKind] = []
    for start, end in spells:
        remaining = remaining or [possible[i] for i in rng.permutation(len(possible))]
        kind = remaining.pop()
        size = sizes[kind][int(rng.integers(len(sizes[kind])))]
        beside = _beside_changes(mesh, position, changes, start)
        near = np.intersect1d(choices[kind], beside) if rng.random() < AFTER_A_CHANGE else beside[:0]
        service = mesh.topology.node_ids[int(rng.choice(near if len(near) else choices[kind]))]
        faults.append(Fault(kind, service, start, end, size))
    return tuple(faults)


def _beside_changes(mesh: MeshPhysics, position: dict[str, int], changes: Sequence[BenignChange], start: int) -> Ints:
    """Return the services that changed shortly before, their callees and their callers."""
    positions = [position[c.service] for c in changes if start - SOON <= c.at < start]
    source, destination = mesh.topology.source, mesh.topology.destination
    callees, callers = destination[np.isin(source, positions)], source[np.isin(destination, positions)]
    return np.unique(np.concatenate([np.array(positions, np.int64), callees, callers]))
