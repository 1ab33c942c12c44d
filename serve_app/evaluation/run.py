"""Runs the evaluation: every detector on every recording."""

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
from serve_app.evaluation.load import match_verdicts, read_truth, read_verdicts
from serve_app.settings import AlertSettings

Draw = Callable[[GroundTruth, VerdictSeries, RecordingResult], str]  # HTML of the charts of a detector


@dataclass(frozen=True)
class Sheet:
    """One recording: the result, the charts (empty if not requested) and the control of each detector, by name."""

    name: str
    form: Form
    judged: dict[str, RecordingResult]
    charts: dict[str, str]
    controls: dict[str, RecordingResult]

    @cached_property
    def figures(self) -> dict[str, Figures]:
        """Return the figures of each detector."""
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
        """Return the figures of each detector over all recordings."""
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

    def compare_with(self, reference: str) -> dict[str, dict[str, Difference]]:
        """Return the reference minus each other detector, by its name; empty if there are no incidents."""
        results = {name: [sheet.judged[name] for sheet in self.sheets] for name in self.sheets[0].judged}
        found = {name: compare(results[reference], other) for name, other in results.items() if name != reference}
        return {name: differences for name, differences in found.items() if differences}


@dataclass(frozen=True, slots=True)
class JudgingOptions:
    """How to evaluate: see :func:`~serve_app.evaluation.load.read_truth`; ``alert`` has the budget of false alerts."""

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
    """Evaluate every detector on one recording.

    Args:
        name, recording: its name and its folder.
        files: the verdicts of each detector.
        rules: how to evaluate.
        draw: draws the charts of a detector; None: no charts.
        control: the muted control's folder and verdicts.

    Raises:
        BadRecording, BadVerdicts: a file cannot be read or does not match.
    """
    truth = read_truth(recording, guard=rules.guard, begin_after=rules.begin_after, name=name)
    promised = rules.alert.budget(len(truth.services))
    judged, charts = {}, {}
    for detector, path in files.items():
        series = match_verdicts(read_verdicts(path), truth, path)
        judged[detector] = judge(truth, series, promised)
        charts[detector] = draw(truth, series, judged[detector]) if draw else ""
    return Sheet(name, truth.form, judged, charts, _control(truth, control, rules) if control else {})


def judge_all(
    recordings: Sequence[Path],
    files: Mapping[str, Sequence[Path]],
    rules: JudgingOptions,
    *,
    controls: Sequence[Path] = (),
    draw: Draw | None = None,
) -> Iterator[Sheet]:
    """Evaluate every detector on every recording, one after the other; see :func:`judge_sheet`.

    Args:
        recordings: their folders.
        files: verdicts of each detector, one file for each recording, then one for each control.
        rules, draw: how to evaluate, and how to draw.
        controls: the muted control of each recording; empty without controls.
    """
    names = recording_names([*recordings, *controls])

    def files_of(position: int) -> dict[str, Path]:
        return {detector: paths[position] for detector, paths in files.items()}

    for i, recording in enumerate(recordings):
        control = (controls[i], files_of(len(recordings) + i)) if controls else None
        yield judge_sheet(names[i], recording, files_of(i), rules, draw, control)


def pool_by_form(sheets: Sequence[Sheet]) -> list[Pool]:
    """Group the recordings by form, in the order of :class:`~model.evaluate.truth.Form`."""
    forms = [form for form in Form if any(sheet.form is form for sheet in sheets)]
    return [Pool(form, tuple(sheet for sheet in sheets if sheet.form is form)) for form in forms]


def _control(
    truth: GroundTruth, control: tuple[Path, dict[str, Path]], rules: JudgingOptions
) -> dict[str, RecordingResult]:
    folder, files = control
    sheet = judge_sheet(f"control of {truth.name}", folder, files, rules)
    if truth.form is not Form.LOCATED or sheet.form not in (Form.LOCATED, Form.NORMAL):
        raise BadRecording(
            f"control {folder}: expected two recordings whose labels name the affected services, came "
            f"{truth.name} ({truth.form}) and its control ({sheet.form}); leave out --control"
        )
    return sheet.judged
