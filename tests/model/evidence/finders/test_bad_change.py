"""Services that are worse after a planned change of their own, and what becomes normal after a change."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from model.evidence.finders.bad_change import find_bad_changes
from model.evidence.kinds import EVENT_SURPRISE, EvidenceKind
from model.features import ERROR, NODE_CHANNELS, P50, P99, RATE
from model.incidents.policy import AlertPolicy
from model.incidents.threshold import Track
from model.snapshot import PlannedChange
from model.state.change_impact import KEPT, KNOWN, OWN, UNEXPOSED, settled_series
from model.state.filters import CENTRE, SLOW_CENTRE
from model.state.mesh_state import MeshState, Observation
from model.state.observe import observe
from model.verdict import Severity
from tests.builders import START, open_incident
from tests.model.evidence_cases import surprise_of
from tests.model.model_cases import CALLS, NODE, SERVICES, noisy, settled_state, snapshot

STORE, CART = SERVICES.index("shop/store"), SERVICES.index("shop/cart")
INTO_STORE = [row for row, (_, to) in enumerate(CALLS) if to == STORE]
DEPLOY = PlannedChange("deploy", "shop/store", "v2")
REMEMBERED = AlertPolicy().change_memory
LASTS = 8  # the snapshot in which a lasting deviation is found; one earlier if none of it is noise
Change = dict[int, float]


class Rollout:
    """A mesh in which the store changes."""

    def __init__(self, settled: int = 60) -> None:
        self.rng = np.random.default_rng(5)
        self.index = settled
        self.state = settled_state(settled, sigma=0.03) if settled else MeshState()

    def see(
        self,
        node: Change | None = None,
        edge: Change | None = None,
        changes: Iterable[PlannedChange] = (),
        *,
        cart: Change | None = None,
    ) -> Observation:
        """Observe a snapshot with these factors on metrics of the store, of the calls to it, and of the cart."""
        made = noisy(self.index, self.rng, sigma=0.03)
        nodes, edges = made.node_features.copy(), made.edge_features.copy()
        nodes[~made.node_observed], edges[~made.edge_observed] = np.nan, np.nan
        for metric, factor in (node or {}).items():
            nodes[STORE, metric] *= factor
        for metric, factor in (cart or {}).items():
            nodes[CART, metric] *= factor
        for metric, factor in (edge or {}).items():
            edges[INTO_STORE, metric] *= factor
        memory = self.state.memory.advance_changes(changes, REMEMBERED, 120)
        state = replace(self.state, memory=memory)
        one = snapshot(self.index, nodes=nodes, edges=edges, changes=tuple(changes))
        observation, self.state = observe(state, one, window_size=120, neighbours=8)
        self.index += 1
        return observation

    def run(
        self,
        snapshots: int,
        node: Change | None = None,
        edge: Change | None = None,
        changes: Iterable[PlannedChange] = (),
    ) -> list[tuple[float, float]]:
        """Return how far slower the store is and how far more it fails in each snapshot; the first one announces the
        changes."""
        found = []
        for i in range(snapshots):
            observation = self.see(node, edge, changes if i == 0 else ())
            surprise = surprise_of(find_bad_changes, self.state, observation)
            slow, failing = surprise[EvidenceKind.LATENCY], surprise[EvidenceKind.ERROR]
            assert not np.delete(slow, STORE).any()
            assert not np.delete(failing, STORE).any()
            found.append((float(slow[STORE]), float(failing[STORE])))
        return found


def first(found: list[tuple[float, float]], which: int) -> int:
    return next((i + 1 for i, one in enumerate(found) if one[which]), 0)


@pytest.mark.parametrize(("node", "edge"), [({P50: 3.0}, {}), ({}, {P50: 3.0})])
def test_a_service_that_stays_far_slower_since_its_deploy_is_found(node: Change, edge: Change) -> None:
    found = Rollout().run(REMEMBERED, node, edge, [DEPLOY])
    assert first(found, 0) in (LASTS - 1, LASTS)
    assert found[LASTS:-1] == [(EVENT_SURPRISE, 0.0)] * (REMEMBERED - LASTS - 1)


@pytest.mark.parametrize(("slower", "callee_slower", "is_found"), [(1.4, 1.0, True), (1.4, 1.45, False)])
def test_a_new_version_that_multiplies_the_self_time_is_found_though_callees_take_the_most(
    slower: float, callee_slower: float, is_found: bool
) -> None:
    """The cart waits for 18 of its 20 ms. It has got 8 ms slower: by itself, or because the store has."""
    mesh = Rollout(settled=0)
    for _ in range(60):
        mesh.see(edge={P50: 3.6})
    found = []
    for i in range(REMEMBERED):
        change = [PlannedChange("deploy", "shop/cart", "v2")] if i == 0 else []
        edge = {P50: 3.6 * callee_slower}
        observation = mesh.see(edge=edge, changes=change, cart={P50: slower})
        surprise = surprise_of(find_bad_changes, mesh.state, observation)
        found.append(float(surprise[EvidenceKind.LATENCY][CART]))
    assert any(found) == is_found


@pytest.mark.parametrize(("node", "edge"), [({ERROR: 15.0}, {}), ({}, {ERROR: 15.0})])
def test_a_service_that_fails_far_more_since_its_deploy_is_found(node: Change, edge: Change) -> None:
    found = Rollout().run(REMEMBERED, node, edge, [DEPLOY])
    assert first(found, 1) in (LASTS - 1, LASTS)
    assert first(found, 0) == 0


@pytest.mark.parametrize(
    ("what", "node"),
    [
        ("somewhat slower", {P50: 1.8}),
        ("a slow tail, as of a few cold replicas", {P99: 6.0}),
        ("somewhat more errors", {ERROR: 4.0}),
        ("faster", {P50: 0.3}),
        ("more requests", {RATE: 3.0}),
    ],
)
def test_other_effects_of_a_deploy_are_not_found(what: str, node: Change) -> None:
    assert set(Rollout().run(REMEMBERED, node, {}, [DEPLOY])) == {(0.0, 0.0)}, what


def test_what_is_soon_over_is_not_found() -> None:
    mesh = Rollout()
    found = mesh.run(4, {P50: 4.0, ERROR: 20.0}, {}, [DEPLOY]) + mesh.run(8)
    assert set(found) == {(0.0, 0.0)}


@pytest.mark.parametrize("kind", ["scale_out", "scale_in", "deletion"])
def test_only_a_new_version_is_compared_with_the_time_before(kind: str) -> None:
    found = Rollout().run(REMEMBERED, {P50: 3.0}, {}, [PlannedChange(kind, "shop/store")])
    assert set(found) == {(0.0, 0.0)}


def test_without_a_change_nothing_is_worse_since_one() -> None:
    assert set(Rollout().run(10, {P50: 3.0})) == {(0.0, 0.0)}


def test_a_caller_of_a_changed_service_is_not_compared() -> None:
    assert set(Rollout().run(10, {P50: 3.0}, {}, [PlannedChange("deploy", "shop/cart", "v2")])) == {(0.0, 0.0)}


def test_a_new_service_has_no_level_before_its_change() -> None:
    young = Rollout(settled=int(KNOWN) - 20)
    assert set(young.run(10, {P50: 3.0}, {}, [DEPLOY])) == {(0.0, 0.0)}


def test_what_began_before_a_change_is_not_its_effect() -> None:
    """A service that raises an alert is not exposed to a change, so its alert is judged as ever."""
    mesh = Rollout()
    opened = open_incident("shop/store", severity=Severity.MAJOR)
    above = {"shop/store": Track((9.0,), START, START)}
    mesh.state = replace(mesh.state, memory=replace(mesh.state.memory, open=(opened,), tracks=above))
    observation = mesh.see({P50: 3.0}, changes=[DEPLOY])
    assert (observation.node_exposure == UNEXPOSED).all()
    assert observation.node.now[STORE, P50] > 8
    notice = replace(opened, severity=Severity.NOTICE)
    mesh = Rollout()
    mesh.state = replace(mesh.state, memory=replace(mesh.state.memory, open=(notice,)))
    assert mesh.see({P50: 3.0}, changes=[DEPLOY]).node_exposure[STORE] == OWN, "a notice is no alert"


def test_a_service_in_an_alert_of_its_neighbours_is_exposed_to_its_own_change() -> None:
    mesh = Rollout()
    opened = open_incident("shop/cart", "shop/store", severity=Severity.MAJOR)
    above = {"shop/cart": Track((9.0,), START, START)}
    mesh.state = replace(mesh.state, memory=replace(mesh.state.memory, open=(opened,), tracks=above))
    assert mesh.see({P50: 3.0}, changes=[DEPLOY]).node_exposure[STORE] == OWN


def test_a_new_service_is_exposed_and_its_level_follows_it_for_some_time() -> None:
    """It has no past to be compared with; its first values, of few requests, are no level."""
    mesh = Rollout(settled=200)
    services, calls = (*SERVICES, "shop/new"), (*CALLS, (CART, len(SERVICES)))
    exposure, expected = [], []
    for i in range(60):
        made = noisy(mesh.index + i, mesh.rng, services, calls, sigma=0.03)
        nodes, edges = made.node_features.copy(), made.edge_features.copy()
        nodes[-1, P99] = 0.02 if i < 6 else 0.1
        observation, mesh.state = observe(
            mesh.state,
            snapshot(mesh.index + i, services, calls, nodes=nodes, edges=edges),
            window_size=120,
            neighbours=8,
        )
        exposure.append(int(observation.node_exposure[-1]))
        expected.append(float(np.exp(observation.node.expected[-1, P99])))
        assert (observation.node_exposure[:-1] == UNEXPOSED).all(), "its neighbours have a past"
    assert exposure == [OWN] * int(KNOWN) + [UNEXPOSED] * (60 - int(KNOWN))
    assert expected[6] == pytest.approx(0.02, rel=0.1)
    assert expected[int(KNOWN)] > 0.06


def level(mesh: Rollout, slot: int = CENTRE) -> float:
    """Return the usual p50 of the store relative to the level at first."""
    return float(np.exp(mesh.state.node_filters[slot, STORE, P50]) / NODE[P50])


def test_far_slower_times_of_a_new_version_are_held_and_do_not_settle() -> None:
    mesh = Rollout()
    mesh.run(REMEMBERED + 3, {P50: 3.0}, {P50: 3.0}, [DEPLOY])
    assert [level(mesh, slot) for slot in (CENTRE, SLOW_CENTRE)] == pytest.approx([1.0, 1.0], abs=0.1)
    observation = mesh.see({P50: 3.0}, {P50: 3.0})
    assert observation.node_exposure[STORE] == UNEXPOSED
    assert observation.node.now[STORE, P50] > 8, "its level before the change remains the usual one"
    assert observation.edge.now[INTO_STORE, P50].min() > 8


@pytest.mark.parametrize("factor", [1.2, 1.6])
def test_somewhat_slower_times_settle_when_the_change_is_over(factor: float) -> None:
    mesh = Rollout()
    mesh.run(REMEMBERED, {P50: factor}, {P50: factor}, [DEPLOY])
    assert level(mesh) == pytest.approx(factor, rel=0.1)
    observation = mesh.see({P50: factor}, {P50: factor})
    assert observation.node_exposure[STORE] == UNEXPOSED
    assert abs(observation.node.now[STORE, P50]) < 3
    assert np.abs(observation.edge.now[INTO_STORE, P50]).max() < 3
    assert level(mesh, SLOW_CENTRE) == pytest.approx(1.0, abs=0.15), "both levels are known"


def test_errors_and_traffic_do_not_settle() -> None:
    mesh = Rollout()
    mesh.run(REMEMBERED, {ERROR: 15.0, RATE: 4.0}, {}, [DEPLOY])
    settled = settled_series(np.array([OWN]), np.array([False]), NODE_CHANNELS)
    assert not settled[0, [ERROR, RATE]].any()
    assert {"error_rate", "request_rate"} <= KEPT
    assert NODE_CHANNELS[ERROR].inverse(float(mesh.state.node_filters[SLOW_CENTRE, STORE, ERROR])) < 0.05


def test_a_service_in_an_alert_does_not_settle() -> None:
    mesh = Rollout()
    mesh.run(REMEMBERED - 1, {P50: 1.6}, {}, [DEPLOY])
    opened = open_incident("shop/store", severity=Severity.MAJOR)
    mesh.state = replace(mesh.state, memory=replace(mesh.state.memory, open=(opened,)))
    before = level(mesh)
    mesh.see({P50: 1.6})
    assert level(mesh) == pytest.approx(before, rel=0.02)
