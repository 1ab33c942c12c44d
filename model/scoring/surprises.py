"""The scores of all parts as arrays of the mesh, and the surprise of every series."""

from dataclasses import dataclass, replace

import numpy as np

from model.features import EDGE_CHANNELS, ERROR, NODE_CHANNELS, RATE, Array
from model.scoring.calibration import SeriesTail, Tail
from model.scoring.score import PartitionScore
from model.snapshot import BoolArray, IntArray
from model.state.mesh_state import MeshState, Observation


@dataclass(frozen=True, slots=True)
class Surprises:
    """Calibrated surprise of a mesh's series, ``-log10 p`` from 0 to 15.

    Attributes:
        node, edge: ``[N, 9]``, ``[E, 5]``: after subtracting what the neighbours explain.
        node_raw: ``[N, 9]``: without that subtraction.
        edge_rate_raw: ``[E]``: traffic of calls, without that subtraction.
        node_expected, edge_expected: expected value of each series, transformed units.
    """

    node: Array
    edge: Array
    node_raw: Array
    edge_rate_raw: Array
    node_expected: Array
    edge_expected: Array


@dataclass(frozen=True, slots=True)
class MeshScores:
    """The scores of all parts as arrays of the whole mesh.

    Attributes:
        node_expected, edge_expected: ``[N, 9]``, ``[E, 5]``: expected deviations, sigmas.
        structure: ``[E]`` logits; NaN for calls between parts.
        scored: bool ``[N]``: whether a part with this service in its core answered.
    """

    node_expected: Array
    edge_expected: Array
    structure: Array
    scored: BoolArray


def surprises(observation: Observation, mesh_scores: MeshScores, node_tail: Tail, edge_tail: Tail) -> Surprises:
    """Compute the surprise of every series, with and without the share that neighbours explain."""
    o = observation
    node = SeriesTail(node_tail, o.node, o.node_exposure, o.node_impact).calibrate(mesh_scores.node_expected)
    edge = SeriesTail(edge_tail, o.edge, o.edge_exposure, o.edge_impact).calibrate(mesh_scores.edge_expected)
    return Surprises(node[0], edge[0], node[1], edge[1][:, RATE], node[2], edge[2])


def with_rare_failures(observation: Observation, surprise: Surprises) -> Surprises:
    """Return the surprises with the failures among few requests that only many snapshots show."""
    tables = []
    for table, rare in ((surprise.node, observation.node_failures), (surprise.edge, observation.edge_failures)):
        if rare.any():
            table = table.copy()
            table[:, ERROR] = np.maximum(table[:, ERROR], rare)
        tables.append(table)
    return replace(surprise, node=tables[0], edge=tables[1])


def assemble_scores(
    state: MeshState, scores: list[tuple[IntArray, IntArray, PartitionScore]], crossing: IntArray
) -> MeshScores:
    """Merge the scores of the parts into arrays of the whole mesh.

    Args:
        scores: for each part, the rows of its core services and of its owned calls, and its score.
        crossing: calls between parts. No part knows their structure.
    """
    nodes, edges = len(state.node_ids), state.edge_index.shape[1]
    if len(scores) == 1 and len(scores[0][0]) == nodes:  # one part, whose arrays have the rows of the mesh
        only = scores[0][2]
        return MeshScores(only.node_expected, only.edge_expected, only.structure, np.ones(nodes, bool))
    mesh_scores = MeshScores(
        np.zeros((nodes, len(NODE_CHANNELS)), np.float32),
        np.zeros((edges, len(EDGE_CHANNELS)), np.float32),
        np.zeros(edges, np.float32),
        np.zeros(nodes, bool),
    )
    for core, owned, score in scores:
        mesh_scores.node_expected[core], mesh_scores.edge_expected[owned] = score.node_expected, score.edge_expected
        mesh_scores.structure[owned], mesh_scores.scored[core] = score.structure, True
    mesh_scores.structure[crossing] = np.nan
    return mesh_scores
