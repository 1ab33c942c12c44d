"""Runs the evaluation: every detector on every recording."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from pathlib import Path

from lab.evaluation.inputs import recording_names
from lab.evaluation.load import read_series, read_truth
from lab.evaluation.measures.intervals import Difference
from lab.evaluation.measures.metrics import DetectorMetrics, compare_detectors, compute_metrics
from lab.evaluation.measures.recording import RecordingResult, evaluate_recording
from lab.evaluation.measures.series import VerdictSeries
from lab.evaluation.measures.truth import Form, GroundTruth
from serve_app.errors import BadRecording
from serve_app.settings import AlertSettings

Draw = Callable[[GroundTruth, VerdictSeries, RecordingResult], str]  # HTML of the charts of a detector


@dataclass(frozen=True)
class Sheet:
    """One recording: the result, the charts (empty if not requested) and the control of each detector, by name."""

    name: str
    form: Form
    results: dict[str, RecordingResult]
    charts: dict[str, str]
    controls: dict[str, RecordingResult]

    @cached_property
    def metrics(self) -> dict[str, DetectorMetrics]:
        """Return the metrics of each detector."""
        return {
            name: compute_metrics([one], [self.controls[name]] if self.controls else [])
            for name, one in self.results.items()
        }


@dataclass(frozen=True)
class Pool:
    """All recordings of one form."""

    form: Form
    sheets: tuple[Sheet, ...]

    @cached_property
    def metrics(self) -> dict[str, DetectorMetrics]:
        """Return the metrics of each detector over all recordings."""
        if len(self.sheets) == 1:
            return self.sheets[0].metrics
        controlled = all(sheet.controls for sheet in self.sheets)
        return {
            name: compute_metrics(
                [sheet.results[name] for sheet in self.sheets],
                [sheet.controls[name] for sheet in self.sheets] if controlled else [],
            )
            for name in self.sheets[0].results
        }

    def compare_with(self, reference: str) -> dict[str, dict[str, Difference]]:
        """Return the reference minus each other detector, by its name; empty if there are no incidents."""
        results = {name: [sheet.results[name] for sheet in self.sheets] for name in self.sheets[0].results}
        found = {
            name: compare_detectors(results[reference], other) for name, other in results.items() if name != reference
        }
        return {name: differences for name, differences in found.items() if differences}


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """How to evaluate.

    Attributes:
        alert: settings with the budget of false alerts.
        guard, begin_after: see :func:`~lab.evaluation.load.read_truth`.
        own_alerts: settings of the detectors that do not run with ``alert``.
    """

    alert: AlertSettings
    guard: timedelta | None = None
    begin_after: timedelta = timedelta(0)
    own_alerts: Mapping[str, AlertSettings] = field(default_factory=dict)


def evaluate_sheet(
    name: str,
    recording: Path,
    files: dict[str, Path],
    options: EvaluationOptions,
    draw: Draw | None = None,
    control: tuple[Path, dict[str, Path]] | None = None,
) -> Sheet:
    """Evaluate every detector on one recording.

    Args:
        name, recording: its name and its folder.
        files: the verdicts of each detector.
        options: how to evaluate.
        draw: draws the charts of a detector; None: no charts.
        control: the muted control's folder and verdicts.

    Raises:
        BadRecording, BadVerdicts: a file cannot be read or does not match.
    """
    truth = read_truth(recording, guard=options.guard, begin_after=options.begin_after, name=name)
    results, charts = {}, {}
    for detector, path in files.items():
        series = read_series(path, truth)
        alert = options.own_alerts.get(detector, options.alert)
        results[detector] = evaluate_recording(truth, series, alert.budget(len(truth.services)))
        charts[detector] = draw(truth, series, results[detector]) if draw else ""
    return Sheet(name, truth.form, results, charts, _control(truth, control, options) if control else {})


def evaluate_all(
    recordings: Sequence[Path],
    files: Mapping[str, Sequence[Path]],
    options: EvaluationOptions,
    *,
    controls: Sequence[Path] = (),
    draw: Draw | None = None,
) -> Iterator[Sheet]:
    """Evaluate every detector on every recording, one after the other; see :func:`evaluate_sheet`.

    Args:
        recordings: their folders.
        files: verdicts of each detector, one file for each recording, then one for each control.
        options, draw: how to evaluate, and how to draw.
        controls: the muted control of each recording; empty without controls.
    """
    names = recording_names([*recordings, *controls])

    def files_of(position: int) -> dict[str, Path]:
        return {detector: paths[position] for detector, paths in files.items()}

    for i, recording in enumerate(recordings):
        control = (controls[i], files_of(len(recordings) + i)) if controls else None
        yield evaluate_sheet(names[i], recording, files_of(i), options, draw, control)


def pool_by_form(sheets: Sequence[Sheet]) -> list[Pool]:
    """Group the recordings by form, in the order of :class:`~lab.evaluation.measures.truth.Form`."""
    forms = [form for form in Form if any(sheet.form is form for sheet in sheets)]
    return [Pool(form, tuple(sheet for sheet in sheets if sheet.form is form)) for form in forms]


def _control(
    truth: GroundTruth, control: tuple[Path, dict[str, Path]], options: EvaluationOptions
) -> dict[str, RecordingResult]:
    folder, files = control
    sheet = evaluate_sheet(f"control of {truth.name}", folder, files, options)
    if truth.form is not Form.LOCATED or sheet.form not in (Form.LOCATED, Form.NORMAL):
        raise BadRecording(
            f"control {folder}: expected two recordings whose labels name the affected services, got "
            f"{truth.name} ({truth.form}) and its control ({sheet.form}); leave out --control"
        )
    return sheet.results
