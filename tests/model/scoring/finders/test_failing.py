"""A planned change does not excuse a service that fails."""

from dataclasses import replace

import numpy as np
import pytest

from model.incidents.policy import AlertPolicy
from model.scoring.finders.failing import FAILING_SURPRISE, find_failing
from model.scoring.kinds import EvidenceKind
from model.snapshot import NodeMetric, PlannedChange
from tests.model.evidence_cases import CART, surprise_of, with_nodes
from tests.model.model_cases import SERVICES, settled_state, watch


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
    found = surprise_of(find_failing, state, observation)[EvidenceKind.ERROR]
    assert found[CART] == pytest.approx(counts * FAILING_SURPRISE, rel=0.02)
    assert not np.delete(found, CART).any()
