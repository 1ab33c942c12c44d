"""Distributions of the training meshes, for the drift of other meshes: part of a checkpoint.

    python -m lab.training.reference [--meshes 96] [--snapshots 400] [--recording FOLDER ...] CHECKPOINT

A training adds it to its checkpoint. The command computes it from the same meshes for a checkpoint without one, and
writes it into a file beside it, so that the digest of the weights stays.
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from lab.training.dataset import SETTLE, TrainingRun, replay_run
from lab.training.train import ForEach, in_turn
from model.checkpoint import Checkpoint, load, reference_file
from model.drift.populations import BINS, POPULATIONS
from model.drift.reference import TrainingReference
from model.features import Array
from model.incidents.policy import AlertPolicy
from model.network.contract import MeshNetwork
from model.state.drift import count_snapshot

EVERY = 8  # normal snapshots from one that counts to the next


def reference_of(
    network: MeshNetwork,
    runs: Sequence[TrainingRun],
    each: ForEach = in_turn,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> TrainingReference:
    """Return the reference of a trained network from the normal traffic of its training runs."""
    shares = []
    for of_run in each(partial(summarise_run, network), runs):
        shares.append(of_run)
        progress("describing runs", len(shares), len(runs))
    return TrainingReference.of_meshes(shares)


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


def main() -> None:
    from safetensors.numpy import save_file

    from lab.training.meshes import TrainingMeshes, simulated_runs
    from lab.training.processes import processes
    from lab.training.recordings import recorded_runs

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--meshes", type=int, default=96)
    parser.add_argument("--snapshots", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--recording", type=Path, nargs="*", default=[])
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    checkpoint: Checkpoint = load(arguments.checkpoint)
    plan = TrainingMeshes(arguments.meshes, arguments.snapshots, arguments.seed)
    runs = [*simulated_runs(plan), *recorded_runs(arguments.recording)]
    with processes(arguments.jobs) as each:
        reference = reference_of(
            checkpoint.network, runs, each, lambda what, done, of: print(what, done, "of", of, flush=True)
        )
    path = reference_file(arguments.checkpoint.parent, checkpoint.digest)
    save_file(reference.to_arrays(), path)
    path.chmod(0o644)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
