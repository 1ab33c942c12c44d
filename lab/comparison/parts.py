"""Evaluates verdict lines recording by recording, and groups recordings into the report's parts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lab.comparison.cases import SPLIT, keep_cases, measure_notices
from lab.comparison.lines import verdict_path
from lab.comparison.plan import ALERTS, DETECTORS, Job
from lab.evaluation.load import read_truth, read_verdicts
from lab.evaluation.measures.intervals import Estimate
from lab.evaluation.measures.thresholds import LocatedVerdicts
from lab.evaluation.measures.truth import Form
from lab.evaluation.run import EvaluationOptions, Pool, Sheet, evaluate_sheet
from serve_app.settings import AlertSettings


@dataclass(frozen=True, slots=True)
class RecordingTask:
    """One recording to evaluate.

    Attributes:
        part: name of the report's part: the data set, or the size of a simulated mesh.
        files: each detector's verdict lines.
        cases: ``odd`` or ``even`` if only these cases count; empty: all.
    """

    part: str
    recording: Path
    options: EvaluationOptions
    files: dict[str, Path] = field(default_factory=dict)
    cases: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """Recordings that are reported together.

    Attributes:
        verdicts: of each detector, one entry per recording; empty unless the faults are located.
        notice_measures: of each detector with notices; empty unless only some cases count.
    """

    name: str
    pool: Pool
    verdicts: dict[str, tuple[LocatedVerdicts, ...]]
    notice_measures: dict[str, dict[str, Estimate]] = field(default_factory=dict)


def recording_tasks(jobs: Iterable[Job], folder: Path) -> list[RecordingTask]:
    """Return a task per recording, or per part of a recording whose cases are split, with its detectors in the order of
    ``DETECTORS``."""
    tasks: dict[tuple[Path, str], RecordingTask] = {}
    for job in jobs:
        options = EvaluationOptions(AlertSettings(), begin_after=job.judged_after, own_alerts=ALERTS)
        pairs = ((path, cases) for path in job.recordings for cases in SPLIT.get(path.parent.name, ("",)))
        for recording, cases in pairs:
            part = recording.parent.name if job.part == "shared" else f"simulated, {int(job.part):,} services"
            part = f"{part}, {cases} cases" if cases else part
            task = tasks.setdefault((recording, cases), RecordingTask(part, recording, options, cases=cases))
            task.files[job.detector] = verdict_path(folder, job.detector, recording)
    return [replace(task, files={n: task.files[n] for n in DETECTORS if n in task.files}) for task in tasks.values()]


def evaluate_task(task: RecordingTask) -> Sheet:
    """Evaluate all detectors on one recording."""
    name = f"{task.recording.parent.name}/{task.recording.name}"
    if task.cases:
        name = f"{name}, {task.cases} cases"
    truth = read_truth(task.recording, begin_after=task.options.begin_after, name=name)
    return evaluate_sheet(keep_cases(truth, task.cases) if task.cases else truth, task.files, task.options)


def group_parts(tasks: Sequence[RecordingTask], sheets: Sequence[Sheet]) -> list[Part]:
    """Group the recordings by data set and form, sorted. ``sheets`` are the tasks' results, in the same order."""
    groups: dict[tuple[str, Form], list[tuple[RecordingTask, Sheet]]] = {}
    for task, sheet in zip(tasks, sheets, strict=True):
        groups.setdefault((task.part, sheet.form), []).append((task, sheet))
    return [_part(name, form, groups[name, form]) for name, form in sorted(groups)]


def _part(name: str, form: Form, members: Sequence[tuple[RecordingTask, Sheet]]) -> Part:
    verdicts: dict[str, tuple[LocatedVerdicts, ...]] = {}
    if form is Form.LOCATED:
        verdicts = {
            detector: tuple(_located_verdicts(task.files[detector], sheet, detector) for task, sheet in members)
            for detector in members[0][0].files
        }
    notices: dict[str, dict[str, Estimate]] = {}
    for task, sheet in (member for member in members if member[0].cases):
        notices |= {
            detector: measure_notices(sheet.results[detector].outcomes, path) for detector, path in task.files.items()
        }
    return Part(f"{name}, {form.value}", Pool(form, tuple(sheet for _, sheet in members)), verdicts, notices)


def _located_verdicts(lines: Path, sheet: Sheet, detector: str) -> LocatedVerdicts:
    run = sheet.results[detector].run
    assert run is not None  # recordings with located faults have one
    return LocatedVerdicts(run, tuple(read_verdicts(lines)))
