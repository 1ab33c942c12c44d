"""The meta-model: a small network that estimates the probability of an incident from the evidence of all parts."""

import numpy as np
import torch
from torch import Tensor, nn

from kernels import ops
from model.evidence.gather import Evidence
from model.incidents.memory import IncidentMemory

DETECT_INPUTS = 8
STREAK = 3  # snapshots


def detect_inputs(evidence: Evidence, memory: IncidentMemory, level: float) -> Tensor:
    """Return ``[DETECT_INPUTS]``: the three highest page scores relative to the page level, how many services deviate,
    and in how many of the last three snapshots one did."""
    top = np.sort(np.append(evidence.page, [0, 0, 0]))[::-1][:3] / max(level, 1.0)
    streak = max((track.times_above(level, STREAK) for track in memory.tracks.values()), default=0)
    symptoms = np.sort(np.append(evidence.affected, [0, 0]))[::-1][:2] / max(level, 1.0)
    counts = np.log1p(np.array(evidence.counts[1:]))
    return torch.from_numpy(np.concatenate([top, symptoms, counts, [streak]]).astype(np.float32))


class MetaModel(nn.Module):
    """The probability of an incident, from what the whole mesh shows."""

    def __init__(self) -> None:
        super().__init__()
        self.detect = nn.Sequential(nn.Linear(DETECT_INPUTS, 16), nn.GELU(), nn.Linear(16, 1))

    def incident_logit(self, inputs: Tensor) -> Tensor:
        """Map ``[DETECT_INPUTS]`` from :func:`detect_inputs` to the logit of the probability, ``[1]``, as ``detect``
        does, but in one op."""
        return ops.perceptron(inputs[None], None, None, *self.detect.parameters())[0]
