"""Reads the past of collected meshes for the page."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, TypeVar

from model.snapshot import MeshSnapshot
from serve_app.collect.prometheus.past import PastReader, PastSnapshots
from serve_app.errors import UnknownMesh
from serve_app.settings import CollectorSettings, MeshSettings

T = TypeVar("T")


class PastQueue:
    """Requests that one thread answers with the methods of :class:`PastReader`, so that no poll waits for them. Time in
    the queue counts, and a cancelled request leaves it. A mesh that is not collected raises ``UnknownMesh``."""

    def __init__(self, meshes: Mapping[str, MeshSettings], collector: CollectorSettings) -> None:
        self._meshes, self._reader = meshes, PastReader(meshes, collector)
        self._thread = ThreadPoolExecutor(1, "past")

    async def read(self, mesh: str, begin: datetime, end: datetime, points: int, until: float) -> PastSnapshots:
        return await self._ask(self._reader.read, mesh, begin, end, points, until)

    async def read_instant(self, mesh: str, at: datetime, until: float) -> MeshSnapshot:
        return await self._ask(self._reader.read_instant, mesh, at, until)

    async def _ask(self, read: Callable[..., T], mesh: str, *period: Any) -> T:
        if mesh not in self._meshes:
            raise UnknownMesh(f"mesh {mesh!r}: its snapshots are pushed, so its past is only what is stored")
        return await asyncio.get_running_loop().run_in_executor(self._thread, read, mesh, *period)
