"""All evidence together, in small meshes with one deviation."""

from dataclasses import replace

import numpy as np
import pytest

from model.evidence.kinds import EVENT_SURPRISE, EvidenceKind
from model.features import P50, Array
from model.incidents.policy import AlertPolicy
from model.incidents.threshold import next_threshold
from model.snapshot import MeshSnapshot, NodeMetric, PlannedChange
from tests.model.evidence_cases import CART, evidence_of, snapshot_with_move
from tests.model.model_cases import SERVICES, noisy, snapshot, watch

LATENCIES = [NodeMetric.P50_LATENCY, NodeMetric.P99_LATENCY]


def test_an_event_exceeds_the_highest_threshold_that_a_restless_mesh_can_have() -> None:
    policy = AlertPolicy()
    restless = next_threshold(policy.page_level(2000, 15.0), np.full(400, 100.0), None, policy, 0.0)
    moved = evidence_of(snapshot_with_move(0.7))
    assert moved.kinds[:, EvidenceKind.VANISHED].max() == pytest.approx(EVENT_SURPRISE)
    assert restless < EVENT_SURPRISE


def slow_snapshot(made: MeshSnapshot, factor: float = 1.0) -> MeshSnapshot:
    """Return a mesh whose requests take so long that 50% more are noticed, and the cart's latency times a factor."""
    nodes = made.node_features.copy()
    nodes[:, LATENCIES] *= 12.0, 9.0
    nodes[CART, LATENCIES] *= factor
    return replace(made, node_features=nodes)


def while_slower(*, deployed: bool) -> tuple[Array, Array]:
    """Return the highest page score, and the sigmas of the cart's latency, of each snapshot while the cart is 50%
    slower, with or without a deploy."""
    policy, pages, sigmas, rng = AlertPolicy(), [], [], np.random.default_rng(0)
    state = watch(slow_snapshot(noisy(i, rng, sigma=0.05)) for i in range(100))[1]
    changes = [PlannedChange("deploy", SERVICES[CART], "v2")] if deployed else []
    for i in range(40):
        memory = state.memory.advance_changes(changes if i == 0 else (), policy.change_memory)
        slower = slow_snapshot(snapshot(100 + i), 1.5)
        state = replace(state, memory=memory)
        pages.append(evidence_of(slower, state=state).page.max())
        observation, state = watch([slower], state)
        sigmas.append(observation.node.now[CART, P50])
    return np.array(pages), np.array(sigmas)


def test_a_service_that_stays_slower_after_a_deploy_becomes_normal() -> None:
    settled = AlertPolicy().change_memory
    (page, with_deploy), (_, without) = (while_slower(deployed=deployed) for deployed in (True, False))
    assert without[settled:].max() > 1, "without one, it takes longer"
    assert with_deploy[settled:].max() < 0.5
    assert page[settled:].max() < 0.5
    assert page[:settled].max() > 2, "the service deviates while the change is new"
