"""Parts of one snapshot that are scored as one graph have the scores that each of them has alone."""

from dataclasses import replace

import numpy as np
import pytest

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import load
from model.scoring.joining import count_neighbours, join, score_joined
from model.scoring.score import PartitionScore, PartitionTask, score
from serve_app.pipeline import Mesh, Options, PreparedSnapshot, cut_tasks, prepare

TOLERANCE = 2e-5
NETWORK = load().network
FIELDS = ("node_expected", "edge_expected", "embeddings")


def cut(seed: int, services: int = 90, most: int = 20) -> tuple[PreparedSnapshot, list[PartitionTask]]:
    """A snapshot of a mesh, and its parts."""
    [snapshot] = Simulator(MeshSpec(services=services, namespaces=5, seed=seed), snapshots=1).snapshots()
    prepared = prepare(load(), Mesh(), snapshot, Options(max_services=most))
    return prepared, list(cut_tasks(prepared))


def assert_same(found: PartitionScore, expected: PartitionScore, task: PartitionTask) -> None:
    assert found.part == expected.part
    for name in FIELDS:
        np.testing.assert_allclose(
            getattr(found, name), getattr(expected, name), atol=TOLERANCE, rtol=TOLERANCE, err_msg=name
        )
    np.testing.assert_allclose(
        found.embedding_sum / task.core, expected.embedding_sum / task.core, atol=TOLERANCE, rtol=TOLERANCE
    )
    inner = task.edge_index[1, : task.owned] < task.core  # logits of calls into other parts mean nothing
    assert inner.any()
    np.testing.assert_allclose(
        found.structure[inner], expected.structure[inner], atol=5 * TOLERANCE, rtol=5 * TOLERANCE
    )


@pytest.mark.parametrize("seed", range(4))
def test_joined_parts_have_the_scores_of_separate_parts(seed: int) -> None:
    _, tasks = cut(seed)
    assert len(tasks) > 3
    for some in (tasks, tasks[1:3], tasks[::-1]):
        for task, found in zip(some, score_joined(NETWORK, some), strict=True):
            assert_same(found, score(NETWORK, [task])[0], task)


def test_parts_of_several_snapshots_in_one_batch_keep_apart() -> None:
    (_, one), (_, other), (_, unknown) = cut(0), cut(1), cut(2)
    batch = [task for pair in zip(one[:3], other[:3], unknown[:3], strict=True) for task in pair]
    batch = [replace(task, snapshot="") if i % 3 == 2 else task for i, task in enumerate(batch)]
    for task, found in zip(batch, score_joined(NETWORK, batch), strict=True):
        assert_same(found, score(NETWORK, [task])[0], task)


def test_all_parts_of_a_snapshot_are_the_uncut_mesh() -> None:
    prepared, tasks = cut(3)
    joined = join(tasks).task
    for name in ("nodes", "edges", "edge_index", "attended_callers", "attended_callees"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(prepared.whole, name), err_msg=name)


def test_a_joined_graph_computes_no_service_twice() -> None:
    _, tasks = cut(3)
    pair = tasks[:2]
    joined = join(pair).task
    assert len(joined.nodes) == len(np.union1d(*(task.services for task in pair)))
    assert len(joined.edges) == len(np.union1d(*(task.calls for task in pair)))
    attended, foreign = count_neighbours(pair)
    assert attended == joined.neighbours
    assert foreign == len(joined.nodes) - sum(task.core for task in pair)
    assert foreign < sum(task.halo for task in pair)


def test_a_part_without_calls_is_joined_with_others() -> None:
    _, tasks = cut(3)
    lonely = replace(
        tasks[0],
        edges=tasks[0].edges[:0],
        edge_index=tasks[0].edge_index[:, :0],
        attended_callers=tasks[0].attended_callers[:0],
        attended_callees=tasks[0].attended_callees[:0],
        calls=tasks[0].calls[:0],
        owned=0,
    )
    found = score_joined(NETWORK, [lonely, replace(lonely, part=5)])
    assert [one.part for one in found] == [lonely.part, 5]
    np.testing.assert_allclose(found[0].node_expected, score(NETWORK, [lonely])[0].node_expected, atol=TOLERANCE)
    assert count_neighbours([lonely, lonely])[0] == 0


def test_a_part_alone_is_not_copied() -> None:
    _, tasks = cut(3)
    assert join(tasks[:1]).task is tasks[0]
