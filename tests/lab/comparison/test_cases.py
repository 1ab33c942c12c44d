"""Odd and even cases of one recording: what counts in each part, and what notices find."""

import json
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from benchmarks import figures
from benchmarks.evaluate import update_rows
from lab.comparison import cases
from lab.comparison.cases import EVEN, ODD, keep_cases, measure_notices
from lab.comparison.lines import score
from lab.comparison.parts import evaluate_task, group_parts, recording_tasks
from lab.comparison.plan import OURS, Job
from lab.comparison.rows import rows
from lab.evaluation.measures.recording import IncidentOutcome
from lab.evaluation.measures.truth import FAULT, NORMAL, UNSCORED, Form, GroundTruth, Span, ground_truth
from model.verdict import Severity
from serve_app.api.codec import verdict_line
from serve_app.recordings.format import LabelledIncident
from tests.builders import START, incident, verdict
from tests.lab.comparison.test_evaluation import recording

STEP = timedelta(seconds=60)


def truth() -> GroundTruth:
    """Return three cases of six normal and two faulty snapshots each, an hour apart."""
    begins = [START + case * timedelta(hours=1) for case in range(3)]
    times = [begin + i * STEP for begin in begins for i in range(8)]
    spans = [Span(begin + 6 * STEP, begin + 7 * STEP, "cpu", f"a/{i}") for i, begin in enumerate(begins)]
    guard = timedelta(minutes=2)
    return ground_truth("three", Form.STREAM, times, STEP, ["a/0", "a/1", "a/2"], spans, guard=guard)


def test_a_part_has_every_second_case_and_its_normal_time() -> None:
    odd, even = keep_cases(truth(), ODD), keep_cases(truth(), EVEN)
    assert [[window.span.culprit for window in truth.windows] for truth in (odd, even)] == [["a/0", "a/2"], ["a/1"]]
    case, unscored = [NORMAL] * 6 + [FAULT] * 2, [UNSCORED] * 8
    assert odd.labels.tolist() == [*case, *unscored, *case]
    assert even.labels.tolist() == [*unscored, *case, *unscored]
    with pytest.raises(ValueError, match="cases: expected odd or even, got 'third'"):
        keep_cases(truth(), "third")


def line(at: datetime, severity: Severity) -> str:
    """Return the line of a verdict with an incident."""
    return verdict_line(verdict(incident("a/0", since=at, severity=severity), observed_at=at))


def test_notices_are_counted_by_kind_of_fault(tmp_path: Path) -> None:
    spans = [
        replace(window.span, kind=kind) for window, kind in zip(truth().windows, ("cpu", "cpu", "disk"), strict=True)
    ]
    outcomes = [IncidentOutcome(span, delay, None) for span, delay in zip(spans, (None, 3, None), strict=True)]
    lines = tmp_path / "verdicts.jsonl"
    early, late = spans[0].start - STEP, spans[0].end + 2 * STEP
    lines.write_text("\n".join([line(early, Severity.MINOR), line(late, Severity.NOTICE)]))
    measures = {name: estimate.value for name, estimate in measure_notices(outcomes, lines).items()}
    assert measures == {"recall_with_notices": 2 / 3, "notice_recall_of_cpu": 0.5, "notice_recall_of_disk": 0.0}
    lines.write_text(line(late, Severity.MINOR))
    assert measure_notices(outcomes, lines) == {}


def test_both_parts_are_reported_from_the_same_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "SPLIT", {"shop": (ODD, EVEN)})
    monkeypatch.setattr("lab.comparison.parts.SPLIT", cases.SPLIT)
    step = timedelta(seconds=15)
    faults = [LabelledIncident(START + i * step, START + (i + 4) * step, "delay", "web-1") for i in (20, 40)]
    path = recording(tmp_path / "shop" / "day", 50, faults)
    job = Job("shared", OURS, (path,))
    score(job, tmp_path / "verdicts")
    tasks = recording_tasks([job], tmp_path / "verdicts")
    parts = group_parts(tasks, [evaluate_task(task) for task in tasks])
    assert [part.name for part in parts] == ["shop, even cases, stream", "shop, odd cases, stream"]
    for part in parts:
        assert part.pool.metrics[OURS].incidents == 1
        assert {"recall_of_delay", "top_1", "recall_at_6_false_alarms"} <= {row["measure"] for row in rows(part)}


def test_rows_of_other_parts_and_detectors_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "detection.jsonl"

    def row(part: str, detector: str, measure: str, value: float) -> dict[str, object]:
        return {"part": part, "detector": detector, "measure": measure, "value": value}

    update_rows(
        path, [row("a", "x", "m", 1.0), row("a", "x", "gone", 1.0), row("a", "y", "m", 2.0), row("b", "x", "m", 3.0)]
    )
    update_rows(path, [row("a", "x", "m", 9.0)])
    stored = [(row["part"], row["detector"], row["value"]) for row in map(json.loads, path.read_text().splitlines())]
    assert stored == [("a", "y", 2.0), ("b", "x", 3.0), ("a", "x", 9.0)]


def test_the_table_shows_where_a_contender_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    monkeypatch.setattr(figures, "ROOT", tmp_path)

    def table(*values: tuple[str, float]) -> list[str]:
        new_rows = [
            {"part": figures.CASES, "measure": "top_1", "detector": name, "value": value, "low": None, "high": None}
            for name, value in values
        ]
        (tmp_path / "benchmarks" / "results" / "detection.jsonl").write_text("\n".join(map(json.dumps, new_rows)))
        return figures.detection().splitlines()[2:]

    line = "| Sock Shop, 62 even cases: root cause first"
    assert table((OURS, 0.5), ("BARO", 0.7), ("guarded", 0.6)) == [f"{line} | 0.50 | **BARO 0.70** |"]
    assert table((OURS, 0.8), ("BARO", 0.7)) == [f"{line} | **0.80** | BARO 0.70 |"]
    assert table((OURS, 0.7), ("BARO", 0.7)) == [f"{line} | 0.70 | BARO 0.70 |"]
    assert table(("BARO", 0.7)) == [], "ours has not been measured"
