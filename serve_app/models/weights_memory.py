"""Weights that one process holds in memory, up to a budget. They are loaded when they are first needed.

Which weights stay: each have a value, the requests per second that they serve, weighted by the priority of the meshes,
divided by their bytes. Requests count less the older they are (``HALF_LIFE_SECONDS``).
"""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

import torch

from model.checkpoint import Checkpoint
from serve_app.api.schemas.models import ModelPin
from serve_app.metrics import MODEL_EVICTIONS, MODEL_LOADS, MODEL_LOOKUPS, MODEL_MEMORY, Instruments

HALF_LIFE_SECONDS = 600.0
GPU_SPARE_BYTES = 256 * 2**20  # of a GPU's free memory, for the tensors of a pass
log = logging.getLogger(__name__)


class GpuMemory(Protocol):
    """The memory of the device that weights are on."""

    def free_bytes(self) -> float:
        """What further weights can use; infinity on a CPU."""

    def release(self) -> None:
        """Give memory of dropped weights back to the device."""


class CpuMemory:
    """Only the budget limits it."""

    def free_bytes(self) -> float:
        return float("inf")

    def release(self) -> None:
        """The allocator gives it back itself."""


@dataclass(frozen=True, slots=True)
class CudaMemory:
    """The memory of a GPU, which other processes use too."""

    device: torch.device

    def free_bytes(self) -> float:
        free, total = torch.cuda.mem_get_info(self.device)
        allocated = torch.cuda.memory_allocated(self.device)
        unused = torch.cuda.memory_reserved(self.device) - allocated
        share = total * torch.cuda.get_per_process_memory_fraction(self.device)
        return float(min(free + unused, share - allocated) - GPU_SPARE_BYTES)

    def release(self) -> None:
        torch.cuda.empty_cache()  # else the memory stays reserved here, and other processes cannot use it


def memory_of(device: torch.device) -> GpuMemory:
    """The memory of a device."""
    return CudaMemory(device) if device.type == "cuda" else CpuMemory()


@dataclass(slots=True)
class _Held:
    """Weights in memory: their bytes, their weighted requests, and when these were last counted (s)."""

    checkpoint: Checkpoint
    size: int
    requests: float
    counted: float

    def value(self, now: float) -> float:
        """Requests per byte, as of now."""
        return self._recent(now) / max(self.size, 1)

    def use(self, now: float, weight: float) -> None:
        """Count a request."""
        self.requests, self.counted = self._recent(now) + weight, now

    def _recent(self, now: float) -> float:
        """Weighted requests, old ones counted less."""
        return self.requests * math.exp2((self.counted - now) / HALF_LIFE_SECONDS)


class WeightsMemory:
    """The weights of one process, by version. Threads may share it.

    Weights that are dropped stay in use where a snapshot is being scored with them; they are freed after it.

    Args:
        load: reads weights into the memory of the CPU.
        budget_bytes: of all weights together. The last ones stay in any case.
        device: where they are used.
        instruments: count lookups, loads and evictions.
        memory: of the device; None: chosen for it.
        clock: s, of a monotonic clock.
    """

    def __init__(
        self,
        load: Callable[[ModelPin], Checkpoint],
        budget_bytes: int,
        device: torch.device,
        instruments: Instruments,
        memory: GpuMemory | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load, self._budget, self._device, self._instruments = load, budget_bytes, device, instruments
        self._memory, self._clock = memory or memory_of(device), clock
        self._held: dict[str, _Held] = {}
        self._loading: dict[str, Lock] = {}
        self._guard = Lock()

    @property
    def versions(self) -> frozenset[str]:
        """The versions in memory."""
        return frozenset(self._held)

    def size_bytes(self) -> int:
        """Memory of their parameters."""
        with self._guard:
            return sum(held.size for held in self._held.values())

    def get(self, version: str, weight: float = 1.0) -> Checkpoint | None:
        """The weights of a version if they are in memory, for a request of a mesh with this weight by priority."""
        held = self._held.get(version)
        self._instruments.count(MODEL_LOOKUPS, outcome="miss" if held is None else "hit")
        if held is None:
            return None
        held.use(self._clock(), weight)
        return held.checkpoint

    def load(self, pin: ModelPin, weight: float = 1.0) -> Checkpoint:
        """As :meth:`get`, but load them if they are not in memory; others may have to make room. Call it in a thread.

        Raises:
            UnknownModel, RegistryGone, IncompatibleWeights: they cannot be loaded.
        """
        with self._guard:
            lock = self._loading.setdefault(pin.version, Lock())
        with lock:  # one load of a version at a time
            held = self._held.get(pin.version)
            if held is None:
                held = self._read(pin)
            held.use(self._clock(), weight)
            return held.checkpoint

    def _read(self, pin: ModelPin) -> _Held:
        try:
            checkpoint = self._load(pin)
            size = size_of(checkpoint)
            with self._guard:
                self._make_room(size)
                held = self._held[pin.version] = _Held(checkpoint.to(self._device), size, 0.0, self._clock())
                total = sum(one.size for one in self._held.values())
        except Exception:
            self._instruments.count(MODEL_LOADS, outcome="failed")
            raise
        self._instruments.count(MODEL_LOADS, outcome="loaded")
        self._instruments.set(MODEL_MEMORY, total)
        log.info("model %s: loaded, %.1f MB; %d versions in memory", pin.version, size / 1e6, len(self._held))
        return held

    def _make_room(self, size: int) -> None:
        """Drop the weights of the least value until there is room for ``size`` bytes more."""
        while self._held:
            total = sum(one.size for one in self._held.values())
            if total + size <= self._budget and size <= self._memory.free_bytes():
                return
            now = self._clock()
            worst = min(self._held, key=lambda version: self._held[version].value(now))
            del self._held[worst]
            self._memory.release()
            self._instruments.count(MODEL_EVICTIONS)
            log.info("model %s: dropped from memory to make room", worst)


def size_of(checkpoint: Checkpoint) -> int:
    """Memory of the parameters of weights, in bytes."""
    modules = (checkpoint.network, checkpoint.meta)
    return sum(p.numel() * p.element_size() for module in modules for p in module.parameters())
