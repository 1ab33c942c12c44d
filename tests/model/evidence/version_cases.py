"""Meshes in which another version of a service takes a share of its calls."""

from collections.abc import Sequence

import numpy as np

from model.snapshot import MeshSnapshot
from tests.model.evidence_cases import CART, SEARCH, STORE
from tests.model.model_cases import CALLS, EDGE, NODE, SERVICES, snapshot

CANARY, OTHER, FAR = "shop/store-canary", "shop/depot", "bank/depot"
FIRST = 30  # index of the first snapshot with a change
RATE = EDGE[0]


def shares_of(
    index: int,
    share: float,
    *,
    name: str = CANARY,
    callers: Sequence[int] = (CART, SEARCH),
    lost: float = 0.0,
    present: bool = True,
) -> MeshSnapshot:
    """Return a snapshot in which another service takes a share of these callers' calls to the store.

    Args:
        index: of the snapshot.
        share: 0 to 1.
        name: of the other service.
        callers: whose calls move.
        lost: share of the calls that the callers no longer make.
        present: whether the other service is in the mesh.
    """
    calls = np.array([EDGE] * len(CALLS))
    for caller in callers:
        calls[CALLS.index((caller, STORE)), 0] *= (1 - share) * (1 - lost)
    if not present:
        return snapshot(index, edges=calls)
    services = (*SERVICES, name)
    nodes = np.tile(NODE, (len(services), 1))
    nodes[STORE, 0] *= 1 - share
    nodes[-1, 0] = share * RATE * len(callers)
    extra = np.array([EDGE] * len(callers))
    extra[:, 0] *= share * (1 - lost)
    return snapshot(
        index, services, (*CALLS, *((c, len(SERVICES)) for c in callers)), nodes=nodes, edges=[*calls, *extra]
    )
