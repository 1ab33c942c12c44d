"""Calls between parts of a mesh. The embeddings of both ends meet only in the meta-model's process."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from model.evidence.gather import Evidence
from model.evidence.kinds import EvidenceKind
from model.features import Array
from model.network.contract import MeshNetwork
from model.scoring.surprises import unlikelihood
from model.snapshot import BoolArray, IntArray


@dataclass(frozen=True, slots=True)
class CrossingCalls:
    """Calls between parts. The embeddings of both ends meet only here.

    Attributes:
        embeddings: float32 ``[B, D]`` of services at the boundary.
        ends: int64 ``[2, X]`` rows of ``embeddings``: source and destination.
        candidates: int64 ``[2, X]`` rows of the evidence; -1: not a candidate.
        young: bool ``[X]``: whether the learned structure judges the call.
        present: bool ``[X]``: whether the call was made in the snapshot.
    """

    embeddings: Array
    ends: IntArray
    candidates: IntArray
    young: BoolArray
    present: BoolArray


def decode_crossing(network: MeshNetwork, crossing: CrossingCalls) -> Array:
    """Return the structure logits ``[X]`` of the calls between parts."""
    device = next(network.parameters()).device
    z = torch.from_numpy(np.array(crossing.embeddings)).to(device)
    source, target = torch.from_numpy(np.array(crossing.ends)).to(device)
    with torch.inference_mode():
        logits: Array = network.structure(z, z, source, target).cpu().numpy()
    return logits


def with_crossing(evidence: Evidence, crossing: CrossingCalls, logits: Array) -> Evidence:
    """Add to the evidence how unlikely the young calls between parts are."""
    kinds = evidence.kinds.copy()
    unlikely = unlikelihood(logits) * crossing.young
    for ends in crossing.candidates:
        known = ends >= 0
        np.maximum.at(kinds[:, EvidenceKind.STRUCTURE], ends[known], unlikely[known])
    return replace(evidence, kinds=kinds)
