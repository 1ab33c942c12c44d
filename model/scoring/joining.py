"""Scores parts of one snapshot as one graph: services and calls that stand in several of them are computed once.

A part has the exact halo of its core, so it shares services with its neighbours. The joined graph adds nothing that a
result of its core depends on, only neighbours of the outermost services. So each part has the scores that it has alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from model.network.contract import MeshNetwork
from model.scoring.score import PartitionScore, PartitionTask, RowIds, score
from model.snapshot import BoolArray, IntArray


@dataclass(frozen=True, slots=True)
class Joined:
    """Parts of one snapshot as one graph.

    Attributes:
        task: services and calls of all parts, each once; all of them count as core and owned.
        core: the row of each core service, for each part.
    """

    task: PartitionTask
    core: tuple[IntArray, ...]
    owned: tuple[IntArray, ...]


def score_joined(network: MeshNetwork, tasks: Sequence[PartitionTask]) -> list[PartitionScore]:
    """Score parts of any meshes in one pass, and join parts of one snapshot. Returns one score per task, in order."""
    snapshots = _by_snapshot(tasks)
    graphs = [join([tasks[index] for index in indices]) for indices in snapshots]
    scores: dict[int, PartitionScore] = {}
    found_all = score(network, [graph.task for graph in graphs])
    for indices, graph, joined_score in zip(snapshots, graphs, found_all, strict=True):
        parts = [joined_score] if len(indices) == 1 else split(joined_score, graph, [tasks[index] for index in indices])
        scores.update(zip(indices, parts, strict=True))
    return [scores[index] for index in range(len(tasks))]


def count_neighbours(tasks: Sequence[PartitionTask]) -> tuple[int, int]:
    """Count the callers and callees that the services of a joined pass attend to, and the services that it computes
    although they belong to parts that are not in it."""
    attended = foreign = 0
    for indices in _by_snapshot(tasks):
        parts = [tasks[index] for index in indices]
        if len(parts) == 1:
            attended, foreign = attended + parts[0].neighbours, foreign + parts[0].halo
            continue
        callers = [part.calls[part.attended_callers] for part in parts]
        callees = [part.calls[part.attended_callees] for part in parts]
        attended += _count(callers) + _count(callees)
        foreign += _count([part.services for part in parts]) - sum(part.core for part in parts)
    return attended, foreign


def join(parts: Sequence[PartitionTask]) -> Joined:
    """Join parts of one snapshot. One part alone is unchanged."""
    if len(parts) == 1:
        return Joined(parts[0], (), ())
    row = _positions([part.services for part in parts])
    call = _positions([part.calls for part in parts])
    services, calls = (int(positions.max(initial=-1)) + 1 for positions in (row, call))
    nodes = np.empty((services, parts[0].nodes.shape[1]), np.float32)
    edges = np.empty((calls, parts[0].edges.shape[1]), np.float32)
    edge_index = np.empty((2, calls), np.int32)
    callers, callees = np.empty(calls, np.bool_), np.empty(calls, np.bool_)
    for part in parts:  # a service or call of several parts is equal in all of them
        rows, own = row[part.services], call[part.calls]
        nodes[rows], edges[own] = part.nodes, part.edges
        edge_index[:, own] = rows[part.edge_index]
        callers[own], callees[own] = part.attended_callers, part.attended_callees
    return Joined(
        PartitionTask(
            nodes=nodes,
            edges=edges,
            edge_index=edge_index,
            attended_callers=callers,
            attended_callees=callees,
            core=services,
            owned=calls,
            boundary=np.arange(services),
        ),
        tuple(row[part.services[: part.core]] for part in parts),
        tuple(call[part.calls[: part.owned]] for part in parts),
    )


def split(joined_score: PartitionScore, graph: Joined, parts: Sequence[PartitionTask]) -> list[PartitionScore]:
    rows = zip(parts, graph.core, graph.owned, strict=True)
    return [joined_score.part_of(part.part, core, owned, part.boundary) for part, core, owned in rows]


def _by_snapshot(tasks: Sequence[PartitionTask]) -> list[list[int]]:
    """Return each snapshot's tasks by position. A task whose snapshot is not known is alone."""
    positions: dict[str, list[int]] = {}
    for index, task in enumerate(tasks):
        positions.setdefault(task.snapshot or f"task {index}", []).append(index)
    return list(positions.values())


def _positions(ids: Sequence[RowIds]) -> IntArray:
    """For each id up to the largest, its position among those that occur, ascending."""
    return np.cumsum(_occurring(ids)) - 1


def _count(ids: Sequence[RowIds]) -> int:
    return int(np.count_nonzero(_occurring(ids)))


def _occurring(ids: Sequence[RowIds]) -> BoolArray:
    occurs = np.zeros(max((int(rows.max()) + 1 for rows in ids if len(rows)), default=0), np.bool_)
    for rows in ids:
        occurs[rows] = True
    return occurs
