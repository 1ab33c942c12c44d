"""The counters of meshes whose collectors push metrics, in the session that owns the mesh."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from weakref import WeakValueDictionary

from model.snapshot import MeshSnapshot
from serve_app.collect.otlp.decode import Point
from serve_app.collect.otlp.service_graph import ServiceGraph, add_points
from serve_app.errors import DocumentTooLarge, SameTimeOtherContent, StaleSnapshot
from serve_app.settings import LimitSettings

SERIES_OF_A_CALL = 4  # requests, failures, latencies of both sides


class ServiceGraphs:
    """Counts the metrics of meshes. Use it from one event loop.

    Counters are in memory only. After a restart, each series counts from its next point on, and one interval has no
    snapshot.

    Args:
        limits: a mesh's maximum size. All meshes together have as many counters as one mesh of this size. The mesh
            that was idle longest loses its counters first.
    """

    def __init__(self, interval_seconds: float, limits: LimitSettings) -> None:
        self._interval, self._limits = interval_seconds, limits
        self._max_counters = SERIES_OF_A_CALL * limits.max_calls
        self._graphs: OrderedDict[str, ServiceGraph] = OrderedDict()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def add(self, mesh: str, points: Sequence[Point], push: Callable[[MeshSnapshot], Awaitable[object]]) -> None:
        """Add points to the counters of a mesh. If they end an interval, push its snapshot first.

        If the push fails, nothing has changed, and the same points can be sent again. If the mesh already has a later
        snapshot, the interval is lost, and the points count for the next one.

        Raises:
            DocumentTooLarge: the mesh has too many series, services or calls.
            StaleSnapshot, SameTimeOtherContent: the mesh has a snapshot of this time or a later one.
            ServeError: the snapshot could not be pushed.
        """
        lock = self._locks.setdefault(mesh, asyncio.Lock())
        async with lock:
            before = self._graphs.get(mesh, ServiceGraph())
            after, snapshot = await asyncio.to_thread(add_points, before, points, self._interval)
            self._require_size(mesh, after, snapshot)
            try:
                if snapshot is not None:
                    await push(snapshot)
            except (StaleSnapshot, SameTimeOtherContent):
                self._keep(mesh, after)
                raise
            self._keep(mesh, after)

    def forget(self, mesh: str) -> None:
        self._graphs.pop(mesh, None)

    def _require_size(self, mesh: str, graph: ServiceGraph, snapshot: MeshSnapshot | None) -> None:
        sizes = [("series", len(graph.counters), self._max_counters)]
        if snapshot is not None:
            sizes += [
                ("services", len(snapshot.node_ids), self._limits.max_services),
                ("calls", snapshot.edge_index.shape[1], self._limits.max_calls),
            ]
        for name, count, limit in sizes:
            if count > limit:
                raise DocumentTooLarge(
                    f"mesh {mesh!r}: expected at most {limit} {name}, got {count}; remove dimensions of the service "
                    f"graph connector, split the mesh, or raise limits.max_services"
                )

    def _keep(self, mesh: str, graph: ServiceGraph) -> None:
        self._graphs[mesh] = graph
        self._graphs.move_to_end(mesh)
        while sum(len(graph.counters) for graph in self._graphs.values()) > self._max_counters:
            self._graphs.popitem(last=False)
