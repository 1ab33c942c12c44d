"""Where the time from snapshot to verdict goes in one process: CPU time and instructions of each stage.

    python -m benchmarks.bench_stages [--sizes 60x3 500x6 2000x10] [--snapshots 60] [--json FILE]

One JSON line per size and stage. A stage is a group of functions of the model; what one of them spends in another stage
counts there, so the stages add up. CPU times are medians over consecutive snapshots of one simulated mesh, after 70 of
warm-up, with one thread.

Instructions are counted with Valgrind's callgrind, if it and a C compiler are installed, over the last few snapshots.
They are nearly the same in every run, however busy the machine is. Valgrind knows no AVX-512, so the ops and numpy use
AVX2 there, with about twice the instructions: compare counts with counts only.
"""

import argparse
import ctypes
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import torch

import model.scoring.gather
import model.scoring.score
import model.state.mesh_state
import serve_app.pipeline
from kernels import backend
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import load
from model.network.autoencoder import Autoencoder
from serve_app.pipeline import LocalRunner, Mesh, Options, run_now, run_stages

SIZES = ("60x3", "500x6", "2000x10")
WARM_UP, COUNTED = 70, 5
OTHER = "calls between stages"
# Functions of each stage, where they are called.
STAGES: Mapping[str, tuple[tuple[Any, tuple[str, ...]], ...]] = {
    "alignment and channels": (
        (model.state.mesh_state, ("_update_interval", "_align_rows", "_align_channels", "_robust_z_scores")),
        (model.state.mesh_state, ("_remove_load_effect", "_start_rows")),
    ),
    "filters": ((model.state.mesh_state, ("update_filters", "temper_young", "count_failures")),),
    "other state": ((serve_app.pipeline, ("prepare",)),),
    "inputs of the network": ((model.scoring.score, ("batch_tasks",)), (serve_app.pipeline, ("whole_mesh",))),
    "network": ((Autoencoder, ("forward",)),),
    "scores": ((serve_app.pipeline, ("score_whole", "calibrate")),),
    "evidence": ((model.scoring.gather, ("series_evidence", "_add_findings", "attribute")),),
    "resources and signals": (
        (model.scoring.gather, ("_rising", "unusual_signals", "shortage", "pressure", "weigh_resources", "impatience")),
        (model.scoring.gather, ("cpu_use", "follow_work")),
    ),
    "reasons": ((model.scoring.gather, ("_strength", "explain")),),
    "other evidence": ((serve_app.pipeline, ("build_meta_input",)),),
    "verdict": ((serve_app.pipeline, ("build_verdict", "decide")),),
    "reconstruction": ((serve_app.pipeline, ("reconstruction_loss", "_reconstruction_input", "add_reconstruction")),),
    "after the verdict": (
        (serve_app.pipeline, ("add_context", "add_impact", "add_trends", "add_owners", "add_error_budgets", "commit")),
    ),
}


class Meter:
    """Charges what happens between two calls of :meth:`_charge` to the innermost stage.

    Args:
        charge: takes the name of a stage, and charges it with everything since its last call.
    """

    def __init__(self, charge: Callable[[str], None]) -> None:
        self._charge = charge
        self._stages = [OTHER]

    @contextmanager
    def install(self) -> Iterator[None]:
        """Wrap the functions of all stages for a while."""
        before = []
        for stage, groups in STAGES.items():
            for place, names in groups:
                for name in names:
                    before.append((place, name, getattr(place, name)))
                    setattr(place, name, self._wrap(stage, getattr(place, name)))
        try:
            yield
        finally:
            for place, name, function in before:
                setattr(place, name, function)

    def charge(self) -> None:
        """Charge what happened since the last stage."""
        self._charge(self._stages[-1])

    def _wrap(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            self.charge()
            self._stages.append(stage)
            try:
                return function(*args, **kwargs)
            finally:
                self.charge()
                self._stages.pop()

        return call


def advance_all(services: int, calls: float, snapshots: int) -> Iterator[int]:
    """Advance a simulated mesh, and yield the number of each snapshot before it is scored."""
    checkpoint, mesh = load(), Mesh()
    simulator = Simulator(MeshSpec(services=services, calls_per_service=calls, seed=1), snapshots=snapshots)
    runner = LocalRunner(checkpoint)
    for number, snapshot in enumerate(list(simulator.snapshots())):
        yield number
        mesh = run_now(run_stages(runner, mesh, snapshot, Options())).mesh


def cpu_times(services: int, calls: float, snapshots: int) -> dict[str, float]:
    """Return the median CPU time of each stage, ms."""
    taken: list[dict[str, float]] = []
    last = time.process_time()

    def charge(stage: str) -> None:
        nonlocal last
        now = time.process_time()
        taken[-1][stage] += 1e3 * (now - last)
        last = time.process_time()

    meter = Meter(charge)
    with meter.install():
        for _ in advance_all(services, calls, WARM_UP + snapshots):
            if taken:
                meter.charge()
            taken.append(dict.fromkeys((*STAGES, OTHER), 0.0))
            last = time.process_time()
    meter.charge()
    return {stage: median(of[stage] for of in taken[WARM_UP:]) for stage in (*STAGES, OTHER)}


# Requests to callgrind, which callgrind.h defines as inline assembly.
MARKS = """
#include <valgrind/callgrind.h>
void begin(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void dump(const char* stage) { CALLGRIND_DUMP_STATS_AT(stage); }
"""


def run_counted(services: int, calls: float, library: str) -> None:
    """Advance a mesh under callgrind, which writes a file for each time that a stage is charged."""
    marks = ctypes.CDLL(library)
    meter = Meter(lambda stage: marks.dump(stage.encode()))
    snapshots = advance_all(services, calls, WARM_UP + COUNTED)
    for number in snapshots:
        if number == WARM_UP:
            break
    marks.begin()
    with meter.install():
        for _ in snapshots:
            meter.charge()
    meter.charge()


def instructions(size: str) -> dict[str, float]:
    """Return the instructions of each stage in one snapshot; empty if they cannot be counted here."""
    compiler, valgrind = shutil.which("cc") or shutil.which("gcc"), shutil.which("valgrind")
    if not compiler or not valgrind:
        return {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "marks.c").write_text(MARKS)
        library = folder / "marks.so"
        built = subprocess.run([compiler, "-shared", "-fPIC", "-o", library, folder / "marks.c"], check=False)
        if built.returncode:
            return {}
        command = [valgrind, "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/counts"]
        again = [sys.executable, "-m", "benchmarks.bench_stages", "--sizes", size, "--count-with", str(library)]
        subprocess.run([*command, *again], check=True, stderr=subprocess.DEVNULL)
        total = dict.fromkeys((*STAGES, OTHER), 0.0)
        for path in folder.glob("counts.*"):
            text = path.read_text()
            stage = re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.MULTILINE)
            count = re.search(r"^(?:summary|totals): (\d+)", text, re.MULTILINE)
            if stage and count:
                total[stage[1]] += int(count[1]) / COUNTED
    return total


def parse(size: str) -> tuple[int, float]:
    """Return services, and calls of each, of ``500x6``."""
    services, calls = size.split("x")
    return int(services), float(calls)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=SIZES, metavar="SERVICESxCALLS")
    parser.add_argument("--snapshots", type=int, default=60)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--count-with", metavar="LIBRARY", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.count_with:
        run_counted(*parse(arguments.sizes[0]), arguments.count_with)
        return
    lines = []
    for size in arguments.sizes:
        services, calls = parse(size)
        taken, counted = cpu_times(services, calls, arguments.snapshots), instructions(size)
        for stage in (*STAGES, OTHER):
            row = {
                "benchmark": "stages",
                "services": services,
                "calls": round(services * calls),
                "stage": stage,
                "cpu_ms": round(taken[stage], 3),
                "instructions": round(counted[stage]) if counted else None,
                "backend": backend(),
                "cores": os.cpu_count(),
            }
            lines.append(json.dumps(row))
            print(lines[-1], flush=True)
    if arguments.json:
        arguments.json.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
