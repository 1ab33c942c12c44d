"""Traffic that moves between established services is evidence; rollouts and new calls are not."""

from dataclasses import replace

import numpy as np
import pytest

from model.evidence.kinds import EVENT_SURPRISE, EvidenceKind
from model.incidents.policy import AlertPolicy
from tests.model.evidence_cases import CART, IDLE, NEW, SEARCH, STORE, evidence_of, score_of, snapshot_with_move
from tests.model.model_cases import CALLS, EDGE, SERVICES, settled_state, snapshot


def test_rerouted_calls_are_evidence_against_the_caller_and_both_destinations() -> None:
    evidence = evidence_of(snapshot_with_move(0.7))
    for service in (CART, STORE, IDLE):
        assert score_of(evidence, service, "vanished") == pytest.approx(EVENT_SURPRISE)
    assert score_of(evidence, SEARCH, "vanished") == 0
    assert evidence.page[evidence.names.index(SERVICES[CART])] >= EVENT_SURPRISE


def test_a_new_call_beside_the_old_ones_is_no_rerouting() -> None:
    more = snapshot(30, calls=(*CALLS, (CART, IDLE)))
    assert evidence_of(more).kinds[:, EvidenceKind.VANISHED].max() == 0


def test_few_calls_or_a_small_share_count_for_less() -> None:
    assert score_of(evidence_of(snapshot_with_move(0.03)), CART, "vanished") < 0.2 * EVENT_SURPRISE


@pytest.mark.parametrize(("minutes", "counts"), [(3, True), (6, False)])
def test_a_slow_move_counts_while_its_calls_are_new(minutes: int, counts: bool) -> None:
    """Traffic moves slowly, so its new calls exist for some minutes before the move is large."""
    slow = [snapshot_with_move(0.05, index=30 + i) for i in range(minutes * 4)]
    found = evidence_of(*slow, snapshot_with_move(0.7, index=30 + len(slow)))
    assert (score_of(found, CART, "vanished") > 0) == counts


@pytest.mark.parametrize(
    ("name", "minutes", "counts"),
    [(NEW, 5, False), (NEW, 70, False), ("shop/depot", 5, False), ("shop/depot", 20, False), ("shop/depot", 70, True)],
)
def test_a_roll_out_in_steps_is_no_rerouting(name: str, minutes: int, counts: bool) -> None:
    """Another caller uses the new service for some time before the cart's traffic moves to it. Another version of the
    store may be there for any time."""
    grown, calls = (*SERVICES, name), (*CALLS, (SEARCH, len(SERVICES)))
    before = [snapshot(30 + i, grown, calls) for i in range(minutes * 4)]
    edges = np.array([*[EDGE] * len(calls), EDGE])
    edges[2, 0] *= 0.3
    edges[-1, 0] *= 0.7
    moved = snapshot(30 + len(before), grown, (*calls, (CART, len(SERVICES))), edges=edges)
    found = evidence_of(*before, moved)
    assert (score_of(found, CART, "vanished") == pytest.approx(EVENT_SURPRISE)) == counts
    assert counts or found.kinds[:, EvidenceKind.VANISHED].max() == 0


def test_a_wrong_route_counts_although_a_rollout_announced_a_change() -> None:
    state = settled_state()
    announced = snapshot_with_move(0.7, change=True)
    memory = state.memory.advance_changes(announced.changes, AlertPolicy().change_memory)
    evidence = evidence_of(announced, state=replace(state, memory=memory))
    assert score_of(evidence, CART, "vanished") == pytest.approx(EVENT_SURPRISE)
