"""Pushes of large meshes that are scored on replicas, compared with pushes that are scored in the session.

    python -m benchmarks.bench_places [--services 3000 10000 100000] [--json FILE]

Two services run side by side, one for each ``scorer.place``. One client on loopback pushes each snapshot as JSON to
one, then to the other, so that other load affects both. Which one is first alternates. Correctness first: every push is
answered with 200, the next sequence, no missing part, and equal statuses in both places. Prints JSON lines, one for
each size and place. With 100,000 services it takes a quarter of an hour and 16 GB.
"""

import argparse
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from serve_app.api.codec import encode_snapshot
from tests.serve_app.running import start_service

PLACES = ("session", "replicas")
SIZES = {3000: (30_000, 60), 10_000: (100_000, 20), 100_000: (1_000_000, 3)}  # calls and snapshots by services
JSON = "application/json"
WARM_UP = 12  # pushes that are not measured, with the first verdict among them
CLIENT_SECONDS = 600.0
BODY_BYTES = 256 * 2**20
DEADLINE_SECONDS = 240.0


@contextmanager
def run_services(services: int, calls: int) -> Iterator[dict[str, httpx.Client]]:
    """Run a service for each place, and yield clients of them."""
    with ExitStack() as stack:
        clients = {}
        for place in PLACES:
            chosen = {
                "scorer.place": place,
                "store.path": stack.enter_context(tempfile.TemporaryDirectory()),
                "serve.deadline_seconds": DEADLINE_SECONDS,
                "serve.body_seconds": DEADLINE_SECONDS,
                "limits.max_body_bytes": BODY_BYTES,
                "limits.max_services": 2 * services,
                "limits.max_calls": 2 * calls,
            }
            arguments = [word for name, value in chosen.items() for word in ("--set", f"{name}={value}")]
            _, url = stack.enter_context(start_service(*arguments, "--port", "0"))
            clients[place] = stack.enter_context(httpx.Client(base_url=url, timeout=CLIENT_SECONDS))
        yield clients


def push(client: httpx.Client, body: bytes, sequence: int) -> tuple[dict[str, float], str]:
    """Push a snapshot. Returns the times of the whole push and of its stages, ms, and the status of the verdict."""
    started = time.perf_counter()
    response = client.post("/v1/meshes/places/snapshots", content=body, headers={"content-type": JSON})
    times = {"push": 1e3 * (time.perf_counter() - started)}
    assert response.status_code == 200, response.text
    verdict = response.json()
    assert (verdict["sequence"], verdict["missing_parts"]) == (sequence, []), response.text
    stages = re.findall(r"(\w+);dur=([\d.]+)", response.headers["server-timing"])
    return times | {name: float(ms) for name, ms in stages}, verdict["status"]


def measure(services: int, calls: int, snapshots: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each place."""
    spec = MeshSpec(services=services, calls_per_service=calls / services, seed=1)
    times: dict[str, list[dict[str, float]]] = {place: [] for place in PLACES}
    with run_services(services, calls) as clients:
        for sequence, snapshot in enumerate(Simulator(spec, snapshots=WARM_UP + snapshots).snapshots(), 1):
            body, statuses = encode_snapshot(snapshot, JSON), set()
            for place in PLACES[:: 1 if sequence % 2 else -1]:
                taken, status = push(clients[place], body, sequence)
                times[place].append(taken)
                statuses.add(status)
            assert len(statuses) == 1, f"snapshot {sequence}: {statuses}"
    for place in PLACES:
        yield {
            "benchmark": "places",
            "services": services,
            "calls": snapshot.num_edges,
            "snapshots": snapshots,
            "body_megabytes": round(len(body) / 1e6, 1),
            "place": place,
            **summarize(times[place][WARM_UP:]),
            "cores": os.cpu_count(),
            "torch": torch.__version__,
            "load_after": round(os.getloadavg()[0], 2),
        }


def summarize(taken: Sequence[dict[str, float]]) -> dict[str, float]:
    """Medians of the push and of its stages, ms."""
    return {f"{name}_p50_ms": round(float(np.median([row[name] for row in taken])), 2) for name in taken[-1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", type=int, nargs="*", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    lines = []
    for services in arguments.services:
        for row in measure(services, *SIZES[services]):
            lines.append(json.dumps(row))
            print(lines[-1], flush=True)
    if arguments.json:
        arguments.json.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
