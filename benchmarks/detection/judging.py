"""Lines judged recording by recording, and parts of the evaluation put together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.detection.lines import kept_at
from benchmarks.detection.plan import ALERTS, DETECTORS, Job
from benchmarks.detection.raised import Told
from model.evaluate.truth import Form
from serve_app.evaluation.load import read_verdicts
from serve_app.evaluation.run import JudgingOptions, Pool, Sheet, judge_sheet
from serve_app.settings import AlertSettings


@dataclass(frozen=True, slots=True)
class Judging:
    """One recording to be judged.

    Attributes:
        part: what it is reported in: its data set and form, or the size of a simulated mesh.
        recording: its folder.
        files: lines of each detector.
        rules: how to judge.
        control: it has no benign actions.
    """

    part: str
    recording: Path
    files: dict[str, Path]
    rules: JudgingOptions
    control: bool


@dataclass(frozen=True, slots=True)
class Part:
    """Recordings that are reported together, and, with located incidents, the verdicts of each detector on them.

    Attributes:
        name: of it.
        pool: their judgements.
        controls: those of the same meshes without benign actions.
        told: of each detector, one a recording.
    """

    name: str
    pool: Pool
    controls: tuple[Sheet, ...]
    told: dict[str, tuple[Told, ...]]


def judgings(jobs: Iterable[Job], folder: Path, order: Sequence[str] = DETECTORS) -> list[Judging]:
    """One for each recording of the jobs, with its detectors in this order."""
    found: dict[Path, Judging] = {}
    for job in jobs:
        for path in job.recordings:
            part = path.parent.name if job.part == "shared" else f"simulated, {int(job.part):,} services"
            one = found.setdefault(
                path,
                Judging(part, path, {}, JudgingOptions(AlertSettings(), begin_after=job.judged_after), job.control),
            )
            one.files.update({name: kept_at(folder, name, path) for name in job.detectors})
    return [replace(one, files={n: one.files[n] for n in order if n in one.files}) for one in found.values()]


def judged(judging: Judging) -> Sheet:
    """By the rules."""
    name = f"{judging.recording.parent.name}/{judging.recording.name}"
    others = {detector: path for detector, path in judging.files.items() if detector not in ALERTS}
    sheet = judge_sheet(name, judging.recording, others, judging.rules)
    for detector in [one for one in judging.files if one in ALERTS]:  # it promises another number of pages
        rules = replace(judging.rules, alert=ALERTS[detector])
        own = judge_sheet(name, judging.recording, {detector: judging.files[detector]}, rules)
        sheet = replace(sheet, judged=sheet.judged | own.judged, pictures=sheet.pictures | own.pictures)
    return sheet


def parts(judgings: Sequence[Judging], sheets: Sequence[Sheet]) -> list[Part]:
    """Recordings of one data set and form together; controls beside theirs."""
    found: dict[tuple[str, Form], list[tuple[Judging, Sheet]]] = {}
    for judging, sheet in zip(judgings, sheets, strict=True):
        found.setdefault((judging.part, sheet.form), []).append((judging, sheet))
    return [_part(name, form, found[name, form]) for name, form in sorted(found)]


def _part(name: str, form: Form, members: Sequence[tuple[Judging, Sheet]]) -> Part:
    lively = [(judging, sheet) for judging, sheet in members if not judging.control]
    told: dict[str, tuple[Told, ...]] = {}
    if form is Form.LOCATED:
        told = {
            detector: tuple(_told(judging.files[detector], sheet, detector) for judging, sheet in lively)
            for detector in lively[0][0].files
        }
    controls = tuple(sheet for judging, sheet in members if judging.control)
    return Part(f"{name}, {form.value}", Pool(form, tuple(sheet for _, sheet in lively)), controls, told)


def _told(lines: Path, sheet: Sheet, detector: str) -> Told:
    watch = sheet.judged[detector].watch
    assert watch is not None  # located incidents have one
    return Told(watch, tuple(read_verdicts(lines)))
