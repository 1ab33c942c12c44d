"""Calls between parts are decoded as calls within a part."""

import numpy as np
import pytest
import torch

from model.evidence.crossing import CrossingCalls, decode_crossing, with_crossing
from model.evidence.kinds import EvidenceKind
from tests.model.decision.verdict_cases import evidence
from tests.model.model_cases import network


def test_calls_between_parts_are_decoded_as_in_one_part() -> None:
    net = network()
    z = np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32)
    ends = np.array([[0, 3, 5, 1], [4, 1, 2, 3]])
    crossing = CrossingCalls(z, ends, np.full((2, 4), -1), np.ones(4, bool), np.ones(4, bool))
    with torch.inference_mode():
        whole = net.structure(torch.from_numpy(z), torch.from_numpy(z), *torch.from_numpy(ends))
    np.testing.assert_allclose(decode_crossing(net, crossing), whole.numpy(), atol=1e-5)


def test_an_unlikely_young_call_between_parts_is_evidence_against_both_ends() -> None:
    scene = evidence(1.0, 1.0, 1.0, 1.0)
    ends = np.array([[0, 1, 2], [3, 3, -1]])
    crossing = CrossingCalls(np.zeros((4, 64), np.float32), ends, ends, np.array([True, False, True]), np.ones(3, bool))
    logits = np.array([-6.0, -20.0, 6.0], np.float32)
    surprises = with_crossing(scene, crossing, logits).kinds[:, EvidenceKind.STRUCTURE]
    assert surprises[0] == surprises[3] == pytest.approx(np.log10(1 + np.exp(6.0)), rel=1e-5)
    assert surprises[1] == 0, "a settled call is not evidence"
    assert surprises[2] == pytest.approx(np.log10(1 + np.exp(-6.0)), rel=1e-4)
    assert (scene.kinds[:, EvidenceKind.STRUCTURE] == 0).all()
