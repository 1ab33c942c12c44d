"""``tagae evaluate``: scored recordings, several detectors, tables and JSON, clear refusals."""

import json
from pathlib import Path
from typing import Any

import pytest

from model.verdict import Incident, Severity, Status, Suspect, Verdict
from serve_app.api.codec import verdict_line
from serve_app.recordings.reader import RecordingReader
from tests.serve_app.cli.command import tagae

SNAPSHOTS = 150
MESH = ("--services", 20, "--calls-per-service", 2, "--snapshots", SNAPSHOTS, "--first-fault", 30)


def write_verdicts(recording: Path, path: Path, right: bool) -> None:
    """Write verdicts of a detector that finds every fault in time, and names the culprit or always one service."""
    reader = RecordingReader(recording)
    faults = reader.incidents()
    lines = []
    for i, snapshot in enumerate(reader.snapshots()):
        active = [n for n, fault in enumerate(faults) if fault.start <= snapshot.observed_at < fault.end]
        culprits = [f"{faults[n].details['root_cause_namespace']}/{faults[n].root_cause_service}" for n in active]
        suspects = tuple(Suspect(name, 0.5) for name in (culprits if right else [snapshot.node_ids[-1]])[: len(active)])
        open_incidents = tuple(
            Incident(
                id=str(n),
                since=snapshot.observed_at,
                severity=Severity.MINOR,
                score=9.0,
                suspects=suspects,
                affected=tuple(s.service for s in suspects),
            )
            for n in active
        )
        status = Status.ANOMALOUS if active else Status.NORMAL
        score, probability = (9.0, 0.9) if active else (1.0, 0.05)
        lines.append(
            verdict_line(
                Verdict(
                    observed_at=snapshot.observed_at,
                    sequence=i,
                    status=status,
                    mesh_score=score,
                    threshold=4.0,
                    probability=probability,
                    suspects=suspects,
                    incidents=open_incidents,
                )
            )
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def meshes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two meshes with faults, and a quiet one, with verdicts of two detectors."""
    folder = tmp_path_factory.mktemp("evaluate")
    recording = {
        "one": ("--seed", 1),
        "two": ("--seed", 2),
        "quiet": ("--seed", 3, "--no-faults"),
    }
    for name, options in recording.items():
        assert tagae("simulate", folder / name, *MESH, *options).exit_code == 0
        for detector in ("right", "wrong"):
            write_verdicts(folder / name, folder / detector / f"{name}.jsonl", detector == "right")
    return folder


def values(text: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the values by form and detector, and by measure."""
    figures: dict[tuple[str, str], dict[str, Any]] = {}
    for row in json.loads(text):
        figures.setdefault((row["part"], row["detector"]), {})[row["measure"]] = row["value"]
    return figures


def test_two_detectors_on_meshes_with_faults_and_a_quiet_one(meshes: Path) -> None:
    arguments = [meshes / "one", meshes / "two", meshes / "quiet", "-v", f"right={meshes}/right"]
    result = tagae("evaluate", *arguments, "-v", f"wrong={meshes}/wrong", "--json", "-")
    assert result.exit_code == 0, result.stderr
    figures = values(result.stdout)
    assert set(figures) == {(form, name) for form in ("located", "normal") for name in ("right", "wrong")}
    right, wrong = figures["located", "right"], figures["located", "wrong"]
    assert right["recall"] == right["top_1_of_true_pages"] == 1.0
    assert right["false_pages_per_hour"] == 0
    assert right["brier"] < right["brier_of_base_rate"]
    assert wrong["false_pages_per_hour"] > 0, "in time, but elsewhere"
    quiet = figures["normal", "right"]
    assert (quiet["fault_free_pages_per_day"], quiet["promised_pages_per_day"]) == (0.0, 1.0)
    faults = {row["n"] for row in json.loads(result.stdout) if row["measure"] == "recall"}
    assert faults == {sum(len(RecordingReader(meshes / name).incidents()) for name in ("one", "two"))}


def test_notices_are_evaluated_separately(tmp_path: Path) -> None:
    """Write verdicts with an alert for the first fault, and notices for the other faults."""
    recording = tmp_path / "faults"
    assert tagae("simulate", recording, *MESH, "--snapshots", 300, "--seed", 1).exit_code == 0
    write_verdicts(recording, tmp_path / "right.jsonl", right=True)
    lines = [json.loads(line) for line in (tmp_path / "right.jsonl").read_text().splitlines()]
    for incident in (incident for line in lines for incident in line["incidents"] if incident["id"] != "0"):
        incident["severity"] = "notice"
    (tmp_path / "shy.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    arguments = "evaluate", recording, "-v", f"shy={tmp_path / 'shy.jsonl'}", "-v", f"right={tmp_path / 'right.jsonl'}"
    result = tagae(*arguments, "--json", tmp_path / "found.json")
    assert result.exit_code == 0, result.stderr
    figures = values((tmp_path / "found.json").read_text())
    shy, right = figures["located", "shy"], figures["located", "right"]
    faults = len(RecordingReader(recording).incidents())
    assert faults > 1
    assert shy["recall"] == pytest.approx(1 / faults, abs=1e-4)
    assert shy["recall_with_notices"] == 1.0
    assert shy["incidents_per_found_fault"] == right["incidents_per_found_fault"] == 1.0
    assert "recall_with_notices" not in right, "it has none"
    assert f"{tmp_path.name}/faults (located)" in result.stdout
    for words in ("recall_with_notices", "false_pages_per_hour", "brier", "recall_of_"):
        assert words in result.stdout


def test_alerts_while_telemetry_is_missing_have_a_figure(tmp_path: Path) -> None:
    recording = tmp_path / "silent"
    assert tagae("simulate", recording, *MESH, "--no-faults", "--silences-per-hour", 20).exit_code == 0
    write_verdicts(recording, tmp_path / "quiet.jsonl", right=True)
    result = tagae("evaluate", recording, "-v", f"quiet={tmp_path / 'quiet.jsonl'}", "--json", "-")
    (silence,) = [row for row in json.loads(result.stdout) if row["measure"] == "false_pages_per_hour_of_silence"]
    assert silence["value"] == 0
    assert 0 < silence["n"] < SNAPSHOTS * 15 / 3600


def test_the_budget_of_the_settings_is_shown(meshes: Path) -> None:
    result = tagae(
        "evaluate", meshes / "quiet", "-v", f"right={meshes / 'right'}", "--set", "alert.false_pages_per_day=7",
        "--begin-after", 300, "--json", "-",
    )  # fmt: skip
    figures = {row["measure"]: row for row in json.loads(result.stdout)}
    assert figures["promised_pages_per_day"]["value"] == 7.0
    assert figures["fault_free_pages_per_day"]["n"] == pytest.approx((SNAPSHOTS - 20) * 15 / 86_400, abs=0.01)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["one", "-v", "{m}/right/one.jsonl"], "expected NAME=FILE or NAME=FOLDER"),
        (["one", "-v", "a={m}/right/one.jsonl", "-v", "a={m}/wrong/one.jsonl"], "each name once"),
        (["one", "two", "-v", "a={m}/right/one.jsonl"], "a: expected a folder for 2 recordings"),
        (["one", "one", "-v", "a={m}/right"], "recordings: expected each once"),
        (["one", "-v", "a={m}/nowhere"], "expected a readable file of verdict lines"),
        (["one", "two", "-v", "a={m}/two"], "a: expected {m}/two/"),
        (["right", "-v", "a={m}/right/one.jsonl"], "it is not a recording"),
    ],
)
def test_verdicts_that_cannot_be_evaluated_are_refused_with_a_message(
    meshes: Path, arguments: list[str], words: str
) -> None:
    folders = {path.name for path in meshes.iterdir()}
    paths = [
        str(meshes / argument) if argument in folders else argument.replace("{m}", str(meshes))
        for argument in arguments
    ]
    result = tagae("evaluate", *paths)
    assert result.exit_code == 1
    assert words.replace("{m}", str(meshes)) in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
