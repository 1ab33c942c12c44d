"""What a batch of a scorer saves: parts of one snapshot joined, and batch size against latency under load.

    python -m benchmarks.bench_batches [--joined 3000 10000] [--sizes 1 2 4 8 16] [--meshes 4] [--services 3000]
        [--bursts 30] [--seconds 1.2] [--rounds 2] [--json FILE]

``joined`` rows are of one process: the parts of a snapshot scored one after another, in one pass, and joined, in turn.
Times are medians of processor time. Correctness first: all ways give the same scores.

``load`` rows are of a running service that scores on replicas. All meshes push at the same time, again and again, as
collectors do whose polls begin together. Each batch size (``scorer.max_batch_size``) has a new service, and the sizes
take turns in each round. ``on_time`` is the share of pushes with an answer within the target of ``sla.p95_seconds``,
and ``cpu_ms`` the processor time of all processes of the service for each snapshot. Prints JSON lines.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import numpy as np
import psutil
import torch

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import load
from model.scoring.joining import join, score_joined
from model.scoring.score import PartitionScore, PartitionTask, score
from model.snapshot import MeshSnapshot
from serve_app.api.codec import ARROW, encode_snapshot
from serve_app.app import start, stop
from serve_app.pipeline import Mesh, Options, cut_tasks, prepare
from serve_app.settings import Settings

CALLS_PER_SERVICE = 10.0
DISTINCT = 12  # snapshots of a mesh; they repeat with later times
REPEAT = 21
WARM_UP = 6  # bursts that are not measured: Ray starts, and estimates settle
TOLERANCE = 1e-4


def simulate(services: int, seed: int, count: int) -> list[MeshSnapshot]:
    """Return snapshots of a mesh."""
    spec = MeshSpec(services=services, calls_per_service=CALLS_PER_SERVICE, seed=seed)
    return list(Simulator(spec, snapshots=count).snapshots())


def measure_joined(services: int) -> dict[str, Any]:
    """Return the row of a mesh whose parts are in one batch."""
    checkpoint, mesh = load(), Mesh()
    [snapshot] = simulate(services, 1, 1)
    prepared = prepare(checkpoint, mesh, snapshot, Options())
    tasks, network = cut_tasks(prepared), checkpoint.network
    ways: dict[str, Callable[[], Sequence[PartitionScore]]] = {
        "separate": lambda: [found for task in tasks for found in score(network, [task])],
        "one_pass": lambda: score(network, tasks),
        "joined": lambda: score_joined(network, tasks),
    }
    require_same(tasks, *(way() for way in ways.values()))
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(REPEAT):
        for name, way in ways.items():
            began = time.process_time()
            way()
            taken[name].append(1e3 * (time.process_time() - began))
    graph = join(tasks).task
    rows, calls = (sum(len(getattr(task, name)) for task in tasks) for name in ("nodes", "edges"))
    return {
        "benchmark": "batches",
        "kind": "joined",
        "services": services,
        "calls": snapshot.num_edges,
        "parts": len(tasks),
        "services_saved": round(1 - len(graph.nodes) / rows, 3),
        "calls_saved": round(1 - len(graph.edges) / calls, 3),
        **{f"{name}_cpu_ms": round(median(times), 1) for name, times in taken.items()},
        "ratio_to_one_pass": ratio(taken["joined"], taken["one_pass"]),
        "ratio_to_separate": ratio(taken["joined"], taken["separate"]),
    }


def ratio(times: Sequence[float], base: Sequence[float]) -> float:
    """Return the median of the ratios of each time to the one measured beside it."""
    return round(median(a / b for a, b in zip(times, base, strict=True)), 2)


def require_same(tasks: Sequence[PartitionTask], *ways: Sequence[PartitionScore]) -> None:
    """Raise an error if a way has other scores than the first one."""
    for way in ways[1:]:
        for task, one, other in zip(tasks, ways[0], way, strict=True):
            for name in ("node_expected", "edge_expected", "root_cause_logit", "embeddings"):
                np.testing.assert_allclose(
                    getattr(other, name), getattr(one, name), atol=TOLERANCE, rtol=TOLERANCE, err_msg=f"{task.part}"
                )


class PushingMeshes:
    """Meshes that push at the same time.

    Args:
        count: of meshes.
        services: of each.
    """

    def __init__(self, count: int, services: int) -> None:
        self._spec = MeshSpec(services=services, calls_per_service=CALLS_PER_SERVICE)
        self._snapshots = [simulate(services, seed, DISTINCT) for seed in range(count)]

    async def run(self, url: str, bursts: int, seconds: float) -> tuple[list[float], float]:
        """Push in bursts. Returns the time of each push, s, and the processor time of each snapshot, s."""
        taken: list[float] = []
        used = 0.0
        async with httpx.AsyncClient(base_url=url, timeout=120) as client:
            for number in range(WARM_UP + bursts):
                bodies = [self._body(i, number) for i in range(len(self._snapshots))]
                if number == WARM_UP:
                    used = processor_seconds()
                ends = time.monotonic() + seconds
                burst = await asyncio.gather(*(push(client, f"m{i}", body) for i, body in enumerate(bodies)))
                taken += burst if number >= WARM_UP else []
                await asyncio.sleep(max(0.0, ends - time.monotonic()))
        return taken, (processor_seconds() - used) / len(taken)

    def _body(self, mesh: int, number: int) -> bytes:
        snapshot = self._snapshots[mesh][number % DISTINCT]
        return encode_snapshot(replace(snapshot, observed_at=self._spec.time_of(number)), ARROW)


async def push(client: httpx.AsyncClient, mesh: str, body: bytes) -> float:
    """Push one snapshot. Returns the time until its verdict, s; infinite if there is none, or parts are missing."""
    began = time.perf_counter()
    response = await client.post(f"/v1/meshes/{mesh}/snapshots", content=body, headers={"content-type": ARROW})
    assert response.status_code in (200, 429, 504), response.text
    is_whole = response.status_code == 200 and response.json()["coverage"] == 1
    return time.perf_counter() - began if is_whole else float("inf")


def processor_seconds() -> float:
    """Processor time of all processes of the service so far."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:2])
    return total


def measure_size(meshes: PushingMeshes, size: int, bursts: int, seconds: float) -> tuple[list[float], float]:
    """Return what :meth:`PushingMeshes.run` does, with a new service that has this batch size."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            serve={"port": 0, "session_memory_bytes": 2**30},
            scorer={"device": "cpu", "place": "replicas", "max_batch_size": size},
            store={"path": folder},
        )
        url = start(settings)
        try:
            return asyncio.run(meshes.run(url, bursts, seconds))
        finally:
            stop()


def load_row(size: int, taken: Sequence[float], cpu: Sequence[float]) -> dict[str, Any]:
    """Return the row of one batch size."""
    target = Settings().sla.p95_seconds
    return {
        "size": size,
        "pushes": len(taken),
        "p50_ms": round(1e3 * float(np.percentile(taken, 50))),
        "p99_ms": round(1e3 * float(np.percentile(taken, 99, method="lower"))),
        "target_seconds": target,
        "on_time": round(float(np.mean(np.array(taken) <= target)), 3),
        "cpu_ms": round(1e3 * median(cpu)),
    }


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--joined", type=int, nargs="*", default=[3000, 10_000], help="services of joined rows")
    parser.add_argument("--sizes", type=int, nargs="*", default=[1, 2, 4, 8, 16], help="batch sizes of load rows")
    parser.add_argument("--meshes", type=int, default=4)
    parser.add_argument("--services", type=int, default=3000)
    parser.add_argument("--bursts", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=1.2, help="between two bursts")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    lines = [measure_joined(services) for services in chosen.joined]
    print("\n".join(map(json.dumps, lines)), flush=True)
    taken: dict[int, list[float]] = {size: [] for size in chosen.sizes}
    cpu: dict[int, list[float]] = {size: [] for size in chosen.sizes}
    meshes = PushingMeshes(chosen.meshes if chosen.rounds else 0, chosen.services)
    for _ in range(chosen.rounds):
        for size in chosen.sizes:
            times, seconds = measure_size(meshes, size, chosen.bursts, chosen.seconds)
            taken[size] += times
            cpu[size].append(seconds)
            print(json.dumps(load_row(size, times, [seconds])), flush=True)
    about = {"benchmark": "batches", "kind": "load", "meshes": chosen.meshes, "services": chosen.services}
    about |= {"seconds": chosen.seconds, "rounds": chosen.rounds, "cores": psutil.cpu_count()}
    lines += [about | load_row(size, taken[size], cpu[size]) for size in chosen.sizes if taken[size]]
    if chosen.json:
        chosen.json.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
