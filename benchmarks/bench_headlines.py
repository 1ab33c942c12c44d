"""Do headlines name the culprit and the kind of a fault?

    python -m benchmarks.bench_headlines [--first SEED] [--trials 10]

Each trial draws a mesh, a kind of fault, its severity and its culprit from its seed, and scores the mesh here. The
headline comes from the verdicts alone: it is the last one of the fault's time that is not about a recovery. Then
the truth is compared with its first suspect and its kind. Trials without an incident have no headline. They are listed,
and do not count as one of the ``--trials``. Prints headline and truth of each, and a JSON line; exits with 1 below the
goal of eight in ten. Ten trials take half a minute.

Seeds 700 to 739 were used to choose the texts and kinds, so the default begins at 800.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import torch

from lab.simulator.events.faults import CATALOGUE, KINDS, Fault, FaultKind, candidates, possible_culprits
from lab.simulator.mesh.parameters import build_mesh
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import Checkpoint, load
from model.verdict import Incident, IncidentKind, Verdict
from serve_app.api.headline import headline
from serve_app.pipeline import Mesh, Options, advance

FIRST_SEED, TRIALS = 800, 10
GOAL = 0.8  # of the headlines
SERVICES = 60
BEGINS, ENDS = 100, 130  # snapshots
# What a headline may say of each kind. A grey edge is slow and loses requests; a hub that loses capacity queues.
RIGHT: dict[FaultKind, frozenset[IncidentKind]] = {
    "latency_injection": frozenset({IncidentKind.SLOW}),
    "error_burst": frozenset({IncidentKind.FAILING}),
    "retry_storm": frozenset({IncidentKind.SENDS_TOO_MANY_CALLS}),
    "partial_partition": frozenset({IncidentKind.FAILING, IncidentKind.CALLS_DROPPED}),
    "slow_leak": frozenset({IncidentKind.RESOURCES}),
    "cpu_saturation": frozenset({IncidentKind.RESOURCES}),
    "disappearance": frozenset({IncidentKind.GONE}),
    "misroute": frozenset({IncidentKind.REROUTED}),
    "hub_degradation": frozenset({IncidentKind.RESOURCES, IncidentKind.OVERLOADED, IncidentKind.SLOW}),
    "grey_edge": frozenset({IncidentKind.SLOW, IncidentKind.FAILING}),
}


@dataclass(frozen=True, slots=True)
class Truth:
    """A fault in a mesh, and the services that telemetry cannot tell from its culprit, itself included."""

    seed: int
    spec: MeshSpec
    fault: Fault
    culprits: frozenset[str]


@dataclass(frozen=True, slots=True)
class Trial:
    """A truth, the incident that shows it, and its headline; None if there was no incident."""

    truth: Truth
    incident: Incident | None
    text: str = ""

    @property
    def names_culprit(self) -> bool:
        """Whether the first suspect is right and the headline names it."""
        first = self.incident.suspects[0].service if self.incident and self.incident.suspects else ""
        return first in self.truth.culprits and first in self.text

    @property
    def names_kind(self) -> bool:
        """Whether the kind is one of ``RIGHT``."""
        return self.incident is not None and self.incident.kind in RIGHT[self.truth.fault.kind]


def draw(seed: int) -> Truth:
    """Draw a mesh and a fault."""
    rng, spec = np.random.default_rng(seed), MeshSpec(services=SERVICES, seed=seed)
    mesh = build_mesh(spec)
    names = mesh.topology.node_ids
    kinds: list[FaultKind] = [kind for kind in KINDS if len(candidates(mesh, kind))]
    kind = kinds[rng.integers(len(kinds))]
    sizes = tuple(CATALOGUE[kind].levels.values())
    at = int(rng.choice(candidates(mesh, kind)))
    fault = Fault(kind, names[at], BEGINS, ENDS, sizes[rng.integers(len(sizes))])
    alike = possible_culprits(mesh, {name: i for i, name in enumerate(names)}, fault)
    return Truth(seed, spec, fault, frozenset(names[i] for i in alike.tolist()))


def score(checkpoint: Checkpoint, truth: Truth) -> Iterator[Verdict]:
    """Yield the verdicts on the mesh from the start of the fault to its end."""
    mesh = Mesh()
    for index, snapshot in enumerate(Simulator(truth.spec, (truth.fault,), snapshots=ENDS).snapshots()):
        verdict, mesh = advance(checkpoint, mesh, snapshot, Options())
        if index >= BEGINS:
            yield verdict


def find_headline(verdicts: Sequence[Verdict]) -> tuple[Incident | None, str]:
    """Return the worst incident that is not recovering in the last verdict with one, and its headline. It knows nothing
    of the truth."""
    for verdict in reversed(verdicts):
        active = [incident for incident in (verdict.alerts or verdict.notices) if not incident.recovering]
        if active:
            worst = max(active, key=lambda incident: incident.score)
            return worst, headline(worst)
    return None, ""


def trials(checkpoint: Checkpoint, first_seed: int) -> Iterator[Trial]:
    """Yield trials without end."""
    for seed in count(first_seed):
        truth = draw(seed)
        yield Trial(truth, *find_headline(list(score(checkpoint, truth))))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=FIRST_SEED, help="first seed")
    parser.add_argument("--trials", type=int, default=TRIALS, help="trials with a headline")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    done: list[Trial] = []
    seen = 0
    for trial in trials(load(), arguments.first):
        done.append(trial)
        _show(trial)
        seen += trial.incident is not None
        if seen == arguments.trials:
            break
    shown = [trial for trial in done if trial.incident]
    right = sum(trial.names_culprit and trial.names_kind for trial in shown)
    line = {
        "benchmark": "headlines",
        "first_seed": arguments.first,
        "headlines": len(shown),
        "without_incident": len(done) - len(shown),
        "culprit": sum(trial.names_culprit for trial in shown),
        "kind": sum(trial.names_kind for trial in shown),
        "both": right,
        "goal": GOAL,
    }
    print(json.dumps(line))
    return 0 if right >= GOAL * len(shown) else 1


def _show(trial: Trial) -> None:
    fault, incident = trial.truth.fault, trial.incident
    print(f"{trial.truth.seed}: {trial.text or 'no incident'}")
    print(f"     truth: {fault.kind} at {fault.service}, {fault.level}", end="")
    if incident:
        culprit, kind = ("right" if one else "WRONG" for one in (trial.names_culprit, trial.names_kind))
        print(f"; culprit {culprit}, kind {incident.kind} {kind}", end="")
    print(flush=True)


if __name__ == "__main__":
    sys.exit(main())
