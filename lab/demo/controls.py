"""The demo's controls: the effect of each button on its page."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lab.demo.story import FAULT_SNAPSHOTS, MeshEvent, find_candidates
from lab.simulator.events.faults import CATALOGUE, KINDS, Fault, FaultKind
from lab.simulator.events.operations import REASONS, BenignChange, ChangeKind
from lab.simulator.physics.propagation import MeshPhysics


@dataclass(frozen=True, slots=True)
class Option:
    """A button that starts a fault or a benign change.

    Attributes:
        kind: the simulator's name for it; also the key of the button.
        services: where it can start, in the order of the offers.
    """

    kind: FaultKind | ChangeKind
    services: tuple[str, ...]

    @property
    def is_fault(self) -> bool:
        """Whether it is a fault, which must raise an alert."""
        return self.kind in KINDS

    @property
    def words(self) -> str:
        return self.kind.replace("_", " ")

    @property
    def meaning(self) -> str:
        return CATALOGUE[self.kind].words if self.is_fault else REASONS[self.kind]  # type: ignore[index]

    def choose_service(self, turn: int, busy: Collection[str] = (), used_up: Collection[str] = ()) -> str | None:
        """Return the service where it starts next, from position ``turn`` on; None if no service is left.

        Args:
            busy: services with an event under way; chosen only if no other is left.
            used_up: services that are never chosen.
        """
        first = turn % len(self.services)
        services = [name for name in (*self.services[first:], *self.services[:first]) if name not in used_up]
        return next((name for name in services if name not in busy), services[0] if services else None)

    def start(self, service: str, at: int) -> MeshEvent:
        if self.is_fault:
            return Fault(self.kind, service, at, at + FAULT_SNAPSHOTS)  # type: ignore[arg-type]
        return BenignChange(self.kind, service, at)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Controls:
    """The state that the buttons have set.

    Attributes:
        speed: relative to real time; 0: as fast as possible.
        paused: no snapshot is sent.
        pauses: whether to pause at the first incident.
        turn: advances the services that the options offer.
    """

    speed: float = 60.0
    paused: bool = False
    pauses: bool = False
    turn: int = 0


PAUSE = "pause"  # the key of the other button


def apply_key(controls: Controls, key: str, menu: Sequence[Option]) -> tuple[Controls, Option | None]:
    if key == PAUSE:
        return replace(controls, paused=not controls.paused), None
    option = next((entry for entry in menu if entry.kind == key), None)
    return (replace(controls, turn=controls.turn + 1) if option else controls), option


def build_menu(mesh: MeshPhysics, seed: int) -> tuple[Option, ...]:
    """Return an option for each kind of fault and benign change that is possible in the mesh."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(78,)))
    for_faults, for_changes = find_candidates(mesh)
    name = mesh.topology.node_ids
    return tuple(
        Option(kind, tuple(name[i] for i in rng.permutation(positions)))
        for kind, positions in (*for_faults.items(), *for_changes.items())
    )
