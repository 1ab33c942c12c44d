"""Cheaper forms of the network beside the full one: speed, memory, and what they find.

    python -m benchmarks.bench_tiers [--meshes 24] [--snapshots 300] [--steps 1500] [--tests 24] [--json FILE]

The student is distilled from the shipped network on a few simulated meshes. The forms in fewer bits are the shipped
network itself. All are judged on other meshes, as in `benchmarks.bench_networks`. Forms that run in standard operators
are not faster than our compiled ops by themselves, so the same operators in float32 are timed beside them. Passes are
timed in turns, one thread; the fastest counts, because other work on the machine only adds time. A difference is
between an output and the full network's, relative to 1 or to the output if it is larger. Takes half an hour on two
cores.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from benchmarks.bench_networks import TEST_SEED, judge
from benchmarks.tiers.distillation import distil
from benchmarks.tiers.lowered import Lowered, differences, in_onnx, in_python, in_torch, quantise
from benchmarks.tiers.student import Student, StudentConfig
from kernels import backend
from lab.evaluation.measures.intervals import share
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from lab.training.meshes import TrainingMeshes, simulated_runs
from lab.training.processes import processes
from lab.training.train import TrainingOptions
from model.checkpoint import Checkpoint, load
from model.network.contract import MeshNetwork
from model.scoring.score import PartitionTask, score
from serve_app.cli.console import bars, reporter
from serve_app.pipeline import Mesh, Options, prepare

SIZES = ((60, 240), (500, 3_000), (2_000, 20_000))  # services and calls
ROUNDS = 15
CALIBRATION, EVERY = 2, 10  # meshes, and the snapshots of them, that INT8 takes its ranges from


@dataclass(frozen=True, slots=True)
class Form:
    """A form of the network.

    Attributes:
        checkpoint: has the network.
        size_bytes: of its parameters, or of its file.
    """

    checkpoint: Checkpoint
    size_bytes: int


def task_of(checkpoint: Checkpoint, services: int, calls: int) -> PartitionTask:
    """Return the inputs of one snapshot of a simulated mesh."""
    spec = MeshSpec(services=services, calls_per_service=calls / services, seed=1)
    [snapshot] = Simulator(spec, snapshots=1).snapshots()
    return prepare(checkpoint, Mesh(), snapshot, Options(max_services=services)).whole


def calibration(checkpoint: Checkpoint, meshes: TrainingMeshes) -> list[PartitionTask]:
    """Return inputs of training meshes, for the ranges of INT8."""
    tasks = []
    for run in simulated_runs(replace(meshes, count=CALIBRATION)):
        mesh = Mesh()
        for index, snapshot in enumerate(run.snapshots()):
            prepared = prepare(checkpoint, mesh, snapshot, Options())
            mesh = prepared.mesh
            if index % EVERY == 0:
                tasks.append(prepared.whole)
    return tasks


def forms(full: Checkpoint, student: Checkpoint, folder: Path, tasks: Sequence[PartitionTask]) -> dict[str, Form]:
    """Return all forms of the network, the full one first."""
    onnx, file = in_onnx(full, folder)
    dynamic, file_of_dynamic = quantise(file, None)
    static, file_of_static = quantise(file, tasks)
    size = parameter_bytes(full)
    runs = {
        "standard operators, float32": (in_torch(full.network, bf16=False), size),
        "standard operators, bf16": (in_torch(full.network, bf16=True), size),
        "ONNX, float32": (onnx, file.stat().st_size),
        "ONNX, INT8 dynamic": (dynamic, file_of_dynamic.stat().st_size),
        "ONNX, INT8 static": (static, file_of_static.stat().st_size),
    }
    lowered = {
        name: Form(replace(full, network=cast(MeshNetwork, Lowered(full.network, run))), size)
        for name, (run, size) in runs.items()
    }
    return {"full": Form(full, size), "student": Form(student, parameter_bytes(student)), **lowered}


def parameter_bytes(checkpoint: Checkpoint) -> int:
    """Return the memory of the network's parameters."""
    return sum(parameter.numel() * parameter.element_size() for parameter in checkpoint.network.parameters())


def pass_milliseconds(found: dict[str, Form], task: PartitionTask, rounds: int) -> dict[str, float]:
    """Return the fastest pass of each form."""
    seconds: dict[str, list[float]] = {name: [] for name in found}
    for _ in range(rounds):
        for name, form in found.items():
            begin = time.perf_counter()
            score(form.checkpoint.network, [task])
            seconds[name].append(time.perf_counter() - begin)
    return {name: round(1000 * min(each), 2) for name, each in seconds.items()}


def judge_runs(checkpoint: Checkpoint, tests: TrainingMeshes, progress: Any) -> dict[str, Any]:
    """Return what a form finds on test meshes, with 95% intervals."""
    outcomes = []
    for done, run in enumerate(simulated_runs(tests), 1):
        outcomes.append(judge(checkpoint, run))
        progress(done, tests.count)
    days = sum(one.normal_days for one in outcomes)
    return {
        "faults": sum(len(one.found) for one in outcomes),
        "found": share([hit for one in outcomes for hit in one.found]).to_json(),
        "culprit_first": share([hit for one in outcomes for hit in one.first]).to_json(),
        "false_alerts_per_day": round(sum(one.false_alerts for one in outcomes) / days, 2) if days else None,
        "normal_days": round(days, 2),
    }


def measure(
    meshes: TrainingMeshes,
    tests: TrainingMeshes,
    options: TrainingOptions,
    sizes: Sequence[tuple[int, int]],
    rounds: int,
    jobs: int,
    folder: Path,
) -> list[dict[str, Any]]:
    """Return a line for each form.

    Args:
        meshes: of the student's training; INT8 takes its ranges from some of them.
        tests: other meshes.
        options: length and size of the distillation.
        sizes: services and calls to time passes with.
        rounds: passes of each form and size.
        jobs: processes that read the training meshes.
        folder: for exported files.
    """
    full = load()
    with bars() as shown, processes(jobs) as each:
        progress = reporter(shown)
        torch.manual_seed(options.seed)
        student = distil(full, Student(StudentConfig()), simulated_runs(meshes), options, progress, each)
        found = forms(full, student, folder, calibration(full, meshes))
        tasks = {size: task_of(full, *size) for size in sizes}
        times = {size: pass_milliseconds(found, task, rounds) for size, task in tasks.items()}
        largest = tasks[max(sizes)]
        lines = []
        for name, form in found.items():
            lines.append(
                {
                    "benchmark": "tiers",
                    "form": name,
                    **judge_runs(form.checkpoint, tests, partial(progress, f"test, {name}")),
                    **{f"pass_ms_{size[0]}": times[size][name] for size in sizes},
                    "size_bytes": form.size_bytes,
                    "difference": differences(in_python(form.checkpoint.network), in_python(full.network), largest),
                    "steps": options.steps,
                    "backend": backend(),
                    "torch": torch.__version__,
                }
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--meshes", type=int, default=24)
    parser.add_argument("--snapshots", type=int, default=300)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--tests", type=int, default=24)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    meshes = TrainingMeshes(arguments.meshes, arguments.snapshots)
    tests = TrainingMeshes(arguments.tests, arguments.snapshots, seed=TEST_SEED)
    options = TrainingOptions(steps=arguments.steps, meta_steps=arguments.steps)
    with tempfile.TemporaryDirectory() as folder:
        lines = measure(meshes, tests, options, SIZES, ROUNDS, arguments.jobs, Path(folder))
    texts = [json.dumps(line) for line in lines]
    print(*texts, sep="\n")
    if arguments.json:
        arguments.json.write_text("".join(text + "\n" for text in texts))


if __name__ == "__main__":
    main()
