"""A snapshot with its scores: the material from which evidence is computed."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from model.features import CONNECTIONS, CPU, MEMORY, NODE_CHANNELS, P50, P99, RATE, Array
from model.ordering import largest_of_rows
from model.scoring.calls import rerouting_age, young_calls
from model.scoring.common_cause import CommonCauses, find_common_causes, find_retried
from model.scoring.materiality import Floors, floors
from model.scoring.strongest import largest_of_group
from model.scoring.surprises import MeshScores, Surprises
from model.snapshot import BoolArray
from model.state.filters import SEEN
from model.state.mesh_state import MeshState, Observation, topology_of

_FRONT_DOOR = [RATE, P50, P99]  # channels of services and calls


@dataclass(frozen=True)
class ScoredMesh:
    """A mesh of N services and E calls at one snapshot.

    Attributes:
        state: including the snapshot.
        observation: the snapshot against the mesh's past.
        scores: of all parts.
        surprise: of every series, rare failures included.
        latency_floor: least rise of a latency that users notice, s.
    """

    state: MeshState
    observation: Observation
    scores: MeshScores
    surprise: Surprises
    latency_floor: float = 0.0

    @cached_property
    def remote(self) -> BoolArray:
        """Which services ``[N]`` are known only from their callers.

        Such a service makes no calls and never reported cpu, memory or connections: a database, queue or cloud service,
        a load balancer, or an unresolved name. A fault of the caller also shows in its metrics.
        """
        state = self.state
        makes_no_calls = topology_of(state).outgoing_counts == 0
        resources = largest_of_rows(state.node_filters[SEEN][:, [CPU, MEMORY, CONNECTIONS]]) > 0
        remote: BoolArray = makes_no_calls & ~resources
        return remote

    @cached_property
    def floors(self) -> Floors:
        """Least rise of a latency that counts in full.

        The front door are the services that no other one calls. A gateway often has no metrics, but its calls do.
        """
        node, edge, source = self.observation.node, self.observation.edge, self.state.edge_index[0]
        is_entry: BoolArray = topology_of(self.state).incoming_counts == 0
        own, of_calls = (table.observed[:, _FRONT_DOOR].all(axis=1) for table in (node, edge))
        calls = of_calls & (is_entry & ~own)[source]
        usual = np.concatenate([node.expected[is_entry & own][:, _FRONT_DOOR], edge.expected[calls][:, _FRONT_DOOR]])
        if not len(usual):
            return floors(self.latency_floor, 0.0, 0.0)
        requests, p50, p99 = (NODE_CHANNELS[c].invert(usual[:, i]) for i, c in enumerate((RATE, P50, P99)))
        weights = np.maximum(requests, 1e-6)
        return floors(
            self.latency_floor, float(np.average(p50, weights=weights)), float(np.average(p99, weights=weights))
        )

    @cached_property
    def causes(self) -> CommonCauses:
        """What the calls share that are slow or fail on the way."""
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
        is_known = node.observed[source, RATE] & edge.observed[:, RATE]
        often = np.exp(edge.expected[:, RATE] - node.expected[source, RATE])
        of_calls = np.where(is_known, np.maximum(often, 1), 1).astype(np.float32)
        of_services = np.maximum(largest_of_group(of_calls, destination, len(self.state.node_ids)), 1)
        return of_services, of_calls

    @cached_property
    def new_calls(self) -> BoolArray:
        """Which calls ``[E]`` are new enough for traffic that moves; see :func:`~model.scoring.calls.rerouting_age`."""
        return young_calls(self.state, self.observation, rerouting_age(self.state))
