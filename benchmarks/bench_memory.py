"""Measures a session's memory and its store's size over a mesh's long life.

    python -m benchmarks.bench_memory [--snapshots 10000] [--services 60] [--json FILE]

Each snapshot is packed, unpacked and pushed with a session's steps, into a local store and a cache. Prints a JSON line
every 100 snapshots: the process's resident memory, the cache's own count, the store's files, and the CPU time to read
the mesh from the store, µs.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import torch

from benchmarks.rows import command_line, emit
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import load
from model.mesh_weights import Weights
from serve_app.api.codec import pack_snapshot
from serve_app.mesh_steps import MeshSteps, NextSnapshot
from serve_app.pipeline import LocalRunner, Options, replayer, run_now
from serve_app.settings import Settings, StoreSettings
from serve_app.stores.cache import MeshCache
from serve_app.stores.opening import open_store
from serve_app.stores.repository import MeshRepository

EVERY = 100


def measure(
    directory: Path, services: int, snapshots: int, every: int = EVERY, *, reads: bool = False
) -> Iterator[dict[str, int]]:
    """Yield a row every ``every`` snapshots; sizes in bytes. ``reads`` adds the CPU time to read the mesh, µs."""
    torch.set_num_threads(1)
    process, cache = psutil.Process(), MeshCache(512 * 2**20)
    simulator = Simulator(MeshSpec(services=services, seed=1), snapshots=snapshots)
    with closing(open_store(StoreSettings(path=directory))) as store:
        checkpoint = load()
        replay = replayer(Weights(checkpoint).of, Settings())
        steps = MeshSteps(store, MeshRepository(store, cache, replay))
        runner = LocalRunner(checkpoint)
        for count, snapshot in enumerate(simulator.snapshots(), 1):
            content = pack_snapshot(snapshot)
            run_now(steps.push(NextSnapshot("memory", content), Options(), runner))
            if count % every == 0:
                files = sum(path.stat().st_size for path in directory.iterdir())
                resident = process.memory_info().rss
                sizes = {"resident": resident, "cache": cache.bytes, "files": files}
                if reads:
                    began = time.process_time()
                    MeshRepository(store, MeshCache(0), replay).get("memory")
                    sizes["load_us"] = round(1e6 * (time.process_time() - began))
                yield {"snapshots": count, **sizes}


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--snapshots", type=int, default=10_000)
    parser.add_argument("--services", type=int, default=60)
    arguments = parser.parse_args()
    about = {"benchmark": "memory", "services": arguments.services, "cores": os.cpu_count()}
    with tempfile.TemporaryDirectory() as directory:
        rows = measure(Path(directory), arguments.services, arguments.snapshots, reads=True)
        emit((about | row for row in rows), arguments.json)


if __name__ == "__main__":
    main()
