"""An autoencoder without the graph: it compresses each row to two numbers and scores the reconstruction error."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from lab.contenders import learned
from lab.contenders.learned import LearnedState, Rows, start
from lab.contenders.paging import Floats
from model.snapshot import MeshSnapshot
from model.verdict import Verdict

__all__ = ["LABEL", "SUMMARY", "LearnedState", "advance", "start"]
LABEL = "autoencoder"
WIDE, NARROW = 16, 2  # widths of the hidden layers
STEPS, BATCH, RATE = 400, 256, 0.01
SUMMARY = f"squared error of the reconstruction from two numbers {learned.ABOUT}"


@dataclass(frozen=True, slots=True)
class Weights:
    """``mean``, ``spread`` ``[M]`` of the features; ``layers``: matrix and offset of each."""

    mean: Rows
    spread: Rows
    layers: tuple[tuple[Rows, Rows], ...]


def advance(state: LearnedState, snapshot: MeshSnapshot) -> tuple[Verdict, LearnedState]:
    """Process one snapshot."""
    return learned.advance(state, snapshot, _learn, _anomaly_score)


def _learn(rows: Rows) -> Weights:
    mean, spread = rows.mean(axis=0), np.maximum(rows.std(axis=0), 0.1)
    inputs = torch.from_numpy((rows - mean) / spread)
    draw, width = torch.Generator().manual_seed(0), inputs.shape[1]
    linear = [nn.Linear(a, b) for a, b in ((width, WIDE), (WIDE, NARROW), (NARROW, WIDE), (WIDE, width))]
    for layer in linear:
        nn.init.xavier_uniform_(layer.weight, generator=draw)
        nn.init.zeros_(layer.bias)
    network = nn.Sequential(linear[0], nn.Tanh(), linear[1], linear[2], nn.Tanh(), linear[3])
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
    for _ in range(STEPS):
        batch = inputs[torch.randint(len(inputs), (BATCH,), generator=draw)]
        optimizer.zero_grad()
        nn.functional.mse_loss(network(batch), batch).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    weights = ((layer.weight.detach().numpy().T.copy(), layer.bias.detach().numpy().copy()) for layer in linear)
    return Weights(mean, spread, tuple(weights))


def _anomaly_score(weights: Weights, rows: Rows) -> Floats:
    """Squared error of each row, summed over the features."""
    inputs = (rows - weights.mean) / weights.spread
    (a, b), (c, d), (e, f), (g, h) = weights.layers
    decoded = np.tanh((np.tanh(inputs @ a + b) @ c + d) @ e + f) @ g + h
    return np.asarray(((inputs - decoded) ** 2).sum(axis=1), np.float64)
