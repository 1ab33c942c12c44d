"""The meta-model: two small networks, and their inputs from the evidence. One ranks suspects, the other estimates the
probability of an incident."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from kernels import ops
from model.evidence.gather import Evidence
from model.evidence.kinds import EvidenceKind, K
from model.incidents.memory import IncidentMemory
from model.snapshot import IntArray

EITHER_WAY = (
    EvidenceKind.RISE,
    EvidenceKind.FALL,
    EvidenceKind.CONNECTIONS,
    EvidenceKind.CALLERS,
    EvidenceKind.REMOTES,
)
RANK_INPUTS = 2 * (K + len(EITHER_WAY)) + 2
DETECT_INPUTS = 8
STREAK = 3  # snapshots


def rank_inputs(evidence: Evidence, rows: IntArray) -> Tensor:
    """Return ``[R, RANK_INPUTS]``: the evidence of each candidate, absolute and relative to the strongest of its group.

    Each value has the sign in which it counts; load has both. There is no level, age or mesh size among the inputs.
    """
    kinds = evidence.kinds[rows]
    beside = kinds / np.maximum(kinds.max(axis=0, initial=0), 1.0)
    signed = []
    for table in (kinds / 5, beside):
        signed += [table, -table[:, EITHER_WAY]]
        table[:, EvidenceKind.CALLEES] *= -1
    logit = evidence.root_cause_logit[rows] - evidence.root_cause_logit[rows].max(initial=0)
    signed += [-evidence.remote[rows, None].astype(np.float32), np.clip(logit, -10, 10)[:, None] / 5]
    table = np.concatenate(signed, axis=1)
    return torch.from_numpy(table.astype(np.float32))


def detect_inputs(evidence: Evidence, memory: IncidentMemory, level: float) -> Tensor:
    """Return ``[DETECT_INPUTS]``: the three highest page scores relative to the page level, how many services deviate,
    and in how many of the last three snapshots one did."""
    top = np.sort(np.append(evidence.page, [0, 0, 0]))[::-1][:3] / max(level, 1.0)
    streak = max((track.times_above(level, STREAK) for track in memory.tracks.values()), default=0)
    symptoms = np.sort(np.append(evidence.affected, [0, 0]))[::-1][:2] / max(level, 1.0)
    counts = np.log1p(np.array(evidence.counts[1:]))
    return torch.from_numpy(np.concatenate([top, symptoms, counts, [streak]]).astype(np.float32))


class RankingNetwork(nn.Module):
    """Root-cause score per candidate, monotone in its evidence.

    A deviation of its own, or of calls into it, never makes a service less suspect. Symptoms of its callees never make
    it more suspect. Load can be cause or effect, so it counts either way. Without this constraint the ranking learns
    from three kinds of simulated faults that a service with high cpu is a victim. Weights are positive through a
    softplus, as in monotone networks (Sill 1998).
    """

    def __init__(self, hidden: int = 16) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.full((RANK_INPUTS, hidden), -2.0) + 0.3 * torch.randn(RANK_INPUTS, hidden))
        self.bias = nn.Parameter(torch.linspace(-1.0, 0.0, hidden))
        self.second = nn.Parameter(torch.full((hidden, 1), -1.0))

    def forward(self, inputs: Tensor) -> Tensor:
        """Map ``[R, RANK_INPUTS]`` to ``[R, 1]``."""
        hidden = functional.relu(inputs @ functional.softplus(self.first) + self.bias)
        return hidden @ functional.softplus(self.second)


class MetaModel(nn.Module):
    """Two small networks: a root-cause score per candidate, compared within its group, and the probability of an
    incident."""

    def __init__(self) -> None:
        super().__init__()
        self.rank = RankingNetwork()
        self.detect = nn.Sequential(nn.Linear(DETECT_INPUTS, 16), nn.GELU(), nn.Linear(16, 1))

    def root_cause_score(self, inputs: Tensor, measured: Tensor) -> Tensor:
        """Return nats ``[R]`` for each candidate: learned from :func:`rank_inputs`, and ``measured`` from
        :func:`measured_nats`."""
        learned: Tensor = self.rank(inputs).squeeze(1)
        return learned + measured

    def incident_logit(self, inputs: Tensor) -> Tensor:
        """Map ``[DETECT_INPUTS]`` from :func:`detect_inputs` to the logit of the probability, ``[1]``, as ``detect``
        does, but in one op."""
        return ops.perceptron(inputs[None], None, None, *self.detect.parameters())[0]
