"""Evidence for an alert, in small meshes with one deviation."""

from dataclasses import replace

import numpy as np
import pytest

from model.incidents.policy import AlertPolicy
from model.scoring.evidence import Evidence
from model.scoring.finders.failing import FAILING_SURPRISE, find_failing
from model.scoring.finders.rerouted import REROUTE_SURPRISE
from model.scoring.kinds import EvidenceKind
from model.scoring.page_score import page_score
from model.snapshot import MeshSnapshot, PlannedChange
from tests.model.evidence_cases import CART, IDLE, NEW, SEARCH, STORE, evidence_of, snapshot_with_move, surprise_of
from tests.model.model_cases import CALLS, EDGE, NODE, SERVICES, settled_state, snapshot, watch


def score_of(evidence: Evidence, service: int, kind: str) -> float:
    return float(evidence.kinds[evidence.names.index(SERVICES[service]), EvidenceKind[kind.upper()]])


def with_nodes(index: float, service: int, **metrics: float) -> MeshSnapshot:
    nodes = np.tile(NODE, (len(SERVICES), 1))
    for column, value in metrics.items():
        nodes[service, int(column[1:])] = value
    return snapshot(index, nodes=nodes)


def test_rerouted_calls_are_evidence_against_the_caller_and_both_destinations() -> None:
    evidence = evidence_of(snapshot_with_move(0.7))
    for service in (CART, STORE, IDLE):
        assert score_of(evidence, service, "vanished") == pytest.approx(REROUTE_SURPRISE)
    assert score_of(evidence, SEARCH, "vanished") == 0
    assert evidence.page[evidence.names.index(SERVICES[CART])] >= REROUTE_SURPRISE


def test_events_count_more_where_the_level_is_raised_and_deviations_do_not() -> None:
    usual, restless = (evidence_of(snapshot_with_move(0.7), raised=raised) for raised in (1.0, 1.2))
    expected = usual.kinds.copy()
    expected[:, EvidenceKind.VANISHED] *= 1.2
    assert restless.names == usual.names
    np.testing.assert_allclose(restless.kinds, expected, rtol=1e-6)


def test_a_new_call_beside_the_old_ones_is_no_rerouting() -> None:
    more = snapshot(30, calls=(*CALLS, (CART, IDLE)))
    assert evidence_of(more).kinds[:, EvidenceKind.VANISHED].max() == 0


def test_few_calls_or_a_small_share_count_for_less() -> None:
    assert score_of(evidence_of(snapshot_with_move(0.03)), CART, "vanished") < 0.2 * REROUTE_SURPRISE


@pytest.mark.parametrize(("minutes", "counts"), [(3, True), (6, False)])
def test_a_slow_move_counts_while_its_calls_are_new(minutes: int, counts: bool) -> None:
    """Traffic moves slowly, so its new calls exist for some minutes before the move is large."""
    slow = [snapshot_with_move(0.05, index=30 + i) for i in range(minutes * 4)]
    found = evidence_of(*slow, snapshot_with_move(0.7, index=30 + len(slow)))
    assert (score_of(found, CART, "vanished") > 0) == counts


def test_traffic_that_moves_to_a_new_service_is_no_rerouting() -> None:
    """A canary or a replacement takes over traffic, at any speed."""
    for already in (0, 5, 12):
        canary = [snapshot_with_move(0.05, index=30 + i, to=NEW) for i in range(already)]
        found = evidence_of(*canary, snapshot_with_move(0.7, index=30 + already, to=NEW))
        assert found.kinds[:, EvidenceKind.VANISHED].max() == 0


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
    assert (score_of(found, CART, "vanished") == pytest.approx(REROUTE_SURPRISE)) == counts
    assert counts or found.kinds[:, EvidenceKind.VANISHED].max() == 0


def test_a_wrong_route_counts_although_a_rollout_announced_a_change() -> None:
    state = settled_state()
    announced = snapshot_with_move(0.7, change=True)
    memory = state.memory.advance_changes(announced.changes, AlertPolicy().change_memory)
    evidence = evidence_of(announced, state=replace(state, memory=memory))
    assert score_of(evidence, CART, "vanished") == pytest.approx(REROUTE_SURPRISE)


def test_errors_count_relative_to_the_usual_errors() -> None:
    """A rise from 1% to 5% is large. From 80% to 88% is normal for a service that fails most of the time."""
    healthy = evidence_of(with_nodes(30, STORE, _1=0.05))
    nodes = np.tile(NODE, (len(SERVICES), 1))
    nodes[STORE, 1] = 0.8
    broken = watch((snapshot(i, nodes=nodes) for i in range(30, 150)), settled_state())[1]
    worse = evidence_of(with_nodes(150, STORE, _1=0.88), state=broken)
    assert score_of(healthy, STORE, "error") > 2
    assert score_of(worse, STORE, "error") < 0.1


def test_resources_count_less_and_load_raises_no_alert() -> None:
    kinds = np.zeros((3, len(EvidenceKind)), np.float32)
    for row, kind in enumerate((EvidenceKind.RESOURCES, EvidenceKind.LATENCY, EvidenceKind.RISE)):
        kinds[row, kind] = 6.0
    np.testing.assert_allclose(page_score(kinds), [3.6, 6.0, 0.0], rtol=1e-6)


@pytest.mark.parametrize(
    ("errors", "rate", "change", "counts"),
    [(0.4, 100.0, True, 1.0), (0.1, 100.0, True, 0.0), (0.4, 0.3, True, 0.09), (0.4, 100.0, False, 0.0)],
    ids=["many errors", "some errors", "few requests", "no change"],
)
def test_a_change_does_not_excuse_a_service_that_fails(errors: float, rate: float, change: bool, counts: float) -> None:
    changes = [PlannedChange("deploy", SERVICES[CART], "v2")] if change else []
    state = settled_state(100)
    state = replace(state, memory=state.memory.advance_changes(changes, AlertPolicy().change_memory))
    observation, state = watch([with_nodes(100, CART, _0=rate, _1=errors)], state)
    found = surprise_of(find_failing, state, observation)[EvidenceKind.ERROR]
    assert found[CART] == pytest.approx(counts * FAILING_SURPRISE, rel=0.02)
    assert not np.delete(found, CART).any()


def page_scores_while_slower(*, deployed: bool) -> list[float]:
    """Return the highest page score of each snapshot while a service is 50% slower, with or without a deploy."""
    policy, state, scores = AlertPolicy(), settled_state(100), []
    changes = [PlannedChange("deploy", SERVICES[CART], "v2")] if deployed else []
    for i in range(40):
        memory = state.memory.advance_changes(changes if i == 0 else (), policy.change_memory)
        slower = with_nodes(100 + i, CART, _2=1.5 * NODE[2], _3=1.5 * NODE[3])
        state = replace(state, memory=memory)
        scores.append(float(evidence_of(slower, state=state).page.max()))
        state = watch([slower], state)[1]
    return scores


def test_a_service_that_stays_slower_after_a_deploy_becomes_normal() -> None:
    settled = AlertPolicy().change_memory
    with_deploy, without = (np.array(page_scores_while_slower(deployed=deployed)) for deployed in (True, False))
    assert without[settled:].max() > 2
    assert with_deploy[settled:].max() < 0.5
    assert with_deploy[:settled].max() > 2, "the service deviates while the change is new"
