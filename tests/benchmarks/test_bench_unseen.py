"""A small benchmark of unseen kinds: training leaves them out, and each fault in question has a rank."""

import pytest

from benchmarks.bench_unseen import GROUPS, Place, measure, places
from lab.simulator.events.faults import KINDS
from lab.training.meshes import TrainingMeshes, simulated_runs
from lab.training.train import TrainingOptions, in_turn
from model.checkpoint import load

pytestmark = pytest.mark.slow


def test_groups_hold_every_kind_once() -> None:
    assert sorted(kind for group in GROUPS.values() for kind in group) == sorted(KINDS)


def test_a_root_cause_unlike_all_others_is_first() -> None:
    meshes = TrainingMeshes(count=2, snapshots=240, seed=5, kinds=("error_burst",))
    found = [place for run in simulated_runs(meshes) for place in places(load(), run)]
    assert len(found) == sum(len(run.faults) for run in simulated_runs(meshes))
    assert Place("error_burst", True, 0, 0) in found


def test_lines_of_a_group() -> None:
    small = TrainingMeshes(count=6, snapshots=240)
    held_out = TrainingMeshes(count=2, snapshots=240, seed=5)
    lines = measure("errors", small, held_out, TrainingOptions(steps=10, meta_steps=10), in_turn)
    assert tuple(line["kind"] for line in lines) == GROUPS["errors"]
    asked = [line for line in lines if line["faults"]]
    assert asked
    for line in asked:
        assert all(len(line[way][top]) == 3 for way in ("unseen", "seen", "page_score") for top in ("top_1", "top_3"))
