"""A snapshot with its scores: the material from which evidence is computed, and which of its calls are new."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from model.evidence.common_cause import CommonCauses, find_common_causes, find_retried
from model.evidence.materiality import Floors, floors
from model.evidence.saturation import suffering
from model.features import ERROR, NODE_CHANNELS, P50, P99, RATE, Array
from model.front_door import find_entry_points
from model.scoring.surprises import MeshScores, Surprises
from model.snapshot import BoolArray
from model.state.filters import SEEN
from model.state.mesh_state import MeshState, Observation

REROUTE_YOUNG = 20.0  # snapshots for which a call is new to a rerouting, which may take minutes to be complete
KNOWN_BEFORE = 10.0  # snapshots for which both ends of a new call were known before it


def young_calls(state: MeshState, observation: Observation, snapshots: Array | float) -> BoolArray:
    """Return which calls ``[E]`` were seen less often than ``snapshots`` (a number, or ``[E]``), between services that
    were known for ``KNOWN_BEFORE`` snapshots before."""
    age, known_for = state.edge_filters[SEEN, :, RATE], state.node_filters[SEEN, :, RATE].copy()
    rows = np.flatnonzero(observation.edge_present & (age < snapshots))
    source, destination = state.edge_index[:, rows]
    min_age = age[rows] + KNOWN_BEFORE
    young = np.zeros(len(age), bool)
    young[rows] = (known_for[source] >= min_age) & (known_for[destination] >= min_age)
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
    return np.float32(REROUTE_YOUNG) + ages[state.edge_index[0]] * harms


def is_reported(observation: Observation) -> BoolArray:
    """Return which calls ``[E]`` are known to be made or not to be made; the others are silent."""
    return observation.edge_present | observation.presence.stopped


_FRONT_DOOR = [RATE, P50, P99]  # channels
FAILS_SIGMAS = 0.5  # of the failures, on average over 16 snapshots: chance seldom reaches that


@dataclass(frozen=True)
class ScoredMesh:
    """A mesh of N services and E calls at one snapshot.

    Attributes:
        surprise: of every series, rare failures included.
        latency_floor: least rise of a latency that users notice, s.
    """

    state: MeshState
    observation: Observation
    scores: MeshScores
    surprise: Surprises
    latency_floor: float = 0.0

    @cached_property
    def receives_users(self) -> BoolArray:
        """Which services ``[N]`` are the front door by the calls of services with metrics of their own: the entry
        points, and what these call if they never report any."""
        state = self.state
        reports = state.node_filters[SEEN, :, RATE] > 0
        return find_entry_points(state.node_ids, state.edge_index[:, reports[state.edge_index[0]]], state.entry_points)

    @cached_property
    def floors(self) -> Floors:
        """Least rise of a latency that counts in full."""
        node = self.observation.node
        door = self.receives_users & node.observed[:, _FRONT_DOOR].all(axis=1)
        if not door.any():
            return floors(self.latency_floor, 0.0, 0.0)
        requests, p50, p99 = (NODE_CHANNELS[c].invert(node.expected[door, c]) for c in _FRONT_DOOR)
        usual = (float(np.average(latency, weights=np.maximum(requests, 1e-6))) for latency in (p50, p99))
        return floors(self.latency_floor, *usual)

    @cached_property
    def causes(self) -> CommonCauses:
        return find_common_causes(self.state, self.observation, self.floors.p50)

    @cached_property
    def retried(self) -> BoolArray:
        """Which calls ``[E]`` are more than usual because their callee fails, and callers retry."""
        return find_retried(self.state, self.observation)

    @cached_property
    def repeats(self) -> tuple[Array, Array]:
        """How often a caller waits for each service ``[N]`` and call ``[E]`` for each of its own requests, at least
        1: what a service does once for each request, its users wait for once."""
        source, destination = self.state.edge_index
        node, edge = self.observation.node, self.observation.edge
        more = edge.expected[:, RATE] - node.expected[source, RATE]
        rows = np.flatnonzero(more > 0)
        rows = rows[node.observed[source[rows], RATE] & edge.observed[rows, RATE]]
        of_services, of_calls = np.ones(len(node.value), np.float32), np.ones(len(source), np.float32)
        of_calls[rows] = np.exp(more[rows])
        np.maximum.at(of_services, destination[rows], of_calls[rows])
        return of_services, of_calls

    @cached_property
    def new_calls(self) -> BoolArray:
        """Which calls ``[E]`` are new enough for traffic that moves, see :func:`.rerouting_age`."""
        return young_calls(self.state, self.observation, rerouting_age(self.state, self._is_harmed))

    def _is_harmed(self) -> BoolArray:
        """Return which services ``[N]`` answer slowly, or have failed more often than usual for minutes."""
        node = self.observation.node
        suffers = suffering(node, np.arange(len(self.state.node_ids)), self.floors)[0] > 0
        fails: BoolArray = node.observed[:, ERROR] & (node.past_long[:, ERROR] >= FAILS_SIGMAS)
        return suffers | fails
