"""A small leave-one-generator-out run: faults follow the call graph, labels fit, training uses no test mesh."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import figures
from benchmarks.generalization import generators as module
from benchmarks.generalization.generators import (
    OTHER_TEST,
    OTHER_TRAINING,
    RECORDED_TEST,
    RECORDED_TRAINING,
    SIMULATED_TEST,
    Generator,
    InjectedTraffic,
    TestRecording,
    generators,
)
from benchmarks.generalization.injection import InjectedKind, Injection, inject, plan_injections
from benchmarks.generalize import LEFT_OUT, SHIPPED_NAME, evaluate_weights, train_on
from lab.comparison.rows import rows
from lab.contenders import NAMES
from lab.evaluation.load import read_truth
from lab.evaluation.measures.truth import Form
from lab.training.meshes import FIRST_SEED, TrainingMeshes, simulated_runs
from lab.training.train import TrainingOptions
from model.checkpoint import SHIPPED, load
from model.snapshot import MeshSnapshot
from serve_app.cli.workers import start_workers
from serve_app.recordings.writer import RecordingWriter

START = datetime(2026, 3, 1, tzinfo=UTC)
FRONT, CART, STOCK, OTHER = "shop/front", "shop/cart", "shop/stock", "shop/other"


def mesh(index: int) -> MeshSnapshot:
    """Front calls cart with half of its requests and other with all. Cart calls stock with a fifth of its own."""
    nan = np.nan
    return MeshSnapshot.create(
        node_ids=[FRONT, CART, STOCK, OTHER],
        edge_index=[[0, 0, 1], [1, 3, 2]],
        node_features=[
            [100, 0.0, 0.100, 0.200, 0.2, nan, nan],
            [50, 0.0, 0.040, 0.080, 0.2, nan, nan],
            [10, 0.1, 0.010, 0.020, 0.2, nan, nan],
            [100, 0.0, 0.010, 0.020, 0.2, nan, nan],
        ],
        edge_features=[[50, 0, 0.04, 0.08], [100, 0, 0.01, 0.02], [10, nan, 0.01, nan]],
        observed_at=START + timedelta(seconds=15 * index),
    )


def fault(kind: InjectedKind, size: float) -> Injection:
    return Injection(2, 4, STOCK, kind, size, (STOCK,))


def test_latency_reaches_callers_in_the_share_of_their_requests() -> None:
    before, _, during, _, after = inject(map(mesh, range(5)), [fault(InjectedKind.LATENCY, 10)])
    assert before.digest == after.digest == mesh(0).digest
    added = during.node_features[:, 2] - mesh(2).node_features[:, 2]
    assert added == pytest.approx([0.1 * 0.5 * 0.2, 0.1 * 0.2, 0.1, 0], abs=1e-6)
    assert during.edge_features[:, 2] == pytest.approx([0.04 + 0.02, 0.01, 0.01 + 0.1], abs=1e-6)
    assert during.node_features[:, 3] == pytest.approx([0.3, 0.18, 0.12, 0.02], abs=1e-6)


def test_errors_add_to_the_usual_ones_and_unobserved_values_stay_unobserved() -> None:
    *_, during = inject(map(mesh, range(3)), [fault(InjectedKind.ERRORS, 0.5)])
    assert during.node_features[:, 1] == pytest.approx([0.05, 0.1, 1 - 0.9 * 0.5, 0], abs=1e-6)
    assert not during.edge_observed[2, 1]
    assert during.edge_features[2, 1] == 0


def test_a_resource_fault_stays_where_it_is() -> None:
    *_, during = inject(map(mesh, range(3)), [fault(InjectedKind.CPU, 0.5)])
    changed = np.argwhere(during.node_features != mesh(2).node_features)
    assert changed.tolist() == [[2, 4]]
    assert during.node_features[2, 4] == pytest.approx(0.6)


def test_an_absent_culprit_changes_nothing() -> None:
    gone = Injection(0, 1, "shop/gone", InjectedKind.LATENCY, 10, ())
    assert [one.digest for one in inject([mesh(0)], [gone])] == [mesh(0).digest]


def test_planned_faults_follow_each_other_after_the_warm_up() -> None:
    snapshots = [mesh(i) for i in range(400)]
    plan = plan_injections(snapshots, 1)
    assert len(plan) > 5
    assert plan == plan_injections(snapshots, 1) != plan_injections(snapshots, 2)
    assert plan[0].start > 100
    assert all(a.end < b.start for a, b in pairwise(plan))
    assert all(one.affected[0] == one.service for one in plan)
    assert all(one.kind is not InjectedKind.MEMORY for one in plan)  # no service has a memory metric
    assert all(one.service != FRONT for one in plan if one.kind is not InjectedKind.CPU)  # no service calls it


def test_labels_of_the_other_simulator_become_node_ids() -> None:
    labels = pa.table(
        {"root_cause_candidates": ['["cart", "stock"]', "[]"], "affected_services": ['["gone", "cart"]', None]}
    )
    nodes = pa.table({"service": ["cart", "stock"], "namespace": ["shop", "back"]})
    found = module._our_labels(labels, nodes).to_pylist()
    assert found == [
        {"candidates": ["shop/cart", "back/stock"], "affected": ["shop/cart"]},
        {"candidates": [], "affected": []},
    ]


def test_a_recording_without_faults_has_no_labels_to_convert() -> None:
    assert module._our_labels(pa.table({}), pa.table({"service": ["cart"], "namespace": ["shop"]})).num_rows == 0


def test_nothing_is_trained_on_a_test_mesh() -> None:
    assert not set(OTHER_TRAINING) & set(OTHER_TEST)
    assert not set(RECORDED_TRAINING) & set(RECORDED_TEST)
    assert all(run.seed < FIRST_SEED for run in SIMULATED_TEST)
    assert max(*OTHER_TRAINING, *OTHER_TEST) < 900  # seeds from 900 up are reserved for evaluation
    assert len({one.name for one in generators()}) == 3


@pytest.fixture
def traffic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InjectedTraffic:
    """Return a recording of normal traffic with injected faults."""
    (run,) = simulated_runs(TrainingMeshes(count=1, snapshots=200, seed=5, kinds=()))
    with RecordingWriter(tmp_path / "shared" / "small" / "normal", 15.0) as writer:
        for snapshot in run.snapshots():
            writer.write(snapshot)
    monkeypatch.setattr(module, "SHARED", tmp_path / "shared")
    monkeypatch.setattr(module, "FOLDER", tmp_path / "out")
    monkeypatch.setattr(module, "NORMAL", {"small/normal": (0, 200)})
    return InjectedTraffic("small/normal", 1)


def test_recorded_traffic_with_faults_has_located_labels(traffic: InjectedTraffic) -> None:
    recording = module._RecordedTest(traffic)()
    truth = read_truth(recording.path)
    assert truth.form is Form.LOCATED
    assert [one.culprit for one in truth.faults] == [
        one.service for one in plan_injections(traffic.normal(), traffic.seed)
    ]
    assert module._RecordedTest(traffic)() == recording  # kept


@dataclass(frozen=True)
class _Kept:
    path: Path

    def __call__(self) -> TestRecording:
        return TestRecording(self.path)


@pytest.mark.slow
def test_a_generator_is_left_out(traffic: InjectedTraffic, tmp_path: Path) -> None:
    recording = module._RecordedTest(traffic)()
    small = TrainingMeshes(count=6, snapshots=240)
    ours = Generator("ours", None, lambda: simulated_runs(small), ())
    left_out = Generator("recorded", None, lambda: [], (_Kept(recording.path),))
    options = TrainingOptions(steps=10, meta_steps=10)
    weights = train_on([ours], tmp_path / "weights", options, 1)
    assert train_on([ours], tmp_path / "weights", options, 1) == weights  # kept
    assert load(weights).provenance == {"generators": "ours"}
    with start_workers(1) as workers:
        parts = evaluate_weights(
            left_out, {LEFT_OUT: weights, SHIPPED_NAME: SHIPPED}, workers, folder=tmp_path / "verdicts"
        )
    (part,) = parts
    assert part.name.startswith("recorded")
    assert set(part.pool.metrics) == {LEFT_OUT, SHIPPED_NAME, *NAMES}
    recall = {(row["detector"], row["measure"]): row["n"] for row in rows(part)}[LEFT_OUT, "recall"]
    assert recall == len(read_truth(recording.path).faults)


def test_the_table_has_a_line_for_each_generator_and_weights_and_the_strongest_contender(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def row(part: str, detector: str, measure: str, value: float) -> dict[str, object]:
        return {"part": part, "detector": detector, "measure": measure, "value": value, "low": 0.5, "high": 0.7}

    measured = [
        row("simulator, located", LEFT_OUT, "recall", 0.6),
        row("simulator, located", LEFT_OUT, "incidents_per_found_fault", 1.1) | {"low": None},
        row("simulator, located", SHIPPED_NAME, "recall", 0.65),
        row("simulator, located", "N-sigma", "recall", 0.9),
        row("simulator, located", "N-sigma", "recall_at_2_false_pages_per_hour", 0.1),
        row("simulator, located", "PCA", "recall", 0.4),
        row("simulator, located", "PCA", "recall_at_2_false_pages_per_hour", 0.2),
        row("recorded traffic, located", LEFT_OUT, "top_1_of_true_pages", 0.55),
    ]
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    (tmp_path / "benchmarks" / "results" / "generalize.jsonl").write_text("\n".join(map(json.dumps, measured)))
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    *_, header, rule, first, second, contender, third = figures.generalization().splitlines()
    assert header.count("|") == rule.count("|") == first.count("|")
    assert first == "| simulator | weights trained without it | 0.60 (0.50 to 0.70) | – | – | – | – | 1.10 | – | – |"
    assert second.startswith("| simulator | shipped weights | 0.65 (0.50 to 0.70) |")
    assert contender.startswith("| simulator | contender: PCA | 0.40 (0.50 to 0.70) | – | 0.20 (0.50 to 0.70) |")
    assert (
        third == "| recorded traffic | weights trained without it | – | – | – | – | – | – | 0.55 (0.50 to 0.70) | – |"
    )
