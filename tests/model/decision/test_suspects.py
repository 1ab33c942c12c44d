"""Suspects and their reasons."""

from dataclasses import replace

import numpy as np
import pytest

from model.decision.ranking import suspects
from model.evidence.explanations import Fact
from model.incidents.memory import IncidentMemory
from model.verdict import MOVED, Status
from tests.model.decision.verdict_cases import evidence, judge, when
from tests.model.model_cases import at


def test_suspects_are_filled_without_any_incident() -> None:
    (verdict,), _ = judge(evidence(0.5, 0.2, 0.1))
    assert verdict.status is Status.NORMAL
    assert {s.service for s in verdict.suspects} == {"a/s0", "a/s1", "a/s2"}
    assert sum(s.score for s in verdict.suspects) == pytest.approx(1, abs=1e-5)


def test_reasons_are_in_the_metrics_unit() -> None:
    scene = evidence(9.0, 8.0, calls=((1, 0),))
    (own_fact,), other = scene.explanation.reasons
    facts = own_fact, Fact("p99_latency", 1.5, 0.2, source="a/s1"), Fact(MOVED, 40.0, 0.0, "a/s1")
    explanation = replace(scene.explanation, reasons=(facts, other))
    explanation.load[0], explanation.gone[0] = 1.4, 4
    scene = replace(scene, explanation=explanation)
    no_preference = np.zeros(2, np.float32)
    found = {s.service: s for s in suspects(scene, np.arange(2), IncidentMemory(), when(8), no_preference)}
    own, call, moved = found["a/s0"].reasons
    assert (own.metric, own.source) == ("error_rate", "")
    assert (own.observed, own.expected) == pytest.approx((0.25, 0.01))
    assert (call.metric, call.source) == ("p99_latency", "a/s1")
    assert (call.observed, call.expected) == pytest.approx((1.5, 0.2))
    assert (moved.source, moved.destination, moved.observed) == ("", "a/s1", 40.0), "a call that the service makes"
    assert [reason.since for reason in found["a/s0"].reasons] == [at(5)] * 3, "gone for three snapshots before this one"
    assert [reason.load for reason in found["a/s0"].reasons] == pytest.approx([1.4, 1.0, 1.0]), "the load is shown once"
    assert len(found["a/s1"].reasons) == 1
