"""Structural properties of the network beyond the contract. They hold for any weights, so the weights are random."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lab.contracts.networks import NetworkContract, random_task
from model.features import P50
from model.network.autoencoder import Autoencoder
from model.network.contract import (
    C_EDGE,
    C_NODE,
    CALL_SYMPTOMS,
    NODE_PAST,
    Decoding,
)
from model.scoring.score import PartitionTask, batch_tasks, score
from tests.model.model_cases import network, with_node_inputs

CPU = torch.device("cpu")
NET = network()


def decode(task: PartitionTask, net: Autoencoder = NET) -> Decoding:
    with torch.inference_mode():
        return net(batch_tasks([task], CPU))


def with_edge_inputs(task: PartitionTask, row: int, columns: slice, change: float) -> PartitionTask:
    edges = task.edges.copy()
    edges[row, columns] += np.float32(change)
    return replace(task, edges=edges)


CHAIN = ((0, 1), (1, 2), (2, 3))  # each service but the first has a single caller


def test_with_a_single_caller_the_trajectory_of_the_call_still_counts() -> None:
    task = random_task(CHAIN, 4)
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
    task = random_task(CHAIN, 4)
    changed = with_node_inputs(task, 0, columns, 1.0)
    assert (decode(changed).embeddings - decode(task).embeddings)[0].abs().max() > 1e-2


def test_two_layers_reach_two_calls_far_and_no_further() -> None:
    task = random_task(CHAIN, 4)
    moved = (
        (decode(with_node_inputs(task, 3, slice(0, C_NODE), 1.0)).embeddings - decode(task).embeddings).abs().amax(1)
    )
    assert moved[0] == 0
    assert (moved[1:] > 1e-4).all()


def test_only_core_and_owned_rows_are_returned() -> None:
    task = replace(random_task(CHAIN, 4), core=2, owned=1, boundary=np.array([1]))
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
    decoded = decode(random_task(((0, 1), (1, 0), (1, 2), (2, 1)), 3)).structure
    assert (decoded[0] - decoded[1]).abs() > 1e-3
    assert (decoded[2] - decoded[3]).abs() > 1e-3


def test_the_latency_of_a_call_is_expected_from_its_destination() -> None:
    task = random_task(CHAIN, 4)
    slow = decode(with_node_inputs(task, 2, [P50], 5.0)).edge_expected - decode(task).edge_expected
    assert slow[1, CALL_SYMPTOMS].abs().max() > 1e-3, "the destination's latency explains it"
    assert slow[1, 0] == slow[1, 4] == 0
    assert (slow[2, CALL_SYMPTOMS] == 0).all(), "the source's latency does not explain it"


class TestContract(NetworkContract):
    """What holds for every network."""

    network = Autoencoder
