"""Numbers the services and calls of several snapshots, so that they become rows of one table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from model.snapshot import IntArray, MeshSnapshot

_SHIFT = 32  # bits of a service's number in a call's code


@dataclass(frozen=True, slots=True, eq=False)
class NumberedRows:
    """The services and calls of T snapshots.

    Attributes:
        services: names of all N services.
        calls: numbers of each call's source and destination ``[2, E]``.
        nodes, edges: for each snapshot, the numbers of its services and calls.
    """

    services: tuple[str, ...]
    calls: IntArray
    nodes: list[IntArray]
    edges: list[IntArray]

    @classmethod
    def of(cls, snapshots: Sequence[MeshSnapshot]) -> Self:
        """Number the services in the order in which they appear."""
        number: dict[str, int] = {}
        topologies: list[tuple[IntArray, IntArray]] = []  # numbers of services, codes of calls
        of_snapshot: list[int] = []
        last: MeshSnapshot | None = None
        for snapshot in snapshots:
            # Most snapshots share their names and topology.
            if last is None or snapshot.node_ids is not last.node_ids or snapshot.edge_index is not last.edge_index:
                names = (number.setdefault(name, len(number)) for name in snapshot.node_ids)
                nodes = np.fromiter(names, np.int64, snapshot.num_nodes)
                source, destination = nodes[snapshot.edge_index]
                topologies.append((nodes, destination << _SHIFT | source))
            of_snapshot.append(len(topologies) - 1)
            last = snapshot
        codes = np.unique(np.concatenate([np.zeros(0, np.int64), *(code for _, code in topologies)]))
        rows = [(nodes, np.searchsorted(codes, code)) for nodes, code in topologies]
        calls = np.stack([codes & (1 << _SHIFT) - 1, codes >> _SHIFT])
        return cls(tuple(number), calls, *([rows[i][kind] for i in of_snapshot] for kind in (0, 1)))
