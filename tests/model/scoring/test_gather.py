"""All evidence together, in small meshes with one deviation."""

from dataclasses import replace

import numpy as np

from model.incidents.policy import AlertPolicy
from model.scoring.kinds import EvidenceKind
from model.snapshot import NodeMetric, PlannedChange
from tests.model.evidence_cases import CART, evidence_of, snapshot_with_move, with_nodes
from tests.model.model_cases import NODE, SERVICES, settled_state, watch


def test_events_count_more_where_the_level_is_raised_and_deviations_do_not() -> None:
    usual, restless = (evidence_of(snapshot_with_move(0.7), raised=raised) for raised in (1.0, 1.2))
    expected = usual.kinds.copy()
    expected[:, EvidenceKind.VANISHED] *= 1.2
    assert restless.names == usual.names
    np.testing.assert_allclose(restless.kinds, expected, rtol=1e-6)


def page_scores_while_slower(*, deployed: bool) -> list[float]:
    """Return the highest page score of each snapshot while a service is 50% slower, with or without a deploy."""
    policy, state, scores = AlertPolicy(), settled_state(100), []
    changes = [PlannedChange("deploy", SERVICES[CART], "v2")] if deployed else []
    for i in range(40):
        memory = state.memory.advance_changes(changes if i == 0 else (), policy.change_memory)
        slower = with_nodes(
            100 + i,
            CART,
            {
                NodeMetric.P50_LATENCY: 1.5 * NODE[NodeMetric.P50_LATENCY],
                NodeMetric.P99_LATENCY: 1.5 * NODE[NodeMetric.P99_LATENCY],
            },
        )
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
