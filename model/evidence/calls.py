"""Calls that are new, calls that are known to be made, and their traffic."""

from collections.abc import Callable

import numpy as np

from model.features import EDGE_CHANNELS, RATE, Array
from model.snapshot import BoolArray
from model.state.filters import SEEN
from model.state.mesh_state import MeshState, Observation

REROUTE_YOUNG = 20.0  # snapshots for which a call is new to a rerouting, which may take minutes to be complete
YOUNG = 10.0  # snapshots; the learned structure judges calls that were seen less often


def young_calls(state: MeshState, observation: Observation, snapshots: Array | float = YOUNG) -> BoolArray:
    """Return which calls ``[E]`` were seen less often than ``snapshots`` (a number, or ``[E]``), between services that
    were known for ``YOUNG`` snapshots before. The learned structure judges those below ``YOUNG``."""
    age, known_for = state.edge_filters[SEEN, :, RATE], state.node_filters[SEEN, :, RATE].copy()
    rows = np.flatnonzero(observation.edge_present & (age < snapshots))
    source, destination = state.edge_index[:, rows]
    least = age[rows] + YOUNG
    young = np.zeros(len(age), bool)
    young[rows] = (known_for[source] >= least) & (known_for[destination] >= least)
    return young


def rerouting_age(state: MeshState, is_harmed: Callable[[], BoolArray]) -> Array | float:
    """Return for how many snapshots a call is new to a rerouting.

    Calls that were new when an alert at their caller began are new for as long as the alert and harm at one of their
    ends last: a wrong route does not become right by lasting. One that harms no one may be a migration.

    Args:
        is_harmed: returns the services whose requests suffer, ``[N]``; called only if it matters.
    """
    if not state.memory.open or state.learned_at is None:
        return REROUTE_YOUNG
    ages = state.memory.alert_ages(state.node_ids, state.learned_at, state.interval_seconds)
    if not ages.any():
        return REROUTE_YOUNG
    harms = is_harmed()[state.edge_index].any(axis=0)
    limit: Array = np.float32(REROUTE_YOUNG) + ages[state.edge_index[0]] * harms
    return limit


def is_reported(observation: Observation) -> BoolArray:
    """Return which calls ``[E]`` are known to be made or not to be made; the others are silent."""
    return observation.edge_present | observation.presence.stopped


def rate_of(transformed: Array) -> Array:
    """Return traffic in 1/s from its channel."""
    rate: Array = np.exp(transformed) - np.float32(EDGE_CHANNELS[RATE].offset)
    return rate
