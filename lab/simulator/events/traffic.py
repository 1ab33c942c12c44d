"""Shifts in the traffic from outside: outages in front of the mesh, marketing peaks, returns after an outage."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lab.simulator.mesh.topology import Topology
from lab.simulator.physics.queueing import Floats

EVERYWHERE = "*"


@dataclass(frozen=True, slots=True)
class TrafficShift:
    """A period with ``factor`` times the usual requests from outside.

    Attributes:
        factor: 0 or more; 0: no request arrives.
        start, end: the shift is active in the snapshots start <= index < end.
        rise, fall: snapshots over which it builds up and goes back; 1: at once.
        scope: ``*`` for the mesh, ``namespace/*``, or an entry point's node id.
    """

    factor: float
    start: int
    end: int
    rise: int = 1
    fall: int = 1
    scope: str = EVERYWHERE

    def __post_init__(self) -> None:
        if self.factor < 0:
            raise ValueError(f"factor: expected 0 or more, got {self.factor}")
        if min(self.rise, self.fall) < 1:
            raise ValueError(f"rise, fall: expected 1 or more snapshots, got {self.rise} and {self.fall}")
        if self.end - self.start < self.rise + self.fall - 1:
            raise ValueError(
                f"end: expected at least {self.rise + self.fall - 1} snapshots after {self.start}, got {self.end}"
            )

    def load(self, index: int) -> float:
        if not self.start <= index < self.end:
            return 1.0
        part = min((index - self.start + 1) / self.rise, (self.end - index) / self.fall, 1.0)
        return 1.0 + (self.factor - 1.0) * part


def entries_of(topology: Topology, scope: str) -> NDArray[np.bool_]:
    """Return whether each service is an entry point in a scope, ``[N]``.

    Raises:
        ValueError: no entry point is in the scope.
    """
    gateways: NDArray[np.bool_] = (topology.layer == 0) & ~topology.latent
    if scope != EVERYWHERE:
        space = scope.removesuffix("*")
        names = [name.startswith(space) if space != scope else name == scope for name in topology.node_ids]
        gateways &= np.array(names)
    if not gateways.any():
        raise ValueError(f"scope: expected '*', 'namespace/*' or an entry point of the mesh, got {scope!r}")
    return gateways


def shift_traffic(topology: Topology, shifts: Sequence[TrafficShift], index: int, entry: Floats) -> Floats:
    """Return the requests from outside in one tick, 1/s, ``[N]``."""
    for shift in shifts:
        if (load := shift.load(index)) != 1.0:
            entry = np.where(entries_of(topology, shift.scope), entry * load, entry)
    return entry
