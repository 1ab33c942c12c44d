"""``tagae score --jobs``: several recordings and meshes side by side."""

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import SHIPPED
from model.snapshot import MeshSnapshot
from serve_app.cli import console
from serve_app.collect.prometheus.history import fetch_ahead
from serve_app.recordings.writer import RecordingWriter
from tests.serve_app.cli.command import tagae
from tests.serve_app.collect.prometheus import standin
from tests.serve_app.collect.prometheus.istio_standin import IstioMesh, find_snapshot
from tests.timing import PATIENCE_SECONDS

score = partial(tagae, "score")
LENGTHS = {"mon": 30, "tue": 120}


def simulate(seed: int, length: int) -> list[MeshSnapshot]:
    return list(Simulator(MeshSpec(services=20, calls_per_service=3.0, seed=seed), snapshots=length).snapshots())


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Recordings of two meshes."""
    folder = tmp_path_factory.mktemp("recordings")
    for seed, (name, length) in enumerate(LENGTHS.items()):
        with RecordingWriter(folder / name, 15.0, {"source": "simulated"}) as writer:
            for snapshot in simulate(seed, length):
                writer.write(snapshot)
    return {name: folder / name for name in LENGTHS}


def test_recordings_side_by_side_have_the_verdicts_of_each_alone(recordings: dict[str, Path], tmp_path: Path) -> None:
    alone = {name: score(path).stdout for name, path in recordings.items()}
    result = score(*recordings.values(), "--jobs", 2, "-o", tmp_path / "verdicts")
    assert (result.exit_code, result.stdout) == (0, ""), result.stderr
    assert {path.stem: path.read_text() for path in (tmp_path / "verdicts").iterdir()} == alone
    assert [f"{length} snapshots" in result.stderr for length in LENGTHS.values()] == [True, True]
    one = score(*recordings.values(), "-o", tmp_path / "one")
    assert one.exit_code == 0, one.stderr
    assert {path.stem: path.read_text() for path in (tmp_path / "one").iterdir()} == alone


@pytest.mark.slow
def test_a_past_period_of_two_meshes_is_scored_like_its_recording(
    recordings: dict[str, Path], other_weights: Path, tmp_path: Path
) -> None:
    snapshots = simulate(1, LENGTHS["tue"])
    first, soon = (snapshots[i].observed_at.isoformat() for i in (0, LENGTHS["mon"] - 1))
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
        period = ("--from", first, "--to", soon, "--config", settings)
        one = score(*period, "--mesh", "blue")
        both = score(*period, "--mesh", "blue", "--mesh", "green", "--jobs", 2, "-o", tmp_path / "verdicts")
        own = ("--set", f"meshes.blue.weights={other_weights}")
        chosen = score(*period, *own, "--mesh", "blue", "--mesh", "green", "--jobs", 2, "-o", tmp_path / "chosen")
        given = score(*period, *own, "--mesh", "blue", "--weights", SHIPPED)
    assert one.exit_code == both.exit_code == 0, one.stderr + both.stderr
    found = {path.stem: path.read_text() for path in (tmp_path / "verdicts").iterdir()}
    assert found == {"blue": one.stdout, "green": one.stdout}
    assert len(one.stdout.splitlines()) == LENGTHS["mon"]
    assert chosen.exit_code == given.exit_code == 0, chosen.stderr + given.stderr
    assert (tmp_path / "chosen" / "green.jsonl").read_text() == one.stdout
    assert (tmp_path / "chosen" / "blue.jsonl").read_text() != one.stdout, "the mesh has its own weights"
    assert given.stdout == one.stdout, "--weights wins"


def test_a_recording_that_is_broken_fails_with_its_error(recordings: dict[str, Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in recordings["mon"].iterdir():
        content = file.read_bytes()
        (broken / file.name).write_bytes(content[:100] if file.name == "nodes.parquet" else content)
    result = score(recordings["mon"], broken, "--jobs", 2, "-o", tmp_path / "verdicts")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "write the recording again" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("mon", "tue"), "expected a folder for 2 files"),
        (("mon", "--jobs", "0"), "--jobs"),
        (("mon", "--jobs", "2", "--url", "http://127.0.0.1:9"), "expected one series and one mesh"),
        (("mon", "tue", "--url", "http://127.0.0.1:9"), "expected one series and one mesh"),
    ],
)
def test_options_that_do_not_fit_are_named(arguments: tuple[str, ...], words: str, recordings: dict[str, Path]) -> None:
    result = score(*(recordings.get(one, one) for one in arguments))
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.replace("│", " ").split())


def test_the_next_things_are_fetched_while_one_is_used() -> None:
    fetched, third = [], threading.Event()

    def things() -> Iterator[int]:
        for number in range(10):
            fetched.append(number)
            if number == 3:
                third.set()
            yield number

    ahead = fetch_ahead(things(), 3)
    assert next(ahead) == 0
    assert third.wait(PATIENCE_SECONDS), "nothing was fetched ahead"
    assert len(fetched) == 4
    assert list(ahead) == list(range(1, 10))


def test_an_error_while_fetching_is_raised_in_its_place() -> None:
    def things() -> Iterator[int]:
        yield 1
        raise ValueError("the second")

    ahead = fetch_ahead(things(), 4)
    assert next(ahead) == 1
    with pytest.raises(ValueError, match="the second"):
        next(ahead)


def test_a_log_shows_rate_and_time_left(recordings: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "NOTE_SECONDS", 0.0)
    result = score(recordings["mon"])
    assert "scoring mon: 15 of 30, " in result.stderr
    assert " min left, " in result.stderr
    assert len(result.stdout.splitlines()) == LENGTHS["mon"]
