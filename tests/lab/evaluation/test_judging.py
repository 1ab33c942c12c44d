"""Evaluation of verdict files: the same figures as the reference judge, and clear errors for invalid files."""

import ast
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.evaluation.load import read_series, read_truth
from lab.evaluation.measures.intervals import Estimate
from lab.evaluation.measures.metrics import compute_metrics
from lab.evaluation.measures.ranking import Ranking
from lab.evaluation.measures.recording import RecordingResult, evaluate_recording
from lab.evaluation.measures.truth import Form, GroundTruth
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from serve_app.errors import BadRecording, BadVerdicts
from serve_app.recordings.format import LabelledIncident
from serve_app.settings import AlertSettings
from tests.builders import write_recording

SHARED = Path(__file__).resolve().parents[3].parent / "shared"
JUDGE = SHARED / "judge" / "evaluate.py"
RECORDINGS = sorted(path.parent for path in (SHARED / "recordings").glob("*/*/meta.json"))
ROUNDING = 0.0006
# its own main, once for each recording, in one process, because most of its time is the import of pandas
ASK_THE_JUDGE = """
import contextlib, io, json, sys
sys.path.insert(0, sys.argv[1])
import evaluate
for name, recording, verdicts in json.loads(sys.argv[2]):
    sys.argv = [name, recording, verdicts, "--json"]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        evaluate.main()
    print(json.dumps(json.loads(said.getvalue())))
"""


def write_made_up_verdicts(truth: GroundTruth, path: Path, skill: float, seed: int) -> Path:
    """Write verdict lines of a detector with this ``skill``; 0 guesses. Some lines are missing, some are doubled."""
    rng = np.random.default_rng(seed)
    names = sorted(truth.services)
    windows = {int(i): window for window in truth.windows for i in window.inside}
    score, lines = 0.0, []
    for i in range(len(truth.times)):
        score = 0.5 * score + rng.gamma(1.0) + (skill if i in windows else 0.0)
        suspects = rng.permutation(names)[:6].tolist()
        if i in windows and rng.random() < skill / 3:
            suspects.insert(int(rng.integers(0, 4)), windows[i].span.culprit)
        status = "warming_up" if i < 12 < len(truth.times) // 8 else "anomalous" if score > 3.5 else "normal"
        line = {
            "observed_at": (truth.instant(i) + timedelta(seconds=float(rng.integers(-2, 3)))).isoformat(),
            "status": status,
            "mesh_score": None if rng.random() < 0.01 else round(score, 2 if skill > 1 else 1),
            "probability": 1 - 0.5**score,
            "suspects": [{"service": name, "score": 0.1} for name in dict.fromkeys(suspects)],
        }
        lines += [json.dumps(line)] * (0 if rng.random() < 0.02 else 2 if rng.random() < 0.02 else 1)
    path.write_text("\n".join(lines) + "\n")
    return path


def guard_of(recording: Path) -> timedelta | None:
    """Return the judge's guard for a dataset: its own for the datasets that it names, none for others."""
    match = re.search(r"^GUARD_SECONDS = (\{.*?\})", (JUDGE.parent / "metrics.py").read_text(), re.MULTILINE)
    assert match
    dataset = json.loads((recording / "meta.json").read_text())["dataset"]
    return timedelta(seconds=ast.literal_eval(match[1]).get(dataset, 0))


@pytest.mark.slow
def test_the_judge_gives_the_same_figures(tmp_path: Path) -> None:
    if not RECORDINGS or not JUDGE.exists():
        pytest.skip("needs ../shared/recordings and ../shared/judge")
    if importlib.util.find_spec("pandas") is None:
        pytest.skip("the judge needs pandas")
    truths = [read_truth(recording, guard=guard_of(recording)) for recording in RECORDINGS]
    files = [write_made_up_verdicts(truth, tmp_path / f"{i}.jsonl", 2.0, 0) for i, truth in enumerate(truths)]
    commands = [["evaluate.py", str(r), str(file)] for r, file in zip(RECORDINGS, files, strict=True)]
    ran = subprocess.run(
        [sys.executable, "-c", ASK_THE_JUDGE, str(JUDGE.parent), json.dumps(commands)], capture_output=True, check=True
    )
    references = [json.loads(line) for line in ran.stdout.splitlines()]
    for truth, file, reference in zip(truths, files, references, strict=True):
        assert list(differences(figures(evaluate_file(truth, file)), reference)) == [], truth.name


def evaluate_file(truth: GroundTruth, path: Path) -> RecordingResult:
    budget = AlertSettings().budget(len(truth.services))
    return evaluate_recording(truth, read_series(path, truth), budget)


def figures(result: RecordingResult) -> dict[str, Any]:
    """Return our figures under the judge's names."""
    metrics = compute_metrics([result])
    figures: dict[str, Any] = {
        "recording": result.recording,
        "form": metrics.form.value,
        "snapshots": metrics.snapshots,
        "services": result.services,
        "incidents": metrics.incidents,
        "status": dict(result.status),
        "auroc": metrics.auroc,
        "recall": metrics.recall,
        "ranking": ranked(metrics.ranking),
        "delay_snapshots": {"median": metrics.delay_median},
        "ranking_by_symptom": {symptom: ranked(ranking) for symptom, ranking in metrics.by_symptom.items()},
        "by_kind": {
            kind: {"recall": metrics_of_kind.recall, **ranked(metrics_of_kind.ranking)}
            for kind, metrics_of_kind in metrics.by_kind.items()
        },
        "per_incident": [
            {"detected": o.found, "delay": o.delay, "rank": o.place, "kind": o.span.kind, "culprit": o.span.culprit}
            for o in result.outcomes
        ],
    }
    if metrics.form is Form.STREAM:
        figures["budget_recall"] = {str(budget): recall for budget, recall in metrics.at_budget.items()}
    if (alarms := metrics.false_alarms) is not None:
        figures["false_alarms"] = {
            "events": alarms.count.events,
            "events_strict": alarms.count.strict,
            "normal_snapshots": alarms.count.snapshots,
            "normal_days": alarms.count.days,
            "alarm_share": alarms.alarm_share,
            "per_day": alarms.per_day.value,
            "per_day_strict": alarms.strict_per_day.value,
        }
    return figures


def ranked(ranking: Ranking | None) -> dict[str, Estimate | None]:
    return {name: getattr(ranking, name, None) for name in ("top1", "top3")}


def differences(ours: Any, reference: Any, path: str = "") -> Iterator[str]:
    """Compare every figure that both have."""
    if isinstance(ours, dict):
        for key in ours.keys() & reference.keys():
            yield from differences(ours[key], reference[key], f"{path} {key}")
    elif isinstance(ours, list):
        for i, (ours_item, reference_item) in enumerate(zip(ours, reference, strict=True)):
            yield from differences(ours_item, reference_item, f"{path} {i}")
    elif isinstance(ours, Estimate):
        yield from differences({"n": ours.n, "value": ours.value}, reference, path)
        yield from intervals_apart(ours, reference, path)
    elif not same(ours, reference, 0.0051 if "per_day" in path else ROUNDING):
        yield f"{path}: ours {ours}, the judge's {reference}"


def intervals_apart(ours: Estimate, reference: dict[str, Any], path: str) -> Iterator[str]:
    """If the reference has an interval over clusters too, ours is the wider of its two. If not, ours may be wider."""
    bounds = [reference["ci95"], reference.get("ci95_clustered", reference["ci95"])]
    low, high = max(bounds, key=lambda interval: (interval[1] or 0) - (interval[0] or 0))
    if not ours.clustered or "ci95_clustered" in reference:
        yield from differences([ours.low, ours.high], [low, high], path)
    elif ours.high - ours.low < high - low - ROUNDING:  # type: ignore[operator]
        yield f"{path}: {ours} is narrower than {low} to {high}"


def same(ours: Any, reference: Any, rounding: float) -> bool:
    if isinstance(ours, float) and isinstance(reference, int | float):
        return abs(ours - reference) <= rounding
    return bool(ours == reference)


@pytest.fixture
def labelled_recording(tmp_path: Path) -> Path:
    """Return ten snapshots. The first three are wrong."""
    snapshots = list(Simulator(MeshSpec(services=20, calls_per_service=2.0, seed=1), snapshots=10).snapshots())
    name = snapshots[0].node_ids[0].split("/", 1)[1]
    wrong = LabelledIncident(snapshots[0].observed_at, snapshots[2].observed_at, "latency", name)
    return write_recording(tmp_path / "shop", snapshots, wrong)


def test_a_label_without_a_namespace_finds_its_service(labelled_recording: Path) -> None:
    truth = read_truth(labelled_recording, guard=timedelta(seconds=15))
    assert truth.windows[0].span.culprit in truth.services
    assert truth.labels.tolist() == [1, 1, 1, -1] + [-2] * 6
    assert read_truth(labelled_recording).labels.tolist() == [1, 1, 1] + [-1] * 7, "two minutes by default"


def test_verdicts_that_cannot_be_evaluated_are_refused(labelled_recording: Path, tmp_path: Path) -> None:
    truth = read_truth(labelled_recording)
    good = [json.dumps({"observed_at": truth.instant(i).isoformat(), "mesh_score": 1.0}) for i in range(10)]
    path = tmp_path / "verdicts.jsonl"

    def evaluate_lines(*lines: str) -> RecordingResult:
        path.write_text("\n".join(lines))
        return evaluate_file(truth, path)

    assert evaluate_lines(*good).status == {"normal": 10}
    assert evaluate_lines(*good[:5]).notes[0].startswith("5 snapshots have no verdict")
    with pytest.raises(BadVerdicts, match=r"for each of the 10 snapshots of .*/shop .* got none for 6 of them"):
        evaluate_lines(*good[:4])
    with pytest.raises(BadVerdicts, match="got none for 10 of them and 10 about other times"):
        evaluate_lines(*(line.replace("2026", "2025") for line in good))
    with pytest.raises(BadVerdicts, match=r"verdicts.jsonl, line 2: expected a JSON object"):
        evaluate_lines(good[0], "{", *good[2:])
    with pytest.raises(BadVerdicts, match=r"line 1: .*got '\"normal\"'"):
        evaluate_lines('"normal"')
    with pytest.raises(BadVerdicts, match=r"line 1: .*'broken' is not a valid Status"):
        evaluate_lines(good[0].replace("}", ', "status": "broken"}'))
    with pytest.raises(BadVerdicts, match="expected a readable file"):
        read_series(tmp_path, truth)


def test_recordings_that_cannot_be_evaluated_are_refused(labelled_recording: Path) -> None:
    (labelled_recording / "incidents.parquet").unlink()
    with pytest.raises(BadRecording, match=r"expected incidents.parquet with the labels"):
        read_truth(labelled_recording)


def test_labels_with_a_place_make_located_incidents(tmp_path: Path) -> None:
    snapshots = list(Simulator(MeshSpec(services=20, calls_per_service=2.0, seed=1), snapshots=30).snapshots())
    times = [snapshot.observed_at for snapshot in snapshots]
    namespace, name = snapshots[0].node_ids[0].split("/", 1)
    details = {
        "recovered": times[10],
        "affected": [snapshots[0].node_ids[0]],
        "candidates": [snapshots[0].node_ids[1]],
        "severity": "minor",
        "effect_sigmas": 12.0,
        "root_cause_namespace": namespace,
    }
    label = LabelledIncident(times[5], times[8], "latency", name, details=details)
    folder = write_recording(tmp_path / "mesh", snapshots, label)
    truth = read_truth(folder)
    assert truth.form is Form.LOCATED
    assert truth.labels.tolist() == [0] * 5 + [1] * 3 + [-1] * 11 + [0] * 11, (
        "recovered at minute 10, and two more minutes"
    )
    (fault,) = truth.faults
    assert (fault.recovered, fault.effect, fault.severity) == (times[10], 12.0, "minor")
    assert fault.culprit == truth.windows[0].span.culprit == snapshots[0].node_ids[0]
    later = read_truth(folder, begin_after=timedelta(minutes=2))
    assert (later.faults, later.windows, later.begin) == ((), (), times[8])
    assert later.labels.tolist() == [-1] * 8 + [0] * 22
