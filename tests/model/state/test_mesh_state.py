from copy import deepcopy
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

import numpy as np
import pytest

from model.errors import OutOfOrder
from model.features import EDGE_CHANNELS, NODE_CHANNELS, P50, RATE
from model.incidents.memory import IncidentMemory
from model.incidents.threshold import LASTING_DECADES, Track
from model.network.contract import NODE_PAST
from model.scoring.score import score, whole_mesh
from model.snapshot import MeshSnapshot, PlannedChange
from model.state.change_impact import OWN
from model.state.filters import CENTRE, EXCEED_COUNT, LONG, SEEN, SHORT, SLOW_CENTRE, VARIANCE
from model.state.mesh_state import MeshState
from model.state.observe import observe
from model.state.topology import sample_neighbours, strongest
from model.verdict import Severity
from tests.builders import open_incident
from tests.contract import different
from tests.model.model_cases import (
    CALLS,
    EDGE,
    NODE,
    SERVICES,
    at,
    network,
    noisy,
    settled_state,
    simulated,
    snapshot,
    watch,
    without,
)

STORE = SERVICES.index("shop/store")


def slow_store(index: float, factor: float = 4.0, **arguments: Any) -> MeshSnapshot:
    return snapshot(index, nodes={(STORE, P50): factor * NODE[P50]}, **arguments)


def test_only_the_slow_service_deviates() -> None:
    observation, _ = watch([slow_store(30)], settled_state())
    latency = observation.node.now[:, P50]
    assert latency[STORE] > 8
    assert np.abs(np.delete(latency, STORE)).max() < 2.5
    assert observation.node.value[STORE, P50] == pytest.approx(np.log(0.08 + 2e-4), rel=1e-4)
    assert np.exp(observation.node.expected[STORE, P50]) == pytest.approx(0.02, rel=0.1)


def test_low_traffic_widens_the_spread() -> None:
    few = {(1, RATE): 0.2}  # three requests in a snapshot
    quiet, busy = watch([snapshot(30, nodes=few)], settled_state())[0], watch([snapshot(30)], settled_state())[0]
    assert quiet.node.spread[1, P50] > 3 * busy.node.spread[1, P50]
    np.testing.assert_allclose(quiet.node.spread[2, P50], busy.node.spread[2, P50])


def usual_p50(state: MeshState) -> float:
    """Return the usual p50 of the store by its fast baseline, relative to the level at first."""
    return float(np.exp(state.node_filters[CENTRE, STORE, P50]) / NODE[P50])


def open_alert(state: MeshState, since: datetime, severity: Severity = Severity.MAJOR, scope: str = "") -> MeshState:
    opened = open_incident("shop/store", since=since, severity=severity, scope=scope)
    return replace(state, memory=replace(state.memory, open=(opened,)))


@pytest.mark.parametrize("snapshots", [20, 250])
def test_baselines_pause_as_long_as_an_alert_is_open(snapshots: int) -> None:
    state = open_alert(settled_state(60, sigma=0.03), at(60))
    observation, after = watch([slow_store(60 + i) for i in range(snapshots)], state)
    assert usual_p50(after) == pytest.approx(1.0, abs=0.1)
    assert observation.node.now[STORE, P50] > 8


@pytest.mark.parametrize(("severity", "scope"), [(Severity.NOTICE, ""), (Severity.CRITICAL, "shop/*")])
def test_a_notice_and_an_incident_of_traffic_pause_no_baseline(severity: Severity, scope: str) -> None:
    state = open_alert(settled_state(60, sigma=0.03), at(60), severity, scope)
    _, after = watch([slow_store(60 + i) for i in range(130)], state)
    assert usual_p50(after) > 3


@pytest.mark.parametrize(
    ("load", "minutes", "learns"),
    [(4.0, 29, False), (4.0, 60, True), (0.2, 60, True), (2.0, 60, False), (1.0, 60, False)],
)
def test_a_service_with_a_new_load_learns_after_half_an_hour_of_its_alert(
    load: float, minutes: int, learns: bool
) -> None:
    """Its other metrics belong to another load."""
    state = open_alert(settled_state(60, sigma=0.03), at(60))
    busier = {(STORE, P50): 4.0 * NODE[P50], (STORE, RATE): load * NODE[RATE]}
    _, after = watch([snapshot(60 + i, nodes=busier) for i in range(minutes * 4)], state)
    assert (usual_p50(after) > 1.5) == learns
    assert learns or usual_p50(after) == pytest.approx(1.0, abs=0.1)


SUSPICIOUS = {"shop/store": (0b11, at(60))}
LEVEL = 6.0
WATCHED = LEVEL - LASTING_DECADES


def unusual(*scores: float, service: str = "shop/store") -> dict[str, Any]:
    """Return fields of a memory in which a service has these page scores, the newest first."""
    return {"threshold": (LEVEL, at(60).timestamp()), "tracks": {service: Track(scores, at(60))}}


@pytest.mark.parametrize(
    ("above", "pauses"),
    [
        (unusual(WATCHED, WATCHED), True),
        ({"above_notice": SUSPICIOUS}, True),
        (unusual(9.0, 0.0, 9.0), True),
        (unusual(9.0), False),
        (unusual(9.0, 0.0, 0.0, 9.0), False),
        (unusual(0.0, 9.0, 9.0), False),
        (unusual(*[WATCHED - 0.1] * 3), False),
        (unusual(9.0, 9.0, service="shop/cart"), False),
    ],
)
def test_baselines_of_suspicious_services_pause(above: dict[str, Any], pauses: bool) -> None:
    """They were unusual now and in one of the two snapshots before."""
    state = settled_state(60, sigma=0.03)
    state = replace(state, memory=replace(state.memory, **above))
    _, after = watch([slow_store(60 + i) for i in range(60)], state)
    assert (usual_p50(after) < 1.1) == pauses
    assert pauses or usual_p50(after) > 2


def test_a_short_resource_is_suspicious_for_half_an_hour_only() -> None:
    """A leak lasts for hours, and a batch may be here to stay."""
    memory = IncidentMemory(above_notice=SUSPICIOUS)
    names = ["shop/store", "shop/cart"]
    assert memory.is_suspicious(names, at(60 + 120)).tolist() == [True, False]
    assert not memory.is_suspicious(names, at(60 + 121)).any()


def test_what_is_unusual_for_an_hour_without_an_alert_becomes_normal() -> None:
    names = ["shop/store", "shop/cart"]
    memory = IncidentMemory(**unusual(9.0, 9.0))
    assert memory.is_suspicious(names, at(60 + 240)).tolist() == [True, False]
    assert not memory.is_suspicious(names, at(60 + 241)).any()
    assert not replace(memory, threshold=None).is_suspicious(names, at(61)).any()
    state = settled_state(60, sigma=0.03)
    state = replace(state, memory=replace(state.memory, **unusual(9.0, 9.0)))
    _, paused = watch([slow_store(60 + i) for i in range(240)], state)
    assert usual_p50(paused) < 1.1
    _, after = watch([slow_store(300 + i) for i in range(60)], paused)
    assert usual_p50(after) > 2


def test_a_suspicious_service_near_a_planned_change_learns() -> None:
    """After a change a service is unusual for a while; what it did is counted as the effect of the change."""
    state = settled_state(60, sigma=0.03)
    memory = replace(state.memory, **unusual(9.0, 9.0)).advance_changes([PlannedChange("scale_out", "shop/store")], 500)
    observation, after = watch([slow_store(60 + i) for i in range(60)], replace(state, memory=memory))
    assert observation.node_exposure[STORE] == OWN
    assert usual_p50(after) > 2


def test_a_missed_snapshot_is_no_gap() -> None:
    _, state = watch([slow_store(30)], settled_state())
    observation, _ = watch([snapshot(32)], state)
    assert observation.node.past_short[STORE, P50] == state.node_filters[SHORT, STORE, P50] > 0.5


@pytest.mark.parametrize("interval", [5.0, 60.0, 300.0])
def test_the_interval_is_estimated(interval: float) -> None:
    _, state = watch(snapshot(i, interval=interval) for i in range(5))
    assert state.interval_seconds == pytest.approx(interval)


def test_jitter_changes_the_interval_little() -> None:
    _, state = watch(snapshot(i + 0.2 * (i % 2)) for i in range(41))
    assert state.interval_seconds == pytest.approx(15.0, abs=1.0)


@pytest.mark.parametrize(("first", "then"), [(300.0, 15.0), (60.0, 5.0), (15.0, 60.0), (5.0, 300.0), (15.0, 300.0)])
def test_the_estimate_follows_a_changed_interval(first: float, then: float) -> None:
    _, state = watch(snapshot(i, interval=first) for i in range(10))
    start = 9 * first
    for k in range(1, 60):
        observation, state = observe(state, slow_store((start + k * then) / 15.0), window_size=120, neighbours=8)
    assert state.interval_seconds == pytest.approx(then, rel=0.1)
    assert observation.node.past_long[STORE, P50] != 0, "still treats every snapshot as one after a gap"


@pytest.mark.parametrize("index", [29, 28.99, 3])
def test_a_time_that_is_not_newer_is_refused(index: float) -> None:
    state = settled_state()
    with pytest.raises(OutOfOrder, match="send snapshots in order") as refused:
        watch([snapshot(index)], state)
    assert state.observed_at is not None
    assert refused.value.details["newest"] == state.observed_at.isoformat()


def test_the_argument_is_unchanged() -> None:
    state = settled_state()
    state = replace(state, memory=replace(state.memory, open=(open_incident("shop/cart"),)))
    before = deepcopy(state)
    services, calls = (*SERVICES[1:], "shop/new"), ((0, 2), (0, 4))
    watch([slow_store(30), snapshot(31, services, calls), snapshot(90)], state)
    for field in fields(MeshState):
        ours, theirs = getattr(state, field.name), getattr(before, field.name)
        if isinstance(ours, np.ndarray):
            np.testing.assert_array_equal(ours, theirs, err_msg=field.name)
        elif field.name == "window":
            assert [s.digest for s in ours] == [s.digest for s in theirs]
        else:
            assert not different(ours, theirs), field.name


def test_a_snapshot_is_prepared_by_name_in_any_order() -> None:
    nodes = np.tile(NODE, (5, 1)) * np.linspace(0.5, 1.0, 5)[:, None]
    edges = np.tile(EDGE, (4, 1)) * np.linspace(0.5, 1.0, 4)[:, None]
    order, calls = [3, 0, 4, 2, 1], [2, 0, 3, 1]
    position = np.argsort(order)
    straight = snapshot(30, nodes=nodes, edges=edges)
    shuffled = snapshot(
        30,
        [SERVICES[i] for i in order],
        [(int(position[CALLS[c][0]]), int(position[CALLS[c][1]])) for c in calls],
        nodes=nodes[order],
        edges=edges[calls],
    )
    (one, state), (other, same) = watch([straight], settled_state()), watch([shuffled], settled_state())
    assert same.node_ids == state.node_ids
    np.testing.assert_array_equal(one.node.now, other.node.now)
    np.testing.assert_array_equal(one.edge.now, other.edge.now)
    np.testing.assert_array_equal(state.edge_filters, same.edge_filters)


def grown(index: int, shift: float = 1.0) -> MeshSnapshot:
    """Return the mesh with one more service. The cart calls it, and it calls the store."""
    services = (*SERVICES, "shop/new")
    slower = {(..., P50): shift * NODE[P50]}
    return snapshot(index, services, (*CALLS, (1, 5), (5, 3)), nodes=slower)


def test_a_new_service_starts_from_the_mean_of_its_neighbours() -> None:
    _, state = watch([slow_store(30), slow_store(31)], settled_state())
    observation, after = watch([grown(32)], state)
    mean = state.node_filters[:, [1, STORE]].mean(axis=1)
    np.testing.assert_allclose(observation.node.past_short[5], mean[SHORT], rtol=1e-5)
    np.testing.assert_allclose(observation.node.past_long[5], mean[LONG], rtol=1e-5)
    assert observation.node.past_short[5, P50] > 0.5
    np.testing.assert_allclose(observation.node.exceed_count[:, 5], mean[EXCEED_COUNT], rtol=1e-5)
    assert (observation.node.now[5] == 0).all()
    assert not observation.node.observed[5].any()
    np.testing.assert_allclose(after.node_filters[CENTRE, 5, P50], observation.node.value[5, P50])
    assert (after.node_filters[SEEN, 5] <= 1).all()


def test_a_new_service_without_neighbours_starts_from_the_mesh() -> None:
    observation, after = watch([snapshot(30, (*SERVICES, "other/alone"))], settled_state())
    assert (observation.node.past_short[5] == 0).all()
    assert np.sqrt(after.node_filters[VARIANCE, 5, P50]) == pytest.approx(0.1, rel=0.6)


@pytest.mark.parametrize("seed", range(5))
def test_a_new_service_is_embedded_near_its_neighbours(seed: int) -> None:
    """The whole shop is slow when the service appears. An embedding that starts from zeros would be far away."""
    slower = {(..., P50): 1.6 * NODE[P50]}
    _, state = watch([snapshot(30 + i, nodes=slower) for i in range(6)], settled_state())
    observation, after = watch([grown(36, shift=1.6)], state)
    task = whole_mesh(after, observation)
    task = replace(task, boundary=np.arange(6))
    zeros = task.nodes.copy()
    zeros[5, NODE_PAST] = 0
    ours, from_zeros = score(network(seed), [task, replace(task, nodes=zeros)])
    mean = ours.embeddings[[1, STORE]].mean(axis=0)
    assert np.linalg.norm(ours.embeddings[5] - mean) < np.linalg.norm(from_zeros.embeddings[5] - mean)


def test_a_vanished_service_is_observed_with_zero_traffic() -> None:
    observation, state = watch([snapshot(30, *without(STORE))], settled_state())
    assert state.node_ids == SERVICES
    np.testing.assert_array_equal(observation.node_present, [True, True, True, False, True])
    np.testing.assert_array_equal(observation.edge_present, [True, True, False, False])
    assert NODE_CHANNELS[RATE].inverse(float(observation.node.value[STORE, RATE])) == pytest.approx(0.0, abs=1e-6)
    assert observation.node.now[STORE, RATE] < -8
    assert (observation.edge.now[2:, RATE] < -8).all()
    expected = np.zeros(len(NODE_CHANNELS), bool)
    expected[RATE] = True
    np.testing.assert_array_equal(observation.node.observed[STORE], expected)
    assert not observation.edge.observed[2:, 1:4].any()
    assert len(EDGE_CHANNELS) == observation.edge.observed.shape[1]


def test_vanished_services_are_forgotten_after_the_window() -> None:
    window_size = 8
    _, state = watch(snapshot(i) for i in range(20))
    services, calls = without(STORE)
    _, state = watch([snapshot(20 + i, services, calls) for i in range(window_size)], state, window_size=window_size)
    assert "shop/store" in state.node_ids
    before = state.node_filters[:, [0, 1, 2, 4]]
    _, state = watch([snapshot(40, services, calls)], state, window_size=window_size)
    assert state.node_ids == services
    np.testing.assert_array_equal(state.edge_index, np.array(calls).T)
    assert state.node_filters.shape[1] == len(state.node_absent) == 4
    assert state.edge_filters.shape[1] == len(state.edge_absent) == len(state.attended_callers) == 2
    np.testing.assert_allclose(state.node_filters[SLOW_CENTRE], before[SLOW_CENTRE], atol=0.01)


def test_a_vanished_call_is_forgotten_but_its_services_stay() -> None:
    _, state = watch(snapshot(i) for i in range(5))
    _, state = watch([snapshot(5 + i, calls=CALLS[:3]) for i in range(5)], state, window_size=4)
    assert state.node_ids == SERVICES
    np.testing.assert_array_equal(state.edge_index, np.array(CALLS[:3]).T)


def test_a_service_that_returns_keeps_its_baselines() -> None:
    _, state = watch([snapshot(30 + i, *without(STORE)) for i in range(2)], settled_state())
    observation, state = watch([snapshot(32)], state)
    assert observation.node.observed[STORE].all()
    assert observation.node_present.all()
    assert (state.node_absent == 0).all()
    assert np.abs(observation.node.now[STORE, P50]) < 2


def test_the_ring_holds_the_last_snapshots_and_shares_equal_parts() -> None:
    _, state = watch([snapshot(i) for i in range(9)], window_size=4)
    assert [s.observed_at for s in state.window] == [snapshot(i).observed_at for i in (5, 6, 7, 8)]
    assert all(s.edge_index is state.window[0].edge_index for s in state.window)
    assert state.sequence == 9


def test_the_ring_stores_each_name_once_while_services_come_and_go() -> None:
    def fresh(count: int, index: int) -> MeshSnapshot:
        return snapshot(index, [f"shop/service-{i}" for i in range(count)], [])

    _, state = watch([fresh(count, i) for i, count in enumerate((5, 6, 5, 7))])
    texts = {id(name) for kept in state.window for name in kept.node_ids} | set(map(id, state.node_ids))
    assert len(texts) == 7
    assert [len(kept.node_ids) for kept in state.window] == [5, 6, 5, 7]
    assert all(kept.node_ids == fresh(len(kept.node_ids), 0).node_ids for kept in state.window)


def test_a_warm_up_sets_baselines_but_not_clock_and_ring() -> None:
    rng = np.random.default_rng(0)
    state = MeshState()
    for i in range(30):
        _, state = observe(state, noisy(i, rng), window_size=120, neighbours=8, counted=False)
    assert (state.sequence, state.window, state.observed_at, state.learned) == (0, (), None, 30)
    observation, state = watch([slow_store(30)], state)
    assert observation.node.now[STORE, P50] > 8
    assert state.sequence == 1


def test_standing_is_relative_to_the_current_services() -> None:
    nodes = np.tile(NODE, (5, 1)) * np.linspace(0.9, 1.1, 5)[:, None]
    nodes[4, P50] = 10.0
    nodes[0, 3] = np.nan
    observation, _ = watch([snapshot(0, nodes=nodes)])
    assert observation.standing[4, P50] == 8.0
    assert observation.standing[2, P50] == pytest.approx(0.0, abs=0.8)
    assert observation.standing[0, 3] == 0.0
    assert (np.abs(observation.standing) <= 8).all()


def test_strongest_caps_each_group_and_prefers_the_earlier_of_equals() -> None:
    group = np.array([0, 0, 0, 0, 1, 1, 2])
    traffic = np.array([5, 9, 5, 7, 1, 2, 3], np.float32)
    np.testing.assert_array_equal(strongest(traffic, group, 2), [False, True, False, True, True, True, True])
    np.testing.assert_array_equal(strongest(traffic, group, 3), [True, True, False, True, True, True, True])
    equal = np.ones(6, np.float32)
    np.testing.assert_array_equal(strongest(equal, np.zeros(6, np.int64), 4), [True] * 4 + [False] * 2)
    assert strongest(equal[:0], group[:0], 4).shape == (0,)


def test_at_most_one_foreign_neighbour_is_sampled_above_the_limit() -> None:
    listener = np.array([0] * 6 + [1] * 2)
    traffic = np.array([6, 5, 4, 3, 2, 1, 9, 8], np.float32)
    foreign = np.array([True, True, False, False, False, False, True, True])
    marked = sample_neighbours(traffic, listener, foreign, 4)
    # Two of the four strongest calls into 0 are foreign, and the stronger one stays. Service 1 is below the limit.
    np.testing.assert_array_equal(marked, [True, False, True, True, False, False, True, True])


def test_sampled_neighbours_stay_until_the_topology_changes() -> None:
    services = [f"a/s{i}" for i in range(12)]
    calls = [(i, 11) for i in range(11)]
    edges = np.tile(EDGE, (11, 1))
    edges[:, 0] = np.arange(11, 0, -1)
    _, state = watch([snapshot(i, services, calls, edges=edges) for i in range(3)], neighbours=4)
    np.testing.assert_array_equal(state.attended_callers, [True] * 4 + [False] * 7)
    assert state.attended_callees.all()
    _, state = watch([snapshot(3 + i, services, calls, edges=edges[::-1]) for i in range(60)], state, neighbours=4)
    np.testing.assert_array_equal(state.attended_callers, [True] * 4 + [False] * 7)
    services, calls = [*services, "a/new"], [*calls, (12, 11)]
    edges = np.vstack([edges[::-1], [(50.0, 0.01, 0.01, 0.05)]])
    _, state = watch([snapshot(63, services, calls, edges=edges)], state, neighbours=4)
    np.testing.assert_array_equal(state.attended_callers, [False] * 8 + [True] * 4)


def test_a_simulated_mesh_deviates_like_noise() -> None:
    state, levels = MeshState(), []
    for one in simulated(40, 120):
        observation, state = observe(state, one, window_size=120, neighbours=8)
        levels.append(np.where(observation.node.observed, observation.node.now, np.nan))
    settled = np.stack(levels[60:])
    assert 0.3 < np.nanstd(settled) < 1.5
    assert np.nanmean(np.abs(settled) > 5) < 0.003
