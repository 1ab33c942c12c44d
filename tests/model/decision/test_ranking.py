"""Which services the ranking suspects."""

from dataclasses import replace

import numpy as np
import pytest

from model.decision.ranking import MAX_DECADES, OTHERS_SHARE, PAGE_NATS, page_nats, suspects, with_neighbours
from model.evidence.kinds import EvidenceKind
from model.incidents.memory import IncidentMemory
from tests.model.decision.verdict_cases import evidence, when


def test_unusual_services_are_suspected_for_any_ranking() -> None:
    """Of two services with equal evidence, the one with a page score a decade higher has e times the root-cause score.

    If both page scores are at the maximum, the root-cause scores are equal.
    """
    no_preference = np.zeros(2, np.float32)
    for lower, nats in ((4.0, PAGE_NATS), (MAX_DECADES, 0.0)):
        scene = replace(evidence(4.0, 4.0), page=np.array([lower, lower + 1], np.float32))
        found = {s.service: s.score for s in suspects(scene, np.arange(2), IncidentMemory(), when(8), no_preference)}
        assert found["a/s1"] / found["a/s0"] == pytest.approx(np.exp(nats), rel=1e-4)


def test_a_service_that_is_missed_counts_as_much_as_the_damage_that_it_does() -> None:
    scene = replace(evidence(4.0, 4.0), page=np.array([4.0, 15.0], np.float32))
    kinds = scene.kinds.copy()
    kinds[0, EvidenceKind.VANISHED] = 4.0
    nats = page_nats(replace(scene, kinds=kinds))
    assert nats[0] == nats[1] == PAGE_NATS * MAX_DECADES
    assert page_nats(scene)[0] == PAGE_NATS * 4


def test_a_caller_gives_way_to_a_callee_that_deviates_as_much() -> None:
    scene = replace(evidence(6.0, 6.0), page=np.array([6.0, 6.0], np.float32))
    kinds = scene.kinds.copy()
    kinds[0, EvidenceKind.CALLEES] = 6.0
    caller, callee = page_nats(replace(scene, kinds=kinds))
    assert (caller, callee) == (PAGE_NATS * 6 * (1 - OTHERS_SHARE), PAGE_NATS * 6)
    kinds[0, EvidenceKind.CALLEES] = 15.0
    assert page_nats(replace(scene, kinds=kinds))[0] == caller, "a far worse callee takes no more away"


def test_a_service_gives_way_to_a_caller_that_floods_it() -> None:
    scene = evidence(9.0, 9.0, calls=((0, 1),))
    kinds = scene.kinds.copy()
    kinds[0, [EvidenceKind.CALLS_OUT, EvidenceKind.CALLEES]] = 9.0
    caller, callee = page_nats(replace(scene, kinds=kinds))
    assert (caller, callee) == (PAGE_NATS * MAX_DECADES, PAGE_NATS * MAX_DECADES * (1 - OTHERS_SHARE))
    kinds[0, EvidenceKind.CALLS_OUT] = 1.0
    caller, callee = page_nats(replace(scene, kinds=kinds))
    assert (caller, callee) == (PAGE_NATS * MAX_DECADES * OTHERS_SHARE, PAGE_NATS * (MAX_DECADES - OTHERS_SHARE))


def test_a_caller_that_is_well_floods_no_one() -> None:
    scene = replace(evidence(0.0, 6.0, calls=((0, 1),)), page=np.array([0.0, 6.0], np.float32))
    kinds = scene.kinds.copy()
    kinds[0, EvidenceKind.CALLS_OUT] = 9.0
    assert page_nats(replace(scene, kinds=kinds)).tolist() == [0.0, PAGE_NATS * 6], "traffic that returns"


def test_a_group_is_suspected_with_its_neighbours() -> None:
    calls = np.array([[0, 1, 3], [1, 2, 4]])
    assert with_neighbours(np.array([1]), calls).tolist() == [0, 1, 2]
    assert with_neighbours(np.array([5]), calls).tolist() == [5]
