"""Trainer: fits a mesh's adapter to its last snapshots, in the background. It reads the store and writes nothing.

One replica, one fit at a time, at a low priority: whoever scores comes first. What comes while too many wait is
refused, and comes again after the next ``adapt.every_snapshots``.
"""

import asyncio
import logging
import os
import time

from model.adaptation import Candidate, fit
from serve_app.deployments.cache import MeshCache
from serve_app.deployments.meshes import Meshes
from serve_app.settings import Settings
from serve_app.stores.local import LocalStore

log = logging.getLogger("ray.serve")


class Trainer:
    """One process that fits.

    Args:
        settings: its ``adapt`` and ``store``.

    Raises:
        CorruptState: the store cannot be read.
    """

    def __init__(self, settings: Settings) -> None:
        os.nice(settings.adapt.niceness)
        self._meshes = Meshes(LocalStore(settings.store.path), MeshCache(0))

    async def fit(self, mesh: str) -> Candidate | None:
        """A candidate for the mesh as it is stored; None where it has not shown enough.

        Raises:
            UnknownMesh: nothing is stored.
        """
        return await asyncio.to_thread(self._fit, mesh)

    def _fit(self, mesh: str) -> Candidate | None:
        started = time.perf_counter()
        candidate = fit(self._meshes.newest(self._meshes.stored(mesh)).mesh.state)
        log.info("mesh %s: a fit of its adapter took %.2f s", mesh, time.perf_counter() - started)
        return candidate
