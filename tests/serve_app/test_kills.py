"""kill -9 under load: each kind of replica, then all processes. No snapshot is lost or counted twice."""

import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from lab.simulator.mesh.topology import MeshSpec
from model.checkpoint import SHIPPED
from model.snapshot import MeshSnapshot
from serve_app.api.client import Client
from serve_app.api.codec import encode_snapshot
from serve_app.settings import Settings
from tests.serve_app.running import Service, assert_same, expected, kill_all, record_simulation, start_service
from tests.timing import PATIENCE_SECONDS

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]

SEEDS = (3, 4, 5)
WARM_UP = 10
DEADLINE_SECONDS = PATIENCE_SECONDS  # longer than a replacement needs to start: the other session may be killed, too
PAUSE_SECONDS = 0.05  # between two snapshots of a mesh: without it, the pipeline computes thousands of verdicts again
READS = 10  # of metrics, so that each of two ingress replicas answers one
KILLED_STARTS = 4  # of each session; Serve's own limit is three
CONTROLLER = "ray::ServeController"


@dataclass(slots=True)
class Sender:
    """A client that sends the snapshots of one mesh in order, each once, and stores the answers."""

    mesh: str
    snapshots: Sequence[MeshSnapshot]
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    is_waiting: bool = False
    run: Future[None] = field(default_factory=Future)

    def start(self, pool: ThreadPoolExecutor, url: str, stop: threading.Event) -> None:
        self.run = pool.submit(self.send, url, stop)

    def send(self, url: str, stop: threading.Event) -> None:
        """Continue from the first snapshot without a verdict, until stopped, refused or cut off.

        A busy machine may answer 429: then it waits as long as the answer says, and sends the snapshot again.
        """
        with httpx.Client(base_url=url, timeout=2 * DEADLINE_SECONDS) as http, suppress(httpx.TransportError):
            while len(self.verdicts) < len(self.snapshots) and not stop.is_set():
                snapshot = self.snapshots[len(self.verdicts)]
                content = encode_snapshot(snapshot)
                self.is_waiting = True
                response = http.post(f"/v1/meshes/{self.mesh}/snapshots", content=content)
                self.is_waiting = False
                if response.status_code == 429:
                    stop.wait(float(response.headers["retry-after"]))
                elif response.status_code != 200:
                    self.refusals.append(f"{len(self.verdicts)}: {response.text}")
                    return
                else:
                    self.verdicts.append(response.json())
                    stop.wait(PAUSE_SECONDS)


@contextmanager
def sending(senders: Sequence[Sender], url: str) -> Iterator[None]:
    """Have each sender push during the block."""
    stop = threading.Event()
    with ThreadPoolExecutor(len(senders)) as pool:
        try:
            for sender in senders:
                sender.start(pool, url, stop)
            yield
        finally:
            stop.set()
        for sender in senders:
            sender.run.result(timeout=2 * DEADLINE_SECONDS)


@contextmanager
def run_service(settings: Settings) -> Iterator[tuple[psutil.Process, Service]]:
    """Run ``tagae serve`` in its own process. No process is left over."""
    chosen = {
        "store.path": settings.store.path,
        "serve.deadline_seconds": settings.serve.deadline_seconds,
        "scorer.device": "cpu",
        "scorer.place": settings.scorer.place,
    }
    command = [word for key, value in chosen.items() for word in ("--set", f"{key}={value}")]
    with (
        start_service("--port", "0", *command) as (process, url),
        httpx.Client(base_url=url, timeout=PATIENCE_SECONDS) as http,
    ):
        yield process, Service(url, settings, http)


def replicas(process: psutil.Process, deployment: str) -> set[int]:
    return processes(process, f"ServeReplica:tagae:{deployment}")


def processes(process: psutil.Process, text: str) -> set[int]:
    """Return the ids of the processes below one whose command lines have a text."""
    found = set()
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if text in " ".join(child.cmdline()):
                found.add(child.pid)
    return found


def kill_together(victims: Iterable[int]) -> None:
    """Kill processes at once: none of them sees another one end."""
    found = list(victims)
    for signal_number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal_number)


def await_that(condition: Callable[[], bool], what: str, seconds: float = 2.5 * PATIENCE_SECONDS) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"not within {seconds} s: {what}"
        time.sleep(0.1)


def await_verdicts(senders: Sequence[Sender], more: int) -> None:
    wanted = [len(s.verdicts) + more for s in senders]
    await_that(
        lambda: (
            any(s.run.done() for s in senders)
            or all(len(s.verdicts) >= w for s, w in zip(senders, wanted, strict=True))
        ),
        f"{more} more verdicts of each mesh",
    )
    for sender in senders:
        if sender.run.done():
            sender.run.result()  # raise the thread's error, if any
            pytest.fail(f"{sender.mesh} was cut off or refused after {len(sender.verdicts)}: {sender.refusals}")


def kill_one(process: psutil.Process, deployment: str, senders: Sequence[Sender], pid: int | None = None) -> None:
    """Kill a replica under load, and wait until it is replaced and each mesh continues."""
    before = replicas(process, deployment)
    assert before, deployment
    with suppress(psutil.NoSuchProcess):  # on a busy machine Serve may have replaced it meanwhile
        psutil.Process(pid or min(before)).kill()
    await_verdicts(senders, 3)
    await_that(
        lambda: len(replicas(process, deployment) - {pid or min(before)}) == len(before), f"{deployment} is replaced"
    )
    await_verdicts(senders, 3)


@contextmanager
def suspend_sessions(process: psutil.Process, senders: Sequence[Sender]) -> Iterator[int]:
    """Suspend all sessions during the block, once each client waits for an answer. Yields the first one's process id.

    A fast session is mostly between two calls; a suspended one is not.
    """
    sessions = [psutil.Process(pid) for pid in sorted(replicas(process, "MeshSession"))]
    for session in sessions:
        session.suspend()
    try:
        counts: list[int] = []

        def is_waiting() -> bool:
            nonlocal counts
            before, counts = counts, [len(sender.verdicts) for sender in senders]
            time.sleep(1.0)  # a call is on its way to its session, which answers none
            return counts == before and all(sender.is_waiting for sender in senders)

        await_that(is_waiting, "each client waits for an answer")
        yield sessions[0].pid
    finally:
        for session in sessions:
            with suppress(psutil.NoSuchProcess):
                session.resume()


def kill_a_suspended_one(process: psutil.Process, senders: Sequence[Sender]) -> bool:
    """Kill a session while each client waits, and wait until each mesh continues. Returns false: no call may have been
    interrupted."""
    with suspend_sessions(process, senders) as first:
        psutil.Process(first).kill()
    await_verdicts(senders, 3)
    return False


def retries(service: Service) -> Counter[str]:
    """Return the number of repeated calls by deployment: of the ingress that counted most. Each counts its own, and any
    of them may answer a read."""
    found: Counter[str] = Counter()
    for _ in range(READS):
        text = service.http.get("/metrics").text
        found |= Counter(
            {name: int(float(n)) for name, n in re.findall(r'tagae_retries_total\{.*callee="(\w+)".*\} (\S+)', text)}
        )
    return found


@pytest.mark.parametrize(
    ("place", "pure"), [("session", []), ("replicas", ["Scorer", "MetaModel", "Ingress"])], ids=["session", "replicas"]
)
def test_kills_neither_lose_nor_repeat_snapshots_and_verdicts_stay_correct(
    tmp_path: Path, place: str, pure: list[str]
) -> None:
    settings = Settings(
        model={"weights": SHIPPED},
        serve={"deadline_seconds": DEADLINE_SECONDS},
        store={"path": tmp_path},
        scorer={"place": place},
    )
    senders = [
        Sender(f"mesh-{s}", record_simulation(MeshSpec(services=30, seed=s), 1500, fault_from=30)) for s in SEEDS
    ]
    with run_service(settings) as (process, service):
        with sending(senders, service.url):
            await_verdicts(senders, WARM_UP + 2)
            for deployment in pure:  # the gate sends requests that an ingress dropped to the other one
                kill_one(process, deployment, senders)
            for owner in sorted(replicas(process, "MeshSession")):  # every mesh loses its session once
                kill_one(process, "MeshSession", senders, owner)
            repeated = retries(service)
            # Each mesh has at most one call in flight, so more would be a second retry of one call.
            assert repeated["Scorer"] <= len(senders)
            assert repeated["MeshSession"] <= 2 * len(senders)
            # A kill between two calls of a replica proves nothing, nor one while the router still waits for it.
            await_that(
                lambda: bool(retries(service).total()) or kill_a_suspended_one(process, senders),
                "a kill interrupts a call",
            )
            if place == "session":  # with replicas the store is the same, and their start takes longer
                kill_all(process)  # during the load
        sequences = {} if place == "session" else counted_snapshots(service)
    before = [len(s.verdicts) for s in senders]
    if place == "session":
        with run_service(settings) as (process, service):
            with sending(senders, service.url):
                await_verdicts(senders, 5)
            sequences = counted_snapshots(service)
    assert sequences == {s.mesh: len(s.verdicts) for s in senders}  # no gap, no snapshot counted twice
    for sender, since in zip(senders, before, strict=True):
        assert "warming_up" not in {v["status"] for v in sender.verdicts[since:]}
        for came, wanted in zip(
            sender.verdicts, expected(service, sender.snapshots[: len(sender.verdicts)]), strict=True
        ):
            assert_same(came, wanted, sender.mesh)


def counted_snapshots(service: Service) -> dict[str, int]:
    return {row["mesh"]: row["sequence"] for row in service.http.get("/v1/meshes").json()}


def test_sessions_that_are_killed_as_they_start_are_started_again(tmp_path: Path) -> None:
    """A new controller has seen no session run. Serve would then give up after three failed starts of each."""
    settings = Settings(
        store={"path": tmp_path},
        scorer={"place": "session"},
    )
    first, second = record_simulation(MeshSpec(services=30, seed=3), 2)
    with (
        run_service(settings) as (process, service),
        Client(service.url, patience_seconds=4 * DEADLINE_SECONDS) as client,
    ):
        client.push("shop", first)
        sessions = replicas(process, "MeshSession")
        kill_together(processes(process, CONTROLLER) | sessions)
        for _ in range(KILLED_STARTS * len(sessions)):
            await_that(lambda: bool(replicas(process, "MeshSession")), "a session starts")
            kill_together(replicas(process, "MeshSession"))
        assert client.push("shop", second).sequence == 2
