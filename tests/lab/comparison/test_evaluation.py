"""A small evaluation: which recordings are scored, which lines are cached, limits in hindsight, and the table."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from benchmarks import figures
from lab.comparison import lines, simulated
from lab.comparison.digest import ROOT, decisive_files
from lab.comparison.lines import code_digest, missing_work, score, verdict_path
from lab.comparison.parts import evaluate_task, group_parts, recording_tasks
from lab.comparison.plan import DETECTORS, OURS, Job, shared_jobs, simulated_jobs
from lab.comparison.rows import rows
from lab.comparison.simulated import SEEDS, SILENT_SEEDS, Run, record
from lab.evaluation.load import read_verdicts
from lab.evaluation.measures.located import AlertRecord, LocatedFault, LocatedRun
from lab.evaluation.measures.thresholds import LocatedVerdicts, false_pages_at_recall, recall_within, sweep_thresholds
from lab.evaluation.measures.truth import Form
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.verdict import Severity, Status, Suspect
from serve_app.recordings.format import LabelledIncident
from serve_app.recordings.reader import RecordingReader
from tests.builders import START, incident, verdict, write_recording

STEP = timedelta(seconds=15)


def recording(path: Path, snapshots: int = 40, incidents: Sequence[LabelledIncident] = ()) -> Path:
    spec = MeshSpec(services=13, calls_per_service=2.0, seed=5)
    return write_recording(path, Simulator(spec, snapshots=snapshots).snapshots(), *incidents)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data set with normal traffic and a stream."""
    root = tmp_path_factory.mktemp("recordings")
    recording(root / "shop" / "low_traffic-normal")
    fault = LabelledIncident(START + 20 * STEP, START + 24 * STEP, "delay", "web-1")
    recording(root / "shop" / "day", incidents=[fault])
    return root


def test_issues_are_warmed_up_by_normal_traffic_and_other_recordings_start_cold(tmp_path: Path) -> None:
    warmed_up_by = {
        "low_traffic-normal": None,
        "low_traffic-issues-a": "low_traffic-normal",
        "temporal_traffic1-issues-b": "low_traffic-normal",
        "busy-normal": None,
        "busy-issues-c": "busy-normal",
        "day": None,
    }
    for name in warmed_up_by:
        (tmp_path / "shop" / name).mkdir(parents=True)
        (tmp_path / "shop" / name / "meta.json").write_text("{}")
    warm_ups = {path.name: job.warm_up and job.warm_up.name for job in shared_jobs(tmp_path) for path in job.recordings}
    assert warm_ups == warmed_up_by
    assert shared_jobs(tmp_path / "absent") == []


def test_every_detector_meets_the_churn_and_the_silences() -> None:
    pairs = {(path.name, job.detector) for job in simulated_jobs(300) for path in job.recordings}
    assert pairs == {
        *((f"300-{seed}-churn", name) for seed in SEEDS[300] for name in DETECTORS),
        *((f"300-{seed}-silence", name) for seed in SILENT_SEEDS[300] for name in DETECTORS),
    }


def test_a_mesh_with_silences_has_no_faults_and_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "WARM_UP", 40)
    monkeypatch.setattr(simulated, "JUDGED", 60)
    path = record(Run(40, SILENT_SEEDS[300][0], silent=True), tmp_path)
    reader = RecordingReader(path)
    assert reader.incidents() == []
    assert len(reader.meta["silences"]) > 2
    assert record(Run(40, SILENT_SEEDS[300][0], silent=True), tmp_path) == path, "the result is cached"
    job = Job("40", OURS, (path,), judged_after=40 * STEP)
    score(job, tmp_path / "verdicts")
    tasks = recording_tasks([job], tmp_path / "verdicts")
    (part,) = group_parts(tasks, [evaluate_task(task) for task in tasks])
    assert part.name == "simulated, 40 services, normal"
    measures = {row["measure"]: row["value"] for row in rows(part)}
    assert measures["fault_free_pages_per_day"] == measures["false_pages_per_hour_of_silence"] == 0.0


def test_lines_are_cached_until_code_or_recording_changes(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job("shared", OURS, (shop / "shop" / "day",), shop / "shop" / "low_traffic-normal")
    assert missing_work(job, tmp_path) == job
    ticks: list[int] = []
    score(job, tmp_path, ticks.append)
    assert sum(ticks) == 2 * 32, "a warm-up and a recording of 40 snapshots, a tick every 16"
    verdicts = list(read_verdicts(verdict_path(tmp_path, OURS, job.recordings[0])))
    assert [verdict.observed_at for verdict in verdicts] == [START + i * STEP for i in range(40)]
    assert Status.WARMING_UP not in {verdict.status for verdict in verdicts}, "warmed up before"
    assert missing_work(job, tmp_path) is None
    cold = replace(job, warm_up=None)
    assert missing_work(cold, tmp_path) == cold
    monkeypatch.setattr(lines, "code_digest", lambda name: "changed")
    assert missing_work(job, tmp_path) == job


def test_the_digest_covers_the_code_of_the_detector() -> None:
    assert len({code_digest(name) for name in DETECTORS}) == len(DETECTORS)
    ours = {path.relative_to(ROOT).as_posix() for path in (*decisive_files(ROOT), *lines.compiled_code())}
    assert {"model/decision/meta_model.py", "model/weights/tagae.safetensors", "kernels/csrc/passes.cpp"} <= ours
    assert not any(path.startswith("lab/") for path in ours)


def test_a_data_set_is_reported_by_form(shop: Path, tmp_path: Path) -> None:
    jobs = shared_jobs(shop)
    for job in jobs:
        score(job, tmp_path)
    tasks = recording_tasks(jobs, tmp_path)
    parts = group_parts(tasks, [evaluate_task(task) for task in tasks])
    assert {(part.name, part.pool.form) for part in parts} == {
        ("shop, stream", Form.STREAM),
        ("shop, normal", Form.NORMAL),
    }
    measures = [row for part in parts for row in rows(part)]
    assert {row["detector"] for row in measures} == {OURS}
    assert {"top_1", "recall", "recall_at_3_false_alarms", "alarm_share"} <= {row["measure"] for row in measures}


def verdicts_of(*scores: dict[str, float]) -> LocatedVerdicts:
    """Return verdicts from the incident scores of each snapshot, by incident id."""
    verdicts = [
        verdict(
            *(
                incident(name[0], id=name, severity=Severity.MINOR, score=score, suspects=(Suspect(name[0], 1.0),))
                for name, score in open_now.items()
            ),
            observed_at=START + i * STEP,
        )
        for i, open_now in enumerate(scores)
    ]
    fault = LocatedFault(
        START + 2 * STEP, START + 4 * STEP, START + 4 * STEP, "a", frozenset("a"), frozenset("a"), "delay"
    )
    later = replace(fault, start=START + 60 * STEP, end=START + 62 * STEP, recovered=START + 62 * STEP)
    end = START + 240 * STEP
    return LocatedVerdicts(
        LocatedRun((AlertRecord("a1", START + 2 * STEP, ("a",), frozenset("a")),), (fault, later), STEP, START, end),
        tuple(verdicts),
    )


def test_limits_in_hindsight() -> None:
    """An hour with two faults: one is found weakly, then strongly, the other weakly. False incidents score 2 and 6."""
    run = verdicts_of({"b1": 2.0}, {"c1": 6.0}, {"a1": 1.0}, {"a1": 8.0}, *[{}] * 56, {"a2": 3.0})
    assert run.with_threshold(5.0).pages == (
        AlertRecord("c1", START + STEP, ("c",), frozenset("c")),
        AlertRecord("a1", START + 3 * STEP, ("a",), frozenset("a")),
    ), "an alert is raised once the incident is strong"
    results = sweep_thresholds([run])
    assert (results[0].recall, results[0].false_pages_an_hour) == (1.0, 2.0)
    recalls = [recall_within(results, budget) for budget in (2.0, 1.0, 0.0)]
    assert [recall.value if recall else None for recall in recalls] == [1.0, 1.0, 0.5]
    rates = [false_pages_at_recall(results, recall) for recall in (0.5, 1.0)]
    assert [rate.value if rate else None for rate in rates] == [0.0, 1.0]


def test_a_run_without_incidents_has_one_limit() -> None:
    results = sweep_thresholds([replace(verdicts_of({}, {}), run=replace(verdicts_of({}).run, pages=()))])
    assert [(result.recall, result.false_pages_an_hour) for result in results] == [(0.0, 0.0)]
    assert false_pages_at_recall(results, 0.5) is None


def test_the_table_shows_the_best_contender_within_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        ("recall", OURS): 0.6, ("recall", "loud"): 0.9, ("recall", "quiet"): 0.4, ("recall", "quieter"): 0.3,
        ("false_pages_per_hour", OURS): 1.0, ("false_pages_per_hour", "loud"): 30.0,
        ("false_pages_per_hour", "quiet"): 2.0, ("false_pages_per_hour", "quieter"): 0.0,
    }  # fmt: skip
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    rows = [
        {"part": figures.MESH, "measure": measure, "detector": name, "value": value, "low": 0.1, "high": 0.7}
        for (measure, name), value in values.items()
    ]
    (tmp_path / "benchmarks" / "results" / "detection.jsonl").write_text("\n".join(map(json.dumps, rows)))
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    header, _, line = figures.detection().splitlines()
    assert header == "| | TAGAE | strongest contender |"
    assert line.endswith("| **0.60 (0.10 to 0.70), 1** | quiet 0.40 (0.10 to 0.70), 2 |")
