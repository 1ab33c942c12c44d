"""A running service, and helpers to talk to it."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from lab.simulator.events.faults import Fault, FaultKind, candidates
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import load
from model.snapshot import MeshSnapshot
from serve_app.api.codec import encode_verdict, snapshot_document
from serve_app.pipeline import Mesh, advance, options
from serve_app.settings import Settings
from serve_app.stores.opening import open_store
from tests.serve_app.collect.prometheus.standin import Request
from tests.timing import PATIENCE_SECONDS

TAGAE = (sys.executable, "-c", "from serve_app.cli import main; main()")


@dataclass(frozen=True, slots=True)
class Service:
    """A running service."""

    url: str
    settings: Settings
    http: httpx.Client

    @property
    def weights(self) -> Path:
        assert self.settings.model.weights is not None
        return self.settings.model.weights


@dataclass
class Alertmanager:
    """An Alertmanager that stores the alerts that it receives."""

    alerts: list[dict[str, Any]] = field(default_factory=list)
    came: threading.Condition = field(default_factory=threading.Condition)

    def __call__(self, request: Request) -> None:
        with self.came:
            self.alerts += json.loads(request.body)
            self.came.notify_all()
        request.send(200, b"{}")

    def until(self, wanted: Any, within: float = 4 * PATIENCE_SECONDS) -> dict[str, Any]:
        """Wait for the first alert that matches, and return it."""

        def found() -> dict[str, Any] | None:
            return next((alert for alert in self.alerts if wanted(alert)), None)

        with self.came:
            assert self.came.wait_for(lambda: found() is not None, within), self.alerts[-3:]
            alert = found()
        assert alert is not None
        return alert


def eventually(true: Callable[[], Any]) -> bool:
    """Wait for a condition, and return whether it became true."""
    ends = time.monotonic() + PATIENCE_SECONDS
    while not (found := true()) and time.monotonic() < ends:
        time.sleep(0.05)
    return bool(found)


def record_simulation(spec: MeshSpec, snapshots: int, *, fault_from: int | None = None) -> list[MeshSnapshot]:
    """Return a recording of a simulated mesh, in which a busy service fails from one snapshot on."""
    simulator = Simulator(spec, snapshots=snapshots)
    if fault_from is not None:
        simulator.schedule(Fault("error_burst", failing(spec), fault_from, snapshots, 0.9))
    return list(simulator.snapshots())


def failing(spec: MeshSpec, kind: FaultKind = "error_burst") -> str:
    """Return the service that has the fault in a recording of this mesh."""
    simulator = Simulator(spec)
    able = candidates(simulator.mesh, kind)
    return simulator.node_ids[able[len(able) // 2]]


def push(service: Service, mesh: str, snapshot: MeshSnapshot) -> dict[str, Any]:
    """Push a snapshot that must be accepted, and return its verdict."""
    response = service.http.post(f"/v1/meshes/{mesh}/snapshots", content=json.dumps(snapshot_document(snapshot)))
    assert response.status_code == 200, response.text
    verdict: dict[str, Any] = response.json()
    return verdict


def list_meshes(service: Service) -> list[dict[str, Any]]:
    """Return the list of meshes without the ages of their verdicts, which always change."""
    rows: list[dict[str, Any]] = service.http.get("/v1/meshes").json()
    return [{name: value for name, value in row.items() if name != "age_seconds"} for row in rows]


def expected(service: Service, snapshots: Sequence[MeshSnapshot], warmup: int = 0) -> list[dict[str, Any]]:
    """Return the pipeline's verdicts of a recording, with its first ``warmup`` snapshots as a baseline."""
    checkpoint, chosen = load(service.weights), options(service.settings)
    mesh, verdicts = Mesh(), []
    for i, snapshot in enumerate(snapshots):
        verdict, mesh = advance(checkpoint, mesh, snapshot, chosen, counted=i >= warmup)
        verdicts.append(json.loads(encode_verdict(verdict).model_dump_json()))
    return verdicts[warmup:]


def assert_same(came: Any, wanted: Any, where: str = "verdict") -> None:
    """Check that two values are equal, with numbers within 1e-5."""
    if isinstance(wanted, dict):
        assert came.keys() == wanted.keys(), where
        for key in wanted:
            assert_same(came[key], wanted[key], f"{where}.{key}")
    elif isinstance(wanted, list):
        assert len(came) == len(wanted), where
        for i, (a, b) in enumerate(zip(came, wanted, strict=True)):
            assert_same(a, b, f"{where}[{i}]")
    elif isinstance(wanted, float):
        assert came == pytest.approx(wanted, rel=1e-5, abs=1e-5), where
    else:
        assert came == wanted, where


def read_store(service: Service) -> dict[str, Any]:
    """Return all stored data of each mesh except its state: revision, which every change of the state raises, sequence,
    verdict, and the snapshots of its window. The service may store the same state in another form at any time."""
    with closing(open_store(service.settings.store)) as store:
        names = [summary.mesh for summary in store.meshes()]
        return {name: (store.load(name), list(store.window(name))) for name in names}


def problem(response: httpx.Response, status: int, code: str, pointer: str | None = None) -> dict[str, Any]:
    """Check the RFC 9457 body of a refusal, and return it."""
    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json"), (
        response.text
    )
    body: dict[str, Any] = response.json()
    assert body["type"] == f"urn:tagae:problem:{code}", body
    assert (body["status"], body.get("pointer")) == (status, pointer), body
    assert body["title"]
    assert body["detail"]
    return body


def check_malformed_documents(service: Service, path: str) -> None:
    """Check that a route refuses every body that is not one JSON object."""
    for body in (b"", b"{", b"\xff\xfe"):
        problem(service.http.post(path, content=body), 400, "malformed-document")
    problem(service.http.post(path, content=b"[]"), 422, "invalid-document", "")
    problem(service.http.post(path, content=b"x" * 2**24), 413, "document-too-large")
    headers = {"content-type": "application/vnd.apache.arrow.stream"}
    problem(service.http.post(path, content=b"\xff", headers=headers), 415, "unsupported-media-type")


@contextmanager
def start_service(*arguments: str) -> Iterator[tuple[psutil.Process, str]]:
    """Run ``tagae serve`` in its own process, and yield its URL. No process is left over."""
    with start_command(["serve", *arguments], r"Page: (http://\S+)/\s") as (process, found):
        yield process, found[1]


@contextmanager
def start_command(arguments: Sequence[str], pattern: str) -> Iterator[tuple[psutil.Process, re.Match[str]]]:
    """Run ``tagae`` in its own process, and wait for this output. No process is left over."""
    with start_process([*TAGAE, *arguments], pattern, os.environ) as running:
        yield running


@contextmanager
def start_process(
    command: Sequence[str], pattern: str, environment: Mapping[str, str]
) -> Iterator[tuple[psutil.Process, re.Match[str]]]:
    """Run a command until its output has this, perhaps over several lines. No process is left over."""
    environment = {**environment, "COLUMNS": "500"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment) as it:
        assert it.stdout is not None
        process, output = psutil.Process(it.pid), ""
        try:
            for line in it.stdout:
                output += line
                if found := re.search(pattern, output):
                    break
            else:
                pytest.fail(output)
            yield process, found
        except Exception:
            os.set_blocking(it.stdout.fileno(), False)  # it may go on
            with suppress(BlockingIOError):
                output += os.read(it.stdout.fileno(), 2**16).decode(errors="replace")
            print(output)
            raise
        finally:
            kill_all(process)


def kill_all(process: psutil.Process) -> None:
    """Kill a process and all its children at once, with kill -9."""
    if not process.is_running():
        return
    everyone = [process, *process.children(recursive=True)]  # first what could start the others again
    for one in everyone:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(everyone[1:], timeout=PATIENCE_SECONDS)
