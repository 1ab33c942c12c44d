from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lab.simulator.events.faults import Fault
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from lab.training.dataset import LabelledFault, TrainingRun, recorded_runs
from lab.training.train import TrainingOptions, TrainingReport, train
from model.checkpoint import Checkpoint, load, save

RECORDINGS = Path(__file__).parents[4] / "shared" / "recordings" / "nezha-onlineboutique"
Trained = tuple[Checkpoint, TrainingReport, list[str]]
TINY = TrainingOptions(seed=3, steps=30, batch=6, meta_steps=30)


def small_run(seed: int, faulty: bool) -> TrainingRun:
    """A recording of twenty services for 120 snapshots, with an error burst towards the end."""
    spec = MeshSpec(services=20, calls_per_service=2.0, seed=seed)
    simulator = Simulator(spec, snapshots=120)
    busy = int(np.argmax(simulator.mesh.usual_rate))
    faults = [Fault("error_burst", simulator.node_ids[busy], 70, 90)] if faulty else []
    simulator.schedule(*faults)
    snapshots = tuple(simulator.snapshots())
    labels = [LabelledFault(snapshots[f.start].observed_at, snapshots[f.end].observed_at, f.service) for f in faults]
    return TrainingRun(f"seed {seed}", lambda: snapshots, tuple(labels))


@pytest.fixture(scope="module")
def runs() -> Iterator[list[TrainingRun]]:
    """Training on four meshes, one without a fault, with one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield [small_run(seed, faulty=seed != 903) for seed in (900, 901, 902, 903)]
    torch.set_num_threads(threads)


def trained(runs: list[TrainingRun], options: TrainingOptions) -> Trained:
    steps: list[str] = []
    checkpoint, report = train(
        runs, options, {"seed": str(options.seed)}, lambda phase, completed, total: steps.append(phase)
    )
    return checkpoint, report, steps


@pytest.fixture(scope="module")
def tiny(runs: list[TrainingRun]) -> Trained:
    return trained(runs, TINY)


def test_training_reports_its_data(tiny: Trained, runs: list[TrainingRun]) -> None:
    _, report, steps = tiny
    assert {k: len(v) for k, v in report.losses.items()} == {"expectation": 30, "structure": 30}
    assert len(report.meta_losses) == 30
    assert all(np.isfinite(v).all() for v in (*report.losses.values(), report.meta_losses))
    assert report.pages_promised_per_day >= 1
    assert report.pages_observed_per_day >= 0
    assert 0 <= report.culprit_first <= 1
    assert steps.count("training the autoencoder") == steps.count("training the meta-model") == 30
    assert steps.count("reading runs") == len(runs)
    assert np.float32(1e-40) / np.float32(2) > 0, "denormals are still flushed to zero after training"


@pytest.mark.slow
def test_the_same_seed_gives_the_same_losses_and_weights(tiny: Trained, runs: list[TrainingRun]) -> None:
    checkpoint, report, _ = tiny
    again, repeat, _ = trained(runs, TINY)
    assert repeat == report
    theirs = again.network.state_dict() | again.meta.state_dict()
    ours = checkpoint.network.state_dict() | checkpoint.meta.state_dict()
    assert all(torch.equal(v, theirs[k]) for k, v in ours.items())
    assert again.page_offset == checkpoint.page_offset


def test_trained_weights_are_saved_and_loaded(tiny: Trained, tmp_path: Path) -> None:
    checkpoint, _, _ = tiny
    save(checkpoint, tmp_path / "w")
    assert load(tmp_path / "w").provenance == {"seed": "3"}
    assert not checkpoint.network.training


@pytest.mark.slow
def test_losses_fall(runs: list[TrainingRun]) -> None:
    _, report, _ = trained(runs, replace(TINY, steps=150, meta_steps=300))
    for name, losses in (report.losses | {"probability": report.meta_losses}).items():
        fifth = len(losses) // 5
        assert np.mean(losses[-fifth:]) < 0.9 * np.mean(losses[:fifth]), name


def test_labelled_recordings_are_for_evaluation_only() -> None:
    recordings = sorted(p.parent for p in RECORDINGS.rglob("incidents.parquet"))
    if not recordings:
        pytest.skip("no labelled recording in ../shared/recordings")
    with pytest.raises(ValueError, match="use recordings with labels for evaluation only"):
        recorded_runs(recordings[:1])
