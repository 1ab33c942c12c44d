"""A person accepts the present level of some services as normal."""

from dataclasses import replace

import numpy as np
import pytest

from model.features import ERROR, P50, RATE
from model.incidents.memory import IncidentMemory
from model.incidents.threshold import Track
from model.state.alignment import channels_of_window
from model.state.filters import CENTRE, LONG, SHORT, SLOW_CENTRE, SLOW_VARIANCE, VARIANCE
from model.state.levels import LATELY, accept_incident, accept_services
from model.state.mesh_state import MeshState
from model.verdict import Severity, Suspect
from tests.builders import START, open_incident
from tests.contract import different
from tests.model.model_cases import CALLS, EDGE, NODE, SERVICES, noisy, settled_state, snapshot, watch

CART, STORE, GATEWAY = (SERVICES.index(f"shop/{name}") for name in ("cart", "store", "gateway"))
SLOW, FAILING = 4.0, 0.3


def unusual(index: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the metrics of a mesh whose store is slow and fails, also for its callers."""
    made = noisy(index, rng, sigma=0.03)
    nodes, edges = made.node_features.copy(), made.edge_features.copy()
    nodes[STORE, P50] *= SLOW
    nodes[STORE, ERROR] = FAILING
    for row, (_, to) in enumerate(CALLS):
        if to == STORE:
            edges[row, P50] *= SLOW
    return nodes, edges


def unusual_state(snapshots: int = 10, members: tuple[str, ...] = ("shop/store",)) -> MeshState:
    """Return a mesh with an open incident at its store."""
    rng = np.random.default_rng(1)
    state = settled_state(60, sigma=0.03)
    opened = open_incident(*members, id="i-1", severity=Severity.MAJOR, suspects=(Suspect("shop/store", 1.0),))
    memory = IncidentMemory(
        open=(opened, open_incident("shop/search", id="i-2")),
        tracks=dict.fromkeys(SERVICES, Track((7.0,), START, START)),
        above_notice=dict.fromkeys(SERVICES, (1, START)),
        above_traffic={"shop/*": (0b1, START)},
    )
    state = replace(state, memory=memory)
    for i in range(60, 60 + snapshots):
        nodes, edges = unusual(i, rng)
        _, state = watch([snapshot(i, nodes=nodes, edges=edges)], state)
    return state


def deviations(state: MeshState, index: int = 70) -> tuple[np.ndarray, np.ndarray]:
    nodes, edges = unusual(index, np.random.default_rng(2))
    observation, _ = watch([snapshot(index, nodes=nodes, edges=edges)], state)
    return observation.node.now, observation.edge.now


def test_without_a_person_the_level_stays_unusual_and_afterwards_it_is_normal() -> None:
    state = unusual_state()
    node, edge = deviations(state)
    assert node[STORE, [P50, ERROR]].min() > 8
    assert edge[2:, P50].min() > 8
    node, edge = deviations(accept_incident(state, "i-1"))
    assert np.abs(node[STORE]).max() < 3
    assert np.abs(edge[2:]).max() < 3


def test_the_level_is_the_median_of_the_last_snapshots() -> None:
    state = unusual_state()
    level, calls = channels_of_window(state, LATELY)
    after = accept_services(state, ["shop/store"])
    for slot in (CENTRE, SLOW_CENTRE):
        np.testing.assert_array_equal(after.node_filters[slot, STORE], level[STORE])
        np.testing.assert_array_equal(after.edge_filters[slot, 2:], calls[2:])
    assert not after.node_filters[SHORT : LONG + 1, STORE].any()
    assert np.exp(level[STORE, P50]) == pytest.approx(SLOW * NODE[P50], rel=0.1)
    assert np.exp(calls[2:, RATE]) == pytest.approx(EDGE[RATE], rel=0.1)


def test_one_unusual_snapshot_does_not_change_the_accepted_level() -> None:
    state = unusual_state()
    nodes, edges = unusual(70, np.random.default_rng(3))
    nodes[STORE, P50] *= 50
    _, state = watch([snapshot(70, nodes=nodes, edges=edges)], state)
    accepted = accept_services(state, ["shop/store"]).node_filters[CENTRE, STORE, P50]
    assert np.exp(accepted) == pytest.approx(SLOW * NODE[P50], rel=0.1)


def test_spreads_and_other_services_stay_as_they_were() -> None:
    state = unusual_state()
    after = accept_services(state, ["shop/store"])
    for slot in (VARIANCE, SLOW_VARIANCE):
        np.testing.assert_array_equal(after.node_filters[slot], state.node_filters[slot])
    others = [i for i in range(len(SERVICES)) if i != STORE]
    np.testing.assert_array_equal(after.node_filters[:, others], state.node_filters[:, others])
    np.testing.assert_array_equal(after.edge_filters[:, :2], state.edge_filters[:, :2])
    assert not different(after.traffic, state.traffic)
    assert after.memory == state.memory


def test_calls_from_an_accepted_service_are_accepted_too() -> None:
    state = unusual_state()
    after = accept_services(state, ["shop/cart"])
    changed = (after.edge_filters != state.edge_filters).any(axis=(0, 2))
    assert changed.tolist() == [True, False, True, False], "the calls to the cart and from it"


def test_what_was_not_measured_keeps_its_level() -> None:
    state = unusual_state()
    nodes, edges = unusual(70, np.random.default_rng(3))
    nodes[STORE, ERROR] = np.nan
    for i in range(LATELY):
        _, state = watch([snapshot(70 + i, nodes=nodes, edges=edges)], state)
    after = accept_services(state, ["shop/store"])
    np.testing.assert_array_equal(after.node_filters[:, STORE, ERROR], state.node_filters[:, STORE, ERROR])
    assert after.node_filters[CENTRE, STORE, P50] != state.node_filters[CENTRE, STORE, P50]


def test_the_incident_is_over_and_the_others_stay() -> None:
    state = unusual_state(members=("shop/cart", "shop/store"))
    memory = accept_incident(state, "i-1").memory
    assert memory.open == state.memory.open[1:]
    kept = {"shop/gateway", "shop/search", "shop/idle"}
    assert memory.tracks.keys() == memory.above_notice.keys() == kept
    assert memory.above_traffic == state.memory.above_traffic
    assert not memory.is_in_incident(["shop/cart", "shop/store"]).any()


def test_the_first_suspect_is_accepted_even_if_it_is_no_member() -> None:
    state = unusual_state(members=("shop/cart",))
    after = accept_incident(state, "i-1")
    node, _ = deviations(after)
    assert np.abs(node[STORE]).max() < 3


def test_an_incident_that_is_not_open_is_refused() -> None:
    with pytest.raises(KeyError, match="i-3"):
        accept_incident(unusual_state(), "i-3")


def test_a_service_that_has_left_is_no_obstacle() -> None:
    state = unusual_state(members=("shop/gone", "shop/store"))
    assert accept_incident(state, "i-1").memory.open == state.memory.open[1:]


def test_the_argument_is_unchanged() -> None:
    state = unusual_state()
    filters = state.node_filters.copy(), state.edge_filters.copy()
    accept_incident(state, "i-1")
    np.testing.assert_array_equal(state.node_filters, filters[0])
    np.testing.assert_array_equal(state.edge_filters, filters[1])
    assert len(state.memory.open) == 2


def test_back_at_the_former_level_a_service_is_unusual() -> None:
    """Both baselines moved. A latency or error rate that falls is no symptom, but traffic counts both ways."""
    state = settled_state(60, sigma=0.03)
    _, state = watch([snapshot(60 + i, nodes={(CART, RATE): 3 * NODE[RATE]}) for i in range(LATELY)], state)
    observation, _ = watch([snapshot(64)], accept_services(state, ["shop/cart"]))
    assert observation.node.now[CART, RATE] < -5
    assert observation.node.level[0, CART, RATE] > 5
