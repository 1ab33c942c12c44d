"""Trains a checkpoint's network further on one mesh, and judges the result on snapshots that it has not seen.

Tails, page level and meta-model stay: one mesh has too few faults and too little time for them. Snapshots during alerts
are left out, because a fault must not become normal.
"""

from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import datetime

import torch

from lab.training.dataset import SETTLE, TrainingRun, is_example, replay_run
from lab.training.meta_dataset import Progress
from lab.training.train import TrainingOptions, fit_network, losses_of
from model.checkpoint import Checkpoint
from model.incidents.policy import AlertPolicy
from model.network.contract import MeshNetwork
from model.scoring.score import PartitionTask, batch_tasks, whole_mesh
from model.snapshot import MeshSnapshot
from model.verdict import Status
from serve_app.errors import BadRecording
from serve_app.models.admin import MIN_SNAPSHOTS
from serve_app.pipeline import Mesh, Options, advance

HELD_OUT = 3  # the last third of the snapshots is the test
MIN_EXAMPLES = 60  # snapshots to learn from; the network would memorise fewer
MAX_EXAMPLES = 300  # more are sampled: neighbouring snapshots are alike, and all examples are in memory
RATE = 2e-4  # peak learning rate, a tenth of the training's, so that the network stays near its start

Snapshots = Callable[[], Iterable[MeshSnapshot]]  # from the start, oldest first


@dataclass(frozen=True, slots=True)
class TunedNetwork:
    """The result of :func:`tune`.

    Attributes:
        checkpoint: the old one with the new network.
        loss_before, loss: of the old and the new network on the held-out snapshots.
        held_out_from: time of the first held-out snapshot.
    """

    checkpoint: Checkpoint
    loss_before: float
    loss: float
    held_out_from: datetime


def tune(
    checkpoint: Checkpoint, snapshots: Snapshots, options: Options, steps: int, progress: Progress
) -> TunedNetwork:
    """Train a copy of the network further on a mesh's quiet time.

    Args:
        options: used to score the mesh, to find the time without alerts.

    Raises:
        BadRecording: there are too few snapshots, or too few without alerts.
    """
    times, quiet = _find_quiet_time(checkpoint, snapshots, options)
    held_out = max(len(times) // HELD_OUT, MIN_SNAPSHOTS)
    split = len(times) - held_out
    required = SETTLE + MIN_EXAMPLES + MIN_SNAPSHOTS
    if split < SETTLE + MIN_EXAMPLES:
        raise BadRecording(
            f"recording: expected at least {required} snapshots of the mesh, got {len(times)}; record it for longer "
            "with `tagae record`"
        )
    examples, test_examples = _sample(checkpoint, snapshots, quiet, split)
    if len(examples) < MIN_EXAMPLES or not test_examples:
        raise BadRecording(
            f"recording: expected at least {MIN_EXAMPLES} snapshots without alerts to learn from, and later ones to "
            f"judge by, got {len(examples)} and {len(test_examples)}; record a quiet time of the mesh"
        )
    network = deepcopy(checkpoint.network)
    torch.manual_seed(0)
    fit_network(network, examples, TrainingOptions(steps=steps, batch=4, rate=RATE), progress)
    network.eval()
    result = replace(checkpoint, network=network, digest="", refused="")
    return TunedNetwork(result, _loss(checkpoint.network, test_examples), _loss(network, test_examples), times[split])


def _find_quiet_time(
    checkpoint: Checkpoint, snapshots: Snapshots, options: Options
) -> tuple[list[datetime], frozenset[datetime]]:
    """Return the times of all snapshots, and of the normal ones."""
    times, quiet, mesh = [], [], Mesh()
    for snapshot in snapshots():
        verdict, mesh = advance(checkpoint, mesh, snapshot, options)
        times.append(snapshot.observed_at)
        if verdict.status is Status.NORMAL:
            quiet.append(snapshot.observed_at)
    return times, frozenset(quiet)


def _sample(
    checkpoint: Checkpoint, snapshots: Snapshots, quiet: frozenset[datetime], split: int
) -> tuple[list[PartitionTask], list[PartitionTask]]:
    """Return examples from quiet snapshots before the split, and after it."""
    examples, test_examples = list[PartitionTask](), list[PartitionTask]()
    every = max(1, split // MAX_EXAMPLES)
    run = TrainingRun("", snapshots)
    for index, moment in enumerate(replay_run(run, checkpoint.network.config, AlertPolicy())):
        if moment.snapshot.observed_at in quiet and is_example(moment, index, every):
            (examples if index < split else test_examples).append(whole_mesh(moment.state, moment.observation))
    return examples, test_examples[:: max(1, len(test_examples) // MAX_EXAMPLES)]


def _loss(network: MeshNetwork, examples: list[PartitionTask]) -> float:
    """Return the mean loss of expectations, one example at a time: meshes can be large."""
    cpu = torch.device("cpu")
    with torch.inference_mode():
        losses = [losses_of(network, batch_tasks([example], cpu), [example])["expectation"] for example in examples]
    return float(torch.stack(losses).mean())
