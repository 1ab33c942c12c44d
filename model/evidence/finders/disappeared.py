"""Busy services that disappeared and are missed by their callers."""

import numpy as np

from model.evidence.finders.finder import Finding
from model.evidence.kinds import EVENT_SURPRISE, EvidenceKind
from model.evidence.release_versions import is_absorbed
from model.evidence.scored_mesh import ScoredMesh, is_reported
from model.features import ERROR, RATE, Array, rate_of
from model.snapshot import mark_services

MAX_LOAD = 3.0  # times its expected requests, beyond which a caller's other calls tell nothing
SURE_ERRORS = 3.0  # surprise of a caller's errors from which they are no noise


def find_disappeared(mesh: ScoredMesh) -> tuple[Finding, ...]:
    """Find busy services that disappeared and are missed, unless the deletion was planned.

    A canary that ended or a service that was replaced is gone too, but its callers make as many calls as before. So the
    share of its calls that were not redirected counts. Two things show it: the traffic that a caller is short of,
    unless the calls are a small share of it, and the requests of the caller that fail since then, as many as it lost
    calls.
    """
    state, observation = mesh.state, mesh.observation
    node, edge = observation.node, observation.edge
    gone = observation.presence.gone & (node.expected[:, RATE] > np.log(1.05))
    planned_deletions = state.memory.planned_deletions()
    if planned_deletions and gone.any():
        gone &= ~mark_services(state.node_ids, planned_deletions)
    if not gone.any():
        return ()
    source, destination = state.edge_index
    lost_rate = rate_of(edge.expected[:, RATE]) * is_reported(observation)
    gone &= ~is_absorbed(state, gone, rate_of(edge.value[:, RATE]) * observation.edge_present, lost_rate)
    # Retries of its own callers raise all calls of a caller alike: they are no calls that were redirected.
    load = np.clip(rate_of(node.value[:, RATE]) / np.maximum(rate_of(node.expected[:, RATE]), 1e-6), 1, MAX_LOAD)
    load = np.where(node.observed[:, RATE], load, 1.0)
    answered_share, usual = (1 - 1 / (1 + np.exp(-rates[:, ERROR])) for rates in (edge.value, edge.expected))
    answered_share = np.where(edge.observed[:, ERROR], answered_share, usual)
    shortfall = (
        lost_rate * load[source] * usual - rate_of(edge.value[:, RATE]) * answered_share * observation.edge_present
    )
    count = len(gone)
    short_of = np.bincount(source, shortfall, count)  # drop in the traffic of each caller, over all its calls
    missed_rate = lost_rate * np.clip(short_of[source] / np.maximum(lost_rate, 1e-6), 0, 1)
    part = lost_rate / np.maximum(np.bincount(source, lost_rate, count)[source], 1e-6)  # share of the caller's traffic
    plain = missed_rate * np.clip((part - 0.05) / 0.15, 0, 1)  # a small share is lost in the noise of the other calls
    failing = np.bincount(destination, _failing_instead(mesh, lost_rate * gone[destination]), count)
    call_rate, missed_rate, plain = (np.bincount(destination, v, count) for v in (lost_rate, missed_rate, plain))
    missed_rate, plain = np.maximum(missed_rate, failing), np.maximum(plain, failing)
    share, sure = (
        np.where(call_rate > 0, np.clip(v / np.maximum(call_rate, 1e-6), 0, 1), 1.0) for v in (missed_rate, plain)
    )
    surprise = mesh.surprise.node_raw[:, RATE]
    worth = np.maximum(surprise, EVENT_SURPRISE * sure * np.minimum(surprise, 1))
    disappearance: Array = (worth * gone * np.clip(2 * share - 0.5, 0, 1)).astype(np.float32)
    return (Finding(EvidenceKind.VANISHED, disappearance),)


def _failing_instead(mesh: ScoredMesh, lost_rate: Array) -> Array:
    """Return the requests of the callers that fail beyond expectation, for each call that was lost, ``[E]``, 1/s.

    Args:
        lost_rate: float ``[E]``, calls to services that are gone, 1/s. Its caller's failing requests are divided among
            them.
    """
    node, source = mesh.observation.node, mesh.state.edge_index[0]
    now, usual = (1 / (1 + np.exp(-rates[:, ERROR])) for rates in (node.value, node.expected))
    is_known = node.observed[:, ERROR] & node.observed[:, RATE]
    failing = np.where(is_known, np.maximum(now - usual, 0) * rate_of(node.value[:, RATE]), 0)
    sure = np.clip(mesh.surprise.node_raw[:, ERROR] / SURE_ERRORS, 0, 1)
    part = lost_rate / np.maximum(np.bincount(source, lost_rate, len(failing))[source], 1e-6)
    return (sure * failing)[source] * part
