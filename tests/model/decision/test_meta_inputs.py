"""Inputs of the meta-model."""

from model.decision.meta_model import detect_inputs
from model.incidents.memory import IncidentMemory
from model.incidents.threshold import Track
from tests.builders import START
from tests.model.decision.verdict_cases import evidence


def test_the_streak_counts_the_last_three_page_scores_above_the_threshold() -> None:
    def streak(*scores: float) -> float:
        memory = IncidentMemory(tracks={"a/s0": Track(scores, START), "a/s1": Track((6.0,), START)})
        return float(detect_inputs(evidence(1.0), memory, 6.0)[-1])

    assert [streak(9.0, 9.0), streak(9.0, 9.0, 6.0, 9.0), streak(5.9, 9.0, 0.0, 9.0), streak(0.0)] == [2, 3, 1, 1]
    assert float(detect_inputs(evidence(1.0), IncidentMemory(), 6.0)[-1]) == 0
