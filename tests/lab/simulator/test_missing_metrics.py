"""Telemetry without some metrics."""

import pytest

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.snapshot import EdgeMetric, NodeMetric


def test_a_mesh_can_lack_metrics_altogether() -> None:
    spec = MeshSpec(services=30, missing_metrics=("cpu_utilization",), missing_call_metrics=("p99_latency",))
    (snapshot,) = Simulator(spec, snapshots=1).snapshots()
    assert not snapshot.node_observed[:, NodeMetric.CPU_UTILIZATION].any()
    assert not snapshot.edge_observed[:, EdgeMetric.P99_LATENCY].any()
    assert snapshot.node_observed[:, NodeMetric.REQUEST_RATE].all()
    with pytest.raises(ValueError, match="missing_metrics: expected some of"):
        MeshSpec(missing_metrics=("luck",))
