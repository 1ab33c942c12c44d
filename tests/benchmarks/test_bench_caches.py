"""Caches of passes, on a small mesh: exact without a tolerance, and cheaper only where little changes."""

from dataclasses import replace
from itertools import pairwise
from typing import cast

import numpy as np
import pytest

from benchmarks.bench_caches import (
    changed_part,
    find_root_causes,
    first_layer,
    hubs_of,
    measure,
    tasks_of,
    without_reading,
)
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import load
from model.network.autoencoder import Autoencoder
from model.scoring.score import PartitionTask, score

SERVICES = 120


@pytest.fixture(scope="module")
def network() -> Autoencoder:
    return cast(Autoencoder, load().network)


@pytest.fixture(scope="module")
def tasks() -> list[PartitionTask]:
    return list(tasks_of(Simulator(MeshSpec(services=SERVICES, seed=1), snapshots=22).snapshots()))


def with_change(task: PartitionTask, row: int) -> PartitionTask:
    nodes = task.nodes.copy()
    nodes[row, 0] += 1
    return replace(task, nodes=nodes)


def test_a_pass_over_the_changed_part_gives_the_outputs_of_a_whole_pass(
    network: Autoencoder, tasks: list[PartitionTask]
) -> None:
    before = tasks[0]
    after = with_change(before, 7)
    part = changed_part(before, after, 0.0)
    assert np.flatnonzero(part.services).tolist() == [7]
    assert not part.calls.any()
    assert 1 < part.computed.sum() < SERVICES
    (old,), (whole,), (cached,) = (score(network, [task]) for task in (before, after, part.as_part()))
    core = np.flatnonzero(part.computed)
    np.testing.assert_allclose(cached.node_expected, whole.node_expected[core], atol=1e-4)
    np.testing.assert_allclose(cached.root_cause_logit, whole.root_cause_logit[core], atol=1e-4)
    np.testing.assert_allclose(old.root_cause_logit[~part.computed], whole.root_cause_logit[~part.computed], atol=1e-4)
    between = part.computed[after.edge_index]
    owned = part.calls | between[0] | between[1]
    within = (between[0] & between[1])[owned]  # other ends have their cached embeddings
    np.testing.assert_allclose(cached.structure[within], whole.structure[owned][within], atol=1e-3)
    np.testing.assert_allclose(cached.edge_expected, whole.edge_expected[owned], atol=1e-4)
    np.testing.assert_allclose(old.edge_expected[~owned], whole.edge_expected[~owned], atol=1e-4)


def test_within_the_tolerance_inputs_stay_and_their_drift_adds_up(tasks: list[PartitionTask]) -> None:
    first = tasks[0]
    second = with_change(first, 3)
    third = with_change(second, 3)
    kept = changed_part(first, second, 1.5)
    assert not kept.services.any()
    assert not kept.computed.any()
    assert (kept.task.nodes == first.nodes).all()
    moved = changed_part(kept.task, third, 1.5)
    assert np.flatnonzero(moved.services).tolist() == [3], "two steps of 1 are further than 1.5"


def test_another_topology_changes_everything(tasks: list[PartitionTask]) -> None:
    task = tasks[0]
    other = replace(task, edge_index=task.edge_index[::-1].copy())
    assert changed_part(task, other, 10.0).computed.all()
    assert changed_part(None, task, 10.0).computed.all()


def test_embeddings_of_hubs_give_the_root_causes_of_a_whole_pass(
    network: Autoencoder, tasks: list[PartitionTask]
) -> None:
    (task, *_) = tasks
    (whole,) = score(network, [task])
    logits = find_root_causes(network, task, first_layer(network, task))
    np.testing.assert_allclose(logits, whole.root_cause_logit, atol=1e-4)
    (hub,) = hubs_of(task)
    degree = np.bincount(task.edge_index.ravel(), minlength=SERVICES)
    assert degree[hub] == degree.max()
    left = without_reading(task, hubs_of(task))
    assert left.neighbours < task.neighbours
    assert not left.attended_callers[task.edge_index[1] == hub].any()


@pytest.mark.slow
def test_lines_of_a_small_mesh() -> None:
    lines = list(measure("by hand", Simulator(MeshSpec(services=30, seed=2), snapshots=26).snapshots()))
    changed = [line for line in lines if line["cache"] == "changed part"]
    hubs = [line for line in lines if line["cache"] == "hubs"]
    assert changed[0]["error_max"] == 0, "without a tolerance, a cache is exact"
    assert all(a["changed_services"] >= b["changed_services"] for a, b in pairwise(changed))
    assert all(line["changed_services"] <= line["computed_services"] <= 1 for line in changed)
    assert [line["age"] for line in hubs] == [1, 4]
    assert all(0 < line["reads_of_hubs"] < 1 and line["pass_ms"] > 0 < line["cached_ms"] for line in hubs)
