"""The graph-level reconstruction loss: how well the embeddings of a snapshot explain which services call which.

With the probability ``p_ij = sigmoid(<S z_i, T z_j> + b)`` that service i calls service j,

    L_recon = (mean over calls of (1 - p_ij)^2 + NON_CALLS x mean over non-calls of p_ij^2) / (1 + NON_CALLS)

It is the loss that the structure was trained with (:mod:`lab.training.train`), with the same weight of five non-calls
for each call. Below ``EXACT_BELOW`` services the second mean is over all N x N pairs that are no call, in one matrix
product. Above, it is over a random block of pairs: some services as callers times as many as callees, five pairs for
each call. One product over a block costs a tenth of as many single pairs.

A part of a mesh returns sums over its own pairs, and the meta-model adds the sums and the calls between parts.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np
import torch
from numpy.typing import NDArray

from model.features import Array
from model.network.autoencoder import Autoencoder
from model.snapshot import BoolArray

EXACT_BELOW = 200  # services of a part, below which all pairs count
NON_CALLS = 5  # weight of the non-calls, and sampled non-calls for each call; as in training

Ends = NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class ReconstructionSums:
    """Sums over a part of a mesh.

    Attributes:
        call_error: sum of ``(1 - p)^2`` over its calls.
        calls: number of them.
        pair_error: sum of ``p^2`` over its non-calls, or a sample of them.
        pairs: number of them.
        embedding: float32 ``[D]``, sum of the embeddings of its services.
        services: number of them.
    """

    call_error: float
    calls: int
    pair_error: float
    pairs: int
    embedding: Array
    services: int

    @property
    def loss(self) -> float | None:
        """L_recon, 0 to 1; None without calls."""
        if not self.calls:
            return None
        of_calls, of_pairs = self.call_error / self.calls, self.pair_error / max(self.pairs, 1)
        return (of_calls + NON_CALLS * of_pairs) / (1 + NON_CALLS)

    @property
    def mean_embedding(self) -> Array:
        """Mean embedding of the services, float32 ``[D]``."""
        mean: Array = self.embedding / np.float32(max(self.services, 1))
        return mean


def add_sums(parts: Iterable[ReconstructionSums]) -> ReconstructionSums | None:
    """Return the sums of all parts together; None without parts."""
    found = tuple(parts)
    if len(found) <= 1:
        return found[0] if found else None
    return ReconstructionSums(
        sum(part.call_error for part in found),
        sum(part.calls for part in found),
        sum(part.pair_error for part in found),
        sum(part.pairs for part in found),
        np.sum([part.embedding for part in found], axis=0),
        sum(part.services for part in found),
    )


def add_calls(sums: ReconstructionSums, logits: Array) -> ReconstructionSums:
    """Return the sums with further calls: those between parts, by their logits."""
    return ReconstructionSums(
        sums.call_error + _error_of_calls(logits),
        sums.calls + len(logits),
        sums.pair_error,
        sums.pairs,
        sums.embedding,
        sums.services,
    )


def reconstruct(
    network: Autoencoder, embeddings: torch.Tensor, logits: Array, ends: Ends, present: BoolArray, seed: int
) -> ReconstructionSums:
    """Return the sums of a part.

    Args:
        network: that made the embeddings.
        embeddings: ``[N, D]`` of the services of the part, on the network's device.
        logits: float32 ``[E]`` of its calls.
        ends: ``[2, E]`` rows of the embeddings; N or more: in another part.
        present: bool ``[E]``: whether the call was made in this snapshot. A pair whose call was not made counts neither
            as a call nor as a non-call.
        seed: of the sample.
    """
    services = len(embeddings)
    inside = (ends < services).all(axis=0) & (ends[0] != ends[1])
    calls = logits[inside & present]
    if services < EXACT_BELOW:
        pair_error, pairs = _all_pairs(network, embeddings, ends[:, inside])
    else:
        pair_error, pairs = _sampled_pairs(network, embeddings, ends[:, inside], seed)
    return ReconstructionSums(
        _error_of_calls(calls),
        len(calls),
        pair_error,
        pairs,
        embeddings.sum(dim=0).cpu().numpy(),
        services,
    )


def _all_pairs(network: Autoencoder, z: torch.Tensor, calls: Ends) -> tuple[float, int]:
    """Return the error over all non-calls, and their number."""
    errors = _pair_errors(network, z, z)
    errors[calls[0], calls[1]] = 0
    np.fill_diagonal(errors, 0)
    return float(errors.sum()), len(z) * (len(z) - 1) - calls.shape[1]


def _sampled_pairs(network: Autoencoder, z: torch.Tensor, calls: Ends, seed: int) -> tuple[float, int]:
    """Return the error over the non-calls of a random block of pairs, and their number."""
    services = len(z)
    side = min(services, ceil(sqrt(NON_CALLS * calls.shape[1])))
    rng = np.random.default_rng(seed)
    callers, callees = (rng.choice(services, side, replace=False) for _ in range(2))
    errors = _pair_errors(network, z[torch.from_numpy(callers)], z[torch.from_numpy(callees)])
    row, column = np.full((2, services), -1, np.int32)
    row[callers], column[callees] = np.arange(side), np.arange(side)
    # Every service is a pair with itself, which is no non-call either.
    known = np.concatenate([[row[calls[0]], column[calls[1]]], [row, column]], axis=1)
    known = known[:, (known >= 0).all(axis=0)]
    errors[known[0], known[1]] = 0
    return float(errors.sum()), side * side - known.shape[1]


def _pair_errors(network: Autoencoder, callers: torch.Tensor, callees: torch.Tensor) -> Array:
    """Return ``p^2`` ``[S, T]`` of all pairs of these callers and callees."""
    with torch.inference_mode():
        errors: Array = network.structure_of_pairs(callers, callees).sigmoid_().square_().cpu().numpy()
    return errors


def _error_of_calls(logits: Array) -> float:
    """Return the sum of ``(1 - p)^2``."""
    return float(torch.from_numpy(logits).neg().sigmoid_().square_().sum())
