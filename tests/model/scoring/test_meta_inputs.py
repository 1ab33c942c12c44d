"""Inputs of the meta-model."""

from dataclasses import replace

import numpy as np
import torch

from model.scoring.meta_inputs import COUNTERPARTS, rank_exchange, rank_inputs
from tests.model.scoring.verdict_cases import evidence


def test_exchange_gives_the_inputs_with_latency_and_errors_swapped() -> None:
    original = evidence(4.0, 2.0, 1.0)
    kinds = np.random.default_rng(3).uniform(0, 9, original.kinds.shape).astype(np.float32)
    exchanged = kinds.copy()
    for latency, error in COUNTERPARTS.items():
        pair = [latency, error]
        exchanged[:, pair] = kinds[:, pair[::-1]]
    before, after = (rank_inputs(replace(original, kinds=k), np.arange(3)) for k in (kinds, exchanged))
    assert not torch.equal(before, after)
    assert torch.equal(before[:, rank_exchange()], after)
