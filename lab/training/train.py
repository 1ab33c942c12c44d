"""Training in three steps.

1. The autoencoder learns expectations and structure from normal snapshots.
2. Tails are fitted to normal traffic's exceedances, and the page level is set so that normal traffic keeps the budget.
3. The meta-model learns the probability of an incident from injected faults.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from lab.training.dataset import SETTLE, TrainingRun, is_example, replay_run, shuffle_batches
from lab.training.meta_dataset import Progress, fit_page_offset, score_run, train_meta
from lab.training.tails import TailCounts, fit_tail
from model.checkpoint import Checkpoint
from model.decision.meta_model import MetaModel
from model.features import EDGE_CHANNELS, NODE_CHANNELS
from model.incidents.policy import AlertPolicy
from model.network.autoencoder import Autoencoder
from model.network.contract import C_EDGE, C_NODE, Decoding, MeshGraph, MeshNetwork, NetworkConfig
from model.scoring.score import PartitionTask, batch_tasks, whole_mesh

NON_CALLS = 5  # sampled for each call

# Yields results in order, from any number of processes.
ForEach = Callable[[Callable[[TrainingRun], Any], Sequence[TrainingRun]], Iterator[Any]]


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """Length and size of the training.

    Attributes:
        seed: for weights, order and sampling.
        batch: snapshots per step.
        rate: peak learning rate; one warm-up and one cosine to zero.
        every: normal snapshots between two examples.
    """

    seed: int = 0
    steps: int = 1800
    batch: int = 12
    rate: float = 2e-3
    every: int = 6
    meta_steps: int = 2000


@dataclass(frozen=True, slots=True)
class TrainingReport:
    """Results of a training.

    Attributes:
        losses, meta_losses: per step; the autoencoder's by name.
        pages_promised_per_day, pages_observed_per_day: budgeted and observed false alerts on normal traffic.
        culprit_first: share of snapshots with a fault whose root cause was ranked first.
    """

    losses: dict[str, list[float]]
    meta_losses: list[float]
    pages_promised_per_day: float
    pages_observed_per_day: float
    culprit_first: float


def train(
    runs: Sequence[TrainingRun],
    options: TrainingOptions,
    provenance: dict[str, str],
    progress: Progress,
    network: type[MeshNetwork] = Autoencoder,
    each: ForEach = map,
) -> tuple[Checkpoint, TrainingReport]:
    """Train a checkpoint. The same runs and options give the same weights on the same machine.

    Args:
        runs: with and without faults; read twice.
        provenance: stored in the checkpoint.
        network: class to train, with the sizes of its ``Config``.
        each: reads the runs one after the other, or in parallel.
    """
    torch.manual_seed(options.seed)
    instance = network(network.Config())
    data: list[PartitionTask] = []
    counts = []
    for index, (examples, count) in enumerate(
        each(partial(read_run, config=instance.config, every=options.every), runs)
    ):
        data += examples
        counts.append(count)
        progress("reading runs", index + 1, len(runs))
    with _flush_denormals():
        losses = fit_network(instance, data, options, progress)
    node_tail, edge_tail = (fit_tail(mesh_counts) for mesh_counts in zip(*counts, strict=True))
    checkpoint = Checkpoint(
        network=instance.eval(),
        meta=MetaModel().eval(),
        node_tail=node_tail,
        edge_tail=edge_tail,
        page_offset=0.0,
        provenance=provenance,
    )
    scored_runs = []
    for run_examples in each(partial(score_run, checkpoint), runs):
        scored_runs.append(run_examples)
        progress("scoring runs", len(scored_runs), len(runs))
    offset, budget, alerts_per_day = fit_page_offset(scored_runs)
    with _flush_denormals():
        meta_losses, first = train_meta(
            checkpoint.meta, scored_runs, offset, options.meta_steps, options.seed, progress
        )
    return replace(checkpoint, page_offset=offset), TrainingReport(losses, meta_losses, budget, alerts_per_day, first)


@contextmanager
def processes(count: int) -> Iterator[ForEach]:
    """Read runs in ``count`` processes; a single process is the current one."""
    if count == 1:
        yield map
        return
    with ProcessPoolExecutor(count, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        yield pool.map


@contextmanager
def _flush_denormals() -> Iterator[None]:
    """Flush denormal numbers to zero in this block.

    Vanishing losses leave optimiser moments of 1e-40, at ten times the cost of a step. The setting applies to the whole
    thread, numpy included, so it is reset afterwards.
    """
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def read_run(
    run: TrainingRun, config: NetworkConfig, every: int
) -> tuple[list[PartitionTask], tuple[TailCounts, TailCounts]]:
    """Return a run's examples, whose first columns are also the targets, and its services' and calls' exceedances."""
    examples: list[PartitionTask] = []
    tails = TailCounts(len(NODE_CHANNELS)), TailCounts(len(EDGE_CHANNELS))
    for index, moment in enumerate(replay_run(run, config, AlertPolicy())):
        if moment.normal:
            now = moment.observation
            for tail, deviation, exposure in zip(
                tails, (now.node, now.edge), (now.node_exposure, now.edge_exposure), strict=True
            ):
                tail.add(deviation, exposure, deviation.seen.max(axis=1, initial=0) > SETTLE)
        if is_example(moment, index, every):
            examples.append(whole_mesh(moment.state, moment.observation))
    return examples, tails


def fit_network(
    network: MeshNetwork, data: list[PartitionTask], options: TrainingOptions, progress: Progress
) -> dict[str, list[float]]:
    """Run Adam over shuffled batches, and return each step's losses by name."""
    optimiser = torch.optim.AdamW(network.parameters(), lr=options.rate, weight_decay=1e-4)
    warm_up = max(0.05, 2 / options.steps)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, options.rate, total_steps=options.steps, pct_start=warm_up
    )
    batches = shuffle_batches(len(data), min(options.batch, len(data)), np.random.default_rng(options.seed))
    history: dict[str, list[float]] = {"expectation": [], "structure": []}
    for step, rows in enumerate(islice(batches, options.steps), 1):
        batch = [data[i] for i in rows]
        losses = losses_of(network, batch_tasks(batch, torch.device("cpu")), batch)
        optimiser.zero_grad()
        torch.stack(list(losses.values())).sum().backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        for name, loss in losses.items():
            history[name].append(float(loss.detach()))
        progress("training the autoencoder", step, options.steps)
    return history


def losses_of(network: MeshNetwork, graph: MeshGraph, batch: list[PartitionTask]) -> dict[str, Tensor]:
    """Return the losses of expectation and structure."""
    decoding: Decoding = network(graph)
    sizes = torch.tensor([len(task.nodes) for task in batch])
    return {
        "expectation": _expectation_loss(decoding.node_expected, graph.nodes, C_NODE)
        + _expectation_loss(decoding.edge_expected, graph.edges, C_EDGE),
        "structure": _structure_loss(network, decoding.embeddings, graph, sizes),
    }


def _expectation_loss(expected: Tensor, inputs: Tensor, channels: int) -> Tensor:
    """Return the Huber loss against observed channels' deviations, in asinh of sigmas."""
    deviations, mask = inputs[:, :channels], inputs[:, channels : 2 * channels]
    error = functional.smooth_l1_loss(expected, deviations, reduction="none") * mask
    return error.sum() / mask.sum().clamp(min=1)


def _structure_loss(network: MeshNetwork, z: Tensor, graph: MeshGraph, sizes: Tensor) -> Tensor:
    """Return the mean squared error of sigmoid(Z_source Z_target^T) over calls and five sampled non-calls for each."""
    source, target = graph.edge_index
    total = int(sizes.sum())
    first = (torch.cumsum(sizes, 0) - sizes).repeat_interleave(sizes)[source]  # first node of the same mesh
    extent = sizes.repeat_interleave(sizes)[source]
    draw = torch.rand(NON_CALLS, len(source))
    targets = (first + (draw * extent).long()).flatten()
    sources = source.repeat(NON_CALLS)
    is_call = torch.isin(sources * total + targets, graph.edge_index[0] * total + graph.edge_index[1])
    is_non_call = ~is_call & (targets != sources)
    call_scores = torch.sigmoid(network.structure(z, z, source, target))
    non_call_scores = torch.sigmoid(network.structure(z, z, sources[is_non_call], targets[is_non_call]))
    errors = (1 - call_scores).square().sum() + non_call_scores.square().sum()
    return errors / max(len(call_scores) + len(non_call_scores), 1)
