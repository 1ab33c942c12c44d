"""``tagae score``: recordings and past periods."""

from functools import partial
from pathlib import Path

import pytest

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import SHIPPED
from model.snapshot import MeshSnapshot
from serve_app.cli import console
from serve_app.recordings.writer import RecordingWriter
from tests.serve_app.cli.command import tagae
from tests.serve_app.collect.prometheus import standin
from tests.serve_app.collect.prometheus.istio_standin import IstioMesh, find_snapshot
from tests.timing import PATIENCE_SECONDS

score = partial(tagae, "score")
LENGTH = 30


def simulate(seed: int, length: int) -> list[MeshSnapshot]:
    return list(Simulator(MeshSpec(services=20, calls_per_service=3.0, seed=seed), snapshots=length).snapshots())


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recordings") / "mon"
    with RecordingWriter(folder, 15.0, {"source": "simulated"}) as writer:
        for snapshot in simulate(0, LENGTH):
            writer.write(snapshot)
    return folder


@pytest.mark.slow
def test_a_past_period_of_a_mesh_is_scored_like_its_recording(
    recording: Path, other_weights: Path, tmp_path: Path
) -> None:
    snapshots = simulate(0, LENGTH)
    first, last = (snapshots[i].observed_at.isoformat() for i in (0, LENGTH - 1))
    with standin.start_server(IstioMesh(find_snapshot(snapshots))) as server:
        url = standin.url_of(server)
        settings = tmp_path / "tagae.toml"
        settings.write_text(
            f"""
            collector.deadline_seconds = {PATIENCE_SECONDS}
            [meshes.blue]
            prometheus = "{url}"
            [meshes.green]
            prometheus = "{url}"
            """,
            encoding="utf-8",
        )
        period = ("--from", first, "--to", last, "--config", settings)
        blue, green = (score(*period, "--mesh", name) for name in ("blue", "green"))
        own_weights = ("--set", f"meshes.blue.weights={other_weights}")
        with_own = score(*period, *own_weights, "--mesh", "blue")
        with_flag = score(*period, *own_weights, "--mesh", "blue", "--weights", SHIPPED)
    assert {result.exit_code for result in (blue, green, with_own, with_flag)} == {0}, blue.stderr + with_own.stderr
    assert blue.stdout == green.stdout
    assert len(blue.stdout.splitlines()) == LENGTH
    assert with_own.stdout != blue.stdout, "the mesh has its own weights"
    assert with_flag.stdout == blue.stdout, "--weights wins"


def test_a_recording_that_is_broken_fails_with_its_error_and_keeps_the_file_of_an_earlier_run(
    recording: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in recording.iterdir():
        content = file.read_bytes()
        (broken / file.name).write_bytes(content[:100] if file.name == "nodes.parquet" else content)
    output = tmp_path / "verdicts.jsonl"
    output.write_text("of an earlier run\n")
    result = score(broken, "-o", output)
    assert (result.exit_code, result.stdout) == (1, "")
    assert output.read_text() == "of an earlier run\n"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["broken", "verdicts.jsonl"]
    assert "write the recording again" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_log_shows_rate_and_time_left(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "NOTE_SECONDS", 0.0)
    result = score(recording)
    assert "scoring mon: 15 of 30, " in result.stderr
    assert " min left, " in result.stderr
    assert len(result.stdout.splitlines()) == LENGTH
