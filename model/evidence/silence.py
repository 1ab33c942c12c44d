"""Services whose telemetry is missing."""

from datetime import timedelta

import numpy as np

from model.snapshot import BoolArray, mark_services
from model.state.mesh_state import MeshState, Observation
from model.verdict import Silence

MAX_NAMED = 50  # silent services


def silence_of(state: MeshState, silent: BoolArray, total: int) -> Silence | None:
    """Return the silence of a mesh, the services that are silent for longest first; None if none is.

    Args:
        silent: bool ``[N]``.
        total: number of services that are present or silent.
    """
    rows = np.flatnonzero(silent)
    if not len(rows):
        return None
    longest = rows[np.argsort(-state.node_unmeasured[rows], kind="stable")]
    assert state.learned_at is not None  # time of the snapshot that was observed
    age = timedelta(seconds=(int(state.node_unmeasured[longest[0]]) - 1) * state.interval_seconds)
    return Silence(len(rows), total, state.learned_at - age, tuple(state.node_ids[i] for i in longest[:MAX_NAMED]))


def silent_services(state: MeshState, observation: Observation) -> BoolArray:
    """Return which services ``[N]`` are silent, without those whose deletion was planned."""
    deleted = state.memory.planned_deletions()
    silent: BoolArray = observation.presence.silent
    if deleted and silent.any():
        silent = silent & ~mark_services(state.node_ids, deleted)
    return silent


def unseen_services(state: MeshState, observation: Observation) -> frozenset[str]:
    """Return the services of open incidents whose telemetry is missing."""
    silent = observation.presence.silent
    if not state.memory.open or not silent.any():
        return frozenset()
    rows = np.flatnonzero(silent & state.memory.is_in_incident(state.node_ids))
    return frozenset(state.node_ids[row] for row in rows.tolist())
