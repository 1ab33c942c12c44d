"""Trainer: fits a mesh's adapter to its last snapshots, in the background. It reads the store and writes nothing.

One replica does one fit at a time, at a low priority: scoring comes first. If too many fits wait, a new one is refused
and requested again after the next ``adapt.every_snapshots``.
"""

import asyncio
import ctypes
import logging
import os
import time

from model.state.adapter_fit import Candidate, fit
from model.state.mesh_state import MeshState
from model.state.serialization import unpack_state
from serve_app.api.codec import unpack_snapshot
from serve_app.observability.log_context import set_log_context
from serve_app.runtime.reporting import start_reporting
from serve_app.runtime.storage import open_store
from serve_app.settings import Settings

log = logging.getLogger(__name__)


class Trainer:
    """Fits adapters in one process, which needs no torch.

    Args:
        settings: its ``adapt`` and ``store``.

    Raises:
        CorruptState: the store cannot be read.
    """

    def __init__(self, settings: Settings) -> None:
        start_reporting(settings, "trainer")
        os.nice(settings.adapt.niceness)
        self._store = open_store(settings)

    async def fit(self, mesh: str) -> Candidate | None:
        """Fit an adapter to the stored state of a mesh; None if the mesh has too little data."""
        with set_log_context(mesh):
            try:
                return await asyncio.to_thread(self._fit, mesh)
            finally:
                await asyncio.to_thread(_return_memory)

    def _fit(self, mesh: str) -> Candidate | None:
        started = time.perf_counter()
        state = self._load(mesh)
        if state is None:  # deleted meanwhile
            return None
        # Snapshots after the full state are ignored. It is at most a few snapshots old.
        candidate = fit(state, (unpack_snapshot(packed) for _, packed in self._store.window(mesh)))
        log.info("mesh %s: a fit of its adapter took %.2f s", mesh, time.perf_counter() - started)
        return candidate

    def _load(self, mesh: str) -> MeshState | None:
        """The part of the state that a fit needs. A mesh of 100,000 services has a state of 340 MB."""
        stored = self._store.load_state(mesh)
        if stored is None:
            return None
        state = unpack_state(stored.state, with_tables=False)
        del stored
        _return_memory()
        return state


def _return_memory() -> None:
    """Give freed memory back to the system. The settings of the allocator keep it, for scoring."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)
