"""Random kills of every kind of process under load: errors of callers, length of outages, and kept state.

    python -m benchmarks.bench_recovery [--kills 30] [--seconds 300] [--meshes 5] [--seed 0] [--json FILE]

``tagae serve`` runs under a stand-in for systemd, which restarts it whenever it exits. One client per mesh pushes
steadily. Every few seconds ``kill -9`` ends a random process: proxy, ingress, session, controller, dashboard agent,
raylet or gcs_server, and with ``--set scorer.place=replicas`` a scorer or meta-model, too.

Asserted: no snapshot is lost or counted twice (the service's sequences equal the received verdicts). Reported: errors
of callers, the longest time without a verdict after each kill, and whether the whole service was restarted.
"""

import argparse
import json
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from serve_app.api.client import Client
from serve_app.errors import ServeError

ROLES = {  # text in the command line or title of a process
    "proxy": "ray::ProxyActor",
    "ingress": "ray::ServeReplica:tagae:Ingress",
    "session": "ray::ServeReplica:tagae:MeshSession",
    "scorer": "ray::ServeReplica:tagae:Scorer",
    "meta": "ray::ServeReplica:tagae:MetaModel",
    "controller": "ray::ServeController",
    # Ray does not replace the last three, so the whole service restarts.
    "agent": "ray::DashboardAgent",
    "raylet": "/raylet/raylet ",
    "gcs": "/gcs_server ",
}


@dataclass(slots=True)
class Caller:
    """One client and its mesh."""

    mesh: str
    simulator: Iterator[object]
    verdicts: list[float] = field(default_factory=list)  # times of arrival
    sequences: list[int] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def run(self, url: str, stop: threading.Event, rate: float, patience_seconds: float) -> None:
        """Push one snapshot after the other and retry each until it succeeds."""
        with Client(url, patience_seconds=patience_seconds) as client:
            for snapshot in self.simulator:
                if stop.is_set():
                    return
                while True:
                    try:
                        verdict = client.push(self.mesh, snapshot)  # type: ignore[arg-type]
                        break
                    except ServeError as error:
                        self.errors.append(f"{time.strftime('%X')} {type(error).__name__}: {error.message[:200]}")
                        if stop.is_set():
                            return
                self.verdicts.append(time.monotonic())
                self.sequences.append(verdict.sequence)
                stop.wait(1 / rate)


class Service:
    """``tagae serve``, restarted whenever it exits."""

    def __init__(self, port: int, store: Path, settings: list[str]) -> None:
        self._command = [sys.executable, "-c", "from serve_app.cli import main; main()", "serve", "--port", str(port)]
        self._command += ["--set", f"store.path={store}", *(word for one in settings for word in ("--set", one))]
        self._ending = threading.Event()
        self.starts: list[float] = []
        self.last_words: list[str] = []
        self._start()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    def processes(self, role: str) -> list[psutil.Process]:
        """Return the processes of a role."""
        found = []
        for process in psutil.Process(self._process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if ROLES[role] in " ".join(process.cmdline()) + " ":
                    found.append(process)
        return found

    def end(self) -> float:
        """End the service with SIGTERM and return the duration in s."""
        self._ending.set()
        below = psutil.Process(self._process.pid).children(recursive=True)
        began = time.monotonic()
        self._process.terminate()
        self._process.wait(60)
        took = time.monotonic() - began
        _, alive = psutil.wait_procs(below, timeout=1)
        assert not alive, f"left behind: {[one.name() for one in alive]}"
        return took

    def _start(self) -> None:
        self.starts.append(time.monotonic())
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def _keep(self) -> None:
        while not self._ending.is_set():
            assert self._process.stdout is not None
            for line in self._process.stdout:
                if "ended" in line:
                    self.last_words.append(line.strip())
            self._process.wait()
            if not self._ending.is_set():
                self._start()


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--meshes", type=int, default=5)
    parser.add_argument("--services", type=int, default=30)
    parser.add_argument("--rate", type=float, default=2.0, help="snapshots per second of each mesh")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--roles", nargs="+", choices=list(ROLES), help="default: all that run")
    parser.add_argument("--set", nargs="*", default=[], dest="settings")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url, chance, stop = f"http://127.0.0.1:{port}", random.Random(chosen.seed), threading.Event()
    callers = [
        Caller(f"mesh-{i}", Simulator(MeshSpec(services=chosen.services, seed=i), snapshots=100_000).snapshots())
        for i in range(chosen.meshes)
    ]
    lines: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        service = Service(port, Path(folder), chosen.settings)
        threads = [
            threading.Thread(target=caller.run, args=(url, stop, chosen.rate, 120.0), daemon=True) for caller in callers
        ]
        for thread in threads:
            thread.start()
        _await_verdicts(callers, 5)
        roles = chosen.roles or [role for role in ROLES if service.processes(role)]
        bag: list[str] = []
        for kill in range(chosen.kills):
            bag = bag or chance.sample(roles, len(roles))
            role, starts, errors = bag.pop(), len(service.starts), sum(len(c.errors) for c in callers)
            while not (there := service.processes(role)):
                time.sleep(0.2)
            killed = time.monotonic()
            with suppress(psutil.NoSuchProcess):
                chance.choice(there).kill()
            time.sleep(max(0.0, chosen.seconds / chosen.kills - 0.5))
            _await_verdicts(callers, 2)
            line = {
                "bench": "recovery",
                "kill": kill,
                "role": role,
                "outage_seconds": round(max(_outage(caller, killed) for caller in callers), 2),
                "errors": sum(len(c.errors) for c in callers) - errors,
                "restarted": len(service.starts) > starts,
            }
            print(json.dumps(line), flush=True)
            lines.append(line)
        stop.set()
        for thread in threads:
            thread.join(120)
        with Client(url) as client:
            sequences = {mesh.mesh: mesh.sequence for mesh in client.meshes()}
        stopping = service.end()
    wanted = {caller.mesh: len(caller.sequences) for caller in callers}
    for caller in callers:
        assert caller.sequences == list(range(1, len(caller.sequences) + 1)), f"{caller.mesh}: a gap or a double"
    assert sequences == wanted, f"expected {wanted}, got {sequences}"
    partial = [line["outage_seconds"] for line in lines if not line["restarted"]]
    whole = [line["outage_seconds"] for line in lines if line["restarted"]]
    summary = {
        "bench": "recovery-summary",
        "kills": len(lines),
        "verdicts": sum(wanted.values()),
        "errors": [error for caller in callers for error in caller.errors],
        "longest_outage_seconds": max(partial, default=0.0),
        "longest_restart_seconds": max(whole, default=0.0),
        "stop_seconds": round(stopping, 2),
        "last_words": service.last_words,
    }
    print(json.dumps(summary, indent=1))
    if chosen.json:
        chosen.json.write_text("".join(json.dumps(line) + "\n" for line in [*lines, summary]), encoding="utf-8")


def _await_verdicts(callers: list[Caller], more: int) -> None:
    wanted = [len(caller.verdicts) + more for caller in callers]
    until = time.monotonic() + 180
    while any(len(caller.verdicts) < count for caller, count in zip(callers, wanted, strict=True)):
        assert time.monotonic() < until, f"no verdict for long: {[(len(c.verdicts), c.errors[-1:]) for c in callers]}"
        time.sleep(0.1)


def _outage(caller: Caller, since: float) -> float:
    """Return the longest time without a verdict that ended after ``since``."""
    times = [at for at in caller.verdicts if at >= since - 5]
    return max((later - max(earlier, since) for earlier, later in pairwise(times) if later > since), default=0.0)


if __name__ == "__main__":
    main()
