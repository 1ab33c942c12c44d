"""Silences in a run: which services, for how long, and no other change."""

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from lab.simulator.telemetry.silence import (
    LONGEST,
    SHORTEST,
    PlannedSilence,
    Reach,
    Reporter,
    plan_silences,
    silence_slot,
)
from lab.training.dataset import TrainingRun
from lab.training.meshes import TrainingMeshes, simulated_runs
from model.snapshot import MeshSnapshot, namespace_of

SPEC = MeshSpec(services=40, namespaces=4, seed=6, silences_per_hour=20.0)
NODES = Simulator(SPEC).node_ids
PLANNED = plan_silences(replace(SPEC, silences_per_hour=100.0), NODES, 1000)


def content(snapshot: MeshSnapshot) -> tuple[object, ...]:
    arrays = (snapshot.node_features, snapshot.node_observed, snapshot.edge_features, snapshot.edge_index)
    return (snapshot.node_ids, snapshot.observed_at, *(array.tobytes() for array in arrays))


def contents(run: TrainingRun) -> list[tuple[object, ...]]:
    return [content(snapshot) for snapshot in run.snapshots()]


def test_silences_have_every_reach_and_length() -> None:
    assert {gap.reach for gap in PLANNED} == set(Reach)
    assert {gap.end - gap.start for gap in PLANNED} == set(range(SHORTEST, LONGEST + 1))
    assert {gap.reporter for gap in PLANNED} == set(Reporter)
    assert [gap.start for gap in PLANNED] == sorted(gap.start for gap in PLANNED)
    assert len(PLANNED) == pytest.approx(100 * 1000 / 240, rel=0.25)


@pytest.mark.parametrize("reach", list(Reach))
def test_services_that_fall_silent_together(reach: Reach) -> None:
    gaps = [gap for gap in PLANNED if gap.reach is reach]
    for gap in gaps:
        namespaces = {namespace_of(name) for name in gap.services}
        assert gap.services <= set(NODES)
        assert len(gap.services) >= 1
        if reach is Reach.SERVICE:
            assert len(gap.services) == 1
        if reach is Reach.GROUP:
            assert len(namespaces) == 1
        if reach is Reach.SHARD:
            assert len(gap.services) < len(NODES)
        if reach is Reach.RESTART:
            assert gap.services == set(NODES)
        if reach in (Reach.SHARD, Reach.RESTART):
            assert gap.reporter is Reporter.BOTH
    assert reach is not Reach.SHARD or any(len({namespace_of(n) for n in gap.services}) > 2 for gap in gaps)


def test_a_run_shows_its_silences_and_nothing_else_changes() -> None:
    silent = list(Simulator(SPEC, snapshots=300).snapshots())
    whole = list(Simulator(replace(SPEC, silences_per_hour=0.0), snapshots=300).snapshots())
    gaps = plan_silences(SPEC, NODES, 300)
    assert len(gaps) > 5
    for index, (reported, full) in enumerate(zip(silent, whole, strict=True)):
        active = [gap for gap in gaps if gap.start <= index < gap.end]
        no_metrics = set(chain(*(gap.services for gap in active if gap.reporter is not Reporter.CALLS)))
        no_calls = set(chain(*(gap.services for gap in active if gap.reporter is not Reporter.METRICS)))
        rows = np.array([name in no_metrics for name in full.node_ids])
        calls = np.array([full.node_ids[source] in no_calls for source in full.edge_index[0]])
        assert reported.node_ids == full.node_ids
        assert not reported.node_observed[rows].any()
        assert np.array_equal(reported.node_features[~rows], full.node_features[~rows])
        assert np.array_equal(reported.edge_index, full.edge_index[:, ~calls])
        assert np.array_equal(reported.edge_features, full.edge_features[~calls])


def test_silences_follow_the_seed_and_end_within_their_slot() -> None:
    assert plan_silences(SPEC, NODES, 480) == plan_silences(SPEC, NODES, 480)
    assert plan_silences(replace(SPEC, seed=7), NODES, 480) != plan_silences(SPEC, NODES, 480)
    slow = replace(SPEC, interval_seconds=300.0)
    assert silence_slot(slow) >= LONGEST
    for spec in (SPEC, slow):
        for gap in plan_silences(spec, NODES, 480):
            assert gap.start // silence_slot(spec) == (gap.end - 1) // silence_slot(spec)


def test_a_label_has_times_and_names() -> None:
    gap = PlannedSilence(4, 8, Reach.SHARD, Reporter.BOTH, frozenset({"a/y", "a/x"}))
    assert gap.to_json(SPEC) == {
        "start": "2026-01-01T00:01:00+00:00",
        "end": "2026-01-01T00:02:00+00:00",
        "reach": "shard",
        "reporter": "both",
        "services": ["a/x", "a/y"],
    }


def test_some_training_meshes_have_silences_and_the_others_do_not_change() -> None:
    meshes = TrainingMeshes(count=6, snapshots=40)
    without = [contents(run) for run in simulated_runs(replace(meshes, silent_share=0.0))]
    partly_silent = [contents(run) for run in simulated_runs(replace(meshes, silent_share=0.5))]
    is_changed = [ours != theirs for ours, theirs in zip(partly_silent, without, strict=True)]
    assert 0 < sum(is_changed) < len(is_changed)


def test_a_culprit_in_a_training_mesh_is_not_silent_during_its_fault() -> None:
    count = 0
    for run in simulated_runs(TrainingMeshes(count=3, snapshots=160, silent_share=1.0, kinds=("error_burst",))):
        for snapshot in run.snapshots():
            for fault in (f for f in run.faults if f.start <= snapshot.observed_at < f.end):
                count += 1
                assert snapshot.node_observed[snapshot.node_ids.index(fault.service)].any()
    assert count > 10
