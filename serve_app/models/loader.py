"""Weights of the registry in the memory of one process, loaded for snapshots, which never wait long for them.

A registry may hang, as a slow or dead object store does. So each process loads in a thread of its own, and each version
once at a time. A snapshot that needs the weights waits only for a moment, and the load continues. After a load that
failed or took longer, no one waits for this version for a while.
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

MAX_VERSIONS = 32  # in memory; the shipped weights take less than 1 MiB
LONGEST_LOAD_SECONDS = 1.0  # for which a snapshot waits for its weights
RETRY_SECONDS = 30.0  # after weights could not be loaded, or not in time
NOT_LOADED = (UnknownModel, RegistryGone, IncompatibleWeights)
NotLoaded = UnknownModel | RegistryGone | IncompatibleWeights
log = logging.getLogger(__name__)


class Loader:
    """The weights of one process, by version. Threads and an event loop may share it. Of more than ``MAX_VERSIONS``,
    it drops those that were not used for the longest time.

    Args:
        read: reads weights into the memory of the CPU.
    """

    def __init__(
        self,
        read: Callable[[ModelPin], Checkpoint],
        device: torch.device,
        instruments: Instruments,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._device, self._instruments, self._clock = read, device, instruments, clock
        # In memory or under way; one that failed is removed. The last one used is the last.
        self._loads: OrderedDict[str, Future[Checkpoint]] = OrderedDict()
        self._thread = ThreadPoolExecutor(1, "models")
        self._failures: dict[str, tuple[float, NotLoaded]] = {}  # when, and why
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
        failures = list(self._failures.items())  # the thread of the loads may change them
        return frozenset(version for version, (_, error) in failures if not isinstance(error, RegistryGone))

    def size_bytes(self) -> int:
        return sum(map(size_of, self._checkpoints().values()))

    def measure(self) -> None:
        """Set the gauge of this memory. Call it every few seconds, because Ray drops a gauge that is not set again."""
        self._instruments.set(MODEL_MEMORY, self.size_bytes())

    def get(self, version: str) -> Checkpoint | None:
        """The weights of a version if they are in memory; never waits for the registry."""
        found = self._checkpoints().get(version)
        if found is not None:
            with self._guard, suppress(KeyError):
                self._loads.move_to_end(version)
        return found

    async def load(self, pin: ModelPin, seconds: float | None = None, *, at_once: bool = False) -> Checkpoint:
        """The weights of a version.

        Args:
            seconds: to wait for them at most; None: ``LONGEST_LOAD_SECONDS``.
            at_once: whether to try again even if a load failed just before, as for a person.

        Raises:
            UnknownModel, RegistryGone, IncompatibleWeights: they cannot be loaded, or not in time.
        """
        if (found := self.get(pin.version)) is not None:
            return found
        seconds = LONGEST_LOAD_SECONDS if seconds is None else seconds
        load = asyncio.wrap_future(self._begin(pin, at_once=at_once))
        try:
            return await asyncio.wait_for(asyncio.shield(load), seconds)
        except TimeoutError:
            raise self._late(pin, seconds) from None

    def prepare(self, pins: Iterable[ModelPin], seconds: float | None = None) -> None:
        """Load versions that are not in memory, and wait for them at most ``seconds`` together. The log says which ones
        could not be loaded. Call it in a thread."""
        seconds = LONGEST_LOAD_SECONDS if seconds is None else seconds
        loads = {}
        for pin in pins:
            if self.get(pin.version) is None:
                with suppress(*NOT_LOADED):  # it failed just before, and the log has it
                    loads[pin] = self._begin(pin)
        late = wait_for_all(loads.values(), timeout=seconds).not_done
        for pin, load in loads.items():
            if load in late:
                self._late(pin, seconds)

    def _checkpoints(self) -> dict[str, Checkpoint]:
        with self._guard:
            done = [(version, load) for version, load in self._loads.items() if load.done() and not load.exception()]
        return {version: load.result() for version, load in done}

    def _begin(self, pin: ModelPin, *, at_once: bool = False) -> Future[Checkpoint]:
        with self._guard:
            failure = self._failures.get(pin.version)
            if failure is not None and not at_once and self._clock() - failure[0] < RETRY_SECONDS:
                raise copy(failure[1])  # a raised error grows by a traceback each time
            load = self._loads.get(pin.version)
            if load is None:
                load = self._loads[pin.version] = self._thread.submit(self._load, pin)
                while len(self._loads) > MAX_VERSIONS:
                    self._loads.popitem(last=False)
            return load

    def _load(self, pin: ModelPin) -> Checkpoint:
        try:
            checkpoint = self._read(pin).to(self._device)
        except Exception as error:  # of a network of another package, whose code may raise anything
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
        held = [*self._checkpoints().values(), checkpoint]
        self._instruments.count(MODEL_LOADS, outcome="loaded")
        log.info(
            "model %s: loaded; %d versions in memory, %.1f MB", pin.version, len(held), sum(map(size_of, held)) / 1e6
        )
        return checkpoint

    def _late(self, pin: ModelPin, seconds: float) -> RegistryGone:
        """The error of a load that takes too long; it is remembered as a failure."""
        late = RegistryGone(
            f"model {pin.version}: expected its weights from the registry within {seconds:g} s, got none yet; the load "
            "continues: wait for it, or check that this node reaches models.registry"
        )
        self._fail(pin.version, late)
        return copy(late)

    def _fail(self, version: str, error: NotLoaded) -> None:
        """Remember a failure. The log has it once for all who wait."""
        with self._guard:
            before = self._failures.get(version)
            self._failures[version] = self._clock(), error
        if before is None or str(before[1]) != str(error) or self._clock() - before[0] >= RETRY_SECONDS:
            log.error("model %s: not loaded, and other weights are in use: %s", version, error)


def open_loader(settings: Settings, device: torch.device, instruments: Instruments) -> Loader:
    """The loader of weights from the registry. Without a registry, no weights can be loaded.

    Raises:
        BadSettings: the registry cannot be opened.
    """
    registry = open_registry(settings.models.registry, settings.model.network)

    def read(pin: ModelPin) -> Checkpoint:
        if registry is None:
            raise UnknownModel(
                f"model {pin.version}: expected a registry, got none; set models.registry on this node too"
            )
        return registry.load(pin.version, pin.sha256)

    return Loader(read, device, instruments)


def size_of(checkpoint: Checkpoint) -> int:
    """Memory of the parameters of weights, in bytes."""
    modules = (checkpoint.network, checkpoint.meta)
    return sum(p.numel() * p.element_size() for module in modules for p in module.parameters())
