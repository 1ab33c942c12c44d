"""Recording of a live mesh: segments, resuming, and deleting the oldest."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.snapshot import MeshSnapshot
from serve_app.cli import app
from serve_app.errors import BadRecording
from serve_app.recordings.segments import Recorder, SegmentReader, segments
from tests.serve_app.collect.prometheus import standin
from tests.serve_app.collect.prometheus.istio_standin import IstioMesh, find_snapshot

SNAPSHOTS = list(Simulator(MeshSpec(services=20, calls_per_service=3.0, seed=2), snapshots=10).snapshots())


def record(folder: Path, snapshots: list[MeshSnapshot] = SNAPSHOTS, *, length: int = 4, **limits: int) -> Recorder:
    """Record snapshots in segments of this length."""
    with Recorder(folder, 15.0, segment_snapshots=length, **limits) as recorder:
        for snapshot in snapshots:
            recorder.write(snapshot)
    return recorder


def test_segments_read_back_as_one_recording(tmp_path: Path) -> None:
    recorder = record(tmp_path)
    reader = SegmentReader(tmp_path)
    assert len(reader.readers) == 3
    assert reader.interval_seconds == 15.0
    assert [s.digest for s in reader.snapshots()] == [s.digest for s in SNAPSHOTS]
    assert recorder.until == SNAPSHOTS[-1].observed_at


def test_an_interrupted_recording_continues_after_the_last_complete_segment(tmp_path: Path) -> None:
    broken = Recorder(tmp_path, 15.0, segment_snapshots=4)
    broken.__enter__()
    for snapshot in SNAPSHOTS[:6]:  # killed during its second segment
        broken.write(snapshot)
    assert len(segments(tmp_path)) == 1
    assert Recorder(tmp_path, 15.0).until == SNAPSHOTS[3].observed_at
    record(tmp_path, SNAPSHOTS[4:])
    assert [s.observed_at for s in SegmentReader(tmp_path).snapshots()] == [s.observed_at for s in SNAPSHOTS]


def test_the_oldest_segments_are_deleted_first_and_other_files_stay(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "README").write_text("mine")
    record(tmp_path, length=2, max_bytes=1)
    assert [s.observed_at for s in SegmentReader(tmp_path).snapshots()] == [s.observed_at for s in SNAPSHOTS[-2:]]
    assert (tmp_path / "notes").is_dir()
    assert (tmp_path / "README").read_text() == "mine"


def test_an_empty_folder_is_no_recording(tmp_path: Path) -> None:
    with pytest.raises(BadRecording, match="found neither"):
        SegmentReader(tmp_path)


def test_a_past_period_is_scored_like_its_recording(tmp_path: Path) -> None:
    first, last = (SNAPSHOTS[i].observed_at.isoformat() for i in (0, -1))
    record(tmp_path / "live")
    with standin.start_server(IstioMesh(find_snapshot(SNAPSHOTS))) as server:
        asked = ["score", "--prometheus", standin.url_of(server), "--from", first, "--to", last]
        past = CliRunner().invoke(app, [*asked, "--set", "collector.deadline_seconds=60"])
    kept = CliRunner().invoke(app, ["score", str(tmp_path / "live")])
    assert past.exit_code == kept.exit_code == 0, past.stderr + kept.stderr
    assert len(past.stdout.splitlines()) == len(kept.stdout.splitlines()) == len(SNAPSHOTS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["score"], "--from"),
        (["score", "out/shop", "--from", "2026-01-01"], "--from"),
        (["score", "--from", "yesterday", "--prometheus", "http://127.0.0.1:1"], "yesterday"),
        (["score", "--from", "2026-01-01"], "--prometheus"),
        (["doctor", "--source", "shop"], "meshes in the settings"),
        (["record", "out/live"], "meshes in the settings"),
    ],
)
def test_missing_options_are_named(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_record_writes_the_requested_number_of_snapshots(tmp_path: Path) -> None:
    mesh = IstioMesh(lambda _: SNAPSHOTS[0])
    with standin.start_server(mesh) as server:
        asked = ["record", str(tmp_path / "live"), "--prometheus", standin.url_of(server), "--snapshots", "2"]
        fast = ["interval_seconds=1", "behind_seconds=0", "deadline_seconds=60"]
        result = CliRunner().invoke(app, [*asked, *(part for one in fast for part in ("--set", f"collector.{one}"))])
    assert result.exit_code == 0, result.stderr
    assert "2 snapshots written" in " ".join(result.stderr.split())
    assert len(list(SegmentReader(tmp_path / "live").snapshots())) == 2
