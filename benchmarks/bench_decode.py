"""Time from the bytes of a body to a validated snapshot, by format, compared with the pipeline.

    python benchmarks/bench_decode.py [--sizes 60x180 500x3000 2000x20000] [--repeat 41] [--json FILE]

One JSON line per size. Each format of ``serve_app.api.codec`` gives a validated ``MeshSnapshot``. ``json_typed`` is
``json`` without compiled code, ``packed`` the format of stores and of calls between processes. ``pipeline`` scores the
snapshot, after enough others of the same mesh. All formats must give the same snapshot before the measurement starts.
Calls alternate in random order, so other load on the machine affects all of them. Times are medians in milliseconds on
one thread, with the garbage collector on.
"""

import argparse
import gc
import json
import os
import platform
import random
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import torch

from model.checkpoint import load
from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot
from serve_app.api.codec import (
    ARROW,
    JSON,
    decode_snapshot,
    encode_snapshot,
    json_body,
    pack_snapshot,
    unpack_snapshot,
)
from serve_app.api.codec.limits import Limits
from serve_app.pipeline import Mesh, Options, advance

SIZES = ((60, 180), (500, 3000), (2000, 20_000))
IN_RATIO = ("json", "json_typed", "arrow")  # compared with the pipeline
WARM_UP = 20  # snapshots of the pipeline, before it scores at full cost


def mesh(services: int, calls: int) -> MeshSnapshot:
    """Generate a snapshot with names as in a cluster, unordered calls, and one metric in ten not observed."""
    rng = np.random.default_rng(services)
    pairs = rng.choice(services * services, calls, replace=False)

    def random_metrics(rows: int, columns: int) -> np.ndarray:
        values = rng.random((rows, columns), np.float32)
        values[:, 1:][rng.random((rows, columns - 1)) < 0.1] = np.nan
        return values

    return MeshSnapshot.create(
        node_ids=[f"team-{i % 23}/service-{i:05}" for i in range(services)],
        edge_index=np.stack([pairs // services, pairs % services]),
        node_features=random_metrics(services, len(NODE_METRICS)),
        edge_features=random_metrics(calls, len(EDGE_METRICS)),
        observed_at=datetime(2026, 3, 1, 3, 12, tzinfo=UTC),
    )


def bodies(snapshot: MeshSnapshot) -> dict[str, bytes]:
    """Encode the snapshot in every format."""
    encoded = {name: encode_snapshot(snapshot, media_type) for name, media_type in (("json", JSON), ("arrow", ARROW))}
    return encoded | {"packed": pack_snapshot(snapshot)}


def contenders(snapshot: MeshSnapshot, body: dict[str, bytes]) -> dict[str, Callable[[], object]]:
    """Return what is measured, after a check that all decoders give this snapshot."""
    decoders: dict[str, Callable[[], MeshSnapshot]] = {
        "json": lambda: decode_snapshot(body["json"], JSON),
        "json_typed": lambda: json_body.decode_by_type(body["json"], Limits()),
        "arrow": lambda: decode_snapshot(body["arrow"], ARROW),
        "packed": lambda: unpack_snapshot(body["packed"]),
    }
    for name, decode in decoders.items():
        found = decode()
        assert (found.digest, found.observed_at) == (snapshot.digest, snapshot.observed_at), name
    return {**decoders, "pipeline": pipeline(snapshot)}


def pipeline(snapshot: MeshSnapshot) -> Callable[[], object]:
    """Return a function that scores the next snapshot of this mesh, whose numbers vary from one to the next."""
    checkpoint, mesh, rng = load(), Mesh(), np.random.default_rng(0)
    nodes, edges = (
        np.where(observed, values, np.float32(np.nan))
        for values, observed in (
            (snapshot.node_features, snapshot.node_observed),
            (snapshot.edge_features, snapshot.edge_observed),
        )
    )
    at = snapshot.observed_at

    def score() -> object:
        nonlocal mesh, at
        at += timedelta(seconds=15)
        factor = np.float32(rng.uniform(0.9, 1.0))
        verdict, mesh = advance(checkpoint, mesh, snapshot.with_values(at, factor * nodes, factor * edges), Options())
        return verdict

    for _ in range(WARM_UP):
        score()
    return score


def times(services: int, calls: int, repeat: int) -> dict[str, object]:
    """Return one row: median milliseconds of each contender, and the size of each body in bytes."""
    snapshot = mesh(services, calls)
    body = bodies(snapshot)
    timed = contenders(snapshot, body)
    taken: dict[str, list[float]] = {name: [] for name in timed}
    order, rng = list(timed), random.Random(0)
    for _ in range(repeat):
        rng.shuffle(order)  # the first one after the collection finds the caches cold
        for name in order:
            start = time.perf_counter()
            result = timed[name]()
            taken[name].append(time.perf_counter() - start)
            del result
        gc.collect()
    row: dict[str, object] = {"benchmark": "decode", "services": services, "calls": calls, "repeat": repeat}
    row |= {f"{name}_ms": round(1e3 * statistics.median(values), 3) for name, values in taken.items()}
    pipeline_seconds = statistics.median(taken["pipeline"])
    row |= {f"{name}_of_pipeline": round(statistics.median(taken[name]) / pipeline_seconds, 3) for name in IN_RATIO}
    return row | {f"{name}_bytes": len(content) for name, content in body.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=[f"{n}x{e}" for n, e in SIZES])
    parser.add_argument("--repeat", type=int, default=41)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    pa.set_cpu_count(1)
    torch.set_num_threads(1)
    about = {
        "cores": os.cpu_count(),
        "msgspec": msgspec.__version__,
        "pyarrow": pa.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }
    sizes = [tuple(map(int, size.split("x"))) for size in arguments.sizes]
    lines = [json.dumps(times(n, e, arguments.repeat) | about) for n, e in sizes]
    print("\n".join(lines))
    if arguments.json:
        arguments.json.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
