"""Measures the time until a service is ready, and its memory at rest, beside an empty Ray Serve application.

    python -m benchmarks.bench_start [--rounds 3] [--against CHECKOUT] [--json FILE]

In each round the contenders start in turn: ``tagae serve``, another checkout's if one is named, and Ray Serve with a
deployment that does nothing. Ready: it answers over HTTP. Time depends on other load on the machine, so compare the
ratio, or the CPU time of all processes until then. The service then gets snapshots from a mesh with 60 services, and
rests. Its memory is the proportional set size (PSS): pages that n processes share count 1/n for each.
Prints JSON lines: each start, then the processes at rest with their median PSS and private memory (USS), bytes.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median

import httpx
import psutil

from benchmarks.rows import Row, command_line, emit
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from serve_app.api.client import Client

ROOT = Path(__file__).resolve().parents[1]
OURS, AGAINST, BARE = "`tagae serve`", "`tagae serve` of the other checkout", "empty application"
SERVICES, SNAPSHOTS = 60, 12
REST_SECONDS = 20.0
START_SECONDS, STOP_SECONDS, PROBE_SECONDS = 600.0, 120.0, 0.1
TAGAE = "from serve_app.cli import main; main()"
EMPTY = """
import sys, time, ray
from ray import serve

@serve.deployment
class Empty:
    async def __call__(self, request):
        return "ready"

ray.init(include_dashboard=False, logging_level="error", log_to_driver=False)
serve.start(http_options={"port": int(sys.argv[1])})
serve.run(Empty.bind())
time.sleep(3600)
"""


@contextmanager
def run(contender: str, checkout: Path, port: int, folder: str) -> Iterator[psutil.Process]:
    """Run a contender during the block, and wait until all its processes have ended."""
    code, arguments = (EMPTY, [str(port)]) if contender == BARE else (TAGAE, ["serve", "--port", str(port)])
    environment = {**os.environ, "PYTHONPATH": str(checkout), "TAGAE_STORE__PATH": folder}
    command = [sys.executable, "-c", code, *arguments]
    with subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.DEVNULL) as program:
        process = psutil.Process(program.pid)
        try:
            yield process
        finally:
            processes = [process, *process.children(recursive=True)]
            program.send_signal(signal.SIGINT)
            _, alive = psutil.wait_procs(processes, STOP_SECONDS)
            for survivor in alive:
                with suppress(psutil.NoSuchProcess):
                    survivor.kill()


def wait_until_ready(url: str, process: psutil.Process) -> None:
    """Wait for the first successful answer."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.is_running():
        with suppress(httpx.TransportError):
            if httpx.get(url, timeout=5.0).is_success:
                return
        time.sleep(PROBE_SECONDS)
    raise RuntimeError(f"expected an answer of {url} within {START_SECONDS:.0f} s, got none; look at its output")


def cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU time of a process and its descendants, including ended ones."""
    total = 0.0
    for member in [process, *process.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            times = member.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def memory(process: psutil.Process) -> dict[str, list[tuple[int, int]]]:
    """Return each process's PSS and USS, by role."""
    sizes_by_role = defaultdict(list)
    for member in [process, *process.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            info = member.memory_full_info()
            sizes_by_role[_role(member, process)].append((info.pss, info.uss))
    return sizes_by_role


def measure(rounds: int, against: Path | None) -> Iterator[Row]:
    """Yield a row for each start, then one for each role at rest."""
    contenders = {OURS: ROOT, **({AGAINST: against} if against else {}), BARE: ROOT}
    sizes: dict[str, list[dict[str, list[tuple[int, int]]]]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, checkout in contenders.items():
            with tempfile.TemporaryDirectory() as folder:
                port = free_port()
                began = time.monotonic()
                with run(name, checkout, port, folder) as process:
                    url = f"http://127.0.0.1:{port}"
                    wait_until_ready(url if name == BARE else f"{url}/readyz", process)
                    seconds, cpu = time.monotonic() - began, cpu_seconds(process)
                    if name != BARE:
                        _push(url)
                    time.sleep(REST_SECONDS)
                    sizes[name].append(memory(process))
                total = sum(pss for pairs in sizes[name][-1].values() for pss, _ in pairs)
            yield {"contender": name, "seconds": round(seconds, 2), "cpu": round(cpu, 2), "pss": total}
    for name, rounds_of_sizes in sizes.items():
        for role in sorted({role for by_role in rounds_of_sizes for role in by_role}):
            pairs = [pair for by_role in rounds_of_sizes for pair in by_role.get(role, [])]
            yield {
                "contender": name,
                "role": role,
                "processes": round(median(len(by_role.get(role, [])) for by_role in rounds_of_sizes)),
                "pss": round(median(pss for pss, _ in pairs)),
                "uss": round(median(uss for _, uss in pairs)),
            }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _push(url: str) -> None:
    simulator = Simulator(MeshSpec(services=SERVICES, seed=1), snapshots=SNAPSHOTS)
    with Client(url, timeout_seconds=START_SECONDS, patience_seconds=START_SECONDS) as client:
        for snapshot in simulator.snapshots():
            client.push("start", snapshot)


def _role(process: psutil.Process, parent: psutil.Process) -> str:
    """Return a process's role, such as ``MeshSession`` or ``raylet``."""
    if process == parent:
        return "keeper"
    if process.ppid() == parent.pid and "serve_app.cli" in " ".join(process.cmdline()):
        return "command"
    command = " ".join(process.cmdline())
    if "fork_server" in command:
        return "fork server"
    words = command.split()
    return words[0].replace("/", ":").split(":")[-1].split(".")[0] if words else process.name()


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", type=Path, help="another checkout of this repository, with its kernels")
    arguments = parser.parse_args()
    about = {"benchmark": "start", "cores": os.cpu_count(), "services": SERVICES}
    emit((about | row for row in measure(arguments.rounds, arguments.against)), arguments.json)


if __name__ == "__main__":
    main()
