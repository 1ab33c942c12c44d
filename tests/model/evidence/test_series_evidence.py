"""Evidence from series counts by how much it matters."""

from model.snapshot import NodeMetric
from tests.model.evidence_cases import STORE, evidence_of, score_of, with_nodes
from tests.model.model_cases import settled_state, snapshot, watch


def test_errors_count_relative_to_the_usual_errors() -> None:
    """A rise from 1% to 5% is large. From 80% to 88% is normal for a service that fails most of the time."""
    healthy = evidence_of(with_nodes(30, STORE, {NodeMetric.ERROR_RATE: 0.05}))
    broken = watch((snapshot(i, nodes={(STORE, 1): 0.8}) for i in range(30, 150)), settled_state())[1]
    worse = evidence_of(with_nodes(150, STORE, {NodeMetric.ERROR_RATE: 0.88}), state=broken)
    assert score_of(healthy, STORE, "error") > 2
    assert score_of(worse, STORE, "error") < 0.1
