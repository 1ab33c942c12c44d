"""What keys do: a table of controls, and a menu of faults and changes made from the simulator's own kinds."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from string import ascii_lowercase
from typing import get_args

import numpy as np

from serve_app.demo.story import FAULT_SNAPSHOTS, Deed, places
from serve_app.simulator.events.faults import CATALOGUE, KINDS, Fault, FaultKind
from serve_app.simulator.events.operations import REASONS, BenignChange, ChangeKind
from serve_app.simulator.physics.propagation import MeshPhysics

SPEEDS = (1.0, 4.0, 15.0, 30.0, 60.0, 120.0, 240.0)  # times real time; beyond the last one 0, as fast as it goes
DECK = 200  # services an option offers, at most


@dataclass(frozen=True, slots=True)
class Option:
    """A kind of fault or of benign change that a key begins.

    Attributes:
        key: a letter, small for a fault, capital for a change.
        kind: in the simulator's words.
        services: where it may begin, in the order offered.
    """

    key: str
    kind: FaultKind | ChangeKind
    services: tuple[str, ...]

    @property
    def is_fault(self) -> bool:
        """Whether somebody should be paged."""
        return self.kind in KINDS

    @property
    def words(self) -> str:
        """The kind, for people."""
        return self.kind.replace("_", " ")

    @property
    def meaning(self) -> str:
        """What happens, in the simulator's words."""
        return CATALOGUE[self.kind].words if self.is_fault else REASONS[self.kind]  # type: ignore[index]

    def service(self, turn: int, taken: Collection[str] = (), spent: Collection[str] = ()) -> str | None:
        """Where it begins in this turn: not where something is ``taken`` unless all are, never where all is ``spent``.

        None where no service is left.
        """
        first = turn % len(self.services)
        offered = [name for name in (*self.services[first:], *self.services[:first]) if name not in spent]
        return next((name for name in offered if name not in taken), offered[0] if offered else None)

    def deed(self, service: str, at: int) -> Deed:
        """It, at a service from snapshot ``at`` on."""
        if self.is_fault:
            return Fault(self.kind, service, at, at + FAULT_SNAPSHOTS)  # type: ignore[arg-type]
        return BenignChange(self.kind, service, at)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Controls:
    """What the keys have set.

    Attributes:
        speed: times real time; 0 is as fast as it goes.
        paused: no snapshot is sent.
        step: but one.
        story: deploys, scalings and faults come by themselves.
        hidden: what is wrong in truth is not shown.
        help: the list of keys is shown.
        turn: counts up to offer other services.
        quit: the demo ends.
    """

    speed: float = 60.0
    paused: bool = False
    step: bool = False
    story: bool = True
    hidden: bool = False
    help: bool = False
    turn: int = 0
    quit: bool = False


def _faster(speed: float) -> float:
    return next((step for step in SPEEDS if step > speed), 0.0) if speed else 0.0


def _slower(speed: float) -> float:
    return max((step for step in SPEEDS if step < speed or not speed), default=SPEEDS[0])


Turn = Callable[[Controls], Controls]
SURPRISE = "x"
CONTROLS: Mapping[str, tuple[str, str, Turn]] = {  # key: its name, what it does, how
    "\t": ("tab", "other services", lambda c: replace(c, turn=c.turn + 1)),
    SURPRISE: (SURPRISE, "a fault you are not told", lambda c: replace(c, hidden=True)),
    "t": ("t", "hide or tell the truth", lambda c: replace(c, hidden=not c.hidden)),
    "a": ("a", "story on or off", lambda c: replace(c, story=not c.story)),
    " ": ("space", "pause, go on", lambda c: replace(c, paused=not c.paused)),
    ".": (".", "one snapshot", lambda c: replace(c, paused=True, step=True)),
    "+": ("+", "faster", lambda c: replace(c, speed=_faster(c.speed))),
    "-": ("-", "slower", lambda c: replace(c, speed=_slower(c.speed))),
    "?": ("?", "these keys", lambda c: replace(c, help=not c.help)),
    "q": ("q", "quit", lambda c: replace(c, quit=True)),
}
SAME = {"=": "+", "_": "-", "\r": "?", "\x1b": "?"}  # without shift; out of help as people try


def press(controls: Controls, key: str, menu: Sequence[Option]) -> tuple[Controls, Option | None]:
    """The controls after a key, and the option it begins; a key that means nothing changes nothing."""
    if SAME.get(key) == "?" and not controls.help:
        return controls, None
    key = SAME.get(key, key)
    chosen = next((option for option in menu if option.key == key), None)
    if key == SURPRISE:
        faults = [option for option in menu if option.is_fault]
        chosen = faults[int(np.random.default_rng(controls.turn).integers(len(faults)))]
    if key in CONTROLS:
        controls = CONTROLS[key][2](controls)
    if chosen:
        controls = replace(controls, turn=controls.turn + 1, story=False, help=False)
    return controls, chosen


def menu(mesh: MeshPhysics, seed: int) -> tuple[Option, ...]:
    """An option for each kind of fault and each kind of change that the simulator knows."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(78,)))
    reserved = {key for key in CONTROLS if key.isalpha()}
    keys = letters(KINDS, reserved) | {k: key.upper() for k, key in letters(get_args(ChangeKind)).items()}
    for_faults, for_changes = places(mesh)
    name = mesh.topology.node_ids
    return tuple(
        Option(keys[kind], kind, tuple(name[i] for i in rng.permutation(positions)[:DECK]))
        for kind, positions in (*for_faults.items(), *for_changes.items())
    )


def letters(kinds: Sequence[str], reserved: Iterable[str] = ()) -> dict[str, str]:
    """A letter for each kind: an initial of its words if one is free, else another of its letters, else any.

    Kinds that come later take no letter from those before.
    """
    taken = set(reserved)
    keys = {}
    for kind in kinds:
        initials = "".join(word[0] for word in kind.split("_"))
        free = [letter for letter in initials + kind + ascii_lowercase if letter.isalpha() and letter not in taken]
        keys[kind] = free[0]
        taken.add(free[0])
    return keys
