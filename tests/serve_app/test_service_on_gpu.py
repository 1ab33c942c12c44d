"""A whole application with scorers on a GPU: several meshes and weights, kills, and a GPU that is full."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest
import torch

from lab.simulator.mesh.topology import MeshSpec
from model.checkpoint import SHIPPED
from model.snapshot import MeshSnapshot
from serve_app.settings import ModelSettings, Settings
from tests.serve_app.running import Service, eventually, expected, push, record_simulation, start_service
from tests.timing import PATIENCE_SECONDS

DEVICE = "cuda"
SMALL, CUT = MeshSpec(services=20, calls_per_service=3.0, seed=4), MeshSpec(services=120, namespaces=4, seed=3)
REPLICAS = 2  # on one GPU

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


@pytest.fixture(scope="module")
def running(other_weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[psutil.Process, Service]]:
    """The service in its own process. Meshes above 40 services are cut into parts, and ``own`` has other weights."""
    settings = Settings(
        model={"weights": SHIPPED}, partition={"max_services": 40}, store={"path": tmp_path_factory.mktemp("state")}
    )
    chosen = {
        "scorer.device": DEVICE,
        "scorer.place": "replicas",
        "scorer.num_replicas": REPLICAS,
        "scorer.num_gpus": 1 / REPLICAS,
        "meshes.own.weights": other_weights,
        "partition.max_services": 40,
        "store.path": settings.store.path,
        "model.weights": SHIPPED,
    }
    words = [word for key, value in chosen.items() for word in ("--set", f"{key}={value}")]
    with (
        start_service("--port", "0", *words) as (process, url),
        httpx.Client(base_url=url, timeout=PATIENCE_SECONDS) as http,
    ):
        yield process, Service(url, settings, http)


def scorers(process: psutil.Process) -> set[int]:
    found = set()
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "ServeReplica:tagae:Scorer" in " ".join(child.cmdline()):
                found.add(child.pid)
    return found


def push_all(service: Service, mesh: str, snapshots: list[MeshSnapshot], weights: Path) -> None:
    """Push a recording, and compare its verdicts with the pipeline on the CPU."""
    settings = service.settings.model_copy(update={"model": ModelSettings(weights=weights)})
    wanted = expected(Service(service.url, settings, service.http), snapshots)
    for snapshot, verdict in zip(snapshots, wanted, strict=True):
        came = push(service, mesh, snapshot)
        assert came["missing_parts"] == []
        assert (came["status"], came["model"]) == (verdict["status"], verdict["model"])
        assert came["mesh_score"] == pytest.approx(verdict["mesh_score"], rel=1e-3, abs=1e-3)


def test_scorers_share_a_gpu(running: tuple[psutil.Process, Service]) -> None:
    process, service = running
    health = service.http.get("/healthz").json()
    assert health["device"] == DEVICE
    assert health["kernels"] in ("cuda", "reference")
    assert len(scorers(process)) == REPLICAS


@pytest.mark.parametrize(("mesh", "spec"), [("small", SMALL), ("cut", CUT), ("own", CUT)])
def test_verdicts_are_those_of_a_cpu(
    running: tuple[psutil.Process, Service], mesh: str, spec: MeshSpec, other_weights: Path
) -> None:
    _, service = running
    snapshots = record_simulation(spec, 20, fault_from=14)
    push_all(service, mesh, snapshots, other_weights if mesh == "own" else service.weights)


def test_a_scorer_that_is_killed_is_replaced_and_no_snapshot_is_lost(running: tuple[psutil.Process, Service]) -> None:
    process, service = running
    snapshots = record_simulation(CUT, 12)
    before = scorers(process)
    psutil.Process(min(before)).kill()
    push_all(service, "killed", snapshots, service.weights)
    assert eventually(lambda: len(scorers(process) - {min(before)}) == REPLICAS)


def test_verdicts_are_complete_while_others_fill_the_gpu(running: tuple[psutil.Process, Service]) -> None:
    _, service = running
    snapshots = record_simulation(MeshSpec(services=2000, calls_per_service=10.0, seed=5), 6)
    for snapshot in snapshots[:2]:
        assert push(service, "large", snapshot)["missing_parts"] == []
    taken = []
    with suppress(torch.OutOfMemoryError):
        while True:
            taken.append(torch.empty(64 * 2**20, dtype=torch.uint8, device=DEVICE))
    for snapshot in snapshots[2:4]:
        assert push(service, "large", snapshot)["missing_parts"] == []
    taken.clear()
    torch.cuda.empty_cache()
    for snapshot in snapshots[4:]:
        assert push(service, "large", snapshot)["missing_parts"] == []
