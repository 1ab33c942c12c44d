import pickle
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from model.scoring.score import batch_tasks, whole_mesh
from model.state.mesh_state import MeshState, topology_of
from model.state.serialization import pack_state, unpack_state
from model.state.topology import Topology, sort_neighbours
from tests.contract import different
from tests.model.model_cases import CALLS, SERVICES, snapshot, watch

DERIVED = ("ends", "callers", "callees", "chances_as_caller", "chances_as_callee")


def computed_again(state: MeshState) -> Topology:
    return Topology(len(state.node_ids), state.edge_index, state.attended_callers, state.attended_callees)


def states() -> Iterator[tuple[str, MeshState]]:
    """A mesh whose services and calls change in every way, and what changed."""
    order = [3, 0, 4, 1, 2]
    place = {old: new for new, old in enumerate(order)}
    reordered = snapshot(3, [SERVICES[i] for i in order], [(place[a], place[b]) for a, b in CALLS])
    _, state = watch([snapshot(0)], window_size=3)
    for what, then in (
        ("nothing", [snapshot(1)]),
        ("a new call", [snapshot(2, calls=(*CALLS, (4, 3)))]),
        ("the order", [reordered]),
        ("a new service", [snapshot(4, (*SERVICES, "shop/new"), (*CALLS, (0, 5)))]),
        ("a vanished service", [snapshot(i, SERVICES[:3], CALLS[:2]) for i in range(5, 12)]),
        (
            "another service and calls of the same number",
            [snapshot(12, ("shop/a", "shop/b", "shop/c"), ((2, 1), (1, 0)))],
        ),
    ):
        _, state = watch(then, state, window_size=3)
        yield what, state


def test_what_follows_from_the_calls_follows_every_change_of_them() -> None:
    for what, state in states():
        for name in DERIVED:
            assert not different(getattr(topology_of(state), name), getattr(computed_again(state), name)), (what, name)


def test_it_is_kept_as_long_as_the_calls_stay_the_same() -> None:
    _, before = watch([snapshot(0), snapshot(1)])
    _, after = watch([snapshot(2)], before)
    assert topology_of(after) is before.topology is not None
    _, changed = watch([snapshot(3, calls=(*CALLS, (4, 0)))], after)
    assert topology_of(changed) is not before.topology


@pytest.mark.parametrize("field", ["edge_index", "attended_callers", "attended_callees"])
def test_other_arrays_are_another_topology(field: str) -> None:
    _, state = watch([snapshot(0)])
    other = replace(state, **{field: np.zeros_like(getattr(state, field))})
    assert topology_of(other) is not topology_of(state)
    assert not different(topology_of(other).callers, computed_again(other).callers)


def test_a_task_with_other_neighbours_is_not_scored_with_those_of_its_mesh() -> None:
    observation, state = watch([snapshot(0)])
    task = whole_mesh(state, observation)
    no_call = np.zeros(len(CALLS), bool)
    assert not len(batch_tasks([replace(task, attended_callers=no_call)], torch.device("cpu")).callers.edges)
    assert not len(batch_tasks([replace(task, attended_callees=no_call)], torch.device("cpu")).callees.edges)
    source, destination = state.edge_index
    turned = batch_tasks([replace(task, edge_index=task.edge_index[::-1].copy())], torch.device("cpu"))
    np.testing.assert_array_equal(turned.edge_index, state.edge_index[::-1])
    assert not different(turned.callers.indices.numpy(), sort_neighbours(source, destination, ~no_call, 5).indices)


def test_a_known_topology_gives_the_same_graph_as_a_new_sort() -> None:
    for what, state in states():
        observation, state = watch([replace(state.window[-1], observed_at=snapshot(20).observed_at)], state)
        task = whole_mesh(state, observation)
        known, newly_sorted = (batch_tasks([of], torch.device("cpu")) for of in (task, replace(task, topology=None)))
        np.testing.assert_array_equal(known.edge_index, newly_sorted.edge_index, what)
        for side in ("callers", "callees"):
            for name in ("indptr", "indices", "edges"):
                one, other = (getattr(getattr(graph, side), name) for graph in (known, newly_sorted))
                np.testing.assert_array_equal(one, other, what)


def test_a_stored_or_sent_state_has_the_same_topology() -> None:
    _, state = watch([snapshot(0)])
    assert state.topology is not None
    assert len(state.topology.callers.edges)
    back = unpack_state(pack_state(state), state.window)
    sent = pickle.loads(pickle.dumps(state))
    assert "callers" not in vars(sent.topology)  # it is computed again
    for other in (back, sent):
        assert not different(topology_of(other).callers, state.topology.callers)
