"""Busy services that are gone and missed."""

from dataclasses import replace

import numpy as np
import pytest

from model.evidence.finders.disappeared import find_disappeared
from model.evidence.kinds import EVENT_SURPRISE, EvidenceKind
from model.features import Array
from model.incidents.policy import AlertPolicy
from model.snapshot import MeshSnapshot, PlannedChange
from model.state.mesh_state import MeshState
from tests.model.evidence_cases import CART, IDLE, STORE, scored_mesh, surprise_of
from tests.model.model_cases import CALLS, EDGE, NODE, SERVICES, settled_state, snapshot, watch, without


def absence_surprise(state: MeshState, *snapshots: MeshSnapshot) -> Array:
    """Return the evidence that each service is gone."""
    observation, after = watch(snapshots, state)
    return surprise_of(find_disappeared, after, observation)[EvidenceKind.VANISHED]


GONE = [snapshot(30 + i, *without(STORE)) for i in range(3)]


def test_a_busy_service_that_is_gone_and_missed_is_evidence_against_it_alone() -> None:
    found = absence_surprise(settled_state(), *GONE)
    assert found[STORE] >= EVENT_SURPRISE * 0.9
    assert not np.delete(found, STORE).any()


@pytest.mark.parametrize("kind", ["delete", "retire"])
def test_a_planned_deletion_is_no_disappearance(kind: str) -> None:
    observation, state = watch(GONE, settled_state())
    changes = [PlannedChange(kind, SERVICES[STORE])]
    memory = state.memory.advance_changes(changes, AlertPolicy().change_memory)
    assert find_disappeared(scored_mesh(replace(state, memory=memory), observation)) == ()


def test_while_all_services_are_there_nothing_is_found() -> None:
    assert not absence_surprise(settled_state(), snapshot(30)).any()


def test_calls_that_retries_multiply_are_no_calls_that_were_redirected() -> None:
    """Clients repeat what fails without the store: its caller gets twice the requests, and makes twice its calls."""
    calls = (*CALLS, (CART, IDLE))
    usual = watch([snapshot(i, calls=calls) for i in range(30)])[1]
    services, left = without(STORE, calls)
    nodes, edges = {(CART, 0): 2 * NODE[0]}, {(-1, 0): 2 * EDGE[0]}
    gone = [snapshot(30 + i, services, left, nodes=nodes, edges=edges) for i in range(3)]
    assert absence_surprise(usual, *gone)[STORE] >= EVENT_SURPRISE * 0.9


@pytest.mark.parametrize("fails", [True, False])
def test_a_small_part_of_a_callers_traffic_is_missed_if_as_many_of_its_requests_fail(fails: bool) -> None:
    """The noise of the other calls hides the lost ones, but not the requests that fail without them. Without such
    requests the service may have been replaced."""
    calls, share = ((0, CART), (CART, STORE), (CART, IDLE)), 0.02
    nodes, edges = {(CART, 0): EDGE[0] / share}, {(-1, 0): EDGE[0] / share}
    usual = watch([snapshot(i, calls=calls, nodes=nodes, edges=edges) for i in range(30)])[1]
    services, left = without(STORE, calls)
    edges[-1, 0] *= 1 + share  # by chance
    if fails:
        nodes[CART, 1] = NODE[1] + share
    gone = [snapshot(30 + i, services, left, nodes=nodes, edges=edges) for i in range(3)]
    found = absence_surprise(usual, *gone)[STORE]
    assert found >= EVENT_SURPRISE * 0.9 if fails else not found
