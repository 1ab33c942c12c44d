"""Models of a running service change under load: every snapshot has one verdict, of the weights that it began with."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import SHIPPED, load
from serve_app.api.client import Client
from serve_app.api.codec import snapshot_document
from serve_app.api.schemas.models import ModelPin, TrialDocument
from serve_app.errors import UnfitModel, UnknownModel
from serve_app.models.registry import Registry
from serve_app.models.rollout import uses_candidate
from tests.builders import add_model
from tests.serve_app.cli.command import tagae
from tests.serve_app.running import eventually, problem, start_service

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

MESHES = ("one", "two", "three", "four", "five")
SNAPSHOTS = 4000  # more than the test needs


@pytest.fixture(scope="module", params=["session", pytest.param("replicas", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with a registry that has the shipped model; it scores in the session, or with replicas."""
    folder = tmp_path_factory.mktemp("models")
    add_model(Registry(str(folder / "registry")), SHIPPED)
    settings = {
        "serve.port": 0,
        "store.path": folder / "store",
        "models.registry": folder / "registry",
        "scorer.place": request.param,
        "scorer.device": "cpu",
        "limits.max_ahead_seconds": "inf",
    }
    flags = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    with start_service(*flags) as (_, address):
        request.node.registry = folder / "registry"
        yield address


@pytest.fixture
def candidate(request: pytest.FixtureRequest, url: str, other_weights: Path) -> ModelPin:
    """A model with other scores, which is added while the service runs."""
    place = next(node.registry for node in request.node.listchain() if hasattr(node, "registry"))
    return add_model(Registry(str(place)), other_weights)


class Load:
    """Pushes snapshots of one mesh, one after the other, until it is stopped."""

    def __init__(self, url: str, mesh: str, seed: int) -> None:
        self.mesh, self.verdicts, self.failure = mesh, list[dict[str, Any]](), ""
        self._url, self._stop = url, threading.Event()
        self._snapshots = Simulator(
            MeshSpec(services=24, calls_per_service=3, seed=seed), snapshots=SNAPSHOTS
        ).snapshots()
        self.thread = threading.Thread(target=self._run)

    def models(self) -> set[str]:
        return {verdict["model"] for verdict in self.verdicts[-3:]}

    def end(self) -> None:
        self._stop.set()
        self.thread.join()

    def _run(self) -> None:
        with httpx.Client(base_url=self._url, timeout=60) as http:
            for snapshot in self._snapshots:
                if self._stop.is_set():
                    return
                content = json.dumps(snapshot_document(snapshot))
                answer = http.post(f"/v1/meshes/{self.mesh}/snapshots", content=content)
                if answer.status_code != 200:
                    self.failure = answer.text
                    return
                self.verdicts.append(answer.json())


@pytest.fixture
def loads(url: str) -> Iterator[list[Load]]:
    """Five meshes that push all the time."""
    running = [Load(url, mesh, seed) for seed, mesh in enumerate(MESHES)]
    for pusher in running:
        pusher.thread.start()
    yield running
    for pusher in running:
        pusher.end()
    with httpx.Client(base_url=url) as http:
        for pusher in running:
            http.delete(f"/v1/meshes/{pusher.mesh}")


def test_models_change_under_load_without_an_error_a_gap_or_a_double(
    url: str, candidate: ModelPin, loads: list[Load]
) -> None:
    before = load(SHIPPED).digest
    with Client(url) as client:
        assert client.models().rollout.active is None
        assert eventually(lambda: all(len(pusher.verdicts) > 3 for pusher in loads))
        client.try_model(candidate.version, 0.0)
        trial = TrialDocument(candidate=candidate, baseline=None, share=0.5, since="2026-03-01T00:00:00Z")
        client.try_model(candidate.version, 0.5)
        by_mesh = {pusher.mesh: uses_candidate(pusher.mesh, trial) for pusher in loads}
        expected = {mesh: {candidate.version} if is_candidate else {before} for mesh, is_candidate in by_mesh.items()}
        assert len({frozenset(versions) for versions in expected.values()}) == 2
        assert eventually(lambda: {pusher.mesh: pusher.models() for pusher in loads} == expected)
        client.promote_model(candidate.version)
        assert eventually(lambda: all(pusher.models() == {candidate.version} for pusher in loads))
        client.roll_back_model(reason="a test")
        assert eventually(lambda: all(pusher.models() == {before} for pusher in loads))
        client.promote_model(candidate.version, "two")
        assert eventually(lambda: loads[1].models() == {candidate.version})
        client.roll_back_model("two")
        assert eventually(lambda: loads[1].models() == {before})
        history = client.models().rollout.history
    for pusher in loads:
        pusher.end()
        assert not pusher.failure
        assert [verdict["sequence"] for verdict in pusher.verdicts] == list(range(1, len(pusher.verdicts) + 1))
        assert {verdict["coverage"] for verdict in pusher.verdicts} == {1.0}
        warm = next(i for i, verdict in enumerate(pusher.verdicts) if verdict["status"] != "warming_up")
        assert all(verdict["status"] != "warming_up" for verdict in pusher.verdicts[warm:]), "a change needs no warm-up"
    assert [event.action.value for event in history[-6:]] == [
        "canary",
        "canary",
        "promote",
        "rollback",
        "promote",
        "rollback",
    ]
    assert history[-3].reason == "a test"


def test_the_command_line_changes_models(url: str, candidate: ModelPin) -> None:
    def models(*arguments: str) -> str:
        done = tagae("models", *arguments, "--url", url)
        assert done.exit_code == 0, done.output
        return done.output

    listed = models("list")
    assert candidate.version in listed
    assert load(SHIPPED).digest in listed
    short = candidate.version[:10]
    assert json.loads(models("show", short))["sha256"] == candidate.sha256
    assert f"10% of the meshes use {candidate.version}" in models("canary", short)
    assert "10%" in models("list")
    assert f"all meshes use {candidate.version}\n" in models("promote", short)
    assert "all meshes use the weights of the settings" in models("rollback", "--reason", "a test")
    assert f"mesh shop uses {candidate.version}" in models("promote", short, "--mesh", "shop")
    assert "mesh shop" not in models("rollback", "--mesh", "shop")


def test_what_cannot_be_done_is_refused_by_name(url: str, candidate: ModelPin) -> None:
    with httpx.Client(base_url=url) as http, Client(url) as client:
        problem(http.post(f"/v1/models/{'0' * 16}/promote"), 404, "unknown-model")
        problem(http.post("/v1/models/rollback", json={"mesh": "never-changed"}), 409, "unfit-model")
        path = f"/v1/models/{candidate.version}"
        problem(http.post(f"{path}/canary", content=b"{"), 400, "malformed-document")
        problem(http.post(f"{path}/canary", json={"share": 1.5}), 422, "invalid-document", "/share")
        problem(http.post(f"{path}/promote", json={"mesh": "../x"}), 400, "bad-mesh-name")
        problem(http.post(f"{path}/promote", json={"all": True}), 422, "invalid-document", "/all")
        with pytest.raises(UnknownModel):
            client.compare_models("0" * 16)
        with pytest.raises(UnfitModel):
            client.roll_back_model("never-changed")
