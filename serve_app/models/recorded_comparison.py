"""Compares two models over recordings, without a service: each scores them from the beginning, in this process."""

import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from model.checkpoint import Checkpoint, load_or_shipped
from model.snapshot import MeshSnapshot
from serve_app.api.schemas.models import (
    BlockDocument,
    ComparisonOfModels,
    MeshTrialDocument,
    ModelCard,
    OutcomeDocument,
    PairDocument,
)
from serve_app.errors import UnfitModel
from serve_app.models.comparison import compare, outcome_of
from serve_app.models.registry import Registry
from serve_app.models.trial_documents import add_snapshot
from serve_app.pipeline import Mesh, advance, options
from serve_app.recordings.reader import RecordingReader
from serve_app.recordings.segments import SegmentReader, segments
from serve_app.settings import Settings


def compare_over_recordings(
    registry: Registry,
    candidate: ModelCard,
    baseline: ModelCard | None,
    recordings: Sequence[Path],
    settings: Settings,
) -> ComparisonOfModels:
    """Score each recording with both models, and compare what they make of it. Unlike in a trial, each model has a
    state of its own, as if it had always been in use.

    Args:
        registry: that has the models.
        candidate: its card.
        baseline: its card; None: the weights of the settings.
        recordings: folders.
        settings: how meshes are scored, and the budget of alerts.

    Raises:
        BadRecording: one cannot be read.
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
    readers = {path.name: SegmentReader(path) if segments(path) else RecordingReader(path) for path in recordings}
    trials = [_trial_over(name, reader.snapshots(), first, second, settings) for name, reader in readers.items()]
    return compare(first.digest, second.digest, trials, settings.alert.budget)


def _trial_over(
    name: str, snapshots: Iterable[MeshSnapshot], candidate: Checkpoint, baseline: Checkpoint, settings: Settings
) -> MeshTrialDocument:
    trial = MeshTrialDocument(mesh=name, services=0, candidate=candidate.digest, baseline=baseline.digest)
    meshes = {one.digest: Mesh() for one in (candidate, baseline)}
    known: dict[str, set[str]] = {digest: set() for digest in meshes}
    for snapshot in snapshots:
        outcomes, new = [], []
        for checkpoint in (candidate, baseline):
            outcome, meshes[checkpoint.digest] = _score(checkpoint, meshes[checkpoint.digest], snapshot, settings)
            new.append(len(set(outcome.alerts) - known[checkpoint.digest]))
            known[checkpoint.digest] = set(outcome.alerts)
            outcomes.append(outcome)
        pair = PairDocument(observed_at=snapshot.observed_at, candidate=outcomes[0], baseline=outcomes[1])
        empty = BlockDocument(since=snapshot.observed_at, share=0, began=snapshot.observed_at)
        if trial.blocks:  # all blocks of a recording belong to one stage
            empty = empty.model_copy(update={"since": trial.blocks[0].since})
        interval = meshes[candidate.digest].state.interval_seconds
        trial = add_snapshot(trial, pair, (new[0], new[1]), empty, interval, snapshot.num_nodes, sys.maxsize)
    return trial


def _score(
    checkpoint: Checkpoint, mesh: Mesh, snapshot: MeshSnapshot, settings: Settings
) -> tuple[OutcomeDocument, Mesh]:
    began = time.perf_counter()
    verdict, after = advance(checkpoint, mesh, snapshot, options(settings))
    return outcome_of(verdict, time.perf_counter() - began), after
