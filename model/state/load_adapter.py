"""A mesh's adapter: how the latency of some of its services rises with their load.

The shared weights know the effect of load on latency in general. A service that was changed permanently may react more
strongly and then looks unusual at every peak, although that is normal for it. Its adapter has one curve for each
latency, ``rise(load) = slope u + bend max(u, 0)²``, with u the logarithm of load relative to usual. The curve is convex
and never falls, like a queue. :func:`~model.state.mesh_state.observe` subtracts the rise before a latency meets its own
past, for the service and for the calls into it. So the filters describe latency at usual load.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import repeat

import numpy as np

from model.features import EDGE_CHANNELS, NODE_CHANNELS, OWN_TIME, P50, P99, Array
from model.snapshot import IntArray

LATENCIES = (P50, P99, OWN_TIME)  # channels of a service with a curve
CALL_LATENCIES = (P50, P99)  # channels of a call, which follow the curves of its destination
USUAL, LEAST, MOST = range(3)  # columns of ``Adapter.load``
SLOPE, BEND = range(2)  # of a curve


@dataclass(frozen=True, slots=True)
class Adapter:
    """Curves of A services, fitted to one mesh; 36 bytes per service, plus its name.

    Attributes:
        services: node ids.
        load: float32 ``[A, 3]``, usual, lowest and highest load seen, as the channel has it (logarithms). Outside this
            range a curve is flat.
        curve: float32 ``[A, 3, 2]``, slope and bend for each of ``LATENCIES``.
        fitted_at: the mesh's clock.
        snapshots: number of snapshots used, held-out ones included.
        loss_before, loss_after: mean squared deviation of these services from expectation, sigmas, on the held-out
            snapshots, with the previous adapter and with this one.
    """

    services: tuple[str, ...]
    load: Array
    curve: Array
    fitted_at: datetime
    snapshots: int
    loss_before: float
    loss_after: float

    def rise(self, load: Array) -> Array:
        """Return by how much latencies exceed those at usual load, ``[A, 3]``, logarithms.

        Args:
            load: ``[A]`` as the channel has it.
        """
        u = np.clip(load, self.load[:, LEAST], self.load[:, MOST]) - self.load[:, USUAL]
        above = np.maximum(u, 0)
        rise: Array = self.curve[..., SLOPE] * u[:, None] + self.curve[..., BEND] * (above * above)[:, None]
        return rise


@dataclass(frozen=True, slots=True)
class Adaptation:
    """How a mesh has adapted.

    Attributes:
        adapter: in use; None: only the shared weights.
        former: the previous adapter.
        rolled_back_at: snapshots up to this time are not learned from, because an operator rolled the adapter back.
    """

    adapter: Adapter | None = None
    former: Adapter | None = None
    rolled_back_at: datetime | None = None


def load_effect(adapter: Adapter, node_ids: Sequence[str], edge_index: IntArray, load: Array) -> tuple[Array, Array]:
    """Return what load adds to the channels of services ``[N, 9]`` and calls ``[E, 5]``, in transformed units.

    Args:
        adapter: of the mesh.
        node_ids, edge_index: services and calls of the mesh.
        load: ``[N]`` request rate of each service, as the channel has it.
    """
    place, rows = rows_of(adapter, node_ids)
    everyones = adapter.load[:, USUAL].copy()
    everyones[place] = load[rows]
    node = np.zeros((len(node_ids), len(NODE_CHANNELS)), np.float32)
    node[rows[:, None], LATENCIES] = adapter.rise(everyones)[place]
    edge = np.zeros((edge_index.shape[1], len(EDGE_CHANNELS)), np.float32)
    edge[:, CALL_LATENCIES] = node[:, CALL_LATENCIES][edge_index[1]]
    return node, edge


def rows_of(adapter: Adapter, node_ids: Sequence[str]) -> tuple[IntArray, IntArray]:
    """Return the services of an adapter that a mesh still has: their positions in the adapter, and their rows among
    ``node_ids``."""
    number = dict(zip(node_ids, range(len(node_ids)), strict=True))
    rows = np.fromiter(map(number.get, adapter.services, repeat(-1)), np.int64, len(adapter.services))
    place = np.flatnonzero(rows >= 0)
    return place, rows[place]
