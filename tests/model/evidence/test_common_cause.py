"""What calls share that are slow or fail on the way, and calls that are repeated because they fail."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

from model.evidence.common_cause import (
    MOST_OF,
    Shared,
    find_common_causes,
    find_retried,
    load_of,
    symptom_of,
)
from model.features import P50, P99
from model.snapshot import BoolArray, MeshSnapshot
from model.state.mesh_state import MeshState, Observation
from tests.model.evidence_cases import evidence_of, score_of
from tests.model.model_cases import CALLS, EDGE, NODE, SERVICES, noisy, snapshot, watch

# The cart calls the store, as the search does, and two services of its own.
MESH = (*SERVICES, "shop/prices", "shop/stock")
CART, SEARCH, STORE, PRICES, STOCK = 1, 2, 3, 5, 6
MADE = (*CALLS, (CART, PRICES), (CART, STOCK))
OF_CART = [row for row, (source, _) in enumerate(MADE) if source == CART]
FLOOR = 0.02
SLOW = EDGE[P50] + 0.06


@cache
def calm_state(mesh: tuple[str, ...] = MESH) -> MeshState:
    rng = np.random.default_rng(0)
    return watch(noisy(i, rng, mesh, MADE, sigma=0.03) for i in range(60))[1]


SETTLED = calm_state()


def scene(
    calls: Mapping[tuple[int, int], float],
    services: Mapping[int, float] | None = None,
    rates: Mapping[tuple[int, int], float] | None = None,
) -> MeshSnapshot:
    """Return a snapshot with these medians of calls and of services, s; ``rates`` are calls/s."""
    columns = (P50, P99)
    edges: dict[Any, Any] = {(MADE.index(call), columns): (median, median + 0.1) for call, median in calls.items()}
    edges |= {(MADE.index(call), 0): rate for call, rate in (rates or {}).items()}
    nodes = {(service, columns): (median, median + 0.2) for service, median in (services or {}).items()}
    return snapshot(60, MESH, MADE, nodes=nodes, edges=edges)


def observe(one: MeshSnapshot) -> tuple[MeshState, Observation]:
    observation, state = watch([one], SETTLED)
    return state, observation


def slow_rows(one: MeshSnapshot, floor: float = FLOOR) -> list[int]:
    """Return the calls that are slow because of their caller."""
    found: BoolArray = find_common_causes(*observe(one), floor).slow_by_caller
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


def test_what_explains_most_calls_is_the_cause_and_the_rest_says_nothing_against_the_others() -> None:
    """All calls of the cart are slow, and all calls to the store: the cart explains one more."""
    both = ALL | {(SEARCH, STORE): SLOW}
    assert slow_rows(scene(both)) == OF_CART


def test_calls_that_share_only_their_callee_are_not_their_callers() -> None:
    assert slow_rows(scene({(CART, STORE): SLOW, (SEARCH, STORE): SLOW})) == []


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
    slow = find_common_causes(state, observation, FLOOR).slow_by_caller
    now, usual = symptom_of(state, observation, P50, slow, 0)
    assert now[CART] == pytest.approx(EDGE[P50] + (0.12 + 0.06 + 0.06) / 3, rel=0.05)
    assert usual[CART] == pytest.approx(EDGE[P50], rel=0.05)
    assert not np.delete(now, CART).any()
    assert not np.delete(usual, CART).any()
    none = symptom_of(state, observation, P50, np.zeros(len(MADE), bool), 0)
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


def failing_scene(
    calls: Mapping[tuple[int, int], float], services: Mapping[int, float] | None = None, mesh: tuple[str, ...] = MESH
) -> MeshSnapshot:
    """Return a snapshot in which these shares of the requests of calls and services fail."""
    edges = {(MADE.index(call), 1): share for call, share in calls.items()}
    nodes = {(service, 1): share for service, share in (services or {}).items()}
    return snapshot(60, mesh, MADE, nodes=nodes, edges=edges)


FAILING = {MADE[row]: 0.6 for row in OF_CART}


def failing_rows(one: MeshSnapshot) -> list[int]:
    return np.flatnonzero(find_common_causes(*observe(one), FLOOR).failing_by_caller).tolist()


def test_if_all_calls_of_a_service_fail_and_what_it_calls_is_well_they_are_its_own() -> None:
    assert failing_rows(failing_scene(FAILING)) == OF_CART
    assert failing_rows(failing_scene({})) == []
    assert failing_rows(failing_scene(FAILING, {STORE: 0.55, PRICES: 0.55})) == []


def test_calls_are_lost_on_the_way_to_a_callee_that_fails_as_well() -> None:
    """Of its requests 40% fail; with 60% lost on the way, 76% of the calls do."""
    both = failing_scene(FAILING | {(CART, PRICES): 0.76}, {PRICES: 0.4})
    assert failing_rows(both) == OF_CART


def test_a_callee_that_fails_everything_shows_nothing_about_the_way() -> None:
    assert failing_rows(failing_scene(dict.fromkeys(FAILING, 1.0), dict.fromkeys((STORE, PRICES, STOCK), 1.0))) == []


def test_the_other_callers_show_whether_a_callee_is_well_that_is_not_measured() -> None:
    """Both callers of the store see what it answers."""
    unknown = {STORE: np.nan}
    assert failing_rows(failing_scene(FAILING, unknown)) == OF_CART
    ill = failing_scene(FAILING | {(SEARCH, STORE): 0.6}, unknown)
    assert failing_rows(ill) == []


def test_failing_calls_are_evidence_against_the_caller_and_a_reason() -> None:
    found = evidence_of(failing_scene(FAILING), state=SETTLED)
    assert score_of(found, CART, "error") > 2
    kinds = {name: found.kinds[row] for row, name in enumerate(found.names)}
    for service in (STORE, PRICES, STOCK):
        assert MESH[service] not in kinds or not found.page[found.names.index(MESH[service])]
    row = found.names.index(MESH[CART])
    first = found.explanation.reasons[row][0]
    assert first.metric == "outgoing_errors"
    assert (first.observed, first.expected) == (pytest.approx(0.6, abs=0.01), pytest.approx(0.01, abs=0.005))


# The cart and the search are in another namespace than what they call; or in two.
SPREAD = ("edge/gateway", "shop/cart", "shop/search", "data/store", "data/idle", "data/prices", "data/stock")
SPLIT = ("edge/gateway", "shop/cart", "edge/search", *SPREAD[3:])


def shared_errors(calls: Mapping[tuple[int, int], float], mesh: tuple[str, ...]) -> dict[tuple[int, int], int]:
    """Return what each call shares, without the calls that share nothing."""
    observation, state = watch([failing_scene(calls, mesh=mesh)], calm_state(mesh))
    shared = find_common_causes(state, observation, FLOOR).errors
    return {call: what for call, what in zip(MADE, shared.tolist(), strict=True) if what}


EVERY = FAILING | {(SEARCH, STORE): 0.6}


def test_calls_out_of_all_services_of_a_namespace_share_it() -> None:
    assert shared_errors(EVERY, SPREAD) == dict.fromkeys(EVERY, Shared.FROM_NAMESPACE)
    assert shared_errors(FAILING, SPREAD) == dict.fromkeys(FAILING, Shared.CALLER)


def test_calls_into_all_services_of_a_namespace_share_it() -> None:
    assert shared_errors(EVERY, SPLIT) == dict.fromkeys(EVERY, Shared.INTO_NAMESPACE)


def test_a_mesh_of_one_namespace_has_none_in_common() -> None:
    found = find_common_causes(*observe(failing_scene(EVERY)), FLOOR).errors
    assert not np.isin(found, [Shared.FROM_NAMESPACE, Shared.INTO_NAMESPACE]).any()


def test_the_reason_of_a_namespace_comes_first() -> None:
    found = evidence_of(failing_scene(EVERY, mesh=SPREAD), state=calm_state(SPREAD))
    for service in (CART, SEARCH):
        row = found.names.index(SPREAD[service])
        assert found.explanation.reasons[row][0].metric == "namespace_outgoing_errors"


def storm(store_fails: float, times: Mapping[tuple[int, int], float]) -> MeshSnapshot:
    """Return a snapshot in which the store fails, and callers make their calls to it that many times as often."""
    edges = {(MADE.index(call), (0, 1)): (EDGE[0] * factor, store_fails) for call, factor in times.items()}
    more = EDGE[0] * sum(factor - 1 for factor in times.values())
    nodes = {(STORE, (0, 1)): (NODE[0] + more, store_fails)}
    return snapshot(60, MESH, MADE, nodes=nodes, edges=edges)


TO_STORE = ((CART, STORE), (SEARCH, STORE))


def retried(one: MeshSnapshot) -> tuple[list[tuple[int, int]], float]:
    """Return the calls that are retries, and the load of the store without them."""
    state, observation = observe(one)
    found = find_retried(state, observation)
    load = load_of(state, observation, found, np.array([STORE]))
    return [MADE[row] for row in np.flatnonzero(found)], float(load[0])


def test_calls_that_the_failures_of_their_callee_explain_are_its_own_load() -> None:
    """Of 80% that fail, up to five retries make 3.7 attempts."""
    found, load = retried(storm(0.8, dict.fromkeys(TO_STORE, 3.0)))
    assert found == list(TO_STORE)
    assert load == pytest.approx(1, abs=0.1)


def test_a_caller_that_sends_more_than_failures_explain_began() -> None:
    found, load = retried(storm(0.7, {(CART, STORE): 8.0, (SEARCH, STORE): 2.0}))
    assert found == [(SEARCH, STORE)]
    assert load == pytest.approx(4.5, rel=0.1)
    assert retried(storm(0.01, dict.fromkeys(TO_STORE, 3.0))) == ([], pytest.approx(3, rel=0.1))


def test_retries_are_no_evidence_against_their_callers() -> None:
    began = evidence_of(storm(0.01, {(CART, STORE): 3.0}), state=SETTLED)
    retries = evidence_of(storm(0.8, dict.fromkeys(TO_STORE, 3.0)), state=SETTLED)
    assert score_of(began, CART, "calls_out") > 2
    assert score_of(retries, CART, "calls_out") < 2
    row = retries.names.index(MESH[STORE])
    assert retries.explanation.load[row] > 2.5
    assert retries.inbound_load[row] < 1.2
