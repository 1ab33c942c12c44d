"""The contract of every network, :mod:`model.network.contract`, as tests.

A package with a network of its own subclasses :class:`NetworkContract` in a test module::

    class TestMyNetwork(NetworkContract):
        network = MyNetwork

The weights are random, because the contract holds for any weights.
"""

from collections.abc import Sequence
from dataclasses import asdict, astuple, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import load, name_of, save
from model.errors import IncompatibleWeights
from model.features import OWN_TIME, P50, P99, RATE
from model.network.contract import (
    C_EDGE,
    C_NODE,
    CALL_LOAD,
    CURRENT,
    EDGE_INPUTS,
    EXPECTED_LIMIT,
    NODE_INPUTS,
    REACH,
    Decoding,
    MeshNetwork,
)
from model.scoring.score import PartitionScore, PartitionTask, batch_tasks, score, whole_mesh
from model.state.mesh_state import MeshState
from model.state.observe import observe

CPU = torch.device("cpu")
CHAIN = ((0, 1), (1, 2), (2, 3), (3, 4))  # with one neighbour on each side, a softmax over neighbours is always 1
TOLERANCE = 1e-4  # relative to 1, for float32 sums in another order


class NetworkContract:
    """The tests that every network passes. A subclass sets ``network`` to the class to test."""

    network: ClassVar[type[MeshNetwork]]

    @cached_property
    def built(self) -> MeshNetwork:
        """The network with random weights, none of which is zero."""
        torch.manual_seed(0)
        network = self.network(self.network.Config())
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        network.eval()
        return network

    def decode(self, *tasks: PartitionTask) -> Decoding:
        """Return the outputs for tasks side by side."""
        with torch.inference_mode():
            decoding = self.built(batch_tasks(tasks, CPU))
        assert isinstance(decoding, Decoding), f"expected a Decoding, got {type(decoding)}"
        return decoding

    def test_its_sizes_are_a_dataclass_of_numbers(self) -> None:
        sizes = asdict(self.network.Config())
        assert all(isinstance(value, int | float) for value in sizes.values()), sizes
        assert self.built.config == self.network.Config(**sizes)
        assert self.built.config.embedding > 0
        assert self.built.config.neighbours > 0

    @pytest.mark.parametrize("services", [1, 5, 40])
    def test_every_output_has_its_shape(self, services: int) -> None:
        calls = [(i, (i * 7 + 1) % services) for i in range(services) if services > 1]
        decoding = self.decode(random_task(calls, services))
        shapes = [tuple(output.shape) for output in outputs(decoding)]
        width, count = self.built.config.embedding, len(calls)
        assert shapes == [(services, width), (services, C_NODE), (count, C_EDGE), (count,)]

    def test_a_mesh_without_calls_is_scored(self) -> None:
        decoding = self.decode(random_task((), 3))
        assert all(torch.isfinite(output).all() for output in outputs(decoding))

    def test_outputs_are_finite_and_expectations_bounded_for_any_input(self) -> None:
        task = random_task(CHAIN, 5)
        for factor in (0, 1, 1e4):
            decoding = self.decode(replace(task, nodes=task.nodes * factor, edges=task.edges * factor))
            assert all(torch.isfinite(output).all() for output in outputs(decoding)), f"inputs times {factor}"
            for expected in (decoding.node_expected, decoding.edge_expected):
                assert expected.abs().max() <= EXPECTED_LIMIT

    def test_the_same_inputs_give_the_same_bits(self) -> None:
        task = simulated_task()
        for first, second in zip(outputs(self.decode(task)), outputs(self.decode(task)), strict=True):
            assert torch.equal(first, second)

    def test_the_order_of_services_and_calls_does_not_matter(self) -> None:
        task = simulated_task()
        rng = np.random.default_rng(0)
        order, calls = rng.permutation(len(task.nodes)), rng.permutation(len(task.edges))
        permuted = replace(
            task,
            nodes=task.nodes[order],
            edges=task.edges[calls],
            edge_index=np.argsort(order).astype(np.int32)[task.edge_index[:, calls]],
            attended_callers=task.attended_callers[calls],
            attended_callees=task.attended_callees[calls],
        )
        original, reordered = outputs(self.decode(task)), outputs(self.decode(permuted))
        for rows, before, after in zip((order, order, calls, calls), original, reordered, strict=True):
            torch.testing.assert_close(after, before[torch.from_numpy(rows)], atol=TOLERANCE, rtol=TOLERANCE)

    def test_meshes_side_by_side_do_not_mix(self) -> None:
        task, neighbour = random_task(CHAIN, 5), random_task(CHAIN, 5, seed=1)
        moved = replace(neighbour, nodes=neighbour.nodes + 3, edges=neighbour.edges - 2)
        before, after = score(self.built, [task, neighbour]), score(self.built, [task, moved])
        assert_close(after[0], before[0], 0)
        (single,) = score(self.built, [task])
        assert_close(single, before[0], TOLERANCE)

    def test_nothing_is_read_beyond_its_reach(self) -> None:
        calls = [(i, i + 1) for i in range(REACH + 2)]
        task = random_task(calls, len(calls) + 1)
        before, after = self.decode(task), self.decode(with_node_inputs(task, len(calls), slice(0, NODE_INPUTS)))
        near = len(calls) - REACH
        assert torch.equal(before.embeddings[:near], after.embeddings[:near])
        assert torch.equal(before.node_expected[:near], after.node_expected[:near])

    def test_messages_pass_along_attended_calls_only(self) -> None:
        task = random_task([*CHAIN, (0, 4)], 5)
        is_attended = np.array([True] * len(CHAIN) + [False])
        task = replace(task, attended_callers=is_attended, attended_callees=is_attended)
        before, after = self.decode(task), self.decode(with_node_inputs(task, 4, slice(0, NODE_INPUTS)))
        assert torch.equal(before.embeddings[0], after.embeddings[0]), "the call from 0 to 4 is not attended to"
        assert torch.equal(before.node_expected[0], after.node_expected[0])

    def test_a_service_never_reads_its_own_symptoms_in_their_expectation(self) -> None:
        task = random_task(CHAIN, 5)
        symptoms = [column for column in range(C_NODE) if column != RATE]
        current = [*symptoms, *(C_NODE + column for column in symptoms), *range(2 * C_NODE, 3 * C_NODE)]
        for service in range(5):
            before = self.decode(task).node_expected[service]
            after = self.decode(with_node_inputs(task, service, current)).node_expected[service]
            torch.testing.assert_close(after, before, atol=1e-6, rtol=0)

    def test_the_expected_load_does_not_read_the_current_load(self) -> None:
        task = random_task(CHAIN, 5)
        for service in range(5):
            before = self.decode(task).node_expected[service, RATE]
            after = self.decode(with_node_inputs(task, service, CURRENT)).node_expected[service, RATE]
            torch.testing.assert_close(after, before, atol=1e-6, rtol=0)

    def test_the_expectation_of_a_call_does_not_read_its_current_values(self) -> None:
        task = random_task(CHAIN, 5)
        edges = task.edges.copy()
        edges[1, : 2 * C_EDGE] += 5
        before, after = self.decode(task).edge_expected, self.decode(replace(task, edges=edges)).edge_expected
        torch.testing.assert_close(after[1], before[1], atol=1e-6, rtol=0)

    def test_neighbours_explain(self) -> None:
        """A network that ignores neighbours would not expect anything that spreads."""
        task = random_task(CHAIN, 5)
        before = self.decode(task)
        slow = self.decode(with_node_inputs(task, 3, [P50, P99, OWN_TIME]))
        assert (slow.node_expected - before.node_expected)[2].abs().max() > 0, "a callee explains its caller's latency"
        busy = self.decode(with_node_inputs(task, 1, [RATE]))
        assert (busy.node_expected - before.node_expected)[2, RATE].abs() > 0, "a caller explains its callee's load"
        assert (busy.edge_expected - before.edge_expected)[1, CALL_LOAD].abs().max() > 0, "and the load of its calls"

    def test_structure_is_that_of_the_embeddings(self) -> None:
        task = simulated_task()
        decoding = self.decode(task)
        source, target = torch.from_numpy(task.edge_index.astype(np.int64))
        with torch.inference_mode():
            again = self.built.structure(decoding.embeddings, decoding.embeddings, source, target)
        torch.testing.assert_close(decoding.structure, again, atol=TOLERANCE, rtol=TOLERANCE)

    def test_every_parameter_learns(self) -> None:
        torch.manual_seed(0)
        network = self.network(self.network.Config())
        sum(output.sum() for output in outputs(network(batch_tasks([simulated_task()], CPU)))).backward()  # type: ignore[union-attr]
        parameters: dict[str, Any] = dict(network.named_parameters())  # type: ignore[attr-defined]
        assert not [name for name, parameter in parameters.items() if parameter.grad is None]

    def test_a_checkpoint_comes_back_only_under_the_allowed_name(self, tmp_path: Path) -> None:
        checkpoint, path, name = load(), tmp_path / "w.safetensors", name_of(self.built)
        save(replace(checkpoint, network=self.built), path)
        task = simulated_task()
        back = load(path, network=name)
        assert back.network.config == self.built.config
        assert_close(score(back.network, [task])[0], score(self.built, [task])[0], 0)
        if name is not None:
            for wrong_name in (None, "other.package:Network"):
                with pytest.raises(IncompatibleWeights, match=r"set model\.network"):
                    load(path, network=wrong_name)


def outputs(decoding: Decoding) -> tuple[torch.Tensor, ...]:
    """Return a decoding's tensors in their order."""
    return tuple(getattr(decoding, field.name) for field in fields(decoding))


def random_task(calls: Sequence[tuple[int, int]], services: int, seed: int = 0) -> PartitionTask:
    """Return a mesh with random inputs, in which attention includes all calls in both directions."""
    rng = np.random.default_rng(seed)
    count = len(calls)
    return PartitionTask(
        nodes=rng.standard_normal((services, NODE_INPUTS)).astype(np.float32),
        edges=rng.standard_normal((count, EDGE_INPUTS)).astype(np.float32),
        edge_index=np.array(calls, np.int32).reshape(-1, 2).T,
        attended_callers=np.ones(count, bool),
        attended_callees=np.ones(count, bool),
        core=services,
        owned=count,
        boundary=np.arange(services),
    )


def simulated_task() -> PartitionTask:
    """Return a simulated mesh's inputs: 40 services after 25 snapshots."""
    state = MeshState()
    for snapshot in Simulator(MeshSpec(services=40, seed=3), snapshots=25).snapshots():
        observation, state = observe(state, snapshot, window_size=120, neighbours=6)
    return whole_mesh(state, observation)


def with_node_inputs(task: PartitionTask, row: int, columns: slice | Sequence[int]) -> PartitionTask:
    """Return the task with some of one service's inputs moved by 5."""
    nodes = task.nodes.copy()
    nodes[row, columns] += np.float32(5)
    return replace(task, nodes=nodes)


def assert_close(left: PartitionScore, right: PartitionScore, tolerance: float) -> None:
    """Compare all arrays of two scores."""
    for ours, theirs in zip(astuple(left)[1:], astuple(right)[1:], strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            np.testing.assert_allclose(ours, theirs, atol=tolerance, rtol=tolerance)
