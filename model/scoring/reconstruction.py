"""The reconstruction loss of a snapshot: how well the embeddings of its services explain which of them call which.

With the probability ``p_ij = sigmoid(<S z_i, T z_j> + b)`` that service i calls service j,

    L_recon = (mean over calls of (1 - p_ij)^2 + NON_CALLS x mean over non-calls of p_ij^2) / (1 + NON_CALLS)

It is the loss that the structure was trained with (:mod:`lab.training.train`), with the same weight of five non-calls
for each call. In a mesh of less than ``MAX_SAMPLED`` services the second mean is over all N x N pairs that are no
call, in one matrix product. In a larger mesh it is over all pairs of a random sample of services, so large that there
are five pairs for each call, but at most ``MAX_SAMPLED``. One product costs a tenth of as many single pairs, and of a
mesh in parts only the embeddings of the sample have to come together.
"""

import zlib
from dataclasses import dataclass, field
from math import ceil, sqrt

import numpy as np
import torch

from model.features import Array
from model.network.autoencoder import Autoencoder
from model.network.contract import MeshNetwork
from model.snapshot import BoolArray, IntArray
from model.state.mesh_state import MeshState

MAX_SAMPLED = 200  # services, of which all pairs are looked at
NON_CALLS = 5  # weight of the non-calls, and sampled non-calls for each call; as in training


@dataclass(frozen=True, slots=True)
class ReconstructionInput:
    """The inputs of a whole mesh's loss, from its parts.

    Attributes:
        call_error: sum of ``(1 - p)^2`` over the calls within parts.
        embeddings: float32 ``[S, D]`` of the sampled services.
        pairs: int64 ``[2, K]`` rows of the embeddings: caller and callee of all calls between two of them, which are
            no non-calls even if they were not made in this snapshot.
        mean: float32 ``[D]``, mean embedding of all services.
        boundary: float32 ``[B, D]`` embeddings of services with calls from or to other parts: both ends of such a call
            meet only here.
        crossing: int64 ``[2, X]`` rows of ``boundary``: caller and callee of the calls between parts that were made.
    """

    call_error: float
    calls: int
    embeddings: Array
    pairs: IntArray
    mean: Array
    boundary: Array = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    crossing: IntArray = field(default_factory=lambda: np.zeros((2, 0), np.int64))


def sample_services(state: MeshState) -> IntArray:
    """Return the rows ``[S]`` of the services whose pairs are looked at, ascending; all of them in a small mesh.

    It is a systematic sample: evenly spaced rows from a random first one, ten times as fast as single
    draws. It depends on the mesh and on the time of its newest snapshot, so that a repeated snapshot and every replica
    have the same one.
    """
    services, calls = len(state.node_ids), state.edge_index.shape[1]
    if services < MAX_SAMPLED:
        return np.arange(services)
    size = min(MAX_SAMPLED, 1 + ceil(sqrt(NON_CALLS * calls)))
    phase = zlib.crc32(f"{state.node_ids[0]} {services} {state.learned_at}".encode()) / 2**32
    return ((np.arange(size) + phase) * (services / size)).astype(np.int64)


def error_of_calls(logits: Array) -> float:
    if not len(logits):
        return 0.0
    missing = 1 / (1 + np.exp(logits.clip(-30, 30)))
    return float(missing @ missing)


def reconstruction_input(
    sample: IntArray, edge_index: IntArray, present: BoolArray, structure: Array, embeddings: Array, mean: Array
) -> ReconstructionInput:
    """Return what the loss needs.

    Args:
        present: bool ``[E]``: whether the call was made in this snapshot.
        structure: float32 ``[E]`` logits of the calls within parts; not a number between parts.
        embeddings: float32 ``[S, D]`` of the sampled services.
    """
    source, destination = edge_index
    to_others = source != destination
    logits = structure[present & np.isfinite(structure) & to_others]
    highest = max(int(edge_index.max(initial=0)), int(sample[-1])) if len(sample) else -1
    if highest >= len(sample):  # not all services, or not the first ones
        position = np.full(1 + highest, -1)
        position[sample] = np.arange(len(sample))
        source, destination = position[source], position[destination]
        to_others &= (source >= 0) & (destination >= 0)
    pairs = np.stack([source[to_others], destination[to_others]])
    return ReconstructionInput(error_of_calls(logits), len(logits), embeddings, pairs, mean)


def reconstruction_loss(network: MeshNetwork, inputs: ReconstructionInput) -> float | None:
    """Return L_recon, 0 to 1; None if nothing is called."""
    calls = inputs.calls + inputs.crossing.shape[1]
    if not calls:
        return None
    device = next(network.parameters()).device
    z = torch.from_numpy(inputs.embeddings).to(device)
    with torch.inference_mode():
        errors: Array = _structure_of_pairs(network, z).sigmoid_().square_().cpu().numpy()
        between = _structure_between(network, inputs).cpu().numpy()
    errors[inputs.pairs[0], inputs.pairs[1]] = 0
    np.fill_diagonal(errors, 0)
    pairs = len(z) * (len(z) - 1) - inputs.pairs.shape[1]
    of_calls = (inputs.call_error + error_of_calls(between)) / calls
    of_pairs = float(errors.sum()) / max(pairs, 1)
    return (of_calls + NON_CALLS * of_pairs) / (1 + NON_CALLS)


def _structure_between(network: MeshNetwork, inputs: ReconstructionInput) -> torch.Tensor:
    """Return the logits ``[X]`` of the calls between parts."""
    if not inputs.crossing.shape[1]:
        return torch.zeros(0)
    device = next(network.parameters()).device
    z = torch.from_numpy(np.array(inputs.boundary)).to(device)
    source, target = torch.from_numpy(np.array(inputs.crossing)).to(device)
    return network.structure(z, z, source, target)


def _structure_of_pairs(network: MeshNetwork, z: torch.Tensor) -> torch.Tensor:
    """Return the logits ``[S, S]`` of all pairs. Other networks than ours know them pair by pair."""
    if isinstance(network, Autoencoder):
        return network.structure_of_pairs(z, z)
    every = torch.arange(len(z), device=z.device)
    source, target = torch.cartesian_prod(every, every).t()
    return network.structure(z, z, source, target).reshape(len(z), len(z))
