"""Scoring of a mesh part: a pure function of its arguments, so that any replica can score any part.

Deviations from the past and the standing among other services are computed over the whole mesh before the cut and
arrive as inputs. Tails need the memory of a series and stay with the state. So no state travels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from model.features import Array
from model.network.contract import C_EDGE, EDGE_INPUTS, MeshGraph, MeshNetwork
from model.network.layers import Neighbourhoods, to_arrays, to_device
from model.snapshot import BoolArray, IntArray
from model.state.mesh_state import MeshState, Observation, topology_of
from model.state.topology import Topology, sort_neighbours

RowIds = np.ndarray[tuple[int], np.dtype[np.int32]]
NONE: IntArray = np.zeros(0, np.int64)
NO_ROWS: RowIds = np.zeros(0, np.int32)
_CHANNELS = np.dtype((np.void, C_EDGE * 4))  # of a call, as one piece of memory
_CALL = np.dtype(  # the columns of a call's inputs, see model/network/contract.py
    [*((name, _CHANNELS) for name in ("now", "observed", "past_short", "past_long")), ("present", np.float32)]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTask:
    """One part of one snapshot, ready for scoring.

    Attributes:
        nodes: float32 ``[n, NODE_INPUTS]``; core services first, then the halo.
        edges: float32 ``[e, EDGE_INPUTS]``; owned calls first.
        edge_index: int32 ``[2, e]`` rows of ``nodes``.
        attended_callers, attended_callees: bool ``[e]``.
        core: number of core rows in ``nodes``.
        owned: number of owned rows in ``edges``.
        boundary: int64 rows of core services whose embeddings are returned: services with calls to other parts, and
            the sample for the reconstruction loss.
        snapshot: equal for parts that were cut from the same snapshot, and unique to it; empty: it is not known.
        services: int32 ``[n]``, rows of these services in that snapshot.
        calls: int32 ``[e]``, rows of these calls in that snapshot.
        topology: of an uncut mesh, whose neighbours are sorted already; None: they are sorted for the pass.
    """

    nodes: Array
    edges: Array
    edge_index: np.ndarray[tuple[int, int], np.dtype[np.int32]]
    attended_callers: BoolArray
    attended_callees: BoolArray
    core: int
    owned: int
    boundary: IntArray
    part: int = 0
    snapshot: str = ""
    services: RowIds = field(default_factory=lambda: NO_ROWS)
    calls: RowIds = field(default_factory=lambda: NO_ROWS)
    topology: Topology | None = None

    @property
    def neighbours(self) -> int:
        """Number of callers and callees that the services attend to."""
        return int(np.count_nonzero(self.attended_callers) + np.count_nonzero(self.attended_callees))

    @property
    def halo(self) -> int:
        """Number of services that belong to other parts and are computed there too."""
        return len(self.nodes) - self.core


@dataclass(frozen=True, slots=True)
class PartitionScore:
    """Expectations and logits for the core services and owned calls of one part.

    Attributes:
        node_expected: float32 ``[core, 9]`` expected deviation, sigmas.
        edge_expected: float32 ``[owned, 5]`` likewise.
        structure: float32 ``[owned]`` logits. They are meaningless for calls into another part, because the embeddings
            of both ends meet only in the meta-model.
        embeddings: float32 ``[boundary, D]``.
        embedding_sum: float32 ``[D]`` over the core services.
    """

    part: int
    node_expected: Array
    edge_expected: Array
    structure: Array
    embeddings: Array
    embedding_sum: Array

    def part_of(
        self, part: int, core: IntArray | slice, owned: IntArray | slice, boundary: IntArray | BoolArray
    ) -> "PartitionScore":
        """Return a part's score from the score of all parts together, with ``embeddings`` of all services.

        Args:
            core, owned: rows of its core services and owned calls.
            boundary: which of the core services return their embeddings.
        """
        embeddings = self.embeddings[core]
        return PartitionScore(
            part,
            self.node_expected[core],
            self.edge_expected[owned],
            self.structure[owned],
            embeddings[boundary],
            sum_rows(embeddings),
        )


def node_inputs(observation: Observation) -> Array:
    """Return ``[N, NODE_INPUTS]``. Deviations are asinh of sigmas, so that gross ones differ without dwarfing the
    rest."""
    d = observation.node
    past = np.arcsinh(d.past_short), np.arcsinh(d.past_long)
    now = np.arcsinh(d.now), d.observed, np.arcsinh(observation.standing)
    return np.concatenate((*now, *past), axis=1, dtype=np.float32)


def edge_inputs(observation: Observation) -> Array:
    """Return ``[E, EDGE_INPUTS]``."""
    d = observation.edge
    inputs = np.empty(len(d.now), _CALL)
    inputs["now"], inputs["observed"] = _rows(np.arcsinh(d.now)), _rows(d.observed)
    inputs["past_short"], inputs["past_long"] = _rows(np.arcsinh(d.past_short)), _rows(np.arcsinh(d.past_long))
    inputs["present"] = observation.edge_present
    return inputs.view(np.float32).reshape(-1, EDGE_INPUTS)


def _rows(table: Array | BoolArray) -> NDArray[np.void]:
    """Return the rows of a table ``[E, 5]``, each as one piece: to copy five numbers at a time takes four times as
    long."""
    return np.ascontiguousarray(table, np.float32).view(_CHANNELS)[:, 0]


def whole_mesh(state: MeshState, observation: Observation, boundary: IntArray = NONE) -> PartitionTask:
    """Return the task of a mesh that is not cut; ``boundary`` as of :class:`PartitionTask`."""
    topology = topology_of(state)
    return PartitionTask(
        nodes=node_inputs(observation),
        edges=edge_inputs(observation),
        edge_index=topology.ends,
        attended_callers=state.attended_callers,
        attended_callees=state.attended_callees,
        core=len(state.node_ids),
        owned=state.edge_index.shape[1],
        boundary=boundary,
        topology=topology,
    )


def score(network: MeshNetwork, tasks: Sequence[PartitionTask]) -> list[PartitionScore]:
    """Score parts of any meshes in one block-diagonal pass, on the network's device.

    Returns:
        One score per task, in order. A score does not depend on the batch.
    """
    graph = batch_tasks(tasks, next(network.parameters()).device)
    with torch.inference_mode():
        decoding = network(graph)
        expected = torch.sinh(decoding.node_expected), torch.sinh(decoding.edge_expected)
        node_expected, edge_expected, structure, embeddings = to_arrays(
            [*expected, decoding.structure, decoding.embeddings]
        )
    none = np.zeros(0, np.float32)
    together = PartitionScore(0, node_expected, edge_expected, structure, embeddings, none)
    scores, node, edge = [], 0, 0
    for task in tasks:
        core, owned = slice(node, node + task.core), slice(edge, edge + task.owned)
        scores.append(together.part_of(task.part, core, owned, task.boundary))
        node, edge = node + len(task.nodes), edge + len(task.edges)
    return scores


def sum_rows(table: Array) -> Array:
    """Return the sum ``[D]`` over the rows; as a product it takes a tenth of the time."""
    return np.ones(len(table), np.float32) @ table


def batch_tasks(tasks: Sequence[PartitionTask], device: torch.device) -> MeshGraph:
    """Combine parts into one graph without calls between them."""
    if len(tasks) == 1 and (topology := _topology_of(tasks[0])) is not None:
        index, sides = topology.edge_index, [topology.callers, topology.callees]
    else:
        offsets = np.cumsum([0, *(len(task.nodes) for task in tasks)])
        index = np.concatenate(
            [np.add(t.edge_index, o, dtype=np.int64) for t, o in zip(tasks, offsets, strict=False)], axis=1
        )
        (source, target), total = index, int(offsets[-1])
        sides = [
            sort_neighbours(target, source, np.concatenate([t.attended_callers for t in tasks]), total),
            sort_neighbours(source, target, np.concatenate([t.attended_callees for t in tasks]), total),
        ]

    def to_tensor(arrays: list[Array] | list[IntArray]) -> torch.Tensor:
        # Arrays that came through Ray's object store are read-only. Torch has no such tensors, so these are copied.
        alone = len(arrays) == 1 and arrays[0].flags.writeable
        return to_device(torch.from_numpy(arrays[0] if alone else np.concatenate(arrays)), device)

    return MeshGraph(
        to_tensor([t.nodes for t in tasks]),
        to_tensor([t.edges for t in tasks]),
        to_tensor([index]),
        *(Neighbourhoods(*(to_device(torch.from_numpy(array), device) for array in side)) for side in sides),
    )


def _topology_of(task: PartitionTask) -> Topology | None:
    """Return the topology of an uncut mesh if it still is the one of the task; None if it has to be found out."""
    topology = task.topology
    if topology is None or task.edge_index is not topology.ends:
        return None
    parts = len(task.nodes), topology.edge_index, task.attended_callers, task.attended_callees
    return topology if topology.is_of(*parts) else None
