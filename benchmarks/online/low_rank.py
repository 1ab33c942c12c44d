"""Low-rank updates of the output heads: W + A Bᵀ, on the calm snapshots of one mesh (Hu et al., LoRA, ICLR 2022).

Everything else is frozen, so embeddings, structure and root causes stay the same. The sum is stored in place of W: a
pass takes as long as before.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from benchmarks.online.archive import CalmMoment
from lab.training.dataset import shuffle_batches
from model.checkpoint import Checkpoint
from model.network.contract import C_EDGE, C_NODE, Decoding, MeshNetwork
from model.scoring.score import batch_tasks

WEIGHTS = tuple(
    f"{head}.{layer}.weight" for head in ("load", "symptoms", "call_load", "call_symptoms") for layer in ("0", "2")
)
STEPS, BATCH, RATE, DECAY = 200, 8, 3e-3, 1e-2
CPU = torch.device("cpu")


def fit_low_rank(checkpoint: Checkpoint, archive: Sequence[CalmMoment], rank: int, seed: int = 0) -> Checkpoint:
    """Return the checkpoint with updated heads.

    Args:
        checkpoint: has the built-in network; it is not changed.
        archive: calm snapshots.
        rank: of each update.
        seed: of the start and of the order.
    """
    network = deepcopy(checkpoint.network)
    assert isinstance(network, nn.Module)
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    before = {name: network.get_parameter(name) for name in WEIGHTS}
    generator = torch.Generator().manual_seed(seed)
    factors = {
        name: (
            torch.zeros(weight.shape[0], rank, requires_grad=True),
            (torch.randn(weight.shape[1], rank, generator=generator) / weight.shape[1] ** 0.5).requires_grad_(),
        )
        for name, weight in before.items()
    }

    def update_heads() -> dict[str, Tensor]:
        return {name: before[name] + a @ b.T for name, (a, b) in factors.items()}

    optimiser = torch.optim.AdamW([f for pair in factors.values() for f in pair], lr=RATE, weight_decay=DECAY)
    batches = shuffle_batches(len(archive), min(BATCH, len(archive)), np.random.default_rng(seed))
    for rows in islice(batches, STEPS):
        graph = batch_tasks([archive[row].task for row in rows], CPU)
        loss = expectation_loss(functional_call(network, update_heads(), (graph,)), graph.nodes, graph.edges)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    with torch.no_grad():
        network.load_state_dict(network.state_dict() | update_heads())
    return replace(checkpoint, network=network.eval())


def held_out_loss(network: MeshNetwork, archive: Sequence[CalmMoment]) -> float:
    """Return the loss of a network on calm snapshots."""
    with torch.no_grad():
        graph = batch_tasks([moment.task for moment in archive], CPU)
        return float(expectation_loss(network(graph), graph.nodes, graph.edges))


def expectation_loss(decoding: Decoding, nodes: Tensor, edges: Tensor) -> Tensor:
    """Return the loss of training: Huber's, of observed channels, in asinh of sigmas."""
    loss = torch.zeros(())
    for expected, inputs, channels in (
        (decoding.node_expected, nodes, C_NODE),
        (decoding.edge_expected, edges, C_EDGE),
    ):
        now, observed = inputs[:, :channels], inputs[:, channels : 2 * channels]
        error = functional.smooth_l1_loss(expected, now, reduction="none") * observed
        loss = loss + error.sum() / observed.sum().clamp(min=1)
    return loss
