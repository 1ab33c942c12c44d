"""Trains the network of a checkpoint further on one mesh, and judges the result on snapshots that it has not seen.

Tails, page level and meta-model stay: one mesh has too few faults and too little time for them. Snapshots during alerts
are not learned, because a fault must not become normal.
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

HELD_OUT = 3  # one in so many snapshots, the last ones, is only for judging
MIN_EXAMPLES = 60  # snapshots to learn from; fewer are learned by heart
MAX_EXAMPLES = 300  # more are sampled: neighbouring snapshots are alike, and all examples are in memory
RATE = 2e-4  # peak learning rate: a tenth of the training's, so that the network stays near its start

Snapshots = Callable[[], Iterable[MeshSnapshot]]  # reads them again, oldest first


@dataclass(frozen=True, slots=True)
class TunedNetwork:
    """The result of :func:`tune`.

    Attributes:
        checkpoint: the one before with another network.
        loss_before, loss: of both networks on the held-out snapshots.
        held_out_from: time of the first one.
    """

    checkpoint: Checkpoint
    loss_before: float
    loss: float
    held_out_from: datetime


def tune(
    checkpoint: Checkpoint, snapshots: Snapshots, options: Options, steps: int, progress: Progress
) -> TunedNetwork:
    """Train a copy of the network further on the quiet time of a mesh.

    Args:
        checkpoint: to begin with.
        options: with which the mesh is scored, to find the time without alerts.

    Raises:
        BadRecording: there are too few snapshots, or too few without alerts.
    """
    times, quiet = _find_quiet_time(checkpoint, snapshots, options)
    held = max(len(times) // HELD_OUT, MIN_SNAPSHOTS)
    cut = len(times) - held
    needed = SETTLE + MIN_EXAMPLES + MIN_SNAPSHOTS
    if cut < SETTLE + MIN_EXAMPLES:
        raise BadRecording(
            f"recording: expected at least {needed} snapshots of the mesh, got {len(times)}; record it for longer with "
            "`tagae record`"
        )
    learned, judged = _sample(checkpoint, snapshots, quiet, cut)
    if len(learned) < MIN_EXAMPLES or not judged:
        raise BadRecording(
            f"recording: expected at least {MIN_EXAMPLES} snapshots without alerts to learn from, and later ones to "
            f"judge by, got {len(learned)} and {len(judged)}; record a quiet time of the mesh"
        )
    network = deepcopy(checkpoint.network)
    torch.manual_seed(0)
    fit_network(network, learned, TrainingOptions(steps=steps, batch=4, rate=RATE), progress)
    network.eval()
    tuned = replace(checkpoint, network=network, digest="", refused="")
    return TunedNetwork(tuned, _loss(checkpoint.network, judged), _loss(network, judged), times[cut])


def _find_quiet_time(
    checkpoint: Checkpoint, snapshots: Snapshots, options: Options
) -> tuple[list[datetime], frozenset[datetime]]:
    """The times of all snapshots, and of those in which the mesh is normal."""
    times, quiet, mesh = [], [], Mesh()
    for snapshot in snapshots():
        verdict, mesh = advance(checkpoint, mesh, snapshot, options)
        times.append(snapshot.observed_at)
        if verdict.status is Status.NORMAL:
            quiet.append(snapshot.observed_at)
    return times, frozenset(quiet)


def _sample(
    checkpoint: Checkpoint, snapshots: Snapshots, quiet: frozenset[datetime], cut: int
) -> tuple[list[PartitionTask], list[PartitionTask]]:
    """Examples from quiet snapshots before the cut, and from it on."""
    learned, judged = list[PartitionTask](), list[PartitionTask]()
    every = max(1, cut // MAX_EXAMPLES)
    run = TrainingRun("", snapshots)
    for index, moment in enumerate(replay_run(run, checkpoint.network.config, AlertPolicy())):
        if moment.snapshot.observed_at in quiet and is_example(moment, index, every):
            (learned if index < cut else judged).append(whole_mesh(moment.state, moment.observation))
    return learned, judged[:: max(1, len(judged) // MAX_EXAMPLES)]


def _loss(network: MeshNetwork, judged: list[PartitionTask]) -> float:
    """Mean loss of expectations over examples, one at a time: meshes can be large."""
    cpu = torch.device("cpu")
    with torch.inference_mode():
        found = [losses_of(network, batch_tasks([one], cpu), [one])["expectation"] for one in judged]
    return float(torch.stack(found).mean())
