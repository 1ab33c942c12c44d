"""A mesh's adapter: how the latency of some of its services rises with their load.

The shared weights know what load does to latency in meshes at large. A service that was changed for good may feel its
load more, and is then strange at every peak, although it is as it always is at such a load. Its adapter is one curve
for each latency, ``rise(load) = slope u + bend max(u, 0)²`` with u the load over the usual in logarithms: what queues
do, convex and never falling. What it explains is taken off before latency meets its own past (``observe``), of the
service and of the calls into it; so baselines, spreads and trajectories are of latency at usual load.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from model.features import EDGE_CHANNELS, NODE_CHANNELS, OWN_TIME, P50, P99, Array
from model.snapshot import IntArray

LATENCIES = (P50, P99, OWN_TIME)  # channels of a service that have a curve
CALL_LATENCIES = (P50, P99)  # channels of a call, which follow the curves of its destination
USUAL, LEAST, MOST = range(3)  # columns of ``Adapter.load``
SLOPE, BEND = range(2)  # of a curve


@dataclass(frozen=True, slots=True)
class Adapter:
    """Curves of A services, fitted to one mesh; 36 bytes a service and its name.

    Attributes:
        services: node ids.
        load: float32 ``[A, 3]``, usual, least and most that was seen, as the channel has it (logarithms). Beyond what
            was seen a curve is flat: normal traffic says nothing about it.
        curve: float32 ``[A, 3, 2]``, slope and bend for each of ``LATENCIES``.
        fitted_at: the mesh's clock.
        snapshots: it was fitted on, those held out included.
        loss_before, loss_after: mean squared deviation from what was expected of the services concerned, sigmas, on the
            newest snapshots, which the fit did not see: with the adapter before it, and with this one.
    """

    services: tuple[str, ...]
    load: Array
    curve: Array
    fitted_at: datetime
    snapshots: int
    loss_before: float
    loss_after: float

    def rise(self, load: Array) -> Array:
        """``[A, 3]``: by how much latencies are above those at usual load, logarithms.

        Args:
            load: ``[A]`` as the channel has it.
        """
        u = np.clip(load, self.load[:, LEAST], self.load[:, MOST]) - self.load[:, USUAL]
        above = np.maximum(u, 0)
        rise: Array = self.curve[..., SLOPE] * u[:, None] + self.curve[..., BEND] * (above * above)[:, None]
        return rise


@dataclass(frozen=True, slots=True)
class Adaptation:
    """What a mesh has adapted to.

    Attributes:
        adapter: in use; None: the shared weights alone.
        former: the one before it.
        taught_after: snapshots up to this time teach nothing any more, since somebody took back what they taught.
    """

    adapter: Adapter | None = None
    former: Adapter | None = None
    taught_after: datetime | None = None


def due_to_load(adapter: Adapter, node_ids: Sequence[str], edge_index: IntArray, load: Array) -> tuple[Array, Array]:
    """What load adds to the channels of services ``[N, 9]`` and calls ``[E, 5]``, in their transformed units.

    Args:
        adapter: of the mesh.
        node_ids, edge_index: its services and calls.
        load: ``[N]`` request rate of each service, as the channel has it.
    """
    row = {name: i for i, name in enumerate(adapter.services)}
    place = np.fromiter((row.get(name, -1) for name in node_ids), np.int64, len(node_ids))
    here = np.flatnonzero(place >= 0)
    everyones = np.full(len(row), 0, np.float32)
    everyones[place[here]] = load[here]
    node = np.zeros((len(node_ids), len(NODE_CHANNELS)), np.float32)
    node[here[:, None], LATENCIES] = adapter.rise(everyones)[place[here]]
    edge = np.zeros((edge_index.shape[1], len(EDGE_CHANNELS)), np.float32)
    edge[:, CALL_LATENCIES] = node[edge_index[1]][:, CALL_LATENCIES]
    return node, edge
