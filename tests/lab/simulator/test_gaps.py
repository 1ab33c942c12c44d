"""Telemetry with missing scrapes, metrics and services."""

from datetime import timedelta
from itertools import pairwise

import numpy as np
import pytest

from lab.simulator.events.faults import Fault, candidates
from lab.simulator.events.operations import BenignChange
from lab.simulator.labels import Comparison, compare_runs
from lab.simulator.mesh.parameters import build_mesh
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.snapshot import EdgeMetric, NodeMetric

SPEC = MeshSpec(services=30, seed=4, latent=0.0, dropout=0.0)
RATE = NodeMetric.REQUEST_RATE


def test_scrapes_are_missing_while_time_advances() -> None:
    spec = MeshSpec(services=30, seed=4, scrape_gaps_per_day=200.0)
    times = [s.observed_at for s in Simulator(spec, snapshots=240).snapshots()]
    assert 150 < len(times) < 240
    steps = {(b - a) // timedelta(seconds=15) for a, b in pairwise(times)}
    assert len(steps) >= 3
    again = [s.observed_at for s in Simulator(spec, snapshots=240).snapshots()]
    assert times == again


def test_changes_in_a_gap_are_reported_after_it() -> None:
    spec = MeshSpec(services=30, seed=4, scrape_gaps_per_day=200.0)
    whole = Simulator(SPEC, snapshots=240)
    there = {
        round((s.observed_at - spec.start) / timedelta(seconds=15)) for s in Simulator(spec, snapshots=240).snapshots()
    }
    lost = next(i for i in range(5, 240) if i not in there)
    change = BenignChange("deploy", whole.node_ids[0], lost)
    with_change = [s for s in Simulator(spec, changes=[change], snapshots=240).snapshots() if s.changes]
    assert [len(s.changes) for s in with_change] == [1]
    assert with_change[0].observed_at > spec.start + lost * timedelta(seconds=15)


def test_services_go_dark_for_a_while() -> None:
    spec = MeshSpec(services=30, seed=4, blackouts_per_day=50.0, dropout=0.0)
    seen = np.stack(
        [s.node_observed.any(axis=1) for s in Simulator(spec, snapshots=240).snapshots() if s.num_nodes == 30]
    )
    assert 0.01 < (~seen).mean() < 0.4


def test_a_mesh_can_lack_metrics_altogether() -> None:
    spec = MeshSpec(services=30, missing_metrics=("cpu_utilization",), missing_call_metrics=("p99_latency",))
    (snapshot,) = Simulator(spec, snapshots=1).snapshots()
    assert not snapshot.node_observed[:, NodeMetric.CPU_UTILIZATION].any()
    assert not snapshot.edge_observed[:, EdgeMetric.P99_LATENCY].any()
    assert snapshot.node_observed[:, RATE].all()
    with pytest.raises(ValueError, match="missing_metrics: expected some of"):
        MeshSpec(missing_metrics=("luck",))


def test_a_restart_resets_counters() -> None:
    mesh = build_mesh(SPEC)
    i = int(np.argmax(mesh.usual_rate))
    change = BenignChange("deploy", mesh.topology.node_ids[i], 20, 1.0)

    def rates(resets: bool) -> np.ndarray:
        spec = MeshSpec(**{**{f: getattr(SPEC, f) for f in SPEC.__dataclass_fields__}, "counter_resets": resets})
        run = Simulator(spec, changes=[change], snapshots=40).snapshots()
        return np.array([np.where(s.node_observed[:, RATE], s.node_features[:, RATE], np.nan) for s in run])

    counted, true = rates(True), rates(False)
    np.testing.assert_array_equal(counted[:20], true[:20])
    lower = np.isnan(counted[:, i]) | (counted[:, i] < 0.999 * true[:, i])
    assert lower[20:40].any()
    assert not (counted > true * 1.0001).any()
    others = np.arange(len(mesh.usual_rate)) != i
    np.testing.assert_array_equal(counted[:, others], true[:, others])


def test_labels_are_the_same_with_gaps() -> None:
    spec = MeshSpec(services=30, seed=4, scrape_gaps_per_day=100.0, blackouts_per_day=5.0)
    mesh = build_mesh(spec)
    fault = Fault("error_burst", mesh.topology.node_ids[int(candidates(mesh, "error_burst")[0])], 60, 90, 0.8)
    comparison = Comparison(spec, mesh, [fault])
    with_fault, without = (Simulator(spec, faults, snapshots=130).snapshots() for faults in ([fault], []))
    assert len(list(compare_runs(with_fault, without, comparison))) < 130
    effect = comparison.effects()[fault]
    assert fault.service in effect.affected
    assert 90 <= effect.recovered < 100
