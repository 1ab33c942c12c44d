"""Loads weights from the registry into one process's memory. Snapshots never wait long for them.

A registry may hang, for example on a slow or dead object store. So each process loads in a separate thread, and each
version once at a time. A snapshot that needs the weights waits only for a moment, and the load continues. If it fails
or takes longer, no snapshot waits for this version for a while.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for_all
from contextlib import suppress
from copy import copy
from threading import Lock

import torch

from model.checkpoint import Checkpoint
from model.errors import IncompatibleWeights
from serve_app.api.schemas.models import ModelPin
from serve_app.errors import RegistryGone, UnknownModel
from serve_app.metrics import MODEL_LOADS, MODEL_MEMORY, Instruments
from serve_app.models.registry import open_registry
from serve_app.settings import Settings

MAX_VERSIONS = 32  # in memory; the shipped weights need less than 1 MiB
MAX_WAIT_SECONDS = 1.0  # of a snapshot for its weights
RETRY_SECONDS = 30.0  # after weights could not be loaded in time
NOT_LOADED = (UnknownModel, RegistryGone, IncompatibleWeights)
NotLoaded = UnknownModel | RegistryGone | IncompatibleWeights
log = logging.getLogger(__name__)


class Loader:
    """One process's weights by version. Threads and an event loop may share it. Beyond ``MAX_VERSIONS``, it drops the
    least recently used ones.

    Args:
        read: reads weights into the CPU's memory.
    """

    def __init__(
        self,
        read: Callable[[ModelPin], Checkpoint],
        device: torch.device,
        instruments: Instruments,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._device, self._instruments, self._clock = read, device, instruments, clock
        # Loaded or loading; failed loads are removed. The most recently used version is the last.
        self._loads: OrderedDict[str, Future[Checkpoint]] = OrderedDict()
        self._thread = ThreadPoolExecutor(1, "models")
        self._failures: dict[str, tuple[float, NotLoaded]] = {}  # time and reason
        self._guard = Lock()

    @property
    def versions(self) -> frozenset[str]:
        return frozenset(self._checkpoints())

    @property
    def failed(self) -> frozenset[str]:
        """The versions that are not in memory because their load failed, or takes too long."""
        return frozenset(self._failures) - self.versions

    @property
    def broken(self) -> frozenset[str]:
        """The versions whose last load failed although the registry answered."""
        failures = list(self._failures.items())  # the loading thread may change them
        return frozenset(version for version, (_, error) in failures if not isinstance(error, RegistryGone))

    def size_bytes(self) -> int:
        return sum(map(size_of, self._checkpoints().values()))

    def measure(self) -> None:
        """Set the gauge for this memory. Call it every few seconds, because Ray drops a gauge that is not set again."""
        self._instruments.set(MODEL_MEMORY, self.size_bytes())

    def get(self, version: str) -> Checkpoint | None:
        """Return a version's weights if they are in memory; never wait for the registry."""
        checkpoint = self._checkpoints().get(version)
        if checkpoint is not None:
            with self._guard, suppress(KeyError):
                self._loads.move_to_end(version)
        return checkpoint

    async def load(self, pin: ModelPin, seconds: float | None = None, *, at_once: bool = False) -> Checkpoint:
        """Return a version's weights.

        Args:
            seconds: maximum wait; None: ``MAX_WAIT_SECONDS``.
            at_once: whether to try again even if a load has just failed, because a person asks.

        Raises:
            UnknownModel, RegistryGone, IncompatibleWeights: they cannot be loaded, or not in time.
        """
        if (checkpoint := self.get(pin.version)) is not None:
            return checkpoint
        seconds = MAX_WAIT_SECONDS if seconds is None else seconds
        load = asyncio.wrap_future(self._begin(pin, at_once=at_once))
        try:
            return await asyncio.wait_for(asyncio.shield(load), seconds)
        except TimeoutError:
            raise self._late(pin, seconds) from None

    def prepare(self, pins: Iterable[ModelPin], seconds: float | None = None) -> None:
        """Load versions that are not in memory, and wait at most ``seconds`` in total. The log names those that could
        not be loaded. Call it in a thread."""
        seconds = MAX_WAIT_SECONDS if seconds is None else seconds
        loads = {}
        for pin in pins:
            if self.get(pin.version) is None:
                with suppress(*NOT_LOADED):  # it has just failed, and was logged
                    loads[pin] = self._begin(pin)
        late = wait_for_all(loads.values(), timeout=seconds).not_done
        for pin, load in loads.items():
            if load in late:
                self._late(pin, seconds)

    def _checkpoints(self) -> dict[str, Checkpoint]:
        with self._guard:
            loads = [(version, load) for version, load in self._loads.items() if load.done() and not load.exception()]
        return {version: load.result() for version, load in loads}

    def _begin(self, pin: ModelPin, *, at_once: bool = False) -> Future[Checkpoint]:
        with self._guard:
            failure = self._failures.get(pin.version)
            if failure is not None and not at_once and self._clock() - failure[0] < RETRY_SECONDS:
                raise copy(failure[1])  # each raise would extend the error's traceback
            load = self._loads.get(pin.version)
            if load is None:
                load = self._loads[pin.version] = self._thread.submit(self._load, pin)
                while len(self._loads) > MAX_VERSIONS:
                    self._loads.popitem(last=False)
            return load

    def _load(self, pin: ModelPin) -> Checkpoint:
        try:
            checkpoint = self._read(pin).to(self._device)
        except Exception as error:  # another package's network may raise anything
            reason = error
            if not isinstance(reason, NOT_LOADED):
                reason = IncompatibleWeights(
                    f"model {pin.version}: expected weights that can be loaded, got {type(error).__name__}: {error}; "
                    "correct the network's class, or add the model again"
                )
            with self._guard:
                self._loads.pop(pin.version, None)
            self._instruments.count(MODEL_LOADS, outcome="failed")
            self._fail(pin.version, copy(reason))
            raise reason from None
        with self._guard:
            self._failures.pop(pin.version, None)
        checkpoints = [*self._checkpoints().values(), checkpoint]
        self._instruments.count(MODEL_LOADS, outcome="loaded")
        log.info(
            "model %s: loaded; %d versions in memory, %.1f MB",
            pin.version,
            len(checkpoints),
            sum(map(size_of, checkpoints)) / 1e6,
        )
        return checkpoint

    def _late(self, pin: ModelPin, seconds: float) -> RegistryGone:
        """Record a load that takes too long as a failure, and return its error."""
        late = RegistryGone(
            f"model {pin.version}: the registry has not sent its weights within {seconds:g} s; the load "
            "continues: wait for it, or check that this node reaches models.registry"
        )
        self._fail(pin.version, late)
        return copy(late)

    def _fail(self, version: str, error: NotLoaded) -> None:
        """Record a failure. It is logged once for all waiting snapshots."""
        with self._guard:
            before = self._failures.get(version)
            self._failures[version] = self._clock(), error
        if before is None or str(before[1]) != str(error) or self._clock() - before[0] >= RETRY_SECONDS:
            log.error("model %s: not loaded, and other weights are in use: %s", version, error)


def open_loader(settings: Settings, device: torch.device, instruments: Instruments) -> Loader:
    """Open the loader. Without a registry, no weights can be loaded.

    Raises:
        BadSettings: the registry cannot be opened.
    """
    registry = open_registry(settings.models.registry, settings.model.network)

    def read(pin: ModelPin) -> Checkpoint:
        if registry is None:
            raise UnknownModel(f"model {pin.version}: there is no registry; set models.registry on this node too")
        return registry.load(pin.version, pin.sha256)

    return Loader(read, device, instruments)


def size_of(checkpoint: Checkpoint) -> int:
    """Return the size of a checkpoint's parameters in memory, bytes."""
    modules = (checkpoint.network, checkpoint.meta)
    return sum(p.numel() * p.element_size() for module in modules for p in module.parameters())
