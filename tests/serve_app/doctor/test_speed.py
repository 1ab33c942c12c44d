"""``tagae doctor --bench``: the meshes of a store are scored again, and the figures are put into words."""

import asyncio
import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from lab.simulator.mesh.topology import MeshSpec
from model.checkpoint import load
from serve_app.api.codec import pack_snapshot
from serve_app.doctor import speed
from serve_app.doctor.speed import Speed, judge
from serve_app.mesh_steps import MeshSteps, NextSnapshot
from serve_app.pipeline import LocalRunner, Options, replayer
from serve_app.settings import Settings
from serve_app.stores.cache import MeshCache
from serve_app.stores.repository import MeshRepository
from tests.serve_app.cli.command import tagae
from tests.serve_app.running import record_simulation
from tests.serve_app.stores.local import local_store

FAST = Speed(60, 180, [1.0] * 100, [5.0] * 100, [0.5] * 100, [1.0] * 100, 15.0)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "LEARNED", 4)
    monkeypatch.setattr(speed, "MEASURED", 6)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store with two meshes."""
    checkpoint, place = load(), tmp_path / "state"
    with closing(local_store(place)) as store:
        steps = MeshSteps(store, MeshRepository(store, MeshCache(2**20), replayer(lambda _: checkpoint, Settings())))
        for mesh, services in (("small", 12), ("large", 30)):
            for snapshot in record_simulation(MeshSpec(services=services, calls_per_service=1.5, seed=3), 5):
                push = NextSnapshot(mesh, pack_snapshot(snapshot))
                asyncio.run(steps.push(push, Options(), LocalRunner(checkpoint)))
    return place


@pytest.mark.usefixtures("few")
def test_the_meshes_of_the_store_are_measured_and_stay_as_they_are(folder: Path) -> None:
    with closing(local_store(folder)) as store:
        before = store.revisions()
    done = tagae("doctor", "--bench", "--json", "--set", f"store.path={folder}")
    assert done.exit_code == 0, done.output
    first, second, load_of_all = json.loads(done.stdout)
    assert [first["subject"], second["subject"], load_of_all["subject"]] == ["speed of large", "speed of small", "load"]
    assert first["found"].startswith("30 services")
    assert "p50 / p99 of 6" in first["found"]
    assert "of one core" in load_of_all["found"]
    with closing(local_store(folder)) as store:
        assert store.revisions() == before
    (only,) = json.loads(
        tagae("doctor", "--bench", "--json", "--mesh", "small", "--set", f"store.path={folder}").stdout
    )
    assert only["found"].startswith("12 services")


def test_a_store_without_the_mesh_says_what_to_do(folder: Path, tmp_path: Path) -> None:
    done = tagae("doctor", "--bench", "--set", f"store.path={tmp_path / 'none'}")
    assert "push snapshots first" in done.output
    assert not (tmp_path / "none").exists()
    done = tagae("doctor", "--bench", "--mesh", "bank", "--set", f"store.path={folder}")
    assert done.exit_code != 0
    assert "expected a mesh of the store (large, small)" in done.output
    done = tagae("doctor", "--bench", "--url", "http://127.0.0.1:1")
    assert "expected one of --url, --bench and a source of telemetry" in done.output


@pytest.mark.parametrize(
    ("found", "outcome", "words"),
    [
        (FAST, "ok", "within 5 ms of 50"),
        (
            replace(FAST, pushes=[60.0] * 100, json=[20.0] * 100, arrow=[5.0] * 100),
            "warning",
            "use Arrow: it saves 15 ms",
        ),
        (
            replace(FAST, services=9000, passes=[80.0] * 100, pushes=[100.0] * 100),
            "warning",
            "partition at 3,000 services, one part for each of 3 scorers",
        ),
        (replace(FAST, pushes=[300.0] * 100), "ok", "2% of the 15 s between snapshots"),
        (replace(FAST, pushes=[13_000.0] * 100), "warning", "raise collector.interval_seconds"),
    ],
)
def test_the_figures_say_what_helps(found: Speed, outcome: str, words: str) -> None:
    said = judge("shop", found)
    assert said.outcome == outcome
    assert words in str(said)


def test_more_sessions_are_advised_when_one_is_not_enough() -> None:
    assert speed._load(0.5, 0, 1).outcome == "ok"
    busy = speed._load(1.5, 3, 2)
    assert (busy.outcome, "3 smaller meshes" in busy.found) == ("warning", True)
    assert "add a session" in busy.remedy
