"""The demo's story: its changes and its fault, and their times."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np

from lab.simulator.events.faults import KINDS, Fault, FaultKind, candidates
from lab.simulator.events.operations import BenignChange, ChangeKind
from lab.simulator.events.wiring import eligible_services
from lab.simulator.mesh.topology import Ints
from lab.simulator.physics.propagation import MeshPhysics

MeshEvent = Fault | BenignChange

CHANGES, FAULT, RECOVERY, END = (2, 10), 22, 42, 64  # snapshots after a chapter's start
# Visible within minutes, caused by one service alone. The first one that the mesh allows is used.
STORY_FAULTS: tuple[FaultKind, ...] = ("error_burst", "latency_injection", "retry_storm")
LONG: frozenset[ChangeKind] = frozenset({"canary"})  # would still be under way when the fault begins
FAULT_SNAPSHOTS = RECOVERY - FAULT
FIRST_SUSPECTS = 3


@dataclass(frozen=True, slots=True)
class Chapter:
    """Benign changes, which must not raise an alert, then a fault, which must. Positions are snapshot indices.

    Attributes:
        changes: at services with traffic, never at the culprit.
        end: the first snapshot after the chapter.
    """

    changes: tuple[BenignChange, ...]
    fault: Fault
    end: int


def event_text(event: MeshEvent) -> str:
    """Describe an event for people: ``error burst at shop/cart``."""
    return f"{event.kind.replace('_', ' ')} at {event.service}"


def start_of(event: MeshEvent) -> int:
    return event.start if isinstance(event, Fault) else event.at


def find_candidates(mesh: MeshPhysics) -> tuple[Mapping[FaultKind, Ints], Mapping[ChangeKind, Ints]]:
    """Return the services where each kind of fault or change can start, as positions, without the impossible kinds."""
    faults = {kind: candidates(mesh, kind) for kind in KINDS}
    busy = candidates(mesh, "error_burst")
    changes = {kind: eligible_services(mesh, kind) for kind in get_args(ChangeKind)}
    changes = {kind: at if kind == "new_service" else np.intersect1d(at, busy) for kind, at in changes.items()}
    return {kind: at for kind, at in faults.items() if len(at)}, {kind: at for kind, at in changes.items() if len(at)}


def chapter_of(mesh: MeshPhysics, seed: int, start: int) -> Chapter:
    """Return the chapter that starts at this snapshot."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(77,)))
    for_faults, for_changes = find_candidates(mesh)
    names = mesh.topology.node_ids
    kind = next(kind for kind in STORY_FAULTS if kind in for_faults)
    culprit = int(rng.choice(for_faults[kind]))
    kinds = [change for change in for_changes if change not in LONG]
    changes, positions = [], [culprit]
    for at, change in zip(CHANGES, (kinds[i] for i in rng.permutation(len(kinds))), strict=False):
        if len(free := np.setdiff1d(for_changes[change], positions)):
            positions.append(int(rng.choice(free)))
            changes.append(BenignChange(change, names[positions[-1]], start + at))
    fault = Fault(kind, names[culprit], start + FAULT, start + RECOVERY)
    return Chapter(tuple(changes), fault, start + END)


def name_suspects(suspects: Sequence[str]) -> str:
    return ", ".join(suspects[:FIRST_SUSPECTS]) or "none"
