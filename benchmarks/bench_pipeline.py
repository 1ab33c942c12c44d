"""Measures the time from snapshot to verdict in one process, by stage, for the sizes in the README.

    python -m benchmarks.bench_pipeline [--snapshots 200] [--threads 2] [--device cpu] [--json FILE]
    python -m benchmarks.bench_pipeline --against FOLDER [--rounds 5] [--json FILE]

Correctness first: every verdict is finite, and a partitioned mesh gets the same scores as the whole one. Results are
medians and 99th percentiles over consecutive snapshots of one simulated mesh, after 20 of warm-up. Prints JSON lines.

With ``--against``, this code and another checkout's run in turn, in processes of their own with one thread. CPU times
are medians over 40 snapshots of a mesh after 70 others, and over the rounds. They are also given in *floors*: a floor
is the time of the network's multiply-adds at the speed of the fastest matrix product, oneDNN's 512 x 512 x 512, in the
same run.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.rows import Row, command_line, emit
from kernels import backend, load_cuda
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import Checkpoint, load
from model.incidents.memory import IncidentMemory
from model.incidents.policy import AlertPolicy
from model.scoring.score import PartitionScore
from model.verdict import Verdict
from serve_app.pipeline import LocalRunner, Mesh, MetaInput, Options, PreparedSnapshot, advance, run_now, run_stages

SIZES = ((60, 3.0), (500, 6.0), (2000, 4.0), (2000, 10.0), (10_000, 10.0))
LARGE, FEWER = 10_000, 5  # from this many services on, a fifth of the snapshots is measured
STAGES = ("prepare", "score", "gather", "decide", "total")
WARM_UP = 20
COMPARED, KNOWN, MEASURED = ((60, 3.0), (500, 6.0), (2000, 10.0)), 70, 40  # sizes, and snapshots
SIDE = 512
PER_SERVICE, PER_CALL, PER_ATTENDED_CALL = 105_600, 2_700, 3_800  # multiply-adds in the shipped network


class TimedRunner(LocalRunner):
    """Measures each stage, in seconds."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__(checkpoint)
        self.seconds = dict.fromkeys(STAGES, 0.0)

    async def run(self, stage: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self._measure(stage):
            return function(*args, **kwargs)

    async def score(self, prepared: PreparedSnapshot) -> Sequence[PartitionScore]:
        with self._measure("score"):
            return await super().score(prepared)

    async def decide(self, meta_input: MetaInput, policy: AlertPolicy) -> tuple[Verdict, IncidentMemory]:
        with self._measure("decide"):
            return await super().decide(meta_input, policy)

    @contextmanager
    def _measure(self, stage: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.seconds[stage] += time.perf_counter() - begin


def times(services: int, calls: float, snapshots: int, device: torch.device) -> Row:
    """Return a size's row: milliseconds by stage."""
    checkpoint, options, mesh = load(device=device), Options(), Mesh()
    simulator = Simulator(MeshSpec(services=services, calls_per_service=calls, seed=1), snapshots=snapshots + WARM_UP)
    rows = []
    for snapshot in simulator.snapshots():
        begin, runner = time.perf_counter(), TimedRunner(checkpoint)
        step = run_now(run_stages(runner, mesh, snapshot, options))
        runner.seconds["total"] = time.perf_counter() - begin
        verdict, mesh = step.verdict, step.mesh
        assert np.isfinite([verdict.mesh_score, verdict.probability]).all(), verdict
        rows.append(list(runner.seconds.values()))
    milliseconds = np.array(rows[WARM_UP:]) * 1e3
    row: Row = {
        "benchmark": "pipeline",
        "services": services,
        "calls": snapshot.num_edges,
        "snapshots": snapshots,
    }
    for i, stage in enumerate(STAGES):
        row[f"{stage}_p50_ms"] = round(float(np.median(milliseconds[:, i])), 2)
        row[f"{stage}_p99_ms"] = round(float(np.percentile(milliseconds[:, i], 99)), 2)
    return row


def check_cut(device: torch.device) -> None:
    """Check that a partitioned mesh scores like the whole one."""
    checkpoint = load(device=device)
    whole, parts = Mesh(), Mesh()
    for snapshot in Simulator(MeshSpec(services=150, seed=2), snapshots=15).snapshots():
        a, whole = advance(checkpoint, whole, snapshot, Options())
        b, parts = advance(checkpoint, parts, snapshot, Options(max_services=50))
        assert abs(a.mesh_score - b.mesh_score) < 1e-4, (a.mesh_score, b.mesh_score)
        assert replace(a, mesh_score=0).status == replace(b, mesh_score=0).status


def cpu_times() -> list[dict[str, float]]:
    """Return a snapshot's CPU time and the floor, ms, for each size in ``COMPARED``."""
    checkpoint, rows = load(), []
    for services, calls in COMPARED:
        simulator = Simulator(MeshSpec(services=services, calls_per_service=calls, seed=1), snapshots=KNOWN + MEASURED)
        mesh, milliseconds = Mesh(), []
        for snapshot in list(simulator.snapshots()):
            runner, begin = LocalRunner(checkpoint), time.process_time()
            mesh = run_now(run_stages(runner, mesh, snapshot, Options())).mesh
            milliseconds.append(1e3 * (time.process_time() - begin))
        attended_calls = (mesh.state.attended_callers.sum() + mesh.state.attended_callees.sum()) / 2
        work = multiply_adds(services, snapshot.num_edges, float(attended_calls))
        rows.append(
            {
                "services": services,
                "calls": snapshot.num_edges,
                "cpu_ms": median(milliseconds[KNOWN:]),
                "floor_ms": work / SIDE**3 * product_time(),
            }
        )
    return rows


def multiply_adds(services: int, calls: int, attended_calls: float) -> float:
    """Return the multiply-adds in a pass of the network."""
    return services * PER_SERVICE + calls * PER_CALL + attended_calls * PER_ATTENDED_CALL


def fastest_product() -> Callable[[], torch.Tensor]:
    """Return a product of 512 x 512 matrices with oneDNN, the fastest on a CPU."""
    x, weight = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    return lambda: torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")


def product_time() -> float:
    """Return the fastest product's median time, ms."""
    product, milliseconds = fastest_product(), []
    for _ in range(50):
        begin = time.process_time()
        product()
        milliseconds.append(1e3 * (time.process_time() - begin))
    return median(milliseconds)


def compare(checkout: Path, rounds: int) -> list[Row]:
    """Return a row per size: a snapshot's CPU time with another checkout and with this one, and their ratio."""
    here, runs = Path(__file__).resolve().parents[1], []
    for _ in range(rounds):
        for folder in (checkout.resolve(), here):
            # This benchmark, with the packages of the folder.
            environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(folder), str(here))), "OMP_NUM_THREADS": "1"}
            command = [sys.executable, __file__, "--cpu-times"]
            runs.append(json.loads(subprocess.check_output(command, env=environment, cwd=folder, text=True)))
    rows: list[Row] = []
    for i, size in enumerate(runs[0]):
        before, after = ([run[i]["cpu_ms"] for run in runs[first::2]] for first in (0, 1))
        floor = median(run[i]["floor_ms"] for run in runs)
        rows.append(
            {
                "benchmark": "floors",
                "services": size["services"],
                "calls": size["calls"],
                "rounds": rounds,
                "before_ms": round(median(before), 2),
                "after_ms": round(median(after), 2),
                "ratio": round(median(b / a for a, b in zip(before, after, strict=True)), 3),
                "floor_ms": round(floor, 3),
                "before_floors": round(median(before) / floor, 1),
                "after_floors": round(median(after) / floor, 1),
            }
        )
    return rows


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--snapshots", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--against", type=Path, metavar="FOLDER", help="a checkout of another version, with its libraries"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu-times", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cpu_times:
        torch.set_num_threads(1)
        print(json.dumps(cpu_times()))
        return
    if arguments.against:
        emit(compare(arguments.against, arguments.rounds), arguments.json)
        return
    torch.set_num_threads(arguments.threads)
    device = torch.device(arguments.device)
    if device.type == "cuda":
        load_cuda()
    check_cut(device)
    about = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "cores": os.cpu_count(),
        "threads": arguments.threads,
        "malloc_tuned": "MALLOC_TOP_PAD_" in os.environ,
        "backend": backend(device.type),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }
    counts = [(*size, arguments.snapshots // (FEWER if size[0] >= LARGE else 1)) for size in SIZES]
    emit((times(*count, device) | about for count in counts), arguments.json)


if __name__ == "__main__":
    main()
