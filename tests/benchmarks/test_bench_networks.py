"""A small comparison of networks: each is trained and judged on the same faults."""

import pytest

pytest.importorskip("torch_geometric", reason="the pyg extra is not installed")

from benchmarks.bench_networks import EXAMPLE, judge, measure
from lab.training.meshes import TrainingMeshes, simulated_runs
from lab.training.train import TrainingOptions, in_turn
from model.checkpoint import load

pytestmark = pytest.mark.slow


def test_an_obvious_fault_is_found_without_a_false_alert() -> None:
    runs = simulated_runs(TrainingMeshes(count=2, snapshots=240, seed=5, kinds=("error_burst",)))
    outcomes = [judge(load(), run) for run in runs]
    assert [len(one.found) for one in outcomes] == [len(run.faults) for run in runs]
    assert any(any(one.first) for one in outcomes)
    assert all(one.normal_days > 0 for one in outcomes)


def test_lines_of_the_networks() -> None:
    small, held_out = TrainingMeshes(count=6, snapshots=240), TrainingMeshes(count=1, snapshots=240, seed=5)
    lines = measure([None, EXAMPLE], small, held_out, TrainingOptions(steps=10, meta_steps=10), in_turn)
    assert [line["network"] for line in lines] == ["built-in", EXAMPLE, "built-in, as shipped"]
    assert len({line["faults"] for line in lines}) == 1, "all are judged on the same faults"
    assert len({line["parameters"] for line in lines}) == 2
    for line in lines:
        assert line["pass_cpu_ms"] > 0
        assert line["normal_days"] > 0
