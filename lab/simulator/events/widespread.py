"""Weak faults of many services at once, none of which is strong: a slow zone, noisy hosts, a lossy network.

Each is a list of :class:`~lab.simulator.events.faults.Fault` with the same time and a small severity.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np

from lab.simulator.events.faults import Fault, FaultKind, candidates
from lab.simulator.mesh.topology import Ints
from lab.simulator.physics.propagation import MeshPhysics

WidespreadKind = Literal["slow_zone", "noisy_hosts", "lossy_zone"]
ZONES = 3  # hosts are spread over so many zones
NOISY = 0.3  # share of the hosts that are noisy

# The fault at each service, and its sizes: added share of the usual median; share of the CPU; share of lost requests.
WIDESPREAD: dict[WidespreadKind, tuple[FaultKind, tuple[float, ...]]] = {
    "slow_zone": ("latency_injection", (0.1, 0.15, 0.25)),
    "noisy_hosts": ("cpu_saturation", (0.1, 0.15, 0.25)),
    "lossy_zone": ("partial_partition", (0.001, 0.002, 0.005)),
}


def widespread(
    mesh: MeshPhysics, kind: WidespreadKind, start: int, end: int, size: float, seed: int
) -> tuple[Fault, ...]:
    """Return the faults of one widespread event.

    Args:
        mesh: with the hosts of its services.
        kind: slow zone: each request at a service of one zone takes longer. Noisy hosts: processes outside the mesh
            take CPU on some hosts. Lossy zone: requests to services of one zone are lost, from every other caller.
        start, end: the snapshots start <= index < end.
        size: severity at each service, see ``WIDESPREAD``.
        seed: chooses the zone or the hosts.

    Raises:
        ValueError: the mesh has no service at which this kind of fault has an effect.
    """
    fault = WIDESPREAD[kind][0]
    rows = np.intersect1d(candidates(mesh, fault), _PLACES[kind](mesh, np.random.default_rng(seed)))
    if not len(rows):
        raise ValueError(
            f"{kind}: expected a mesh with services for {fault} at the chosen hosts, got none; change the seed"
        )
    return tuple(Fault(fault, mesh.topology.node_ids[row], start, end, size) for row in rows.tolist())


def _zone(mesh: MeshPhysics, rng: np.random.Generator) -> Ints:
    """Return the services of one zone."""
    return np.flatnonzero(mesh.host % ZONES == rng.integers(ZONES))


def _hosts(mesh: MeshPhysics, rng: np.random.Generator) -> Ints:
    """Return the services of some hosts."""
    hosts = np.unique(mesh.host)
    noisy = rng.choice(hosts, max(1, round(NOISY * len(hosts))), replace=False)
    return np.flatnonzero(np.isin(mesh.host, noisy))


_PLACES: dict[WidespreadKind, Callable[[MeshPhysics, np.random.Generator], Ints]] = {
    "slow_zone": _zone,
    "noisy_hosts": _hosts,
    "lossy_zone": _zone,
}
