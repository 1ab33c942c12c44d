"""Every detector judged on every recording."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path

from model.evaluate.figures import Figures, compare, figures
from model.evaluate.intervals import Difference
from model.evaluate.judged import RecordingResult, judge
from model.evaluate.series import VerdictSeries
from model.evaluate.truth import Form, GroundTruth
from serve_app.errors import BadRecording
from serve_app.evaluation.inputs import recording_names
from serve_app.evaluation.load import fitting, read_truth, read_verdicts
from serve_app.settings import AlertSettings

Draw = Callable[[str, GroundTruth, VerdictSeries, RecordingResult], str]  # of a detector on a recording


@dataclass(frozen=True)
class Sheet:
    """One recording: how each detector did, by name, and pictures of each, empty where none were asked for."""

    name: str
    form: Form
    judged: dict[str, RecordingResult]
    pictures: dict[str, str]
    controls: dict[str, RecordingResult]

    @cached_property
    def figures(self) -> dict[str, Figures]:
        """Of each detector."""
        return {
            name: figures([one], [self.controls[name]] if self.controls else []) for name, one in self.judged.items()
        }


@dataclass(frozen=True)
class Pool:
    """All recordings of one form."""

    form: Form
    sheets: tuple[Sheet, ...]

    @cached_property
    def figures(self) -> dict[str, Figures]:
        """Of each detector over all of them."""
        if len(self.sheets) == 1:
            return self.sheets[0].figures
        controlled = all(sheet.controls for sheet in self.sheets)
        return {
            name: figures(
                [sheet.judged[name] for sheet in self.sheets],
                [sheet.controls[name] for sheet in self.sheets] if controlled else [],
            )
            for name in self.sheets[0].judged
        }

    def compared(self, reference: str) -> dict[str, dict[str, Difference]]:
        """The reference minus each other detector, by its name; empty where there are no incidents."""
        told = {name: [sheet.judged[name] for sheet in self.sheets] for name in self.sheets[0].judged}
        found = {name: compare(told[reference], other) for name, other in told.items() if name != reference}
        return {name: apart for name, apart in found.items() if apart}


@dataclass(frozen=True, slots=True)
class JudgingOptions:
    """How to judge: see :func:`~serve_app.evaluation.load.read_truth`; ``alert`` has the budget of false pages."""

    alert: AlertSettings
    guard: timedelta | None = None
    begin_after: timedelta = timedelta(0)


def judge_sheet(
    name: str,
    recording: Path,
    files: dict[str, Path],
    rules: JudgingOptions,
    draw: Draw | None = None,
    control: tuple[Path, dict[str, Path]] | None = None,
) -> Sheet:
    """Judge every detector on one recording.

    Args:
        name, recording: what to call it, and its folder.
        files: the verdicts of each detector.
        rules: how to judge.
        draw: makes the pictures of a detector; None: no pictures.
        control: the muted control's folder and verdicts.

    Raises:
        BadRecording, BadVerdicts: what cannot be read or does not fit.
    """
    truth = read_truth(recording, guard=rules.guard, begin_after=rules.begin_after, name=name)
    promised = rules.alert.budget(len(truth.services))
    judged, pictures = {}, {}
    for detector, path in files.items():
        series = fitting(read_verdicts(path), truth, path)
        judged[detector] = judge(truth, series, promised)
        pictures[detector] = draw(detector, truth, series, judged[detector]) if draw else ""
    return Sheet(name, truth.form, judged, pictures, _control(truth, control, rules) if control else {})


def judge_all(
    recordings: Sequence[Path],
    files: Mapping[str, Sequence[Path]],
    rules: JudgingOptions,
    *,
    controls: Sequence[Path] = (),
    draw: Draw | None = None,
) -> Iterator[Sheet]:
    """Judge every detector on every recording, one after the other; see :func:`judge_sheet`.

    Args:
        recordings: their folders.
        files: of each detector one for each recording, then one for each control.
        rules, draw: how to judge, and to draw.
        controls: the muted control of each recording, or none at all.
    """
    names = recording_names([*recordings, *controls])

    def of(position: int) -> dict[str, Path]:
        return {detector: paths[position] for detector, paths in files.items()}

    for i, recording in enumerate(recordings):
        control = (controls[i], of(len(recordings) + i)) if controls else None
        yield judge_sheet(names[i], recording, of(i), rules, draw, control)


def pools(sheets: Sequence[Sheet]) -> list[Pool]:
    """The recordings by form, in the order of :class:`~model.evaluate.truth.Form`."""
    forms = [form for form in Form if any(sheet.form is form for sheet in sheets)]
    return [Pool(form, tuple(sheet for sheet in sheets if sheet.form is form)) for form in forms]


def _control(
    truth: GroundTruth, control: tuple[Path, dict[str, Path]], rules: JudgingOptions
) -> dict[str, RecordingResult]:
    folder, files = control
    sheet = judge_sheet(f"control of {truth.name}", folder, files, rules)
    if truth.form is not Form.LOCATED or sheet.form not in (Form.LOCATED, Form.NORMAL):
        raise BadRecording(
            f"control {folder}: expected two recordings whose incidents say which services they touched, came "
            f"{truth.name} ({truth.form}) and its control ({sheet.form}); leave --control out"
        )
    return sheet.judged
