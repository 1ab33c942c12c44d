"""Another network in place of ours: trained, judged and timed alike.

    python -m benchmarks.bench_networks [--network MODULE:CLASS] [--meshes 24] [--snapshots 300] [--steps 500]
                                        [--tests 24] [--json FILE]

Trains the built-in network and another one (by default the example of PyTorch Geometric) with the same few simulated
meshes and steps, and judges both on other meshes, beside the shipped weights. A fault is found if an alert with the
culprit among its first three suspects is open during the fault or two snapshots after it. Any alert that begins
outside of a fault and its aftermath is false. Times are for one pass over 200 services. Prints one JSON line for
each network; takes half an hour on two cores.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch

from lab.evaluation.measures.intervals import share
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from lab.training.dataset import RECOVERY, SETTLE, LabelledFault, TrainingRun
from lab.training.meshes import TrainingMeshes, simulated_runs
from lab.training.processes import processes
from lab.training.train import ForEach, TrainingOptions, train
from model.checkpoint import Checkpoint, load
from model.network.contract import MeshNetwork
from model.network.named import network_class
from model.scoring.score import score
from model.verdict import Incident
from serve_app.cli.console import bars, reporter
from serve_app.pipeline import Mesh, Options, advance, prepare

EXAMPLE = "examples.gatv2_network:GATv2Network"
TEST_SEED = 6  # seed of the plan of the test meshes
FIRST_SUSPECTS = 3
LATE_SNAPSHOTS = 2  # in which an alert still finds a fault that has ended
TIMED_SERVICES, PASSES = 200, 15


@dataclass(frozen=True, slots=True)
class Outcome:
    """The alerts of a run: which faults were found, and with the culprit first; false alerts; days without a fault."""

    found: tuple[bool, ...]
    first: tuple[bool, ...]
    false_alerts: int
    normal_days: float


def judge(checkpoint: Checkpoint, run: TrainingRun) -> Outcome:
    """Run the whole pipeline over a run, and compare its alerts with the faults."""
    mesh, known = Mesh(), set[str]()
    best = dict.fromkeys(run.faults, FIRST_SUSPECTS)  # rank of the culprit in the best alert of each fault
    false_alerts, normal_days = 0, 0.0
    for index, snapshot in enumerate(run.snapshots()):
        verdict, mesh = advance(checkpoint, mesh, snapshot, Options())
        if index < SETTLE:
            continue
        interval = timedelta(seconds=mesh.state.interval_seconds)
        at = snapshot.observed_at
        active = [f for f in run.faults if f.start <= at < f.end + LATE_SNAPSHOTS * interval]
        normal = not any(f.start <= at < f.end + RECOVERY * interval for f in run.faults)
        normal_days += normal * interval / timedelta(days=1)
        for alert in verdict.alerts:
            for fault in active:
                best[fault] = min(best[fault], _rank(alert, fault))
            false_alerts += normal and alert.id not in known
            known.add(alert.id)
    ranks = [best[fault] for fault in run.faults]
    return Outcome(
        tuple(rank < FIRST_SUSPECTS for rank in ranks), tuple(rank == 0 for rank in ranks), false_alerts, normal_days
    )


def _rank(alert: Incident, fault: LabelledFault) -> int:
    names = [suspect.service for suspect in alert.suspects[:FIRST_SUSPECTS]]
    return names.index(fault.service) if fault.service in names else FIRST_SUSPECTS


def pass_milliseconds(network: MeshNetwork) -> float:
    """Return the CPU time of the fastest pass over a mesh, as other work on the machine only adds to it."""
    [snapshot] = Simulator(MeshSpec(services=TIMED_SERVICES, seed=1), snapshots=1).snapshots()
    task = prepare(load(), Mesh(), snapshot, Options()).whole
    times = []
    for _ in range(PASSES):
        begin = time.process_time()
        score(network, [task])
        times.append(time.process_time() - begin)
    return 1000 * min(times)


def line(name: str, checkpoint: Checkpoint, outcomes: Sequence[Outcome], about: dict[str, Any]) -> dict[str, Any]:
    """Return the result line of a network."""
    found = [hit for one in outcomes for hit in one.found]
    first = [hit for one in outcomes for hit in one.first]
    days = sum(one.normal_days for one in outcomes)
    return {
        "benchmark": "networks",
        "network": name,
        **about,
        "faults": len(found),
        "found": share(found).to_json(),
        "culprit_first": share(first).to_json(),
        "false_alerts_per_day": round(sum(one.false_alerts for one in outcomes) / days, 2) if days else None,
        "normal_days": round(days, 2),
        "parameters": sum(parameter.numel() for parameter in checkpoint.network.parameters()),
        "pass_cpu_ms": round(pass_milliseconds(checkpoint.network), 2),
    }


def measure(
    names: Sequence[str | None], meshes: TrainingMeshes, tests: TrainingMeshes, options: TrainingOptions, each: ForEach
) -> list[dict[str, Any]]:
    """Train and judge networks, and judge the shipped weights.

    Args:
        names: classes of networks; None: the built-in one.
        meshes, tests: meshes for training and for the test.
        options: of training, for all of them.
        each: applies a function to runs, in processes.
    """
    lines = []
    asked = simulated_runs(tests)
    with bars() as shown:
        progress = reporter(shown)
        trained = {
            name or "built-in": train(simulated_runs(meshes), options, {}, progress, network_class(name), each)[0]
            for name in names
        }
        size = {"meshes": meshes.count, "snapshots": meshes.snapshots, "steps": options.steps}
        for name, checkpoint in {**trained, "built-in, as shipped": load()}.items():
            outcomes = []
            for done, outcome in enumerate(each(partial(judge, checkpoint), asked), 1):
                outcomes.append(outcome)
                progress(f"test, {name}", done, len(asked))
            lines.append(line(name, checkpoint, outcomes, size if name in trained else {}))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default=EXAMPLE)
    parser.add_argument("--meshes", type=int, default=24)
    parser.add_argument("--snapshots", type=int, default=300)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--tests", type=int, default=24)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    meshes = TrainingMeshes(arguments.meshes, arguments.snapshots)
    tests = TrainingMeshes(arguments.tests, arguments.snapshots, seed=TEST_SEED)
    options = TrainingOptions(steps=arguments.steps, meta_steps=2 * arguments.steps)
    with processes(arguments.jobs) as each:
        lines = [json.dumps(one) for one in measure([None, arguments.network], meshes, tests, options, each)]
    print(*lines, sep="\n")
    if arguments.json:
        arguments.json.write_text("".join(one + "\n" for one in lines))


if __name__ == "__main__":
    main()
