"""Busy services that disappeared and are missed by their callers."""

import numpy as np

from model.features import ERROR, RATE, Array
from model.scoring.calls import is_reported, rate_of
from model.scoring.finders.finder import Finding
from model.scoring.kinds import EvidenceKind
from model.scoring.release_versions import is_absorbed
from model.scoring.scored_mesh import ScoredMesh
from model.snapshot import mark_services

MOST_LOAD = 3.0  # times its expected requests, beyond which a caller's other calls tell nothing
DISAPPEARANCE_SURPRISE = 6.0  # normal traffic never shows that callers miss a service


def find_disappeared(mesh: ScoredMesh) -> tuple[Finding, ...]:
    """Find busy services that disappeared and are missed, unless the deletion was planned.

    A canary that ended or a service that was replaced is gone too, but its callers make as many calls as before. So the
    share of its calls that were not redirected counts.
    """
    state, observation = mesh.state, mesh.observation
    node, edge = observation.node, observation.edge
    gone = observation.presence.gone & (node.expected[:, RATE] > np.log(1.05))
    planned = state.memory.planned_deletions()
    if planned and gone.any():
        gone &= ~mark_services(state.node_ids, planned)
    if not gone.any():
        return ()
    source, destination = state.edge_index
    lost = np.maximum(rate_of(edge.expected[:, RATE]), 0) * is_reported(observation)
    gone &= ~is_absorbed(state, gone, rate_of(edge.value[:, RATE]) * observation.edge_present, lost)
    # Retries of its own callers raise all calls of a caller alike: they are no calls that were redirected.
    load = np.clip(rate_of(node.value[:, RATE]) / np.maximum(rate_of(node.expected[:, RATE]), 1e-6), 1, MOST_LOAD)
    load = np.where(node.observed[:, RATE], load, 1.0)
    answered = np.where(edge.observed[:, ERROR], 1 - 1 / (1 + np.exp(-edge.value[:, ERROR])), 1)
    shortfall = lost * load[source] - rate_of(edge.value[:, RATE]) * answered * observation.edge_present
    count = len(gone)
    short_of = np.bincount(source, shortfall, count)  # drop in the traffic of each caller, over all its calls
    missed = lost * np.clip(short_of[source] / np.maximum(lost, 1e-6), 0, 1)
    part = lost / np.maximum(np.bincount(source, lost, count)[source], 1e-6)  # share of the caller's traffic
    plain = missed * np.clip((part - 0.05) / 0.15, 0, 1)  # a small share is lost in the noise of the other calls
    called, missed, plain = (np.bincount(destination, v, count) for v in (lost, missed, plain))
    share, sure = (np.where(called > 0, v / np.maximum(called, 1e-6), 1.0) for v in (missed, plain))
    surprise = mesh.surprise.node_raw[:, RATE]
    worth = np.maximum(surprise, DISAPPEARANCE_SURPRISE * sure * np.minimum(surprise, 1))
    vanished: Array = (worth * gone * np.clip(2 * share - 0.5, 0, 1)).astype(np.float32)
    return (Finding(EvidenceKind.VANISHED, vanished),)
