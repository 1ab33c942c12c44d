"""Figures from recordings of real systems, and from the other simulator.

The rules of `make evaluate` apply. Verdict lines are kept below ``out/gate`` until the detector changes.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.gate.figures import MeasuredFigure
from benchmarks.workers import report_steps
from lab.comparison.cases import EVEN
from lab.comparison.lines import missing_work, score, verdict_path
from lab.comparison.parts import evaluate_task, recording_tasks
from lab.comparison.plan import OURS, SHARED, Job
from lab.evaluation.load import read_series, read_truth
from lab.evaluation.measures.alarms import AlarmCount
from lab.evaluation.measures.metrics import DetectorMetrics, compute_metrics
from lab.evaluation.measures.recording import evaluate_recording
from lab.evaluation.measures.truth import UNSCORED, Flags, Ints, microseconds
from model.snapshot import MeshSnapshot, NodeMetric
from serve_app.recordings.reader import RecordingReader
from serve_app.settings import AlertSettings

FOLDER = Path("out/gate")
VERDICTS = FOLDER / "verdicts"
BOUTIQUE, SHOP = SHARED / "nezha-onlineboutique/2022-08-22", SHARED / "rcaeval-sockshop/re1"
AUTOSCALED = SHARED / "scalereval-sockshop/autoscaled"
FRONT_END, HARM_SECONDS, AFTER_HARM = "sockshop/front-end", 1.0, timedelta(minutes=3)
OTHER_SIMULATOR = Path("../shared/other_mesh/generate.py")  # by other people; it shares no code with ours
OTHER_SERVICES, OTHER_HOURS = 300, 4
OTHER_OPTIONS = f"--services {OTHER_SERVICES} --hours {OTHER_HOURS} --churn high --incidents 24".split()
OTHER_FOLDER = FOLDER / f"other-{OTHER_SERVICES}-{OTHER_HOURS}h"


def snapshot_count(recording: Path) -> int:
    """Return a recording's number of snapshots, from its meta.json."""
    return int(RecordingReader(recording).meta["counts"]["snapshots"])


def measure_stream(part: str, recording: Path) -> list[MeasuredFigure]:
    """Measure recall, false alarms and ranking on a recording from a cold start, without even cases of a split one."""
    metrics = _metrics(Job("shared", OURS, (recording,)))
    alarms, ranking = metrics.false_alarms, metrics.ranking
    assert alarms is not None  # a stream has all three
    assert ranking is not None
    assert metrics.recall is not None
    noise = 1 / metrics.incidents
    shares = {f"recall at {budget} false alarms": recall for budget, recall in metrics.at_budget.items()}
    shares |= {"recall at the default threshold": metrics.recall, "root cause first": ranking.top1}
    return [
        *(MeasuredFigure(f"{part}: {name}", estimate.value or 0.0, True, noise) for name, estimate in shares.items()),
        MeasuredFigure(f"{part}: strict false alarms at the default threshold", alarms.count.strict, noise=1.0),
        _alarm_share(f"{part}: share of normal time in alarm", alarms.count),
    ]


def measure_calm(part: str, recording: Path) -> list[MeasuredFigure]:
    """Measure the share of time in alarm on a recording without faults, except while the front end is slow."""
    job = Job("shared", OURS, (recording,))
    _score(job)
    truth = read_truth(recording)
    is_harmed = harmed_times(truth.times, slow_times(recording))
    truth = replace(truth, labels=np.where(is_harmed, UNSCORED, truth.labels))
    series = read_series(verdict_path(VERDICTS, OURS, recording), truth)
    alarms = evaluate_recording(truth, series, AlertSettings().budget(len(truth.services))).labelled
    assert alarms is not None  # a recording of normal traffic has them
    return [_alarm_share(f"{part}: share of time in alarm without harm", alarms)]


def measure_other(part: str, seed: int) -> list[MeasuredFigure]:
    """Measure recall and false alerts on the other simulator's recording, which is made if it is missing."""
    path = other_recording(seed, OTHER_OPTIONS, OTHER_FOLDER)
    reader = RecordingReader(path)
    warm_up = datetime.fromisoformat(reader.meta["warmup_end"]) - next(reader.snapshots()).observed_at
    metrics = _metrics(Job("shared", OURS, (path,), judged_after=warm_up)).pages
    assert metrics is not None  # its incidents are located
    return [
        MeasuredFigure(f"{part}: recall", metrics.overall.recall.value or 0.0, True, join="mean"),
        MeasuredFigure(f"{part}: false alerts per hour", metrics.false_pages_an_hour.value or 0.0, join="mean"),
    ]


def other_recording(seed: int, options: Sequence[str], folder: Path) -> Path:
    """Return the folder of the other simulator's recording, with labels in our columns; make it if it is missing.

    Raises:
        subprocess.CalledProcessError: the other simulator failed; its message is on stderr.
    """
    path = folder / str(seed)
    if not (path / "converted").exists():
        command = [sys.executable, str(OTHER_SIMULATOR), *options, "--seed", str(seed), "--out", str(path)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        labels = path / "incidents.parquet"
        nodes = pq.read_table(path / "nodes.parquet", columns=["service", "namespace"])
        pq.write_table(
            _our_labels(pq.read_table(labels), nodes.group_by(["service", "namespace"]).aggregate([])), labels
        )
        (path / "converted").touch()
    return path


def _our_labels(labels: pa.Table, nodes: pa.Table) -> pa.Table:
    """Return the labels with lists of node ids in place of JSON texts with names, which are unique in a mesh."""
    if not labels.num_rows:  # the other simulator then writes no columns
        return labels
    ids = {row["service"]: f"{row['namespace']}/{row['service']}" for row in nodes.to_pylist()}
    for ours, theirs in {"candidates": "root_cause_candidates", "affected": "affected_services"}.items():
        lists = [json.loads(text or "[]") for text in labels.column(theirs).to_pylist()]
        column = pa.array([[ids[name] for name in names if name in ids] for names in lists], pa.list_(pa.string()))
        labels = labels.drop_columns([theirs]).append_column(ours, column)
    return labels


def slow_times(recording: Path) -> Ints:
    """Return the times at which the front end is slow, microseconds since 1970, ``[S]``."""
    snapshots = RecordingReader(recording).snapshots()
    slow = [snapshot.observed_at for snapshot in snapshots if _front_p99(snapshot) > HARM_SECONDS]
    return np.array([microseconds(time) for time in slow], np.int64)


def harmed_times(times: Ints, slow: Ints) -> Flags:
    """Return whether each time ``[T]`` is at a slow one ``[S]``, or up to three minutes after it. Both are
    microseconds; slow times are sorted."""
    if not len(slow):
        return np.zeros(len(times), np.bool_)
    before = np.searchsorted(slow, times, side="right") - 1  # the latest slow time
    since = times - slow[np.maximum(before, 0)]
    return np.asarray((before >= 0) & (since <= AFTER_HARM / timedelta(microseconds=1)), np.bool_)


def _front_p99(snapshot: MeshSnapshot) -> float:
    """Return the front end's p99 latency, s; NaN if it is not measured."""
    return float(snapshot.node_features[snapshot.node_ids.index(FRONT_END), NodeMetric.P99_LATENCY])


def _metrics(job: Job) -> DetectorMetrics:
    """Return our detector's metrics on a job's recording."""
    _score(job)
    (task,) = [candidate for candidate in recording_tasks([job], VERDICTS) if candidate.cases != EVEN]
    return compute_metrics([evaluate_task(task).results[OURS]])


def _score(job: Job) -> None:
    """Write a job's verdict lines if they are missing or out of date."""
    work = missing_work(job, VERDICTS)
    if work is not None:
        score(work, VERDICTS, report_steps)


def _alarm_share(figure: str, count: AlarmCount) -> MeasuredFigure:
    """Return the share of normal snapshots in alarm. Its noise is a false alarm of mean length, at least a snapshot."""
    length = max(count.alarmed / max(count.strict, 1), 1.0)
    return MeasuredFigure(figure, count.alarmed / count.snapshots, noise=length / count.snapshots)
