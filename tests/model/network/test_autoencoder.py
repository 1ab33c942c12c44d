"""Structural properties of the network. They hold for any weights, so the weights are random."""

from collections.abc import Sequence
from dataclasses import astuple, replace

import numpy as np
import pytest
import torch

from model.features import OWN_TIME, P50, P99, RATE
from model.network.autoencoder import Autoencoder
from model.network.contract import (
    C_EDGE,
    C_NODE,
    CALL_SYMPTOMS,
    CURRENT,
    EDGE_INPUTS,
    EXPECTED_LIMIT,
    NODE_INPUTS,
    NODE_PAST,
    Decoding,
)
from model.scoring.score import PartitionScore, PartitionTask, batch_tasks, score
from tests.model.model_cases import network, simulated_task, with_node_inputs

CPU = torch.device("cpu")
NET = network()


def task_of(calls: Sequence[tuple[int, int]], nodes: int, seed: int = 0) -> PartitionTask:
    """Return a mesh with random inputs, in which attention includes all calls in both directions."""
    rng = np.random.default_rng(seed)
    count = len(calls)
    return PartitionTask(
        nodes=rng.standard_normal((nodes, NODE_INPUTS)).astype(np.float32),
        edges=rng.standard_normal((count, EDGE_INPUTS)).astype(np.float32),
        edge_index=np.array(calls, np.int32).reshape(-1, 2).T,
        attended_callers=np.ones(count, bool),
        attended_callees=np.ones(count, bool),
        core=nodes,
        owned=count,
        boundary=np.arange(nodes),
    )


def decode(task: PartitionTask, net: Autoencoder = NET) -> Decoding:
    with torch.inference_mode():
        return net(batch_tasks([task], CPU))


def with_edge_inputs(task: PartitionTask, row: int, columns: slice, change: float) -> PartitionTask:
    edges = task.edges.copy()
    edges[row, columns] += np.float32(change)
    return replace(task, edges=edges)


def assert_same(one: PartitionScore, other: PartitionScore, tolerance: float = 2e-5) -> None:
    for ours, theirs in zip(astuple(one)[1:], astuple(other)[1:], strict=True):
        if ours is None or theirs is None:  # embeddings that no task asked for
            assert ours is theirs
            continue
        np.testing.assert_allclose(ours, theirs, atol=tolerance, rtol=tolerance)


CHAIN = ((0, 1), (1, 2), (2, 3))  # each service but the first has a single caller


def test_with_a_single_caller_the_trajectory_of_the_call_still_counts() -> None:
    task = task_of(CHAIN, 4)
    changed = with_edge_inputs(task, 0, slice(2 * C_EDGE, 4 * C_EDGE), 1.0)
    # The first layer alone shows it: there service 1 has attention 1 on its only caller, for any features of the call.
    graph, other = batch_tasks([task], CPU), batch_tasks([changed], CPU)
    with torch.inference_mode():
        before, output_before, _ = NET.first(graph.nodes, NET.trajectory(graph.edges), graph.callers, graph.callees)
        after, output_after, _ = NET.first(other.nodes, NET.trajectory(other.edges), other.callers, other.callees)
    assert (output_after - output_before)[1].abs().max() > 1e-3
    assert (after - before)[1].abs().max() > 1e-3
    assert (decode(changed).embeddings - decode(task).embeddings)[1].abs().max() > 1e-3


@pytest.mark.parametrize("columns", [slice(0, C_NODE), NODE_PAST])
def test_a_gateway_attends_to_itself(columns: slice) -> None:
    """A gateway has no callers, so attention over callers alone would ignore its own features."""
    task = task_of(CHAIN, 4)
    changed = with_node_inputs(task, 0, columns, 1.0)
    assert (decode(changed).embeddings - decode(task).embeddings)[0].abs().max() > 1e-2


def test_two_layers_reach_two_calls_far_and_no_further() -> None:
    task = task_of(CHAIN, 4)
    moved = (
        (decode(with_node_inputs(task, 3, slice(0, C_NODE), 1.0)).embeddings - decode(task).embeddings).abs().amax(1)
    )
    assert moved[0] == 0
    assert (moved[1:] > 1e-4).all()


def test_relabelling_services_and_calls_permutes_all_outputs() -> None:
    task = replace(simulated_task(), boundary=np.arange(40))
    rng = np.random.default_rng(0)
    order, calls = rng.permutation(len(task.nodes)), rng.permutation(len(task.edges))
    position = np.argsort(order).astype(np.int32)
    relabelled = replace(
        task,
        nodes=task.nodes[order],
        edges=task.edges[calls],
        edge_index=position[task.edge_index[:, calls]],
        attended_callers=task.attended_callers[calls],
        attended_callees=task.attended_callees[calls],
    )
    (straight,), (other,) = score(NET, [task]), score(NET, [relabelled])
    permuted = PartitionScore(
        0,
        straight.node_expected[order],
        straight.edge_expected[calls],
        straight.structure[calls],
        straight.embeddings[order],
        straight.embedding_sum,
    )
    assert_same(other, permuted, 1e-4)
    assert np.abs(other.embeddings - straight.embeddings).max() > 1e-2


def test_batching_changes_no_score() -> None:
    tasks = [replace(simulated_task(n, 20, n), boundary=np.arange(5), part=p) for p, n in enumerate((20, 40, 30))]
    together = score(NET, tasks)
    assert [s.part for s in together] == [0, 1, 2]
    for task, one in zip(tasks, together, strict=True):
        (alone,) = score(NET, [task])
        assert_same(one, alone)


def test_meshes_in_one_batch_do_not_affect_each_other() -> None:
    one, other = task_of(CHAIN, 4), task_of(CHAIN, 4, seed=1)
    changed = replace(other, nodes=other.nodes + 3, edges=other.edges - 2)
    first, second = score(NET, [one, other]), score(NET, [one, changed])
    assert_same(first[0], second[0], 0)
    assert np.abs(first[1].node_expected - second[1].node_expected).max() > 1e-3


def test_only_core_and_owned_rows_are_returned() -> None:
    task = replace(task_of(CHAIN, 4), core=2, owned=1, boundary=np.array([1]))
    whole, (part,) = decode(task), score(NET, [task])
    assert (part.node_expected.shape, part.edge_expected.shape) == ((2, C_NODE), (1, C_EDGE))
    assert part.structure.shape == (1,)
    np.testing.assert_array_equal(part.embeddings, whole.embeddings[1:2].numpy())
    np.testing.assert_allclose(part.embedding_sum, whole.embeddings[:2].sum(dim=0).numpy(), rtol=1e-5)


def test_the_structure_of_all_pairs_is_that_of_single_calls() -> None:
    z, every = torch.randn(7, 64), torch.cartesian_prod(torch.arange(7), torch.arange(7))
    with torch.inference_mode():
        np.testing.assert_allclose(
            NET.structure_of_pairs(z, z).flatten().numpy(),
            NET.structure(z, z, *every.t()).numpy(),
            rtol=1e-4,
            atol=1e-5,
        )


def test_the_decoder_is_directed() -> None:
    decoded = decode(task_of(((0, 1), (1, 0), (1, 2), (2, 1)), 3)).structure
    assert (decoded[0] - decoded[1]).abs() > 1e-3
    assert (decoded[2] - decoded[3]).abs() > 1e-3


def test_a_service_never_sees_its_own_symptoms_in_their_expectation() -> None:
    """The store makes no calls. Its latency can only be expected from its past and its load."""
    task = task_of(CHAIN, 4)
    store, symptoms = 3, [P50, P99, OWN_TIME]
    before, after = decode(task), decode(with_node_inputs(task, store, symptoms, 5.0))
    assert torch.equal(after.node_expected[store], before.node_expected[store])
    assert (after.node_expected - before.node_expected)[2, 1:].abs().max() > 1e-3, "it changes its caller's expectation"
    loaded = decode(with_node_inputs(task, store, [RATE], 5.0))
    assert (loaded.node_expected - before.node_expected)[store, P50].abs() > 1e-3, "its load explains its latency"


def test_a_service_with_callees_does_not_see_itself_through_them() -> None:
    """Expectations read one layer only. A second one would bring a service's own latency back to it."""
    task = task_of(CHAIN, 4)
    before, after = decode(task), decode(with_node_inputs(task, 1, [P50], 5.0))
    moved = (after.node_expected - before.node_expected).abs()
    # The query of attention to callees is made of the service's own features. Service 1 has one callee. Its softmax is
    # 1, so the query has no effect.
    torch.testing.assert_close(moved[1], torch.zeros(C_NODE), atol=1e-6, rtol=0)
    assert moved[0, P50] > 1e-3


def test_the_expected_load_does_not_depend_on_the_current_load() -> None:
    task = task_of(CHAIN, 4)
    for row in (0, 3):
        before, after = decode(task), decode(with_node_inputs(task, row, CURRENT, 5.0))
        assert after.node_expected[row, RATE] == before.node_expected[row, RATE]
    change = decode(with_node_inputs(task, 0, [RATE], 5.0)).node_expected - decode(task).node_expected
    assert change[1, RATE].abs() > 1e-3, "a caller's load explains it"


def test_the_expectation_of_a_call_does_not_depend_on_its_current_values() -> None:
    task = task_of(CHAIN, 4)
    before, after = decode(task), decode(with_edge_inputs(task, 1, slice(0, 2 * C_EDGE), 5.0))
    assert torch.equal(after.edge_expected, before.edge_expected)
    slow = decode(with_node_inputs(task, 2, [P50], 5.0)).edge_expected - before.edge_expected
    assert slow[1, CALL_SYMPTOMS].abs().max() > 1e-3, "the destination's latency explains it"
    assert slow[1, 0] == slow[1, 4] == 0
    assert (slow[2, CALL_SYMPTOMS] == 0).all(), "the source's latency does not explain it"


def test_expectations_are_bounded_for_any_input() -> None:
    task = task_of(CHAIN, 4)
    decoded = decode(replace(task, nodes=task.nodes * 1e4, edges=task.edges * 1e4))
    for values in (decoded.node_expected, decoded.edge_expected):
        assert torch.isfinite(values).all()
        assert values.abs().max() <= EXPECTED_LIMIT


def test_the_same_task_gives_the_same_bits() -> None:
    task = simulated_task()
    (one,), (two,) = score(NET, [task]), score(NET, [task])
    assert_same(one, two, 0)
    (other,) = score(network(), [task])
    assert_same(one, other, 0)


def test_no_parameter_belongs_to_a_service() -> None:
    small, large = decode(simulated_task(20)), decode(simulated_task(80))
    assert small.embeddings.shape == (20, 64)
    assert large.embeddings.shape == (80, 64)
    assert not any("running" in name for name, _ in NET.named_buffers())


def test_a_mesh_without_calls_is_scored() -> None:
    decoded = decode(task_of((), 3))
    assert decoded.edge_expected.shape == (0, C_EDGE)
    assert torch.isfinite(decoded.embeddings).all()
