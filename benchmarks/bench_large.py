"""A large mesh over HTTP and Ray Serve: time of a push, memory of each process, bytes and time of the page's routes.

    python -m benchmarks.bench_large [--services 100000] [--calls 1000000] [--snapshots 40] [--json FILE]

One client on loopback pushes snapshots of a simulated mesh with hundreds of namespaces and shared services, as Arrow.
In ``steady`` rows services and calls stay the same. In ``changing`` rows each snapshot has services and calls that no
snapshot before had, and lacks some of those before, so that each one changes the plan. The mesh is the same for both,
steady first. Snapshots repeat after :data:`DISTINCT`, with later times.

Correctness first: every push is answered with 200 and the next sequence. Memory is the private memory of all processes
of the service together, at its highest of two samples a second, and the share of each process in it. (Their
proportional set size would be more exact, but to read it stops a large process for a moment.) Prints JSON lines.
"""

import argparse
import json
import os
import platform
import re
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import torch

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.snapshot import MeshSnapshot
from serve_app.api.codec import ARROW, encode_snapshot
from serve_app.app import start, stop
from serve_app.settings import Settings

DISTINCT = 16  # snapshots that are simulated
WARM_UP = 12  # pushes that are not measured, with the first verdict among them
CHANGED = 1e-4  # share of the services and of the calls that come, and that are absent, in a changing snapshot
SAMPLE_SECONDS = 0.5
MESH = "large"
ROUTES = {
    "map": "/map",
    "graph": "/graph",
    "graph of incidents": "/graph?incidents=true",
    "plan": "/plan",
    "services": "/services?text=a&limit=100",
    "timeline": "/timeline",
    "incidents": "/incidents",
}
MIB = 2**20


def change_mesh(snapshot: MeshSnapshot, number: int) -> MeshSnapshot:
    """Return a snapshot with some new services and calls, and without some others."""
    rng = np.random.default_rng(number)
    few, some = (max(1, round(CHANGED * count)) for count in (snapshot.num_nodes, snapshot.num_edges))
    kept = np.sort(rng.choice(snapshot.num_edges, snapshot.num_edges - some, replace=False))
    count = snapshot.num_nodes
    spaces = [snapshot.node_ids[i].split("/")[0] for i in rng.integers(count, size=few)]
    names = [f"{space}/new-{number}-{i}" for i, space in enumerate(spaces)]
    known = set((snapshot.edge_index[0] * (count + few) + snapshot.edge_index[1]).tolist())
    ends = np.stack([rng.integers(count, size=some), rng.integers(count, size=some)])
    ends = np.concatenate([ends, np.stack([rng.integers(count, size=few), np.arange(count, count + few)])], axis=1)
    ends = ends[:, [s != d and s * (count + few) + d not in known for s, d in ends.T.tolist()]]
    ends = np.unique(ends, axis=1)
    alike, like = rng.integers(count, size=few), rng.integers(snapshot.num_edges, size=ends.shape[1])
    return replace(
        snapshot,
        node_ids=(*snapshot.node_ids, *names),
        node_features=np.concatenate([snapshot.node_features, snapshot.node_features[alike]]),
        node_observed=np.concatenate([snapshot.node_observed, snapshot.node_observed[alike]]),
        edge_index=np.concatenate([snapshot.edge_index[:, kept], ends], axis=1),
        edge_features=np.concatenate([snapshot.edge_features[kept], snapshot.edge_features[like]]),
        edge_observed=np.concatenate([snapshot.edge_observed[kept], snapshot.edge_observed[like]]),
    )


def set_time(snapshot: MeshSnapshot, spec: MeshSpec, number: int) -> MeshSnapshot:
    """Return the snapshot with the time of another number."""
    return replace(snapshot, observed_at=spec.time_of(number))


@dataclass
class Memory:
    """The memory of the processes below this one, sampled in a thread.

    Attributes:
        total: highest sum of private memory, bytes.
        parts: private memory of each process at that time, bytes, by its name and id.
    """

    total: int = 0
    parts: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Sample until the block ends."""
        done = threading.Event()
        thread = threading.Thread(target=self._sample, args=(done,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _sample(self, done: threading.Event) -> None:
        while not done.wait(SAMPLE_SECONDS):
            parts = {}
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    used, name = process.memory_info(), " ".join(process.cmdline()[:1])
                    parts[f"{name.split(':')[-1] or process.name()} {process.pid}"] = used.rss - used.shared
            if (total := sum(parts.values())) > self.total:
                self.total, self.parts = total, parts

    def largest(self, count: int = 8) -> dict[str, int]:
        """The processes with the most memory, in MiB."""
        ordered = sorted(self.parts.items(), key=lambda one: -one[1])[:count]
        return {name: round(part / MIB) for name, part in ordered}


def push(client: httpx.Client, snapshot: MeshSnapshot, sequence: int) -> tuple[float, dict[str, float], int]:
    """Push a snapshot. Returns ms, the ms of each stage, and the bytes of the body."""
    body = encode_snapshot(snapshot, ARROW)
    started = time.perf_counter()
    response = client.post(f"/v1/meshes/{MESH}/snapshots", content=body, headers={"content-type": ARROW})
    taken = 1e3 * (time.perf_counter() - started)
    assert response.status_code == 200, response.text
    assert response.json()["sequence"] == sequence, response.text
    stages = {name: float(ms) for name, ms in re.findall(r"(\w+);dur=([\d.]+)", response.headers["server-timing"])}
    return taken, stages, len(body)


def summary(name: str, rows: Sequence[tuple[float, dict[str, float], int]]) -> dict[str, Any]:
    """Median and 90th percentile of pushes, and the medians of their stages, ms."""
    taken = [ms for ms, _, _ in rows]
    stages = {stage: round(float(np.median([row[stage] for _, row, _ in rows]))) for stage in rows[-1][1]}
    return {
        f"{name}_p50_ms": round(float(np.percentile(taken, 50))),
        f"{name}_p90_ms": round(float(np.percentile(taken, 90))),
        f"{name}_most_ms": round(max(taken)),
        f"{name}_stages_p50_ms": stages,
        "body_mib": round(rows[-1][2] / MIB, 1),
    }


def routes(client: httpx.Client) -> dict[str, Any]:
    """Time and bytes of the routes of the page: twice each, because the first answer may have to be computed."""
    found = {}
    for name, path in ROUTES.items():
        taken = []
        for _ in range(2):
            started = time.perf_counter()
            with client.stream("GET", f"/v1/meshes/{MESH}{path}") as response:
                sent = sum(map(len, response.iter_raw()))
            taken.append(round(1e3 * (time.perf_counter() - started)))
        found[name] = {"status": response.status_code, "ms": taken, "kib": round(sent / 1024)}
        print(json.dumps({name: found[name]}), flush=True)
    return found


def measure(services: int, calls: int, snapshots: int, directory: str, *, changing: bool, look: bool) -> dict[str, Any]:
    """Return the row of one size."""
    spec = MeshSpec(services=services, calls_per_service=calls / services, seed=1)
    made = list(Simulator(spec, snapshots=DISTINCT).snapshots())
    print(
        json.dumps({"simulated": services, "namespaces": len({n.split("/")[0] for n in made[0].node_ids})}), flush=True
    )
    settings = Settings(
        scorer={"device": "cpu", "place": "session"},
        serve={"port": 0, "deadline_seconds": 300.0, "body_seconds": 120.0, "session_memory_bytes": 8 * 2**30},
        limits={"max_services": 2 * services, "max_calls": 2 * calls, "max_body_bytes": 128 * 2**20},
        store={"path": directory},
    )
    memory = Memory()
    url = start(settings)
    try:
        with memory.measure(), httpx.Client(base_url=url, timeout=600) as client:
            rows: dict[str, list[Any]] = {"steady": [], "changing": []}
            for number in range(WARM_UP + snapshots * (2 if changing else 1)):
                one = set_time(made[number % DISTINCT], spec, number)
                kind = "steady" if number < WARM_UP + snapshots else "changing"
                sent = push(client, change_mesh(one, number) if kind == "changing" else one, number + 1)
                rows[kind].append(sent)
                print(
                    json.dumps(
                        {"push": number, "ms": round(sent[0]), **sent[1], "private_mib": round(memory.total / MIB)}
                    ),
                    flush=True,
                )
            seen = routes(client) if look else {}
        files = sum(path.stat().st_size for path in Path(directory).rglob("*") if path.is_file())
    finally:
        stop()
    return {
        "benchmark": "large",
        "services": services,
        "calls": made[0].num_edges,
        "snapshots": snapshots,
        **summary("steady", rows["steady"][WARM_UP:]),
        **(summary("changing", rows["changing"]) if changing else {}),
        "memory_mib": round(memory.total / MIB),
        "processes_mib": memory.largest(),
        "store_mib": round(files / MIB),
        "routes": seen,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", type=int, nargs="*", default=[10_000, 100_000])
    parser.add_argument("--calls", type=int, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument("--snapshots", type=int, default=40)
    parser.add_argument("--steady-only", action="store_true", help="leave out the snapshots that change the mesh")
    parser.add_argument("--no-routes", action="store_true", help="leave out the routes of the page")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    about = {
        "cores": os.cpu_count(),
        "malloc_tuned": "MALLOC_TOP_PAD_" in os.environ,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    lines = []
    for services, calls in zip(arguments.services, arguments.calls, strict=True):
        with tempfile.TemporaryDirectory() as directory:
            row = measure(
                services,
                calls,
                arguments.snapshots,
                directory,
                changing=not arguments.steady_only,
                look=not arguments.no_routes,
            )
        lines.append(json.dumps(row | about | {"load_after": round(os.getloadavg()[0], 2)}))
        print(lines[-1], flush=True)
    if arguments.json:
        arguments.json.write_text("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main()
