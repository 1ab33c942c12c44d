"""Busy services that are gone and missed."""

from dataclasses import replace

import numpy as np
import pytest

from model.incidents.policy import AlertPolicy
from model.scoring.finders.disappeared import DISAPPEARANCE_SURPRISE, find_disappeared
from model.scoring.kinds import EvidenceKind
from model.snapshot import PlannedChange
from tests.model.evidence_cases import CART, IDLE, STORE, scored_mesh, surprise_of
from tests.model.model_cases import CALLS, EDGE, NODE, SERVICES, settled_state, snapshot, watch

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


def test_calls_that_retries_multiply_are_no_calls_that_were_redirected() -> None:
    """Clients repeat what fails without the store: its caller gets twice the requests, and makes twice its calls."""
    calls = (*CALLS, (CART, IDLE))
    usual = watch([snapshot(i, calls=calls) for i in range(30)])[1]
    kept = [(a, b) for a, b in calls if b != STORE]
    names = {name: i for i, name in enumerate(REMAINING)}
    after = [(names[SERVICES[a]], names[SERVICES[b]]) for a, b in kept]
    nodes, edges = np.tile(NODE, (len(REMAINING), 1)), np.tile(EDGE, (len(kept), 1))
    nodes[CART, 0], edges[kept.index((CART, IDLE)), 0] = 2 * NODE[0], 2 * EDGE[0]
    gone = [snapshot(30 + i, REMAINING, after, nodes=nodes, edges=edges) for i in range(3)]
    observation, state = watch(gone, usual)
    assert (
        surprise_of(find_disappeared, state, observation)[EvidenceKind.VANISHED][STORE] >= DISAPPEARANCE_SURPRISE * 0.9
    )
