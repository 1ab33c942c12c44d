"""Evidence from small meshes in which one thing is unusual."""

from collections.abc import Mapping

import numpy as np

from model.evidence.finders.finder import Finder
from model.evidence.gather import Evidence, gather
from model.evidence.kinds import EvidenceKind
from model.evidence.scored_mesh import ScoredMesh
from model.features import EDGE_CHANNELS, NODE_CHANNELS, Array
from model.incidents.policy import AlertPolicy
from model.scoring.calibration import Tail
from model.scoring.surprises import MeshScores, surprises
from model.snapshot import MeshSnapshot, NodeMetric, PlannedChange
from model.state.change_impact import EXPOSURES
from model.state.filters import SCALES
from model.state.mesh_state import MeshState, Observation
from tests.model.model_cases import CALLS, EDGE, SERVICES, settled_state, snapshot, watch

CART, SEARCH, STORE, IDLE = 1, 2, 3, 4
NEW = "shop/store-v2"
POLICY = AlertPolicy()
THRESHOLD = 6.0


def tail(channels: int) -> Tail:
    return Tail(*(np.full((EXPOSURES, SCALES, channels), x, np.float32) for x in (0.001, 0.8, 0.15)))


def evidence_of(*snapshots: MeshSnapshot, state: MeshState | None = None, policy: AlertPolicy = POLICY) -> Evidence:
    """Return evidence of the last snapshot, for a network without expectations."""
    observation, state = watch(snapshots, state or settled_state())
    mesh = scored_mesh(state, observation)
    return gather(state, observation, mesh.scores, mesh.surprise, policy, THRESHOLD)


def scored_mesh(state: MeshState, observation: Observation) -> ScoredMesh:
    """Return a mesh with the scores of a network without expectations."""
    nodes, edges = len(state.node_ids), state.edge_index.shape[1]
    decoded = MeshScores(
        np.zeros((nodes, len(NODE_CHANNELS)), np.float32),
        np.zeros((edges, len(EDGE_CHANNELS)), np.float32),
        np.full(edges, 5, np.float32),
        np.ones(nodes, bool),
    )
    surprise = surprises(observation, decoded, tail(len(NODE_CHANNELS)), tail(len(EDGE_CHANNELS)))
    return ScoredMesh(state, observation, decoded, surprise, POLICY.latency_floor_seconds)


def surprise_of(finder: Finder, state: MeshState, observation: Observation) -> dict[EvidenceKind, Array]:
    """Return the surprise ``[N]`` that a finder finds, for each kind of evidence; 0 where it finds nothing."""
    found = {kind: np.zeros(len(state.node_ids), np.float32) for kind in EvidenceKind}
    return found | {finding.kind: finding.surprise for finding in finder(scored_mesh(state, observation))}


def snapshot_with_move(
    share: float, *, change: bool = False, index: int = 30, to: str = SERVICES[IDLE]
) -> MeshSnapshot:
    """Return a snapshot in which the cart sends this share of its store calls to another service."""
    edges = np.array([*[EDGE] * len(CALLS), EDGE])
    edges[2, 0] *= 1 - share
    edges[4, 0] *= share
    changes = [PlannedChange("deploy", SERVICES[CART], "v2")] if change else []
    services = SERVICES if to in SERVICES else (*SERVICES, to)
    return snapshot(index, services, (*CALLS, (CART, services.index(to))), edges=edges, changes=changes)


def score_of(evidence: Evidence, service: int, kind: str) -> float:
    """Return the evidence of a kind against a service."""
    return float(evidence.kinds[evidence.names.index(SERVICES[service]), EvidenceKind[kind.upper()]])


def with_nodes(index: float, service: int, metrics: Mapping[NodeMetric, float]) -> MeshSnapshot:
    """Return a snapshot in which some metrics of one service have other values."""
    return snapshot(index, nodes={(service, column): value for column, value in metrics.items()})
