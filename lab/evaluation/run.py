"""Evaluates every detector on every recording."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from pathlib import Path

from lab.evaluation.inputs import recording_names
from lab.evaluation.load import read_series, read_truth
from lab.evaluation.measures.metrics import DetectorMetrics, compute_metrics
from lab.evaluation.measures.recording import RecordingResult, evaluate_recording
from lab.evaluation.measures.truth import Form, GroundTruth
from serve_app.settings import AlertSettings


@dataclass(frozen=True, slots=True)
class Sheet:
    """Each detector's result on one recording, by name."""

    name: str
    form: Form
    results: dict[str, RecordingResult]


@dataclass(frozen=True)
class Pool:
    """All recordings of one form."""

    form: Form
    sheets: tuple[Sheet, ...]

    @cached_property
    def metrics(self) -> dict[str, DetectorMetrics]:
        return {
            name: compute_metrics([sheet.results[name] for sheet in self.sheets]) for name in self.sheets[0].results
        }


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """Options of an evaluation.

    Attributes:
        alert: settings with the budget of false alerts.
        begin_after: see :func:`~lab.evaluation.load.read_truth`.
        own_alerts: settings of the detectors that do not run with ``alert``.
    """

    alert: AlertSettings
    begin_after: timedelta = timedelta(0)
    own_alerts: Mapping[str, AlertSettings] = field(default_factory=dict)


def evaluate_sheet(truth: GroundTruth, files: Mapping[str, Path], options: EvaluationOptions) -> Sheet:
    """Evaluate every detector on one recording.

    Raises:
        BadVerdicts: a file cannot be read or does not match.
    """
    results = {}
    for detector, path in files.items():
        alert = options.own_alerts.get(detector, options.alert)
        results[detector] = evaluate_recording(truth, read_series(path, truth), alert.budget(len(truth.services)))
    return Sheet(truth.name, truth.form, results)


def evaluate_all(
    recordings: Sequence[Path], files: Mapping[str, Sequence[Path]], options: EvaluationOptions
) -> Iterator[Sheet]:
    """Evaluate every detector on every recording, one after the other.

    Args:
        files: each detector's verdicts, one file for each recording.

    Raises:
        BadRecording, BadVerdicts: a file cannot be read or does not match.
    """
    for i, (name, recording) in enumerate(zip(recording_names(recordings), recordings, strict=True)):
        truth = read_truth(recording, begin_after=options.begin_after, name=name)
        yield evaluate_sheet(truth, {detector: paths[i] for detector, paths in files.items()}, options)


def pool_by_form(sheets: Sequence[Sheet]) -> list[Pool]:
    """Group the recordings by form, in the order of :class:`~lab.evaluation.measures.truth.Form`."""
    forms = [form for form in Form if any(sheet.form is form for sheet in sheets)]
    return [Pool(form, tuple(sheet for sheet in sheets if sheet.form is form)) for form in forms]
