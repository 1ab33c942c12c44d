"""Neither a planned change nor slow minutes in the past excuse harm to many users."""

from dataclasses import replace

import numpy as np
import pytest

from model.evidence.finders.gross_harm import find_gross_harm
from model.evidence.kinds import EVENT_SURPRISE, EvidenceKind
from model.incidents.policy import AlertPolicy
from model.snapshot import NodeMetric, PlannedChange
from model.state.filters import SEEN
from tests.model.evidence_cases import CART, surprise_of, with_nodes
from tests.model.model_cases import NODE, SERVICES, settled_state, watch


@pytest.mark.parametrize(
    ("errors", "rate", "change", "counts"),
    [(0.4, 100.0, True, 1.0), (0.1, 100.0, True, 0.0), (0.4, 0.3, True, 0.09), (0.4, 100.0, False, 0.0)],
    ids=["many errors", "some errors", "few requests", "no change"],
)
def test_a_change_does_not_excuse_a_service_that_fails(errors: float, rate: float, change: bool, counts: float) -> None:
    changes = [PlannedChange("deploy", SERVICES[CART], "v2")] if change else []
    state = settled_state(100)
    state = replace(state, memory=state.memory.advance_changes(changes, AlertPolicy().change_memory))
    observation, state = watch(
        [with_nodes(100, CART, {NodeMetric.REQUEST_RATE: rate, NodeMetric.ERROR_RATE: errors})], state
    )
    found = surprise_of(find_gross_harm, state, observation)[EvidenceKind.ERROR]
    assert found[CART] == pytest.approx(counts * EVENT_SURPRISE, rel=0.02)
    assert not np.delete(found, CART).any()


GATEWAY = 0
USUAL = float(NODE[NodeMetric.P99_LATENCY])


@pytest.mark.parametrize(
    ("service", "slower", "rate", "counts"),
    [
        (GATEWAY, 1.1, 100.0, True),
        (GATEWAY, 0.9, 100.0, False),
        (GATEWAY, 1.1, 10.0, False),
        (CART, 1.1, 100.0, False),
    ],
    ids=["one in a hundred waits", "less than a second", "two slow requests", "no entry point"],
)
def test_an_entry_point_where_one_request_in_a_hundred_waits_a_second(
    service: int, slower: float, rate: float, counts: bool
) -> None:
    metrics = {NodeMetric.REQUEST_RATE: rate, NodeMetric.P99_LATENCY: USUAL + slower}
    observation, state = watch([with_nodes(100, service, metrics)], settled_state(100))
    found = surprise_of(find_gross_harm, state, observation)[EvidenceKind.LATENCY]
    assert found[service] == pytest.approx(counts * EVENT_SURPRISE)
    assert not np.delete(found, service).any()


def test_an_entry_point_without_metrics_of_its_own_leaves_it_to_what_it_calls() -> None:
    state = settled_state(100)
    filters = state.node_filters.copy()
    filters[SEEN, GATEWAY] = 0
    metrics = {NodeMetric.REQUEST_RATE: 100.0, NodeMetric.P99_LATENCY: USUAL + 1.1}
    snapshot = with_nodes(100, CART, metrics)
    observed = snapshot.node_observed.copy()
    observed[GATEWAY] = False
    observation, state = watch([replace(snapshot, node_observed=observed)], replace(state, node_filters=filters))
    found = surprise_of(find_gross_harm, state, observation)[EvidenceKind.LATENCY]
    assert found[CART] == pytest.approx(EVENT_SURPRISE)
