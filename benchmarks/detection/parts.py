"""Verdict lines evaluated recording by recording, and recordings grouped into the parts of the report."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.detection.lines import verdict_path
from benchmarks.detection.plan import ALERTS, DETECTORS, Job
from model.evaluate.thresholds import LocatedVerdicts
from model.evaluate.truth import Form
from serve_app.evaluation.load import read_verdicts
from serve_app.evaluation.run import EvaluationOptions, Pool, Sheet, evaluate_sheet
from serve_app.settings import AlertSettings


@dataclass(frozen=True, slots=True)
class RecordingTask:
    """One recording to evaluate.

    Attributes:
        part: name of the part of the report: the data set, or the size of a simulated mesh.
        recording: its folder.
        options: how to evaluate.
        control: whether it is a control without benign changes.
        files: verdict lines of each detector.
    """

    part: str
    recording: Path
    options: EvaluationOptions
    control: bool
    files: dict[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Part:
    """Recordings that are reported together.

    Attributes:
        name: of the part.
        pool: results of the recordings.
        controls: results of the same meshes without benign changes.
        verdicts: of each detector, one entry per recording; empty unless the faults are located.
    """

    name: str
    pool: Pool
    controls: tuple[Sheet, ...]
    verdicts: dict[str, tuple[LocatedVerdicts, ...]]


def recording_tasks(jobs: Iterable[Job], folder: Path, order: Sequence[str] = DETECTORS) -> list[RecordingTask]:
    """One task per recording of the jobs, with its detectors in this order."""
    tasks: dict[Path, RecordingTask] = {}
    for job in jobs:
        options = EvaluationOptions(AlertSettings(), begin_after=job.judged_after, own_alerts=ALERTS)
        for path in job.recordings:
            part = path.parent.name if job.part == "shared" else f"simulated, {int(job.part):,} services"
            task = tasks.setdefault(path, RecordingTask(part, path, options, job.control))
            task.files.update({name: verdict_path(folder, name, path) for name in job.detectors})
    return [replace(one, files={n: one.files[n] for n in order if n in one.files}) for one in tasks.values()]


def evaluate_task(task: RecordingTask) -> Sheet:
    """Evaluate all detectors on one recording."""
    name = f"{task.recording.parent.name}/{task.recording.name}"
    return evaluate_sheet(name, task.recording, task.files, task.options)


def group_parts(tasks: Sequence[RecordingTask], sheets: Sequence[Sheet]) -> list[Part]:
    """Group the recordings by data set and form, with the controls beside them.

    Args:
        tasks: of the recordings.
        sheets: results of each task, in the same order.
    """
    groups: dict[tuple[str, Form], list[tuple[RecordingTask, Sheet]]] = {}
    for task, sheet in zip(tasks, sheets, strict=True):
        groups.setdefault((task.part, sheet.form), []).append((task, sheet))
    return [_part(name, form, groups[name, form]) for name, form in sorted(groups)]


def _part(name: str, form: Form, members: Sequence[tuple[RecordingTask, Sheet]]) -> Part:
    with_churn = [(task, sheet) for task, sheet in members if not task.control]
    verdicts: dict[str, tuple[LocatedVerdicts, ...]] = {}
    if form is Form.LOCATED:
        verdicts = {
            detector: tuple(_located_verdicts(task.files[detector], sheet, detector) for task, sheet in with_churn)
            for detector in with_churn[0][0].files
        }
    controls = tuple(sheet for task, sheet in members if task.control)
    return Part(f"{name}, {form.value}", Pool(form, tuple(sheet for _, sheet in with_churn)), controls, verdicts)


def _located_verdicts(lines: Path, sheet: Sheet, detector: str) -> LocatedVerdicts:
    run = sheet.results[detector].run
    assert run is not None  # recordings with located faults have one
    return LocatedVerdicts(run, tuple(read_verdicts(lines)))
