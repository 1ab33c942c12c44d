"""The training meshes' distributions, stored in a checkpoint to measure other meshes' drift."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from lab.training.dataset import SETTLE, TrainingRun, replay_run
from lab.training.train import ForEach
from model.drift.measures import population_stability_index
from model.drift.populations import BINS, POPULATIONS
from model.drift.reference import TrainingReference
from model.features import Array
from model.incidents.policy import AlertPolicy
from model.network.contract import MeshNetwork
from model.state.drift import count_snapshot

MIN_MESHES = 3  # with fewer, a limit would rest on a single other mesh
EVERY = 8  # normal snapshots between two that count


def reference_of(
    network: MeshNetwork,
    runs: Sequence[TrainingRun],
    each: ForEach = map,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> TrainingReference:
    """Return a trained network's reference, from its training runs' normal traffic."""
    shares = []
    for histograms in each(partial(summarise_run, network), runs):
        shares.append(histograms)
        progress("describing runs", len(shares), len(runs))
    return join_meshes(shares)


def join_meshes(shares: Sequence[Array]) -> TrainingReference:
    """Return the reference from each mesh's histograms, ``[P, BINS]``; zeros for a population without values."""
    tables = np.stack(shares)
    is_measured = tables.sum(axis=-1) > 0
    total, number = tables.sum(axis=0), is_measured.sum(axis=0)
    limits = np.full(len(POPULATIONS), np.nan, np.float32)
    for row in np.flatnonzero(number >= MIN_MESHES):
        mesh_shares = tables[is_measured[:, row], row]
        limits[row] = population_stability_index(mesh_shares, (total[row] - mesh_shares) / (number[row] - 1)).max()
    mean = (total / np.maximum(number, 1)[:, None]).astype(np.float32)
    return TrainingReference(mean, limits)


def summarise_run(network: MeshNetwork, run: TrainingRun) -> Array:
    """Return the histograms ``[P, BINS]`` of a run's normal traffic, as shares; zeros without normal snapshots."""
    total = np.zeros((len(POPULATIONS), BINS), np.float32)
    normal = 0
    for index, moment in enumerate(replay_run(run, network.config, AlertPolicy())):
        normal += moment.normal
        if index < SETTLE or not moment.normal or normal % EVERY:
            continue
        total += count_snapshot(moment.state, moment.observation).values
    shares: Array = total / np.maximum(total.sum(axis=1, keepdims=True), np.float32(1e-6))
    return shares
