"""Changes of services and calls: new services, planned retirements, canaries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lab.simulator.events.operations import STAGES, WIRING_KINDS, BenignChange, ChangeKind
from lab.simulator.mesh.topology import Ints, Topology
from lab.simulator.physics.propagation import Conditions, MeshPhysics

JOIN_TICKS = 8  # in which callers start to use a new service
DRAIN_TICKS = 2  # from a retirement's announcement until the service is gone
CANARY_SHARES = (0.1, 0.25, 0.5, 1.0)
STAGE_TICKS = 12  # of each share
RETURN_TICKS = 4  # in which traffic returns from the canary to the service


@dataclass(frozen=True, slots=True)
class Calls:
    """Positions of the calls into and out of each service."""

    topology: Topology
    by_destination: Ints

    @classmethod
    def of(cls, topology: Topology) -> "Calls":
        """Sort the calls once, for binary searches by service."""
        return cls(topology, np.argsort(topology.destination, kind="stable"))

    def into(self, service: int) -> Ints:
        sorter = self.by_destination
        bounds = np.searchsorted(self.topology.destination, [service, service + 1], sorter=sorter)
        return sorter[bounds[0] : bounds[1]]

    def out_of(self, service: int) -> Ints:
        return np.arange(*np.searchsorted(self.topology.source, [service, service + 1]))


def eligible_services(mesh: MeshPhysics, kind: ChangeKind) -> Ints:
    """Return the positions of services that a change of this kind can affect."""
    topology = mesh.topology
    if kind == "new_service":
        return mesh.newcomers
    if kind == "canary":
        return mesh.canaries[:, 0]
    ordinary = ~topology.latent
    if kind == "deletion":
        ordinary &= (topology.layer > 0) & ~topology.shared
        ordinary[mesh.canaries[:, 0]] = False
    return np.flatnonzero(ordinary)


def check(mesh: MeshPhysics, change: BenignChange, service: int, earlier: Sequence[BenignChange]) -> None:
    """Check that a change is possible.

    Raises:
        ValueError: the service is not eligible, or the change is scheduled already.
    """
    if change.kind not in WIRING_KINDS:
        return
    able = eligible_services(mesh, change.kind)
    if service not in able:
        example = mesh.topology.node_ids[able[0]] if len(able) else "none; raise MeshSpec.latent"
        raise ValueError(
            f"{change.kind}: {change.service!r} is not one of the {len(able)} eligible services, "
            f"such as {example}; see wiring.eligible_services"
        )
    if change.kind != "canary" and any(c.kind == change.kind and c.service == change.service for c in earlier):
        raise ValueError(f"{change.kind}: {change.service!r} is already scheduled; choose another service")


def rewire(
    mesh: MeshPhysics,
    calls: Calls,
    changes: Sequence[BenignChange],
    index: int,
    position: Mapping[str, int],
    now: Conditions,
) -> Conditions:
    """Apply the changes in wiring that have begun to one tick's conditions."""
    started = [(change, index - change.at) for change in changes if change.at <= index]
    if not started:
        return now
    alive, shares = now.alive.copy(), now.carried.copy()
    canary_of = dict(mesh.canaries.tolist())
    for change, age in started:
        i = position[change.service]
        into = calls.into(i)
        if change.kind == "new_service":
            active = into[alive[mesh.topology.source[into]]]
            alive[i] = True
            shares[active] = min((age + 1) / JOIN_TICKS, 1.0)
            shares[calls.out_of(i)] = 1.0
        elif change.kind == "deletion":
            shares[into] *= max(1.0 - age / DRAIN_TICKS, 0.0)
            alive[i] = age < DRAIN_TICKS
        else:
            _shift(mesh, calls, i, canary_of[i], (age, change.stages), alive, shares)
            now = _run_version(change, i, canary_of[i], age, now)
    shares *= alive[mesh.topology.source] & (alive[mesh.topology.destination] | now.alive[mesh.topology.destination])
    return replace(now, alive=alive, carried=shares)


def canary_share(age: int, stages: int = STAGES) -> float:
    """Return the canary's share of traffic ``age`` snapshots after its start; 0 before and afterwards."""
    if not 0 <= age < STAGE_TICKS * stages + RETURN_TICKS:
        return 0.0
    stage = age // STAGE_TICKS
    if stage < stages:
        return CANARY_SHARES[stage]
    return CANARY_SHARES[stages - 1] * (1.0 - (age - STAGE_TICKS * stages + 1) / (RETURN_TICKS + 1))


def _run_version(change: BenignChange, service: int, canary: int, age: int, now: Conditions) -> Conditions:
    """Apply the new version's time and errors to the canary, and to the service once the canary has had all traffic."""
    if change.size == 1.0 and not change.errors:
        return now
    runs = [canary, service] if change.stages == STAGES and age >= STAGE_TICKS * STAGES else [canary]
    cpu_time, delay, errors = now.cpu_time.copy(), now.delay.copy(), now.injected_errors.copy()
    cpu_time[runs] *= change.size
    delay[runs] *= change.size
    errors[runs] = 1.0 - (1.0 - errors[runs]) * (1.0 - change.errors)
    return replace(now, cpu_time=cpu_time, delay=delay, injected_errors=errors)


def _shift(
    mesh: MeshPhysics,
    calls: Calls,
    service: int,
    canary: int,
    age_and_stages: tuple[int, int],
    alive: np.ndarray,
    shares: np.ndarray,
) -> None:
    """Move the canary's share of each caller's calls, in place."""
    share = canary_share(*age_and_stages)
    if share == 0.0:
        return
    twin = {int(mesh.topology.source[call]): int(call) for call in calls.into(canary)}
    for call in calls.into(service):
        at = twin.get(int(mesh.topology.source[call]))
        if at is not None:
            shares[at] = shares[call] * share
            shares[call] *= 1.0 - share
    shares[calls.out_of(canary)] = 1.0
    alive[canary] = True
