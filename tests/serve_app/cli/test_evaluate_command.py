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
        now = [n for n, fault in enumerate(faults) if fault.start <= snapshot.observed_at < fault.end]
        culprits = [f"{faults[n].details['root_cause_namespace']}/{faults[n].root_cause_service}" for n in now]
        named = tuple(Suspect(who, 0.5) for who in (culprits if right else [snapshot.node_ids[-1]])[: len(now)])
        open_incidents = tuple(
            Incident(
                id=str(n),
                since=snapshot.observed_at,
                severity=Severity.MINOR,
                score=9.0,
                suspects=named,
                affected=tuple(s.service for s in named),
            )
            for n in now
        )
        status = Status.ANOMALOUS if now else Status.NORMAL
        score, probability = (9.0, 0.9) if now else (1.0, 0.05)
        lines.append(
            verdict_line(
                Verdict(
                    observed_at=snapshot.observed_at,
                    sequence=i,
                    status=status,
                    mesh_score=score,
                    threshold=4.0,
                    probability=probability,
                    suspects=named,
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
    made = {
        "one": ("--seed", 1),
        "two": ("--seed", 2),
        "quiet": ("--seed", 3, "--no-faults"),
    }
    for name, options in made.items():
        assert tagae("simulate", folder / name, *MESH, *options).exit_code == 0
        for detector in ("right", "wrong"):
            write_verdicts(folder / name, folder / detector / f"{name}.jsonl", detector == "right")
    return folder


def test_two_detectors_on_meshes_with_faults_and_a_quiet_one(meshes: Path) -> None:
    arguments = [meshes / "one", meshes / "two", meshes / "quiet", "-v", f"right={meshes}/right"]
    result = tagae("evaluate", *arguments, "-v", f"wrong={meshes}/wrong", "--json", "-")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    assert list(found["pooled"]) == ["located", "normal"]
    right, wrong = found["pooled"]["located"]["right"], found["pooled"]["located"]["wrong"]
    overall = right["pages"]["overall"]
    assert overall["recall"]["value"] == overall["top1"]["value"] == 1.0
    assert overall["recall"]["n"] == right["incidents"] >= 2
    assert right["pages"]["false_pages"] == 0
    assert right["forecast"]["brier"] < right["forecast"]["brier_of_base_rate"]
    assert wrong["pages"]["false_pages"] >= 1, "in time, but elsewhere"
    apart = found["compared"]["located"]["right - wrong"]["recall"]
    assert apart["value"] == pytest.approx(1.0 - wrong["pages"]["overall"]["recall"]["value"])
    assert apart["only_second"] == 0
    quiet = found["pooled"]["normal"]["right"]
    assert quiet["promise"]["observed_per_day"]["value"] == 0.0
    assert quiet["promise"]["promised_per_day"] == 1.0
    incidents = found["recordings"][f"{meshes.name}/one"]["right"]["per_incident"]
    assert [row["place"] for row in incidents] == [1] * len(incidents)


def test_notices_are_evaluated_separately(tmp_path: Path) -> None:
    """Write verdicts with an alert for the first fault, and notices for the other faults."""
    recording = tmp_path / "faults"
    assert tagae("simulate", recording, *MESH, "--snapshots", 300, "--seed", 1).exit_code == 0
    write_verdicts(recording, tmp_path / "right.jsonl", right=True)
    lines = [json.loads(line) for line in (tmp_path / "right.jsonl").read_text().splitlines()]
    for incident in (incident for line in lines for incident in line["incidents"] if incident["id"] != "0"):
        incident["severity"] = "notice"
    (tmp_path / "shy.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    given = "evaluate", recording, "-v", f"shy={tmp_path / 'shy.jsonl'}", "-v", f"right={tmp_path / 'right.jsonl'}"
    result = tagae(*given, "--json", tmp_path / "found.json")
    assert result.exit_code == 0, result.stderr
    found = json.loads((tmp_path / "found.json").read_text())["recordings"][f"{tmp_path.name}/faults"]
    shy, right = found["shy"], found["right"]
    faults = len(shy["per_incident"])
    assert faults > 1
    assert [row["page"] is None for row in shy["per_incident"]] == [False, *[True] * (faults - 1)]
    assert [row["notice"] is None for row in shy["per_incident"]] == [True, *[False] * (faults - 1)]
    assert all(row["user_sigmas"] is not None for row in shy["per_incident"])
    assert shy["pages"]["overall"]["recall"]["value"] == pytest.approx(1 / faults)
    assert shy["notices"]["overall"]["recall"]["value"] == pytest.approx(1 - 1 / faults)
    assert shy["pages_and_notices"]["overall"]["recall"]["value"] == 1.0
    assert shy["pages_and_notices"]["pages_a_found_fault"] == right["pages"]["pages_a_found_fault"] == 1.0
    assert right["notices"] is None
    for words in ("notices, by time and place", "alerts and notices together", "incidents per fault found; 1 is right"):
        assert words in result.stdout


def test_alerts_while_telemetry_is_missing_have_a_row(tmp_path: Path) -> None:
    recording = tmp_path / "silent"
    assert tagae("simulate", recording, *MESH, "--no-faults", "--silences-per-hour", 20).exit_code == 0
    write_verdicts(recording, tmp_path / "quiet.jsonl", right=True)
    given = "evaluate", recording, "-v", f"quiet={tmp_path / 'quiet.jsonl'}"
    result = tagae(*given, "--json", tmp_path / "found.json")
    silence = json.loads((tmp_path / "found.json").read_text())["pooled"]["normal"]["quiet"]["silence"]
    assert 0 < silence["hours"] < SNAPSHOTS * 15 / 3600
    assert silence["false_pages"] == silence["false_notices"] == 0
    assert "while telemetry is missing" in result.stdout


def test_the_table_of_one_recording(meshes: Path) -> None:
    one, two = (f"{name}={meshes / name / 'one.jsonl'}" for name in ("right", "wrong"))
    result = tagae("evaluate", meshes / "one", "--verdicts", one, "--verdicts", two, "--reference", "wrong")
    assert result.exit_code == 0, result.stderr
    assert f"{meshes.name}/one (located)" in result.stdout
    for words in ("false alerts: per hour", "Brier score", "by kind", "wrong minus", "only wrong"):
        assert words in result.stdout


def test_the_budget_of_the_settings_is_shown(meshes: Path) -> None:
    result = tagae(
        "evaluate", meshes / "quiet", "-v", f"right={meshes / 'right'}", "--set", "alert.false_pages_per_day=7",
        "--begin-after", 300, "--json", "-",
    )  # fmt: skip
    promise = json.loads(result.stdout)["pooled"]["normal"]["right"]["promise"]
    assert promise["promised_per_day"] == 7.0
    assert promise["days"] == pytest.approx((SNAPSHOTS - 20) * 15 / 86_400, abs=1e-5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["one", "-v", "{m}/right/one.jsonl"], "expected NAME=FILE or NAME=FOLDER"),
        (["one", "-v", "a={m}/right/one.jsonl", "-v", "a={m}/wrong/one.jsonl"], "a: expected 1 files for 1 recordings"),
        (["one", "two", "-v", "a={m}/right/one.jsonl"], "a: expected 2 files for 2 recordings, got 1"),
        (["one", "one", "-v", "a={m}/right"], "recordings: expected each once"),
        (["one", "-v", "a={m}/nowhere"], "expected a readable file of verdict lines"),
        (["one", "two", "-v", "a={m}/two"], "a: expected {m}/two/"),
        (["one", "-v", "a={m}/right", "--reference", "b"], "--reference: expected one of a, got 'b'"),
        (["right", "-v", "a={m}/right/one.jsonl"], "it is not a recording"),
    ],
)
def test_verdicts_that_cannot_be_evaluated_are_refused_with_a_message(
    meshes: Path, arguments: list[str], words: str
) -> None:
    folders = {path.name for path in meshes.iterdir()}
    given = [str(meshes / one) if one in folders else one.replace("{m}", str(meshes)) for one in arguments]
    result = tagae("evaluate", *given)
    assert result.exit_code == 1
    assert words.replace("{m}", str(meshes)) in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
