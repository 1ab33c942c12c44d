"""``tagae models tune``: a network that was trained further on the recording of a mesh becomes a candidate, or not."""

from pathlib import Path

import numpy as np
import pytest
import torch

from lab.simulator.events.faults import Fault, candidates
from lab.simulator.mesh.parameters import build_mesh
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from lab.training.tune import tune
from model.checkpoint import SHIPPED, load
from serve_app.errors import BadRecording
from serve_app.models.registry import Registry
from serve_app.pipeline import options
from serve_app.recordings.writer import RecordingWriter
from serve_app.settings import Settings
from tests.serve_app.cli.command import tagae
from tests.serve_app.running import record_simulation

SHIPPED_VERSION = load(SHIPPED).digest
SNAPSHOTS = 210


def record(path: Path, snapshots: int) -> Path:
    with RecordingWriter(path, 15.0) as writer:
        for snapshot in record_simulation(MeshSpec(services=20, calls_per_service=2, seed=7), snapshots):
            writer.write(snapshot)
    return path


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("recordings") / "shop", SNAPSHOTS)


def test_a_tuned_network_is_added_as_a_candidate(recording: Path, tmp_path: Path) -> None:
    arguments = ["--recording", recording, "--registry", tmp_path / "models", "--steps", 60]
    result = tagae("models", "tune", "shop", *arguments)
    assert result.exit_code == 0, result.output
    registry = Registry(str(tmp_path / "models"))
    (card,) = registry.cards()
    assert card.version in result.stdout.splitlines()
    assert (card.parent, card.data["tuned"]) == (SHIPPED_VERSION, "60 steps on shop")
    assert card.figures["loss"] < card.figures["loss_before"]
    before, after = load(SHIPPED), registry.load(card.version, card.sha256)
    theirs = after.network.state_dict()
    assert any(not torch.equal(value, theirs[name]) for name, value in before.network.state_dict().items())
    assert all(torch.equal(value, after.meta.state_dict()[name]) for name, value in before.meta.state_dict().items())
    np.testing.assert_array_equal(after.node_tail.rate, before.node_tail.rate)
    assert after.page_offset == before.page_offset


def test_a_candidate_that_breaks_a_limit_is_not_added(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve_app.models.admin.broken_limit", lambda comparison, limits: "its alerts leave the budget")
    arguments = ["--recording", recording, "--registry", tmp_path / "models", "--steps", 30]
    result = tagae("models", "tune", "shop", *arguments)
    assert result.exit_code == 1
    assert "not added to" in result.stderr
    assert "its alerts leave the budget" in " ".join(result.stderr.split())
    assert Registry(str(tmp_path / "models")).cards() == []


def test_a_short_recording_is_refused(tmp_path: Path) -> None:
    short = record(tmp_path / "short", 120)
    result = tagae("models", "tune", "shop", "--recording", short, "--registry", tmp_path / "models")
    assert result.exit_code == 1
    message = " ".join(result.stderr.split())
    assert "expected at least 190 snapshots of the mesh, got 120; record it for longer" in message
    assert Registry(str(tmp_path / "models")).cards() == []


def test_time_with_alerts_is_not_learned() -> None:
    spec = MeshSpec(services=20, calls_per_service=2, seed=7)
    mesh = build_mesh(spec)
    culprit = mesh.topology.node_ids[int(candidates(mesh, "latency_injection")[0])]
    fault = Fault("latency_injection", culprit, 50, SNAPSHOTS, 10.0)
    snapshots = Simulator(spec, [fault], snapshots=SNAPSHOTS).snapshots
    with pytest.raises(BadRecording, match=r"at least 60 snapshots without alerts .* record a quiet time"):
        tune(load(SHIPPED), snapshots, options(Settings()), 10, lambda *_: None)
