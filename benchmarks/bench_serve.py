"""Measures the time from POST to verdict over HTTP and Ray Serve, beside an empty application.

    python -m benchmarks.bench_serve [--snapshots 200] [--threads 1] [--modes default throughput] [--minutes 20]
        [--json FILE]

One client on loopback sends each size as JSON and as Arrow, in both of Serve's modes: ``default`` through its proxy,
and ``throughput`` (``RAY_SERVE_THROUGHPUT_OPTIMIZED=1``: gRPC between replicas, HTTP directly to the ingress). Serve
reads its mode at import, so each mode has its own process.

Correctness first: every push is answered with 200 and the next sequence. The application scores in the sessions, as it
does by default. Each push is followed by a no-op with the same calls and body, so that other load affects both. The
pipeline's time in one process is measured before, on the same snapshots. ``above_noop`` is our whole cost.
``above_noop_and_pipeline`` is the cost of serving without Ray's hops and the pipeline: decoding, packing, the store.
Prints JSON lines. A mode that takes longer than ``--minutes`` is stopped with all its processes; its rows until then
are printed, and the exit status is 1.
"""

import argparse
import json
import os
import platform
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
import numpy as np
import psutil
import ray
import torch
from fastapi import FastAPI, Request
from ray import serve

from benchmarks.rows import Row, command_line, emit
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import load
from model.snapshot import MeshSnapshot
from serve_app.api.codec import encode_snapshot
from serve_app.app import LIGHT_CPUS, start, stop
from serve_app.pipeline import Mesh, advance, options
from serve_app.runtime.local import QUIET
from serve_app.settings import Settings

SIZES = ((60, 3.0), (500, 6.0), (2000, 10.0), (3000, 10.0), (10_000, 10.0))
LARGE, FEWER = 10_000, 5  # from this many services on, a fifth of the snapshots is sent
FORMATS = {"json": "application/json", "arrow": "application/vnd.apache.arrow.stream"}
MODES = ("default", "throughput")
NOOP = "/noop/push"
PORTS = 40  # for ingress replicas in throughput mode, including replacements
PAUSE_SECONDS = 0.2
WARM_UP = 20

noop = FastAPI()


class NoopSession:
    """A session without work."""

    async def answer(self) -> int:
        return 2


@serve.ingress(noop)
class NoopIngress:
    """One route, which reads the body: a round trip to Serve's proxy, which our application needs only for large
    bodies."""

    def __init__(self, session: Any) -> None:
        self._session = session

    @noop.post("/push")
    async def answer(self, request: Request) -> int:
        await request.body()
        return int(await self._session.answer.remote())


def deploy_noop(settings: Settings) -> None:
    """Deploy the no-op with the application's deployments and numbers of replicas."""

    def light(cls: Any, name: str, replicas: int) -> Any:
        actor_options = {"num_cpus": LIGHT_CPUS / 2}
        return serve.deployment(
            cls, name=name, num_replicas=replicas, ray_actor_options=actor_options, max_ongoing_requests=200
        )

    session = light(NoopSession, "MeshSession", settings.serve.session_replicas).bind()
    serve.run(light(NoopIngress, "Ingress", 1).bind(session), name="noop", route_prefix="/noop", logging_config=QUIET)


def milliseconds(do: Callable[[], Any]) -> tuple[float, Any]:
    """Call ``do`` and return its duration in ms and its result."""
    begin = time.perf_counter()
    result = do()
    return 1e3 * (time.perf_counter() - begin), result


def pipeline_times(settings: Settings, snapshots: Sequence[MeshSnapshot]) -> list[float]:
    """Measure the pipeline alone, in this process."""
    checkpoint, mesh = load(), Mesh()
    mesh_options = options(settings)
    durations = []
    for snapshot in snapshots:
        duration, (_, mesh) = milliseconds(partial(advance, checkpoint, mesh, snapshot, mesh_options))
        durations.append(duration)
    return durations[WARM_UP:]


@dataclass(frozen=True, slots=True)
class Fronts:
    """Connections to our application and to the no-op."""

    ours: httpx.Client
    noop: httpx.Client


def measure(fronts: Fronts, settings: Settings, size: tuple[int, float], count: int, wire: str, label: str) -> Row:
    """Return the row for a size and a format."""
    services, calls = size
    count = count // FEWER if services >= LARGE else count
    spec = MeshSpec(services=services, calls_per_service=calls, seed=1)
    snapshots = list(Simulator(spec, snapshots=count + WARM_UP).snapshots())
    bodies = [encode_snapshot(snapshot, FORMATS[wire]) for snapshot in snapshots]
    headers = {"content-type": FORMATS[wire]}
    pipeline = pipeline_times(settings, snapshots)
    pushes, noops, stages = list[float](), list[float](), list[dict[str, str]]()
    for sequence, body in enumerate(bodies, 1):
        path = f"/v1/meshes/bench-{services}-{wire}/snapshots"
        push, response = milliseconds(partial(fronts.ours.post, path, content=body, headers=headers))
        assert response.status_code == 200, response.text
        assert response.json()["sequence"] == sequence, response.text
        pushes.append(push)
        stages.append(dict(re.findall(r"(\w+);dur=([\d.]+)", response.headers["server-timing"])))
        noop_time, answer = milliseconds(partial(fronts.noop.post, NOOP, content=body, headers=headers))
        assert answer.json() == 2, answer.text
        noops.append(noop_time)
    pushes, noops, stages = pushes[WARM_UP:], noops[WARM_UP:], stages[WARM_UP:]
    return {
        "benchmark": "serve",
        "mode": label,
        "format": wire,
        "services": services,
        "calls": snapshots[-1].num_edges,
        "snapshots": count,
        "body_kilobytes": round(len(bodies[-1]) / 1000),
        **summary("pipeline", pipeline),
        **summary("push", pushes),
        **summary("noop", noops),
        **compare_with_noops(pushes, noops, pipeline),
        **{
            f"stage_{name}_p50_ms": round(float(np.median([float(row[name]) for row in stages])), 2)
            for name in stages[-1]
        },
    }


def summary(name: str, milliseconds: Sequence[float]) -> dict[str, float]:
    return {f"{name}_p{p}_ms": round(float(np.percentile(milliseconds, p)), 2) for p in (50, 99)}


def compare_with_noops(pushes: Sequence[float], noops: Sequence[float], pipeline: Sequence[float]) -> dict[str, float]:
    """Return the median differences between pushes and their no-ops, which other load affects alike."""
    difference = np.subtract(pushes, noops)
    return {
        "above_noop_p50_ms": round(float(np.median(difference)), 2),
        "above_noop_and_pipeline_p50_ms": round(float(np.median(difference) - np.median(pipeline)), 2),
    }


@contextmanager
def connections(mode: str, url: str) -> Iterator[Fronts]:
    """Connect to the proxy or, in throughput mode, directly to the ingress replicas."""
    ours, noop = url, url
    if mode == "throughput":
        first = int(os.environ["RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT"])
        direct = [f"http://127.0.0.1:{port}" for port in range(first, first + PORTS)]
        ours, noop = wait_for(direct, "GET", "/healthz"), wait_for(direct, "POST", NOOP)
    with httpx.Client(base_url=ours, timeout=60) as to_ours, httpx.Client(base_url=noop, timeout=60) as to_noop:
        yield Fronts(to_ours, to_noop)


def wait_for(urls: Sequence[str], method: str, path: str) -> str:
    """Return the first URL that answers with 200. Replicas listen a little after Serve calls them ready."""
    while True:
        for url in urls:
            if status(url, method, path) == 200:
                return url
        time.sleep(PAUSE_SECONDS)


def status(url: str, method: str, path: str) -> int:
    """Return the status of a request, or 0 if nothing answers."""
    try:
        return httpx.request(method, url + path, timeout=10).status_code
    except httpx.TransportError:
        return 0


def run_mode(mode: str, arguments: argparse.Namespace) -> Iterator[Row]:
    """Measure a mode in this process, and yield each row at once."""
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as directory:
        settings = Settings(
            model={"threads": arguments.threads},
            scorer={"device": "cpu", "place": "session"},
            serve={"port": 0, "deadline_seconds": 30.0},
            store={"path": directory},
        )
        url = start(settings)
        try:
            deploy_noop(settings)
            with connections(mode, url) as fronts:
                about = describe(fronts.ours.get("/readyz").json(), arguments.threads)
                for size in SIZES:
                    if size[0] in arguments.sizes:
                        for wire in arguments.formats:
                            row = measure(fronts, settings, size, arguments.snapshots, wire, mode)
                            yield row | about | {"load_after": round(os.getloadavg()[0], 2)}
        finally:
            stop()


def describe(health: dict[str, Any], threads: int) -> Row:
    """Return the machine and the versions, for each row."""
    return {
        "device": health["device"],
        "cores": os.cpu_count(),
        "threads": threads,
        "malloc_tuned": "MALLOC_TOP_PAD_" in os.environ,
        "backend": health["kernels"],
        "torch": torch.__version__,
        "ray": ray.__version__,
        "python": platform.python_version(),
    }


def environment(mode: str) -> dict[str, str]:
    """Return the environment that sets Serve's mode."""
    if mode == "default":
        return dict(os.environ)
    first = free_ports()
    return os.environ | {
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(first),
        "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(first + PORTS),
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "0.1",  # by default 30 s
        "RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH": str(64 * 2**20),  # a large mesh has more than the default of 4 MiB
    }


def free_ports() -> int:
    """Return the first of :data:`PORTS` free ports below the ephemeral range.

    A replica that finds its port in use tries the next one, and runs out of ports if other programs use them, too. The
    search begins at random, so two runs on one machine rarely meet.
    """
    starts = list(range(20_000, 30_000, PORTS))
    random.shuffle(starts)
    for first in starts:
        if all(is_free(port) for port in range(first, first + PORTS)):
            return first
    raise OSError(f"expected {PORTS} free ports in a row from 20000 to 30000, found none")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def run_in_child(command: Sequence[str], mode: str, minutes: float) -> tuple[list[Row], str | None]:
    """Measure a mode in a process of its own, and return its rows and its problem, if any. After the time limit it is
    stopped with all its processes."""
    child = subprocess.Popen(command, env=environment(mode), stdout=subprocess.PIPE, text=True)
    problem = None
    try:
        output, _ = child.communicate(timeout=60 * minutes)
    except subprocess.TimeoutExpired:
        kill_tree(child)
        output, _ = child.communicate()
        problem = (
            f"mode {mode}: expected all rows within {minutes:g} minutes, got those above; all its processes were "
            "stopped. Run it on a quieter machine, with fewer --sizes or --snapshots, or with more --minutes"
        )
    else:
        if child.returncode:
            problem = f"mode {mode}: expected exit status 0, got {child.returncode}; its error is above"
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")], problem


def kill_tree(child: subprocess.Popen[str]) -> None:
    """Kill a process and all its descendants, including Ray's."""
    descendants = psutil.Process(child.pid).children(recursive=True)
    child.kill()
    child.wait()
    for descendant in descendants:
        with suppress(psutil.NoSuchProcess):
            descendant.kill()
    psutil.wait_procs(descendants, timeout=10)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--snapshots", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sizes", type=int, nargs="*", default=[n for n, _ in SIZES], help="numbers of services")
    parser.add_argument("--formats", nargs="*", choices=list(FORMATS), default=list(FORMATS))
    parser.add_argument("--modes", nargs="*", choices=MODES, default=MODES)
    parser.add_argument("--here", action="store_true", help="run one mode in this process")
    parser.add_argument("--minutes", type=float, default=20.0, help="time limit of a mode")
    arguments = parser.parse_args()
    if arguments.here:
        emit(run_mode(arguments.modes[0], arguments), None)
        return
    flags = ["--snapshots", arguments.snapshots, "--threads", arguments.threads, "--sizes", *arguments.sizes]
    flags += ["--formats", *arguments.formats]
    program = [sys.executable, "-m", "benchmarks.bench_serve", *map(str, flags), "--here"]
    results = [run_in_child([*program, "--modes", mode], mode, arguments.minutes) for mode in arguments.modes]
    emit((row for rows, _ in results for row in rows), arguments.json)
    if problems := [problem for _, problem in results if problem]:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
