"""The meta-model: two small networks. One ranks suspects, the other estimates the probability of an incident."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from kernels import ops
from model.decision.meta_inputs import DETECT_INPUTS, RANK_INPUTS


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
