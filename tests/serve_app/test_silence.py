"""The whole pipeline while telemetry is missing: silence raises no alert, and disappearances are still found."""

import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from lab.simulator.telemetry.silence import Reporter
from model.checkpoint import Checkpoint
from model.snapshot import MeshSnapshot
from model.verdict import Status
from serve_app.pipeline import Mesh
from serve_app.recordings.reader import RecordingReader
from tests.builders import score_all
from tests.serve_app.silences import (
    BETWEEN,
    SETTLED,
    SILENCES,
    alerts,
    busy_services,
    find_disappearance,
    settle,
    with_silences,
)

SPEC = MeshSpec(services=100, namespaces=4, seed=23)
GENERATOR = Path(__file__).parents[3] / "shared" / "other_mesh" / "generate.py"
SNAPSHOTS = 240  # an hour


@pytest.fixture(scope="module")
def settled_mesh(checkpoint: Checkpoint) -> tuple[Mesh, list[MeshSnapshot]]:
    """Return a mesh after a quarter of an hour, and the snapshots after it."""
    snapshots = list(Simulator(SPEC, snapshots=SNAPSHOTS).snapshots())
    return settle(checkpoint, snapshots[:SETTLED]), snapshots[SETTLED:]


@pytest.fixture(scope="module")
def other_mesh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An hour of a mesh from another simulator, without faults. Its own exporters are silent at times too."""
    if not GENERATOR.exists():
        pytest.skip(f"no generator in {GENERATOR.parent} (it is not part of the project)")
    folder = tmp_path_factory.mktemp("other") / "mesh"
    options = ("--services", "100", "--hours", "1", "--seed", "7", "--churn", "low", "--incidents", "0")
    subprocess.run([sys.executable, str(GENERATOR), *options, "--out", str(folder)], check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("reporter", list(Reporter))
def test_silence_raises_no_alert(
    checkpoint: Checkpoint, settled_mesh: tuple[Mesh, list[MeshSnapshot]], reporter: Reporter
) -> None:
    """A tenth of the services is silent, twenty times."""
    mesh, snapshots = settled_mesh
    verdicts, _ = score_all(checkpoint, mesh, with_silences(snapshots, reporter))
    assert alerts(verdicts) == set()
    silent = [v for v in verdicts if v.silence]
    if reporter is Reporter.CALLS:
        assert not silent, "their own metrics are measured"
        return
    assert {v.silence.services for v in silent if v.silence} <= set(range(9, 12))
    assert {v.status for v in silent} == {Status.PARTIAL}
    assert len(verdicts) - len(silent) == SILENCES * BETWEEN, "three measured snapshots after each silence"


def test_silence_in_a_mesh_of_another_simulator_raises_no_alert(checkpoint: Checkpoint, other_mesh: Path) -> None:
    source = RecordingReader(other_mesh).snapshots()
    mesh = settle(checkpoint, islice(source, SETTLED))
    verdicts, _ = score_all(checkpoint, mesh, with_silences(source, Reporter.BOTH))
    assert alerts(verdicts) == set()
    assert sum(v.silence is not None and v.silence.share > 0.05 for v in verdicts) > 100


def test_disappearances_are_found_during_a_silence_of_others(
    checkpoint: Checkpoint, settled_mesh: tuple[Mesh, list[MeshSnapshot]]
) -> None:
    """Ten busy services disappear, each while a tenth of the others is silent. At least nine are found."""
    mesh, _ = settled_mesh
    found = [find_disappearance(checkpoint, mesh, SPEC, name, seed) for seed, name in enumerate(busy_services(SPEC))]
    assert len(found) == 10
    assert sum(one.found for one in found) >= 9
    assert sum(one.named for one in found) >= 8
