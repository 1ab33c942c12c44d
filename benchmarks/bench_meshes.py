"""Hundreds of meshes at one service: latency, processor time, memory, and how often a mesh had to be read again.

    python -m benchmarks.bench_meshes [--meshes 500] [--services 60] [--interval 15] [--formats json arrow]
        [--budgets 512] [--settle 30] [--seconds 120] [--json FILE]

Each mesh pushes one snapshot per interval; the pushes of all meshes are spread evenly over it, whether or not earlier
ones have been answered. A latency counts from the time at which the push was due. Before the service starts, its store
gets all meshes with full windows, so that the first interval loads every mesh. Measurement begins after ``--settle``
seconds. ``--budgets`` are MiB of ``serve.session_memory_bytes``, for each of the two sessions.

Processor time is given as a share of all cores. ``others`` is what neither the service nor this client used: on a
machine that others use too, compare latencies with the empty request, which passes Serve's proxy only. A push that gets
429 is sent again after the time that the answer names.
"""

import argparse
import asyncio
import json
import os
import re
import socket
import tempfile
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from benchmarks.bench_overload import FORMATS, Connection
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import load
from model.mesh_weights import Weights
from serve_app.api.codec import encode_snapshot, pack_snapshot
from serve_app.app import start, stop
from serve_app.mesh_steps import MeshSteps, NextSnapshot
from serve_app.pipeline import LocalRunner, Options, replayer, run_now
from serve_app.settings import Settings
from serve_app.stores.base import WholeMesh
from serve_app.stores.cache import MeshCache
from serve_app.stores.repository import MeshRepository
from serve_app.stores.sqlite import LocalStore

KINDS = 8  # different meshes; the others have the same services under other names
WINDOW = 120
STAGGER = 5  # snapshots by which a kind is older than the one before it, so that full states are spread
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Kind:
    """A mesh that many meshes are copies of.

    Attributes:
        whole: its state in a store.
        bodies: its further snapshots, encoded, by format.
    """

    whole: WholeMesh
    bodies: dict[str, list[bytes]]


@dataclass(slots=True)
class Figures:
    """Answers in the measured time; durations in s."""

    latencies: list[float] = field(default_factory=list)
    hops: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)


def prepare_kinds(services: int, pushes: int, formats: Sequence[str], folder: Path) -> list[Kind]:
    """Score the window of each kind, and encode the snapshots after it."""
    torch.set_num_threads(1)
    checkpoint = load()
    kinds = []
    with closing(LocalStore(folder)) as store:
        repository = MeshRepository(store, MeshCache(0), replayer(Weights(checkpoint).of, Settings()))
        steps = MeshSteps(repository, keep_details=True)
        runner = LocalRunner(checkpoint)
        for seed in range(KINDS):
            spec, before = MeshSpec(services=services, calls_per_service=3.0, seed=seed), WINDOW + STAGGER * seed
            snapshots = list(Simulator(spec, snapshots=before + pushes).snapshots())
            for snapshot in snapshots[:before]:
                run_now(steps.push(NextSnapshot(f"kind-{seed}", pack_snapshot(snapshot)), Options(), runner))
            whole = store.read_whole(f"kind-{seed}")
            assert whole is not None
            bodies = {form: [encode_snapshot(one, FORMATS[form]) for one in snapshots[before:]] for form in formats}
            kinds.append(Kind(whole, bodies))
    return kinds


def fill(kinds: Sequence[Kind], meshes: int, folder: Path) -> None:
    """Store all meshes as copies of the kinds."""
    with closing(LocalStore(folder)) as store:
        for number in range(meshes):
            store.write_whole(_name(number), kinds[number % KINDS].whole)


async def push_all(
    url: str, kinds: Sequence[Kind], meshes: int, form: str, interval: float, times: tuple[float, float]
) -> Figures:
    """Push all meshes until the end of the measurement; ``times``: when it begins and ends, of the monotonic clock."""
    host, port = url.removeprefix("http://").split(":")
    figures, began = Figures(), time.monotonic()
    connections = [Connection(host, int(port)) for _ in range(meshes + 1)]

    async def run(number: int) -> None:
        due = began + interval * number / meshes
        for body in kinds[number % KINDS].bodies[form]:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if due >= times[1]:
                return
            await _push(connections[number], _name(number), form, body, figures if due >= times[0] else Figures(), due)
            due += interval

    await asyncio.gather(_probe(connections[-1], figures, times), *map(run, range(meshes)))
    for connection in connections:
        connection.close()
    return figures


async def _push(connection: Connection, mesh: str, form: str, body: bytes, figures: Figures, due: float) -> None:
    head = f"POST /v1/meshes/{mesh}/snapshots HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {FORMATS[form]}\r\n".encode()
    while True:
        status, wait = await connection.request(head, body)
        figures.statuses[status] += 1
        if status != 429:
            break
        await asyncio.sleep(wait)
    figures.latencies.append(time.monotonic() - due)


async def _probe(connection: Connection, figures: Figures, times: tuple[float, float]) -> None:
    """Send an empty request twice a second, which is answered by Serve's proxy."""
    while (now := time.monotonic()) < times[1]:
        await connection.request(b"GET /-/healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n")
        if times[0] <= now:
            figures.hops.append(time.monotonic() - now)
        await asyncio.sleep(0.5)


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor time so far, s.

    Attributes:
        service: by role of the process.
        client: of this process.
        machine: of all processes of the machine.
        at: of the monotonic clock.
    """

    service: dict[str, float]
    client: float
    machine: float
    at: float


def usage() -> Usage:
    """Processor time until now."""
    service: defaultdict[str, float] = defaultdict(float)
    for process, role in _processes():
        try:
            service[role] += sum(process.cpu_times()[:2])
        except psutil.NoSuchProcess:
            continue
    machine = psutil.cpu_times()
    busy = machine.user + machine.nice + machine.system + getattr(machine, "irq", 0) + getattr(machine, "softirq", 0)
    return Usage(dict(service), sum(psutil.Process().cpu_times()[:2]), busy, time.monotonic())


def shares(before: Usage, after: Usage) -> dict[str, Any]:
    """Shares of all cores between two times."""
    whole = (after.at - before.at) * (os.cpu_count() or 1)
    by_role = {role: (spent - before.service.get(role, 0.0)) / whole for role, spent in after.service.items()}
    service, client = sum(by_role.values()), (after.client - before.client) / whole
    others = max(0.0, (after.machine - before.machine) / whole - service - client)
    return {
        "service_share": round(service, 3),
        "client_share": round(client, 3),
        "others_share": round(others, 3),
        "roles": {role: round(share, 3) for role, share in sorted(by_role.items(), key=lambda one: -one[1])},
    }


def memory() -> dict[str, Any]:
    """Resident memory in MiB: of each session, and of all processes of the service, where shared pages count once."""
    sessions, everything = [], 0
    for process, role in _processes():
        try:
            everything += process.memory_full_info().pss
            if role == "MeshSession":
                sessions.append(round(process.memory_info().rss / MIB))
        except psutil.NoSuchProcess:
            continue
    return {"session_mib": sorted(sessions), "service_mib": round(everything / MIB)}


def _processes() -> Iterator[tuple[psutil.Process, str]]:
    """The processes of the service, with their roles."""
    for process in psutil.Process().children(recursive=True):
        try:
            line = " ".join(process.cmdline()) or process.name()
        except psutil.NoSuchProcess:
            continue
        found = re.search(r"ray::(?:ServeReplica:\w+:)?(\w+)", line)
        yield process, found[1] if found else os.path.basename(line.split()[0])


def scrape(port: int) -> str:
    """Our metrics as Ray exports them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def counters(text: str) -> dict[str, float]:
    """The counters of meshes in memory and of dropped snapshots, summed over all processes."""
    found: defaultdict[str, float] = defaultdict(float)
    for name, labels, value in re.findall(
        r"^ray_tagae_(session_(?:lookups|evictions)_total|snapshots_dropped_total)(\{.*\})? (\S+)$", text, re.M
    ):
        label = re.search(r'(?:outcome|priority)="(\w+)"', labels or "")
        found[f"{name}{'_' + label[1] if label else ''}"] += float(value)
    return dict(found)


def measure(kinds: Sequence[Kind], form: str, budget: int, chosen: argparse.Namespace) -> dict[str, Any]:
    """One line: a new service with all meshes in its store."""
    with tempfile.TemporaryDirectory() as folder:
        fill(kinds, chosen.meshes, Path(folder))
        port = _free_port()
        url = start(
            Settings(
                serve={"port": 0, "metrics_port": port, "session_memory_bytes": budget * MIB},
                store={"path": folder},
                scorer={"device": "cpu"},
            )
        )
        try:
            figures, spent, resident, counted = asyncio.run(_run(url, port, kinds, form, chosen))
        finally:
            stop()
    return {
        "bench": "meshes",
        "meshes": chosen.meshes,
        "services": chosen.services,
        "interval_seconds": chosen.interval,
        "format": form,
        "budget_mib": budget,
        "pushes": len(figures.latencies),
        "p50_seconds": _percentile(figures.latencies, 50),
        "p99_seconds": _percentile(figures.latencies, 99),
        "most_seconds": _percentile(figures.latencies, 100),
        "hop_p50_seconds": _percentile(figures.hops, 50),
        "hop_p99_seconds": _percentile(figures.hops, 99),
        "statuses": {str(status): count for status, count in sorted(figures.statuses.items())},
        "load": round(os.getloadavg()[0], 2),
        **spent,
        **resident,
        **counted,
    }


async def _run(
    url: str, port: int, kinds: Sequence[Kind], form: str, chosen: argparse.Namespace
) -> tuple[Figures, dict[str, Any], dict[str, Any], dict[str, float]]:
    began = time.monotonic() + chosen.settle
    pushing = asyncio.create_task(
        push_all(url, kinds, chosen.meshes, form, chosen.interval, (began, began + chosen.seconds))
    )
    await asyncio.sleep(chosen.settle)
    before, counted_before = usage(), counters(await asyncio.to_thread(scrape, port))
    await asyncio.sleep(chosen.seconds)
    after, resident = usage(), memory()
    figures = await pushing
    await asyncio.sleep(10)  # Ray exports metrics every few seconds
    text = await asyncio.to_thread(scrape, port)
    counted = {name: value - counted_before.get(name, 0.0) for name, value in counters(text).items()}
    held = [float(size) / MIB for size in re.findall(r"^ray_tagae_session_memory_bytes\{.*\} (\S+)$", text, re.M)]
    return figures, shares(before, after), {**resident, "meshes_mib": sorted(map(round, held))}, counted


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--meshes", type=int, default=500)
    parser.add_argument("--services", type=int, default=60)
    parser.add_argument("--interval", type=float, default=15)
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--budgets", type=int, nargs="+", default=[512])
    parser.add_argument("--settle", type=float, default=30)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    pushes = int((chosen.settle + chosen.seconds) / chosen.interval) + 2
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        kinds = prepare_kinds(chosen.services, pushes, chosen.formats, Path(folder))
    for budget, form in product(chosen.budgets, chosen.formats):
        lines.append(measure(kinds, form, budget, chosen))
        print(json.dumps(lines[-1]), flush=True)
    if chosen.json:
        chosen.json.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _name(number: int) -> str:
    return f"m-{number:03d}"


def _percentile(seconds: list[float], q: float) -> float | None:
    return round(float(np.percentile(seconds, q)), 4) if seconds else None


if __name__ == "__main__":
    main()
