"""A push with the state in a Redis against one with the state in SQLite.

    python -m benchmarks.bench_store [--snapshots 200] [--fsync everysec always] [--json FILE]

Each snapshot of a simulated mesh is pushed with the steps of a session into both stores, in turn. So a busy machine
slows both alike. The Redis is a child process on this machine, with an append-only file; it needs
``redis-server`` or ``valkey-server`` on PATH. A push is measured without HTTP, from the packed snapshot to the stored
verdict. What follows the answer (a full state now and then) is not counted. Prints a JSON line for each size and each
value of ``appendfsync``: ms, and the memory of the mesh in the Redis. It has its whole window after 120 snapshots.
"""

import argparse
import asyncio
import json
import tempfile
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import torch

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
from serve_app.stores.state_store import StateStore
from tests.live.redis import RedisProgram

SIZES = ((60, 3.0), (500, 6.0))
WARM_UP = 20  # snapshots


class Pushes:
    """Pushes of one mesh into one store, with their durations, s."""

    def __init__(self, store: StateStore) -> None:
        checkpoint, self._options = load(), Options()
        meshes = MeshRepository(store, MeshCache(2**29), replayer(Weights(checkpoint).of, Settings()))
        self._steps = MeshSteps(meshes, keep_details=True)
        self._runner = LocalRunner(checkpoint)
        self.seconds: list[float] = []

    def push(self, packed: bytes) -> bytes:
        """Push a snapshot, and return its verdict."""
        began = time.perf_counter()
        document = run_now(self._steps.push(NextSnapshot("mesh", packed), self._options, self._runner)).document
        self.seconds.append(time.perf_counter() - began)
        asyncio.run(self._steps.tidy("mesh", self._options))
        return document


def measure(
    services: int, calls: float, snapshots: int, fsync: str, program: RedisProgram, folder: Path
) -> dict[str, object]:
    """Return one row for one size."""
    simulator = Simulator(MeshSpec(services=services, calls_per_service=calls, seed=1), snapshots=snapshots)
    prefix = f"bench-{services}-{fsync}"
    with (
        closing(open_store(StoreSettings(path=folder / prefix))) as local,
        closing(open_store(program.settings(key_prefix=prefix, timeout_seconds=60))) as shared,
    ):
        sqlite, redis = Pushes(local), Pushes(shared)
        for i, snapshot in enumerate(simulator.snapshots()):
            packed = pack_snapshot(snapshot)
            pair = (sqlite, redis) if i % 2 else (redis, sqlite)
            verdicts = [one.push(packed) for one in pair]
            assert verdicts[0] == verdicts[1]
        with closing(program.client()) as hand:
            held = sum(hand.memory_usage(key, samples=0) for key in hand.scan_iter(f"{prefix}:*"))
    times = {name: 1e3 * np.array(one.seconds[WARM_UP:]) for name, one in (("sqlite", sqlite), ("redis", redis))}
    return {
        "benchmark": "store",
        "services": services,
        "calls": snapshot.num_edges,
        "appendfsync": fsync,
        "snapshots": snapshots - WARM_UP,
        "redis_mib": round(held / 2**20, 1),
        **{f"{name}_p50_ms": round(float(np.median(taken)), 2) for name, taken in times.items()},
        **{f"{name}_p90_ms": round(float(np.percentile(taken, 90)), 2) for name, taken in times.items()},
        "ratio_p50": round(float(np.median(times["redis"]) / np.median(times["sqlite"])), 2),
        "ratio_mean": round(float(times["redis"].mean() / times["sqlite"].mean()), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snapshots", type=int, default=200)
    parser.add_argument("--fsync", nargs="+", default=["everysec", "always"])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for fsync in arguments.fsync:
            program = RedisProgram(folder / fsync, "--appendfsync", fsync)
            try:
                for services, calls in SIZES:
                    rows.append(measure(services, calls, arguments.snapshots, fsync, program, folder))
                    print(json.dumps(rows[-1]), flush=True)
            finally:
                program.end()
    if arguments.json:
        arguments.json.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
