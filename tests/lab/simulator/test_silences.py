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
    assert {one.reach for one in PLANNED} == set(Reach)
    assert {one.end - one.start for one in PLANNED} == set(range(SHORTEST, LONGEST + 1))
    assert {one.reporter for one in PLANNED} == set(Reporter)
    assert [one.start for one in PLANNED] == sorted(one.start for one in PLANNED)
    assert len(PLANNED) == pytest.approx(100 * 1000 / 240, rel=0.25)


@pytest.mark.parametrize("reach", list(Reach))
def test_services_that_fall_silent_together(reach: Reach) -> None:
    found = [one for one in PLANNED if one.reach is reach]
    for one in found:
        namespaces = {namespace_of(name) for name in one.services}
        assert one.services <= set(NODES)
        assert len(one.services) >= 1
        if reach is Reach.SERVICE:
            assert len(one.services) == 1
        if reach is Reach.GROUP:
            assert len(namespaces) == 1
        if reach is Reach.SHARD:
            assert len(one.services) < len(NODES)
        if reach is Reach.RESTART:
            assert one.services == set(NODES)
        if reach in (Reach.SHARD, Reach.RESTART):
            assert one.reporter is Reporter.BOTH
    assert reach is not Reach.SHARD or any(len({namespace_of(n) for n in one.services}) > 2 for one in found)


def test_a_run_shows_its_silences_and_nothing_else_changes() -> None:
    silent = list(Simulator(SPEC, snapshots=300).snapshots())
    whole = list(Simulator(replace(SPEC, silences_per_hour=0.0), snapshots=300).snapshots())
    planned = plan_silences(SPEC, NODES, 300)
    assert len(planned) > 5
    for index, (shown, full) in enumerate(zip(silent, whole, strict=True)):
        now = [one for one in planned if one.start <= index < one.end]
        no_metrics = set(chain(*(one.services for one in now if one.reporter is not Reporter.CALLS)))
        no_calls = set(chain(*(one.services for one in now if one.reporter is not Reporter.METRICS)))
        rows = np.array([name in no_metrics for name in full.node_ids])
        calls = np.array([full.node_ids[source] in no_calls for source in full.edge_index[0]])
        assert shown.node_ids == full.node_ids
        assert not shown.node_observed[rows].any()
        assert np.array_equal(shown.node_features[~rows], full.node_features[~rows])
        assert np.array_equal(shown.edge_index, full.edge_index[:, ~calls])
        assert np.array_equal(shown.edge_features, full.edge_features[~calls])


def test_silences_follow_the_seed_and_end_within_their_slot() -> None:
    assert plan_silences(SPEC, NODES, 480) == plan_silences(SPEC, NODES, 480)
    assert plan_silences(replace(SPEC, seed=7), NODES, 480) != plan_silences(SPEC, NODES, 480)
    slow = replace(SPEC, interval_seconds=300.0)
    assert silence_slot(slow) >= LONGEST
    for spec in (SPEC, slow):
        for one in plan_silences(spec, NODES, 480):
            assert one.start // silence_slot(spec) == (one.end - 1) // silence_slot(spec)


def test_a_label_has_times_and_names() -> None:
    one = PlannedSilence(4, 8, Reach.SHARD, Reporter.BOTH, frozenset({"a/y", "a/x"}))
    assert one.to_json(SPEC) == {
        "start": "2026-01-01T00:01:00+00:00",
        "end": "2026-01-01T00:02:00+00:00",
        "reach": "shard",
        "reporter": "both",
        "services": ["a/x", "a/y"],
    }


def test_some_training_meshes_have_silences_and_the_others_do_not_change() -> None:
    meshes = TrainingMeshes(count=6, snapshots=40)
    without = [contents(run) for run in simulated_runs(replace(meshes, silent_share=0.0))]
    some = [contents(run) for run in simulated_runs(replace(meshes, silent_share=0.5))]
    changed = [one != other for one, other in zip(some, without, strict=True)]
    assert 0 < sum(changed) < len(changed)


def test_a_culprit_in_a_training_mesh_is_not_silent_during_its_fault() -> None:
    seen = 0
    for run in simulated_runs(TrainingMeshes(count=3, snapshots=160, silent_share=1.0, kinds=("error_burst",))):
        for snapshot in run.snapshots():
            for fault in (f for f in run.faults if f.start <= snapshot.observed_at < f.end):
                seen += 1
                assert snapshot.node_observed[snapshot.node_ids.index(fault.service)].any()
    assert seen > 10
