"""The spread of an incident: from its origins to callers, and their callers; then to callees."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from model.snapshot import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Hop:
    """One call along which an incident spread.

    Attributes:
        near: the affected service from which it spread.
        far: the affected service that it reached.
        distance: number of calls from the nearest origin to ``far``, from 1.
        is_down: whether ``near`` calls ``far``; else ``far`` calls ``near``.
    """

    near: str
    far: str
    distance: int
    is_down: bool = False

    @property
    def call(self) -> tuple[str, str]:
        return (self.near, self.far) if self.is_down else (self.far, self.near)


def spread(
    origins: Collection[str], affected: Collection[str], names: Sequence[str], edge_index: IntArray, rates: FloatArray
) -> tuple[Hop, ...]:
    """Return the calls from the origins to the affected services: to callers, nearest first, then to callees.

    Breadth first through affected services only: against the direction of calls, then along it to the remaining ones.
    Each service is reached by the shortest path; of several, by the busiest call. Empty without an origin, or if no
    affected service is connected with one. It does not spread from one origin to another.

    Args:
        names: of the graph's services, ``[N]``.
        edge_index: its calls, ``[2, E]``.
        rates: their requests/s, ``[E]``.
    """
    inside = np.fromiter((name in origins or name in affected for name in names), bool, len(names))
    rows = np.flatnonzero(inside[edge_index].all(axis=0))
    rows = rows[np.argsort(-np.nan_to_num(rates[rows]), kind="stable")]  # the busiest first
    callers: dict[str, list[str]] = {}
    callees: dict[str, list[str]] = {}
    for source, destination in edge_index[:, rows].T.tolist():
        caller, callee = names[source], names[destination]
        callers.setdefault(callee, []).append(caller)
        callees.setdefault(caller, []).append(callee)
    origin_distances = dict.fromkeys(origins, 0)
    up = _walk(origin_distances, callers, is_down=False)
    distances = origin_distances | {hop.far: hop.distance for hop in up}
    return (*up, *_walk(distances, callees, is_down=True))


def _walk(origins: Mapping[str, int], calls: Mapping[str, Sequence[str]], *, is_down: bool) -> list[Hop]:
    """Return the hops from services with known distances to all that can be reached from them."""
    distance, at = dict(origins), 0
    hops: list[Hop] = []
    while front := [name for name, away in distance.items() if away == at]:
        for near in front:
            for far in calls.get(near, ()):
                if far not in distance:
                    distance[far] = at + 1
                    hops.append(Hop(near, far, at + 1, is_down))
        at += 1
    return hops
