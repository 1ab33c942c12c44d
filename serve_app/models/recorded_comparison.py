"""Compares two models on recordings, without a service: each scores them from the beginning, in this process."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from model.checkpoint import Checkpoint, load_or_shipped
from model.snapshot import MeshSnapshot
from serve_app.api.schemas.models import BlockDocument, ComparisonOfModels, MeshTrialDocument, ModelCard
from serve_app.errors import UnfitModel
from serve_app.models.comparison import ModelOutcome, add_snapshot, compare, outcome_of
from serve_app.models.registry import Registry
from serve_app.pipeline import Mesh, Options, advance, options
from serve_app.recordings.segments import open_recording
from serve_app.settings import Settings


def compare_over_recordings(
    registry: Registry,
    candidate: ModelCard,
    baseline: ModelCard | None,
    recordings: Sequence[Path],
    settings: Settings,
) -> ComparisonOfModels:
    """Score each recording with both models, and compare the results. Unlike in a trial, each model has its own state,
    as if it had always been in use.

    Args:
        baseline: its card; None: the configured weights.
        settings: how meshes are scored, and the alert budget.

    Raises:
        BadRecording: a recording cannot be read.
        UnfitModel: both are the same model.
        UnknownModel, RegistryGone, IncompatibleWeights: a model cannot be loaded.
    """
    network = settings.model.network
    first = registry.load(candidate.version, candidate.sha256)
    second = (
        load_or_shipped(settings.model.weights, network=network)
        if baseline is None
        else registry.load(baseline.version, baseline.sha256)
    )
    if first.digest == second.digest:
        raise UnfitModel(f"model {first.digest}: expected another baseline, got the same model; name one")
    trials = [trial_over(path.name, open_recording(path).snapshots(), first, second, settings) for path in recordings]
    return compare(first.digest, second.digest, trials, settings.alert.budget)


def trial_over(
    name: str,
    snapshots: Iterable[MeshSnapshot],
    candidate: Checkpoint,
    baseline: Checkpoint,
    settings: Settings,
    since: datetime | None = None,
) -> MeshTrialDocument:
    """Return both models' results for a mesh's snapshots; snapshots before ``since`` do not count."""
    trial = MeshTrialDocument(mesh=name, services=0, candidate=candidate.digest, baseline=baseline.digest)
    runs, chosen_options = (_Run(candidate), _Run(baseline)), options(settings, name)
    began = since
    for snapshot in snapshots:
        outcomes = [run.score(snapshot, chosen_options) for run in runs]
        if since is not None and snapshot.observed_at < since:
            continue
        began = began or snapshot.observed_at  # all of a recording's blocks belong to one stage
        empty = BlockDocument(since=began, share=0, began=snapshot.observed_at)
        interval = runs[0].mesh.state.interval_seconds
        trial = add_snapshot(trial, snapshot.observed_at, outcomes[0], outcomes[1], empty, interval)
        trial = trial.model_copy(update={"services": snapshot.num_nodes})
    return trial


@dataclass(slots=True)
class _Run:
    """A mesh as scored by one model, and the ids of its alerts."""

    checkpoint: Checkpoint
    mesh: Mesh = field(default_factory=Mesh)
    alerts: frozenset[str] = frozenset()

    def score(self, snapshot: MeshSnapshot, options: Options) -> ModelOutcome:
        verdict, self.mesh = advance(self.checkpoint, self.mesh, snapshot, options)
        outcome = outcome_of(verdict, self.alerts)
        self.alerts = outcome.alerts
        return outcome
