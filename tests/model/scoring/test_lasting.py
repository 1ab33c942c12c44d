"""Moderate deviations raise an alert if they last."""

from dataclasses import replace

import numpy as np
import pytest

from model.incidents.memory import IncidentMemory
from model.incidents.policy import LASTING_DECADES
from model.scoring.verdict_building import build_verdict
from tests.model.model_cases import at
from tests.model.scoring.verdict_cases import LEVEL, MODERATE, POLICY, evidence, judge, meta, when


def test_a_moderate_deviation_that_lasts_raises_an_alert() -> None:
    verdicts, memory = judge(*[evidence(1.0)] * 3, *[evidence(MODERATE)] * 14)
    assert [bool(v.incidents) for v in verdicts] == [False] * (3 + POLICY.lasting) + [True] * 2
    (incident,) = verdicts[-1].incidents
    assert incident.since == at(3), "it began with the first snapshot that counts"
    assert incident.score == verdicts[-1].mesh_score == pytest.approx(MODERATE + LASTING_DECADES)
    (past,) = memory.past
    raised = evidence(max(MODERATE - max(past.excess["a/s0"]), 0.0))
    assert not judge(*[raised] * 20)[0][-1].incidents, "after feedback the same evidence raises no alert"


@pytest.mark.parametrize("times", [8, POLICY.lasting - 1])
def test_an_intermittent_moderate_deviation_raises_no_alert(times: int) -> None:
    order = np.random.default_rng(0).permutation(POLICY.lasting_of).tolist()
    scenes = [evidence(MODERATE if i < times else 1.0) for i in order * 4]
    assert not any(v.incidents for v in judge(*scenes)[0])


def test_duration_during_warm_up_does_not_count() -> None:
    memory = IncidentMemory()
    for i in range(20):
        _, memory = build_verdict(meta(), evidence(MODERATE), memory, POLICY, when(i, POLICY.warm_up - 1))
    assert memory.above_lasting == {}


def test_the_duration_of_a_rollout_does_not_count() -> None:
    rolling = replace(evidence(MODERATE), rolling=np.array([True]))
    verdicts, memory = judge(*[rolling] * 24, *[evidence(MODERATE)] * (POLICY.lasting - 1))
    assert not any(v.incidents for v in verdicts)
    assert memory.above_lasting["a/s0"][0].bit_count() == POLICY.lasting - 1


def test_a_large_deviation_does_not_score_higher_if_it_lasts() -> None:
    large = LEVEL + LASTING_DECADES + 1
    scores = [v.mesh_score for v in judge(*[evidence(large)] * 20)[0]]
    assert scores == pytest.approx([large] * 20)


def test_duration_does_not_rank_suspects() -> None:
    scene = evidence(MODERATE, 1.0, calls=((0, 1),))
    verdicts, _ = judge(*[scene] * 14)
    before, after = ([s.score for s in v.suspects] for v in (verdicts[5], verdicts[-1]))
    assert verdicts[-1].incidents
    np.testing.assert_allclose(before, after, rtol=1e-6)
