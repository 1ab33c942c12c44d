"""Busy services that are gone and missed."""

from dataclasses import replace

import numpy as np
import pytest

from model.incidents.policy import AlertPolicy
from model.scoring.finders.disappeared import DISAPPEARANCE_SURPRISE, find_disappeared
from model.scoring.kinds import EvidenceKind
from model.snapshot import PlannedChange
from tests.model.evidence_cases import STORE, scored_mesh, surprise_of
from tests.model.model_cases import CALLS, SERVICES, settled_state, snapshot, watch

REMAINING = tuple(name for name in SERVICES if name != SERVICES[STORE])
CALLS_BESIDE = tuple((REMAINING.index(SERVICES[a]), REMAINING.index(SERVICES[b])) for a, b in CALLS if b != STORE)


def test_a_busy_service_that_is_gone_and_missed_is_evidence_against_it_alone() -> None:
    gone = [snapshot(30 + i, REMAINING, CALLS_BESIDE) for i in range(3)]
    observation, state = watch(gone, settled_state())
    vanished = surprise_of(find_disappeared, state, observation)[EvidenceKind.VANISHED]
    assert vanished[STORE] >= DISAPPEARANCE_SURPRISE * 0.9
    assert not np.delete(vanished, STORE).any()


@pytest.mark.parametrize("kind", ["delete", "retire"])
def test_a_planned_deletion_is_no_disappearance(kind: str) -> None:
    observation, state = watch([snapshot(30 + i, REMAINING, CALLS_BESIDE) for i in range(3)], settled_state())
    changes = [PlannedChange(kind, SERVICES[STORE])]
    memory = state.memory.advance_changes(changes, AlertPolicy().change_memory)
    assert find_disappeared(scored_mesh(replace(state, memory=memory), observation)) == ()


def test_while_all_services_are_there_nothing_is_found() -> None:
    observation, state = watch([snapshot(30)], settled_state())
    assert find_disappeared(scored_mesh(state, observation)) == ()
