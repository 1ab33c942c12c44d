"""Judges the lines of each recording and groups recordings that are reported together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.detection.lines import verdict_path
from benchmarks.detection.plan import ALERTS, DETECTORS, Job
from benchmarks.detection.thresholds import JudgedRun
from model.evaluate.truth import Form
from serve_app.evaluation.load import read_verdicts
from serve_app.evaluation.run import JudgingOptions, Pool, Sheet, judge_sheet
from serve_app.settings import AlertSettings


@dataclass(frozen=True, slots=True)
class JudgingTask:
    """One recording to judge.

    Attributes:
        part: part of the report: its data set, or the size of the simulated mesh.
        recording: folder of the recording.
        files: verdict lines of each detector.
        rules: how to judge.
        control: whether it is a control run without benign actions.
    """

    part: str
    recording: Path
    files: dict[str, Path]
    rules: JudgingOptions
    control: bool


@dataclass(frozen=True, slots=True)
class Part:
    """Recordings that are reported together.

    Attributes:
        name: name in the report.
        pool: judgements of the recordings.
        controls: judgements of the control runs of the same meshes.
        runs: one run for each detector and recording, if incidents are located; else empty.
    """

    name: str
    pool: Pool
    controls: tuple[Sheet, ...]
    runs: dict[str, tuple[JudgedRun, ...]]


def judging_tasks(jobs: Iterable[Job], folder: Path, order: Sequence[str] = DETECTORS) -> list[JudgingTask]:
    """Return one task for each recording of the jobs, with the detectors in this order."""
    found: dict[Path, JudgingTask] = {}
    for job in jobs:
        for path in job.recordings:
            part = path.parent.name if job.part == "shared" else f"simulated, {int(job.part):,} services"
            one = found.setdefault(
                path,
                JudgingTask(part, path, {}, JudgingOptions(AlertSettings(), begin_after=job.judged_after), job.control),
            )
            one.files.update({name: verdict_path(folder, name, path) for name in job.detectors})
    return [replace(one, files={n: one.files[n] for n in order if n in one.files}) for one in found.values()]


def judge_recording(judging: JudgingTask) -> Sheet:
    """Judge the lines of all detectors on one recording."""
    name = f"{judging.recording.parent.name}/{judging.recording.name}"
    others = {detector: path for detector, path in judging.files.items() if detector not in ALERTS}
    sheet = judge_sheet(name, judging.recording, others, judging.rules)
    for detector in [one for one in judging.files if one in ALERTS]:  # it has another budget of false alerts
        rules = replace(judging.rules, alert=ALERTS[detector])
        own = judge_sheet(name, judging.recording, {detector: judging.files[detector]}, rules)
        sheet = replace(sheet, judged=sheet.judged | own.judged, charts=sheet.charts | own.charts)
    return sheet


def group_parts(judging_tasks: Sequence[JudgingTask], sheets: Sequence[Sheet]) -> list[Part]:
    """Group recordings by data set and form, with their control runs."""
    found: dict[tuple[str, Form], list[tuple[JudgingTask, Sheet]]] = {}
    for judging, sheet in zip(judging_tasks, sheets, strict=True):
        found.setdefault((judging.part, sheet.form), []).append((judging, sheet))
    return [_part(name, form, found[name, form]) for name, form in sorted(found)]


def _part(name: str, form: Form, members: Sequence[tuple[JudgingTask, Sheet]]) -> Part:
    lively = [(judging, sheet) for judging, sheet in members if not judging.control]
    runs: dict[str, tuple[JudgedRun, ...]] = {}
    if form is Form.LOCATED:
        runs = {
            detector: tuple(_run(judging.files[detector], sheet, detector) for judging, sheet in lively)
            for detector in lively[0][0].files
        }
    controls = tuple(sheet for judging, sheet in members if judging.control)
    return Part(f"{name}, {form.value}", Pool(form, tuple(sheet for _, sheet in lively)), controls, runs)


def _run(lines: Path, sheet: Sheet, detector: str) -> JudgedRun:
    watch = sheet.judged[detector].watch
    assert watch is not None  # judgements of located incidents have one
    return JudgedRun(watch, tuple(read_verdicts(lines)))
