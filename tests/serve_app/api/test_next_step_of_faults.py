"""The next steps of simulated faults: is it what a person on call should do?

A row for each kind of fault, on small meshes. Faults that show little may be misread, so one of the seeds may be wrong.
"""

import random
import re

import numpy as np
import pytest

from lab.simulator.events.faults import CATALOGUE, Fault, FaultKind, candidates
from lab.simulator.events.traffic import TrafficShift
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import Checkpoint
from model.verdict import Incident, Verdict
from serve_app.api.next_step import next_step
from serve_app.pipeline import Mesh, Options, advance

SEEDS = (1, 2, 3)
BEGINS, LASTS = 100, 16  # snapshots
MULTIPLES = ("latency_injection", "cpu_saturation")  # of the usual latency
LEAK_BEGINS, LEAK_LASTS = 200, 56  # memory rises slowly, and takes longer to be known
STEPS: dict[FaultKind, str] = {  # how the right step begins
    "latency_injection": r"Look at \S+ itself",
    "error_burst": r"Look at \S+ itself",
    "retry_storm": r"Limit the retries of \S+:",
    "partial_partition": r"Check the network and the policies between",
    "slow_leak": r"Restart \S+ ",
    "cpu_saturation": r"Find what uses the CPU of \S+ or of its host",
    "disappearance": r"Bring \S+ back",
    "misroute": r"(Correct|Compare the endpoints of \S+ and \S+, and correct) the routing of the calls from",
    "hub_degradation": r"(Find what uses the CPU of \S+ or of its host|Scale \S+ out)",
    "grey_edge": r"Check the network and the policies between",
}
SHIFTS = {  # factor on the traffic from outside, and how the right step begins
    0.2: r"Check the load balancer, DNS",
    4.0: r"(Find where the requests|Scale \S+ out, or limit its callers)",
}


def simulated_fault(kind: FaultKind, seed: int) -> Simulator:
    """Return a mesh with a fault that lasts to its end."""
    begins, lasts = (LEAK_BEGINS, LEAK_LASTS) if kind == "slow_leak" else (BEGINS, LASTS)
    simulator = Simulator(MeshSpec(services=40 + seed % 3 * 20, seed=seed), snapshots=begins + lasts)
    able = candidates(simulator.mesh, kind)
    # A multiple of a few milliseconds harms no one.
    places = list(able[simulator.mesh.usual_p50[able] >= 0.02] if kind in MULTIPLES else able)
    culprit = simulator.node_ids[random.Random(seed * 100 + 7).choice(places)]
    severity = CATALOGUE[kind].sizes[-1] if kind in MULTIPLES else None
    simulator.schedule(Fault(kind, culprit, begins, begins + lasts + 4, severity))
    return simulator


def simulated_shift(factor: float, seed: int) -> Simulator:
    """Return a mesh with a shift of the traffic at one entry point that lasts to its end."""
    simulator = Simulator(MeshSpec(services=40 + seed % 3 * 20, seed=seed), snapshots=BEGINS + LASTS)
    entries = np.flatnonzero((simulator.mesh.services.entry > 0) & ~simulator.mesh.topology.latent)
    place = simulator.node_ids[random.Random(seed * 100 + 7).choice(list(entries))]
    simulator.schedule(TrafficShift(factor, BEGINS, BEGINS + LASTS + 4, scope=place))
    return simulator


def worst_incident(checkpoint: Checkpoint, simulator: Simulator) -> tuple[Incident, Verdict]:
    """Return the worst incident of the last verdict with one that is not recovering."""
    mesh, found = Mesh(), None
    for snapshot in simulator.snapshots():
        verdict, mesh = advance(checkpoint, mesh, snapshot, Options())
        active = [one for one in verdict.alerts or verdict.notices if not one.recovering]
        if active:
            found = max(active, key=lambda one: one.score), verdict
    assert found, f"{simulator.spec}: no incident"
    return found


def test_every_kind_of_fault_has_a_right_step() -> None:
    assert STEPS.keys() == CATALOGUE.keys()


@pytest.mark.slow
@pytest.mark.parametrize("cause", [*STEPS, *SHIFTS])
def test_the_next_step_is_right(checkpoint: Checkpoint, cause: FaultKind | float) -> None:
    if isinstance(cause, float):
        simulators, right = [simulated_shift(cause, seed) for seed in SEEDS], SHIFTS[cause]
    else:
        simulators, right = [simulated_fault(cause, seed) for seed in SEEDS], STEPS[cause]
    found = (worst_incident(checkpoint, simulator) for simulator in simulators)
    steps = [next_step(incident, verdict.alerts) for incident, verdict in found]
    assert sum(re.match(right, step) is not None for step in steps) >= len(SEEDS) - 1, steps
