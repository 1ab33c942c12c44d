"""Trains a student on the outputs of a teacher (Hinton, Vinyals, Dean: Distilling the Knowledge in a Neural Network,
2015), on snapshots of training meshes. Expectations are numbers, so their loss is Huber's; the others are logits."""

from collections.abc import Sequence
from functools import partial
from itertools import islice

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from lab.training.dataset import Example, TrainingRun, shuffle_batches
from lab.training.train import ForEach, Progress, TrainingOptions, read_run, train_verdicts
from model.checkpoint import Checkpoint
from model.network.contract import Decoding, MeshNetwork
from model.scoring.meta_model import MetaModel
from model.scoring.score import batch_tasks


def distil(
    teacher: Checkpoint,
    student: MeshNetwork,
    runs: Sequence[TrainingRun],
    options: TrainingOptions,
    progress: Progress,
    each: ForEach,
) -> Checkpoint:
    """Return a checkpoint with the trained student, the teacher's tails, and a page level and a meta-model of its own.

    Args:
        teacher: has the outputs to learn.
        student: is trained in place.
        runs: training meshes.
        options: length and size of the training.
        progress: called as work is done.
        each: applies a function to runs, in processes.
    """
    data: list[Example] = []
    for done, (found, _) in enumerate(each(partial(read_run, config=student.config, every=options.every), runs), 1):
        data += found
        progress("reading runs", done, len(runs))
    fit(teacher.network, student, data, options, progress)
    begun = Checkpoint(student.eval(), MetaModel().eval(), teacher.node_tail, teacher.edge_tail)
    return train_verdicts(begun, runs, options, progress, each)[0]


def fit(
    teacher: MeshNetwork, student: MeshNetwork, data: Sequence[Example], options: TrainingOptions, progress: Progress
) -> list[float]:
    """Run AdamW over shuffled batches. Returns the loss of each step."""
    optimiser = torch.optim.AdamW(student.parameters(), lr=options.rate, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, options.rate, total_steps=options.steps)
    batches = shuffle_batches(len(data), min(options.batch, len(data)), np.random.default_rng(options.seed))
    losses = []
    for step, rows in enumerate(islice(batches, options.steps), 1):
        tasks = [data[row].task for row in rows]
        graph = batch_tasks(tasks, torch.device("cpu"))
        with torch.no_grad():
            wanted = teacher(graph)
        loss = loss_of(student(graph), wanted, [len(task.nodes) for task in tasks])
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        losses.append(float(loss.detach()))
        progress("distilling the student", step, options.steps)
    return losses


def loss_of(given: Decoding, wanted: Decoding, sizes: list[int]) -> Tensor:
    """Return how far a student's outputs are from its teacher's.

    Args:
        given, wanted: of the student and of the teacher, for meshes side by side.
        sizes: services of each mesh, among which the root cause is one.
    """
    expectation = functional.smooth_l1_loss(given.node_expected, wanted.node_expected)
    expectation = expectation + functional.smooth_l1_loss(given.edge_expected, wanted.edge_expected)
    structure = functional.mse_loss(given.structure.sigmoid(), wanted.structure.sigmoid())
    of_meshes = zip(
        torch.split(given.root_cause_logit, sizes), torch.split(wanted.root_cause_logit, sizes), strict=True
    )
    root_cause = torch.stack(
        [functional.kl_div(a.log_softmax(0), b.log_softmax(0), reduction="sum", log_target=True) for a, b in of_meshes]
    )
    return expectation + structure + 0.1 * root_cause.mean()
