"""Small meshes and states that the tests of ``model`` share."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.network.autoencoder import Autoencoder, AutoencoderConfig
from model.scoring.score import PartitionTask, whole_mesh
from model.snapshot import MeshSnapshot, PlannedChange, Signal
from model.state.mesh_state import MeshState, Observation
from model.state.observe import observe
from tests.builders import START

NODE = (100.0, 0.01, 0.02, 0.1, 0.4, 0.5, 20.0)  # a normal service, in the order of NODE_METRICS
EDGE = (50.0, 0.01, 0.01, 0.05)  # a normal call, in the order of EDGE_METRICS
# A gateway, two services behind it, a store that both call, and a service without calls in either direction.
SERVICES = ("shop/gateway", "shop/cart", "shop/search", "shop/store", "shop/idle")
CALLS = ((0, 1), (0, 2), (1, 3), (2, 3))
Values = ArrayLike | Mapping[Any, ArrayLike]
Calls = Sequence[tuple[int, int]]


def at(index: float, interval: float = 15.0) -> datetime:
    return START + timedelta(seconds=index * interval)


def table(normal: Sequence[float], rows: int, values: Values | None) -> ArrayLike:
    if values is not None and not isinstance(values, Mapping):
        return values
    made = np.tile(normal, (rows, 1))
    for place, value in (values or {}).items():
        made[place] = value
    return made


def snapshot(
    index: float = 0,
    services: Sequence[str] = SERVICES,
    calls: Iterable[tuple[int, int]] = CALLS,
    *,
    nodes: Values | None = None,
    edges: Values | None = None,
    interval: float = 15.0,
    changes: Sequence[PlannedChange] = (),
    signals: Sequence[Signal] = (),
) -> MeshSnapshot:
    """Return a normal mesh, except for the given values: whole tables, or values by place in the normal ones."""
    index_of_calls = np.array(list(calls), np.int64).reshape(-1, 2).T
    return MeshSnapshot.create(
        node_ids=services,
        edge_index=index_of_calls,
        node_features=table(NODE, len(services), nodes),
        edge_features=table(EDGE, index_of_calls.shape[1], edges),
        observed_at=at(index, interval),
        changes=changes,
        signals=signals,
    )


def without(service: int, calls: Calls = CALLS) -> tuple[tuple[str, ...], list[tuple[int, int]]]:
    """Return the services that are left without one of them, and their calls."""
    left = [row for row in range(len(SERVICES)) if row != service]
    ends = [(left.index(a), left.index(b)) for a, b in calls if service not in (a, b)]
    return tuple(SERVICES[row] for row in left), ends


def noisy(
    index: int,
    rng: np.random.Generator,
    services: Sequence[str] = SERVICES,
    calls: Iterable[tuple[int, int]] = CALLS,
    sigma: float = 0.1,
) -> MeshSnapshot:
    """Return the normal mesh, with every value multiplied by log-normal noise of this sigma."""
    calls = list(calls)
    nodes = np.tile(NODE, (len(services), 1)) * np.exp(sigma * rng.standard_normal((len(services), len(NODE))))
    edges = np.tile(EDGE, (len(calls), 1)) * np.exp(sigma * rng.standard_normal((len(calls), len(EDGE))))
    nodes[:, [1, 4, 5]] = nodes[:, [1, 4, 5]].clip(0, 1)
    return snapshot(index, services, calls, nodes=nodes, edges=edges.clip(0, [np.inf, 1, np.inf, np.inf]))


def watch(
    snapshots: Iterable[MeshSnapshot], state: MeshState | None = None, *, window_size: int = 120, neighbours: int = 8
) -> tuple[Observation, MeshState]:
    """Return the last observation and the state after it."""
    state, observation = state or MeshState(), None
    for one in snapshots:
        observation, state = observe(state, one, window_size=window_size, neighbours=neighbours)
    assert observation is not None
    return observation, state


@cache
def settled_state(count: int = 30, sigma: float = 0.1) -> MeshState:
    """Return the state of the shared mesh after ``count`` noisy snapshots."""
    rng = np.random.default_rng(0)
    return watch(noisy(i, rng, sigma=sigma) for i in range(count))[1]


def simulated(services: int = 40, snapshots: int = 40, seed: int = 3) -> list[MeshSnapshot]:
    made = MeshSpec(services=services, seed=seed, calls_per_service=min(4.0, (services - 1) / 6))
    return list(Simulator(made, snapshots=snapshots).snapshots())


@cache
def simulated_task(services: int = 40, snapshots: int = 25, seed: int = 3) -> PartitionTask:
    """Inputs of a simulated mesh after some snapshots."""
    observation, state = watch(simulated(services, snapshots, seed))
    return whole_mesh(state, observation)


def network(seed: int = 0, *, norms: bool = True) -> Autoencoder:
    """A network with random weights. Biases and norms are random too, so that no parameter is zero."""
    torch.manual_seed(seed)
    made = Autoencoder(AutoencoderConfig()).eval()
    if norms:
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
    return made


def with_node_inputs(task: PartitionTask, row: int, columns: slice | Sequence[int], change: float) -> PartitionTask:
    """Return the task with some inputs of one service changed by ``change``."""
    nodes = task.nodes.copy()
    nodes[row, columns] += np.float32(change)
    return replace(task, nodes=nodes)
