"""Calls that are slow because of their caller are evidence about the caller."""

from collections.abc import Mapping

import numpy as np
import pytest

from model.features import P50, P99
from model.scoring.common_cause import MOST_OF, find_slow_callers, waiting_of
from model.snapshot import BoolArray, MeshSnapshot
from model.state.mesh_state import MeshState, Observation
from tests.model.evidence_cases import evidence_of, score_of
from tests.model.model_cases import CALLS, EDGE, NODE, SERVICES, noisy, settled_state, snapshot, watch

# The cart calls the store, as the search does, and two services of its own.
MESH = (*SERVICES, "shop/prices", "shop/stock")
CART, SEARCH, STORE, PRICES, STOCK = 1, 2, 3, 5, 6
MADE = (*CALLS, (CART, PRICES), (CART, STOCK))
OF_CART = [row for row, (source, _) in enumerate(MADE) if source == CART]
FLOOR = 0.02
SLOW = EDGE[P50] + 0.06


def calm_state() -> MeshState:
    rng = np.random.default_rng(0)
    return watch(noisy(i, rng, MESH, MADE, sigma=0.03) for i in range(60))[1]


SETTLED = calm_state()


def scene(
    calls: Mapping[tuple[int, int], float],
    services: Mapping[int, float] | None = None,
    rates: Mapping[tuple[int, int], float] | None = None,
) -> MeshSnapshot:
    """Return a snapshot with these medians of calls and of services, s; ``rates`` are calls/s."""
    nodes, edges = np.tile(NODE, (len(MESH), 1)), np.tile(EDGE, (len(MADE), 1))
    for call, median in calls.items():
        edges[MADE.index(call), [P50, P99]] = median, median + 0.1
    for service, median in (services or {}).items():
        nodes[service, [P50, P99]] = median, median + 0.2
    for call, rate in (rates or {}).items():
        edges[MADE.index(call), 0] = rate
    return snapshot(60, MESH, MADE, nodes=nodes, edges=edges)


def observe(one: MeshSnapshot) -> tuple[MeshState, Observation]:
    observation, state = watch([one], SETTLED)
    return state, observation


def slow_rows(one: MeshSnapshot, floor: float = FLOOR) -> list[int]:
    """Return the calls that are slow because of their caller."""
    found: BoolArray = find_slow_callers(*observe(one), floor)
    return np.flatnonzero(found).tolist()


ALL = {MADE[row]: SLOW for row in OF_CART}


def test_if_all_calls_of_a_service_are_slow_and_what_it_calls_is_well_they_are_its_own() -> None:
    assert slow_rows(scene(ALL)) == OF_CART
    assert slow_rows(scene({})) == []


def test_a_callee_may_be_a_little_slower_itself() -> None:
    assert slow_rows(scene(ALL, {STORE: NODE[P50] + 0.01})) == OF_CART


@pytest.mark.parametrize("callee", [STORE, PRICES, STOCK])
def test_a_call_to_a_service_that_is_slow_itself_is_not_its_callers(callee: int) -> None:
    assert slow_rows(scene(ALL, {callee: NODE[P50] + 0.05})) == []


def test_a_callee_that_is_slow_itself_does_not_clear_a_caller_of_the_others() -> None:
    """If that is a small part of its calls, the others are slow because of it."""
    few = {(CART, STOCK): 1.0}
    slow = scene(ALL, {STOCK: NODE[P50] + 0.05}, few)
    assert slow_rows(slow) == [row for row in OF_CART if MADE[row] != (CART, STOCK)]


def test_a_callee_that_is_slow_for_other_callers_too_is_not_its_callers() -> None:
    both = ALL | {(SEARCH, STORE): SLOW}
    assert slow_rows(scene(both)) == [], "a third of the cart's calls is to the store"


def test_a_single_callee_shows_nothing_about_its_caller() -> None:
    assert slow_rows(scene({(SEARCH, STORE): SLOW})) == []


@pytest.mark.parametrize(("share", "found"), [(MOST_OF - 0.05, False), (MOST_OF + 0.05, True)])
def test_nearly_all_requests_of_the_caller_have_to_be_slow(share: float, found: bool) -> None:
    fast = (1 - share) * 2 * EDGE[0] / share
    slow = scene({(CART, STORE): SLOW, (CART, PRICES): SLOW}, rates={(CART, STOCK): fast})
    expected = [MADE.index((CART, STORE)), MADE.index((CART, PRICES))]
    assert slow_rows(slow) == (expected if found else [])


def test_a_rise_below_the_floor_is_no_slowness() -> None:
    assert slow_rows(scene(ALL), floor=0.05) == OF_CART
    assert slow_rows(scene(ALL), floor=0.07) == []
    assert slow_rows(scene(dict.fromkeys(ALL, EDGE[P50] + 0.015))) == []


def test_a_callee_that_is_not_measured_is_not_known_to_be_well() -> None:
    one = scene(ALL, dict.fromkeys((STORE, PRICES, STOCK), np.nan))
    assert slow_rows(one) == []


def test_calls_that_are_not_measured_do_not_count() -> None:
    assert slow_rows(scene(ALL | {(CART, STOCK): np.nan})) == OF_CART[:2]
    unknown = dict.fromkeys(ALL, np.nan) | {(CART, STORE): SLOW}
    assert slow_rows(scene(unknown)) == [], "one call is no common cause"


def test_a_service_waits_for_its_slow_calls() -> None:
    one = scene(ALL | {(CART, STORE): EDGE[P50] + 0.12})
    state, observation = observe(one)
    slow = find_slow_callers(state, observation, FLOOR)
    now, usual = waiting_of(state, observation, slow)
    assert now[CART] == pytest.approx(EDGE[P50] + (0.12 + 0.06 + 0.06) / 3, rel=0.05)
    assert usual[CART] == pytest.approx(EDGE[P50], rel=0.05)
    assert not np.delete(now, CART).any()
    assert not np.delete(usual, CART).any()
    none = waiting_of(state, observation, np.zeros(len(MADE), bool))
    assert not none[0].any()


def test_slow_calls_are_evidence_against_the_caller_and_not_against_what_it_calls() -> None:
    found = evidence_of(scene(ALL), state=SETTLED)
    kinds = {name: found.kinds[row] for row, name in enumerate(found.names)}
    caller = score_of(found, CART, "latency")
    assert caller > 2
    assert caller == score_of(found, CART, "latency_raw") == score_of(found, CART, "own_time")
    for service in (STORE, PRICES, STOCK):
        assert MESH[service] not in kinds or not found.page[found.names.index(MESH[service])]
    slow_store = evidence_of(scene({(CART, STORE): SLOW, (SEARCH, STORE): SLOW}), state=SETTLED)
    assert score_of(slow_store, STORE, "calls_in_latency") > 2
    assert score_of(slow_store, CART, "own_time") < 2


def test_the_shared_mesh_has_a_caller_with_two_callees() -> None:
    """The gateway calls the cart and the search."""
    edges = np.tile(EDGE, (len(CALLS), 1))
    edges[:2, [P50, P99]] = SLOW, 0.2
    observation, state = watch([snapshot(60, edges=edges)], settled_state(60, sigma=0.03))
    assert np.flatnonzero(find_slow_callers(state, observation, FLOOR)).tolist() == [0, 1]
