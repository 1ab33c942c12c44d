"""The default application: the session scores a small mesh, and replicas that start for it one of several parts."""

import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import httpx
import psutil
import pytest

from lab.simulator.mesh.topology import MeshSpec
from tests.page.serving import push_all
from tests.serve_app.running import eventually, record_simulation, start_service
from tests.timing import PATIENCE_SECONDS, TIME_FACTOR

SMALL, LARGE = MeshSpec(services=60, seed=3), MeshSpec(services=3000, seed=3)
WARM, MOST = 12, 92  # snapshots before the replicas must run, and at most until they are ready and compared
PAUSE_SECONDS = 0.5 * TIME_FACTOR
IDLE_SECONDS = 20 * TIME_FACTOR


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[psutil.Process, str]]:
    chosen = {
        "store.path": tmp_path_factory.mktemp("on-demand"),
        "serve.deadline_seconds": PATIENCE_SECONDS,
        "limits.max_ahead_seconds": "inf",
        "scorer.idle_seconds": IDLE_SECONDS,
    }
    arguments = [word for name, value in chosen.items() for word in ("--set", f"{name}={value}")]
    with start_service(*arguments, "--port", "0") as found:
        yield found


def scoring(url: str, mesh: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{url}/v1/meshes/{mesh}", timeout=PATIENCE_SECONDS).raise_for_status().json()
    return found["scoring"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_replicas_run_only_for_a_mesh_of_several_parts(service: tuple[psutil.Process, str]) -> None:
    process, url = service
    push_all(url, "small", record_simulation(SMALL, WARM))
    alone = scoring(url, "small")
    assert (alone["place"], sum(alone["parts"].values())) == ("session", 1)
    assert running(process) == set()

    snapshots = iter(record_simulation(LARGE, MOST))
    for snapshot in islice(snapshots, WARM):
        verdict = push_all(url, "large", [snapshot])
        assert verdict["missing_parts"] == [], "no snapshot waits for replicas that start"
    assert eventually(lambda: running(process) == {"Scorer", "MetaModel"}), "they start"
    while (found := scoring(url, "large"))["place"] == "session" or len(found["parts"]) < 2:  # until both are ready
        time.sleep(PAUSE_SECONDS)
        push_all(url, "large", [next(snapshots)])

    for snapshot in islice(snapshots, WARM):
        push_all(url, "large", [snapshot])
        divided = scoring(url, "large")
        assert sorted(divided["parts"].values()) == [1, 1], "each scorer has one group"
        assert divided["missing_parts"] == 0

    push_all(url, "small", record_simulation(SMALL, WARM + 1)[-1:])
    assert scoring(url, "small")["place"] == "session"

    assert any(eventually(lambda: running(process) == set()) for _ in range(3)), "unused replicas end"
    assert process.is_running(), "replicas that end on purpose are no failure"
    assert push_all(url, "large", [next(snapshots)])["missing_parts"] == []
    assert scoring(url, "large")["place"] == "session", "until they run again"


def title_of(process: psutil.Process) -> str:
    """Return the title of a process; empty if it has ended."""
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def running(service: psutil.Process) -> set[str]:
    """Return which of the scorers and the meta-model run."""
    titles = [title_of(child) for child in service.children(recursive=True)]
    return {name for name in ("Scorer", "MetaModel") if any(f"ServeReplica:tagae:{name}" in title for title in titles)}
