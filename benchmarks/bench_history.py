"""The history of a mesh: the time of a range of a week, bytes of a service and day, and the cost of a push.

    python -m benchmarks.bench_history [--services 500] [--days 7] [--snapshots 200] [--json FILE]

Two hours of a simulated mesh are written to the history of a local store and of a Redis again and again, each time for
two later hours, until both have ``--days``. Then a range of all these days is read: of the mesh with a summary of all
services, and of one service. For a push, the same snapshots are pushed with and without a history, in turn, so that a
busy machine slows both alike; the ratio is of CPU time. Redis is a child process on this machine; it needs
``redis-server`` or ``valkey-server`` on PATH. Prints a JSON line for each store, and one for a push.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import load
from model.mesh_weights import Weights
from model.snapshot import MeshSnapshot
from serve_app.api.codec import pack_snapshot
from serve_app.mesh_steps import MeshSteps, NextSnapshot
from serve_app.pipeline import LocalRunner, Options, replayer, run_now
from serve_app.runtime.storage import history_limit
from serve_app.settings import Settings, StoreSettings
from serve_app.settings.store import HistorySettings
from serve_app.stores.base import ChunkKey, HistoryChunk, StateStore
from serve_app.stores.cache import MeshCache
from serve_app.stores.history import HistoryLimit, HistoryWriter, ScoredRow, unix
from serve_app.stores.history_chunks import MINUTE, ROWS, TEN_MINUTES
from serve_app.stores.opening import open_store
from serve_app.stores.repository import MeshRepository
from serve_app.web.past import PastQueries
from serve_app.web.period import Subject, TimeRange
from tests.live.redis import RedisProgram

MESH, DAY, BLOCK = "mesh", 86_400, 600
SCORED = 0.3  # decades, mean of the anomaly scores that are made up for the history
READS = 5  # of each range; the median counts


class Pushes:
    """Pushes of one mesh into a store, with their CPU time, s."""

    def __init__(self, store: StateStore, limit: HistoryLimit | None) -> None:
        checkpoint, self._options = load(), Options()
        replay = replayer(Weights(checkpoint).of, Settings())
        self.meshes = MeshRepository(store, MeshCache(2**29), replay, history=limit)
        self._steps = MeshSteps(self.meshes, keep_details=True)
        self._runner = LocalRunner(checkpoint)
        self.seconds: list[float] = []

    def push(self, packed: bytes) -> None:
        """Push a snapshot."""
        began = time.process_time()
        run_now(self._steps.push(NextSnapshot(MESH, packed), self._options, self._runner))
        self.seconds.append(time.process_time() - began)


def read_chunks(stored: dict[ChunkKey, bytes], keys: Iterable[ChunkKey]) -> dict[ChunkKey, bytes]:
    return {key: stored[key] for key in keys}


def write_hours(snapshots: list[MeshSnapshot]) -> dict[ChunkKey, bytes]:
    """Return the chunks of the history of these snapshots, which end with the first of a new hour."""
    random = np.random.default_rng(0)
    chunks: dict[ChunkKey, bytes] = {}
    limit = HistoryLimit(timedelta(days=366), timedelta(days=366), 2**40)
    scored: list[ScoredRow] = []
    for snapshot in snapshots:
        if scored and unix(snapshot.observed_at) // BLOCK > unix(scored[-1].snapshot.observed_at) // BLOCK:
            sizes = {key: len(content) for key, content in chunks.items()}
            writer = HistoryWriter(limit, sizes, partial(read_chunks, dict(chunks)))
            written, dropped = writer.update(scored, snapshot.observed_at, BLOCK)
            chunks = {key: content for key, content in chunks.items() if key not in dropped}
            chunks |= {chunk.key: chunk.content for chunk in written}
            scored = []
        count = snapshot.num_nodes + snapshot.num_edges
        deviations = random.exponential(SCORED * 16, count).clip(0, 240).astype(np.uint8)
        scored.append(ScoredRow(snapshot, 0.5, 3.0, "normal", deviations.tobytes()))
    return chunks


def fill(store: StateStore, snapshots: list[MeshSnapshot], days: float) -> dict[int, int]:
    """Store a mesh with some snapshots, and a history of these days before them. Returns its bytes by step."""
    pushes = Pushes(store, None)
    for snapshot in snapshots[:12]:
        pushes.push(pack_snapshot(snapshot))
    chunks = write_hours(snapshots)
    minutes = {key: content for key, content in chunks.items() if key.step == MINUTE}
    hours = sorted({key.start for key in minutes})[:2]
    begin = hours[0] - round(days * DAY)
    for shift in range(begin, hours[0], 2 * 3600):
        moved = [
            HistoryChunk(replace(key, start=shift + key.start - hours[0]), content)
            for key, content in minutes.items()
            if key.start in hours
        ]
        store.write_history(MESH, moved)
    tens = {key: content for key, content in chunks.items() if key.step == TEN_MINUTES}
    half_day = ROWS[TEN_MINUTES] * TEN_MINUTES
    first = min(key.start for key in tens)
    # A chunk of ten minutes has only the hours that were simulated: its bytes are scaled, and all its rows are read.
    for shift in range(first - round(days * DAY) // half_day * half_day, first, half_day):
        store.write_history(MESH, [HistoryChunk(replace(key, start=shift), content) for key, content in tens.items()])
    sizes = store.history_sizes(MESH)
    return {step: sum(size for key, size in sizes.items() if key.step == step) for step in (MINUTE, TEN_MINUTES)}


def median_of(read: Callable[[], object]) -> float:
    """Return the median time of a read, s."""
    taken = []
    for _ in range(READS):
        began = time.perf_counter()
        read()
        taken.append(time.perf_counter() - began)
    return float(np.median(taken))


def measure_range(kind: str, store: StateStore, snapshots: list[MeshSnapshot], days: float) -> dict[str, Any]:
    """Return the row of one store."""
    sizes = fill(store, snapshots, days)
    past = PastQueries(Pushes(store, None).meshes)
    end = snapshots[0].observed_at
    begin, services = end - timedelta(days=days) + timedelta(hours=2), snapshots[0].num_nodes
    service = Subject(snapshots[0].node_ids[services // 2])
    fine, coarse = TimeRange(begin, end, 2000), TimeRange(begin, end, 600)
    return {
        "benchmark": "history",
        "store": kind,
        "services": services,
        "calls": snapshots[0].num_edges,
        "days": days,
        "mesh_seconds": round(median_of(lambda: past.range(MESH, fine, None)), 3),
        "service_seconds": round(median_of(lambda: past.range(MESH, fine, service)), 3),
        "coarse_mesh_seconds": round(median_of(lambda: past.range(MESH, coarse, None)), 3),
        "minute_bytes_per_service_day": round(sizes[MINUTE] / services / days),
    }


def measure_push(folder: Path, snapshots: list[MeshSnapshot]) -> dict[str, Any]:
    """Return the row of a push: CPU time with a history over CPU time without one."""
    limit = history_limit(HistorySettings())
    with (
        closing(open_store(StoreSettings(path=folder / "with"))) as one,
        closing(open_store(StoreSettings(path=folder / "without"))) as other,
    ):
        with_history, without = Pushes(one, limit), Pushes(other, None)
        for i, snapshot in enumerate(snapshots):
            packed = pack_snapshot(snapshot)
            for pushes in (with_history, without) if i % 2 else (without, with_history):
                pushes.push(packed)
    blocks = [unix(snapshot.observed_at) // BLOCK for snapshot in snapshots]
    first = next(i for i, block in enumerate(blocks) if block > blocks[0])  # whole blocks only
    last = max(i for i, block in enumerate(blocks) if block > blocks[i - 1])
    ours, theirs = (np.array(pushes.seconds[first + 1 : last + 1]) for pushes in (with_history, without))
    return {
        "benchmark": "history_push",
        "services": snapshots[0].num_nodes,
        "snapshots": len(ours),
        "push_ms": round(1e3 * float(theirs.mean()), 2),
        "ratio": round(float(ours.mean() / theirs.mean()), 4),
    }


@contextmanager
def open_stores(folder: Path) -> Iterator[dict[str, StateStore]]:
    """A local store, and one in a Redis that ends with the block."""
    program = RedisProgram(folder / "redis", "--appendfsync", "everysec")
    try:
        with (
            closing(open_store(StoreSettings(path=folder / "local"))) as local,
            closing(open_store(program.settings(timeout_seconds=60))) as shared,
        ):
            yield {"local": local, "redis": shared}
    finally:
        program.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", type=int, default=500)
    parser.add_argument("--days", type=float, default=7)
    parser.add_argument("--snapshots", type=int, default=200)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    spec = MeshSpec(services=arguments.services, calls_per_service=3.0, seed=1)
    count = max(arguments.snapshots, 2 * 240 + 2)
    snapshots = list(Simulator(spec, snapshots=count).snapshots())
    rows = []
    with tempfile.TemporaryDirectory() as name:
        rows.append(measure_push(Path(name), snapshots[: arguments.snapshots]))
        print(json.dumps(rows[-1]), flush=True)
        with open_stores(Path(name)) as stores:
            for kind, store in stores.items():
                rows.append(measure_range(kind, store, snapshots, arguments.days))
                print(json.dumps(rows[-1]), flush=True)
    if arguments.json:
        arguments.json.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
