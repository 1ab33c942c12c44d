"""Measured, silent or gone: conclusions from missing telemetry."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from model.features import ERROR, OWN_TIME, P50, RATE
from model.snapshot import MeshSnapshot, PlannedChange
from model.state.filters import LONG, SHORT
from model.state.presence import FEWEST_REQUESTS
from tests.model.evidence_cases import CART, SEARCH, STORE, evidence_of
from tests.model.model_cases import CALLS, NODE, SERVICES, at, noisy, settled_state, snapshot, watch


def quiet(
    index: float,
    unmeasured: Iterable[int],
    calls: Iterable[tuple[int, int]] = CALLS,
    *,
    failing: Iterable[tuple[int, int]] = (),
    rates: dict[int, float] | None = None,
    changes: Iterable[PlannedChange] = (),
) -> MeshSnapshot:
    """Return the shared mesh without metrics of some services. It has these calls, and some of them fail."""
    calls = list(calls)
    nodes = {(row, RATE): rate for row, rate in (rates or {}).items()} | {(row,): np.nan for row in unmeasured}
    edges = {(calls.index(call), ERROR): 0.95 for call in failing}
    return snapshot(index, calls=calls, nodes=nodes, edges=edges, changes=list(changes))


def without(*callers: int) -> list[tuple[int, int]]:
    return [call for call in CALLS if call[0] not in callers]


def test_a_service_that_others_still_call_is_silent() -> None:
    observation, state = watch([quiet(30, [STORE])], settled_state())
    presence = observation.presence
    np.testing.assert_array_equal(presence.silent, np.arange(5) == STORE)
    assert not presence.gone.any()
    assert not presence.stopped.any()
    assert not observation.node.observed[STORE].any()
    assert state.node_unmeasured.tolist() == [0, 0, 0, 1, 0]


def test_the_calls_of_a_silent_caller_are_silent_too() -> None:
    observation, _ = watch([quiet(30, [CART], without(CART))], settled_state())
    call = CALLS.index((CART, STORE))
    assert not observation.presence.stopped.any()
    assert not observation.edge.observed[call].any()
    assert observation.presence.silent[CART]


def test_silent_series_pause() -> None:
    rng = np.random.default_rng(0)
    _, before = watch([snapshot(30, nodes={(STORE, P50): 3 * NODE[P50]})], settled_state())
    _, after = watch([quiet(31 + i, [STORE]) for i in range(5)], before)
    for slot in range(len(before.node_filters)):
        np.testing.assert_array_equal(after.node_filters[slot, STORE], before.node_filters[slot, STORE])
    assert after.node_filters[SHORT, STORE, P50] > after.node_filters[LONG, STORE, P50] > 0
    _, back = watch([noisy(36, rng)], after)
    assert back.node_unmeasured[STORE] == 0


def test_a_service_that_is_missed_by_two_callers_is_gone() -> None:
    observation, _ = watch([quiet(30, [STORE], without(CART, SEARCH))], settled_state())
    assert observation.presence.gone[STORE]
    assert observation.presence.stopped[[CALLS.index((CART, STORE)), CALLS.index((SEARCH, STORE))]].all()
    assert observation.node.observed[STORE, RATE]
    assert observation.node.now[STORE, RATE] < -8


def test_a_service_whose_calls_fail_is_gone() -> None:
    failing = [(CART, STORE), (SEARCH, STORE)]
    assert watch([quiet(30, [STORE], failing=failing)], settled_state())[0].presence.gone[STORE]
    assert not watch([quiet(30, [STORE], failing=failing[:0])], settled_state())[0].presence.gone[STORE]


def test_a_caller_without_telemetry_is_no_witness() -> None:
    observation, _ = watch([quiet(30, [CART, SEARCH, STORE], without(CART, SEARCH))], settled_state())
    assert not observation.presence.gone.any()
    assert observation.presence.silent.sum() == 3


def test_a_caller_that_reports_no_calls_is_no_witness() -> None:
    """All calls of the gateway are missing, but both services behind it receive the usual requests."""
    observation, _ = watch([quiet(30, [], without(0))], settled_state())
    assert not observation.presence.stopped.any()
    assert not observation.node.observed[0, OWN_TIME], "its waiting time for callees is unknown"


def test_a_call_stopped_if_its_destination_receives_less() -> None:
    observation, _ = watch([quiet(30, [], without(0), rates={CART: 50.0, SEARCH: 50.0})], settled_state())
    np.testing.assert_array_equal(observation.presence.stopped, [call[0] == 0 for call in CALLS])


def test_an_entrance_is_gone_if_the_services_behind_it_receive_less() -> None:
    gateway = [0]
    assert watch([quiet(30, gateway, without(0), rates={CART: 50.0, SEARCH: 50.0})], settled_state())[0].presence.gone[
        0
    ]
    assert not watch([quiet(30, gateway, without(0))], settled_state())[0].presence.gone.any()


def test_an_entrance_is_not_gone_if_a_service_that_only_it_calls_receives_as_much_as_ever() -> None:
    """Another one receives less for a reason of its own."""
    nodes, calls = {(CART, RATE): 40.0}, {(0, RATE): 40.0, (1, RATE): 80.0}
    state = watch([snapshot(i, nodes=nodes, edges=calls) for i in range(30)])[1]
    rates = {CART: 40.0, SEARCH: 10.0}
    assert not watch([quiet(30, [0], without(0), rates=rates)], state)[0].presence.gone[0]
    assert watch([quiet(30, [0], without(0), rates=rates | {CART: 4.0})], state)[0].presence.gone[0]


def test_few_expected_requests_are_no_evidence() -> None:
    few = {((2, 3), RATE): 0.4 * FEWEST_REQUESTS / 15}
    state = watch([snapshot(i, edges=few) for i in range(30)])[1]
    assert not watch([quiet(30, [STORE], without(CART, SEARCH))], state)[0].presence.gone[STORE]


def test_a_service_that_was_never_measured_is_not_silent() -> None:
    state = watch([quiet(i, [STORE]) for i in range(30)])[1]
    observation, after = watch([quiet(30, [STORE])], state)
    assert not observation.presence.silent.any()
    assert not after.node_unmeasured.any()


@pytest.mark.parametrize("snapshots", [1, 2, 20])
def test_silence_alone_is_no_evidence(snapshots: int) -> None:
    """One service is silent, with its calls, for any time."""
    for row in range(len(SERVICES)):
        evidence = evidence_of(*(quiet(30 + i, [row], without(row)) for i in range(snapshots)))
        assert evidence.page.max() < 1, SERVICES[row]
        assert evidence.silence is not None
        assert (evidence.silence.services, evidence.silence.total) == (1, 5)
        assert (evidence.silence.names, evidence.silence.since) == ((SERVICES[row],), at(30))


def test_a_planned_deletion_is_no_silence() -> None:
    change = PlannedChange("delete", SERVICES[CART], "no longer needed")
    state = settled_state()
    memory = state.memory.advance_changes([change], 13, 133)
    evidence = evidence_of(quiet(30, [CART], without(CART)), state=replace(state, memory=memory))
    assert evidence.silence is None


def test_a_disappearance_is_found_while_others_are_silent() -> None:
    evidence = evidence_of(*(quiet(30 + i, [STORE, 4], failing=[(CART, STORE), (SEARCH, STORE)]) for i in range(2)))
    assert evidence.names[int(evidence.page.argmax())] == SERVICES[STORE]
    assert evidence.page.max() > 5
    assert evidence.silence is not None
    assert evidence.silence.names == (SERVICES[4],)
