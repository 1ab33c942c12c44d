"""Busy services that are gone and missed."""

from dataclasses import replace

import numpy as np
import pytest

from model.evidence.finders.disappeared import find_disappeared
from model.evidence.kinds import EVENT_SURPRISE, EvidenceKind
from model.incidents.policy import AlertPolicy
from model.snapshot import PlannedChange
from tests.model.evidence_cases import CART, IDLE, STORE, scored_mesh, surprise_of
from tests.model.model_cases import CALLS, EDGE, NODE, SERVICES, settled_state, snapshot, watch

REMAINING = tuple(name for name in SERVICES if name != SERVICES[STORE])
CALLS_BESIDE = tuple((REMAINING.index(SERVICES[a]), REMAINING.index(SERVICES[b])) for a, b in CALLS if b != STORE)


def test_a_busy_service_that_is_gone_and_missed_is_evidence_against_it_alone() -> None:
    gone = [snapshot(30 + i, REMAINING, CALLS_BESIDE) for i in range(3)]
    observation, state = watch(gone, settled_state())
    vanished = surprise_of(find_disappeared, state, observation)[EvidenceKind.VANISHED]
    assert vanished[STORE] >= EVENT_SURPRISE * 0.9
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
    assert surprise_of(find_disappeared, state, observation)[EvidenceKind.VANISHED][STORE] >= EVENT_SURPRISE * 0.9


@pytest.mark.parametrize("fails", [True, False])
def test_a_small_part_of_a_callers_traffic_is_missed_if_as_many_of_its_requests_fail(fails: bool) -> None:
    """The noise of the other calls hides the lost ones, but not the requests that fail without them. Without such
    requests the service may have been replaced."""
    calls, share = ((0, CART), (CART, STORE), (CART, IDLE)), 0.02
    edges = np.tile(EDGE, (len(calls), 1))
    edges[calls.index((CART, IDLE)), 0] = EDGE[0] / share
    nodes = np.tile(NODE, (len(SERVICES), 1))
    nodes[CART, 0] = EDGE[0] / share
    usual = watch([snapshot(i, calls=calls, nodes=nodes, edges=edges) for i in range(30)])[1]
    kept = [(a, b) for a, b in calls if b != STORE]
    names = {name: i for i, name in enumerate(REMAINING)}
    after = [(names[SERVICES[a]], names[SERVICES[b]]) for a, b in kept]
    left, nodes = edges[[calls.index(call) for call in kept]], np.delete(nodes, STORE, axis=0)
    left[kept.index((CART, IDLE)), 0] *= 1 + share  # by chance
    if fails:
        nodes[names[SERVICES[CART]], 1] += share
    gone = [snapshot(30 + i, REMAINING, after, nodes=nodes, edges=left) for i in range(3)]
    observation, state = watch(gone, usual)
    vanished = surprise_of(find_disappeared, state, observation)[EvidenceKind.VANISHED][STORE]
    assert vanished >= EVENT_SURPRISE * 0.9 if fails else not vanished
