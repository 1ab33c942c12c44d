"""The weights that make a mesh's verdicts in one session: from the settings, or from the rollout in the store.

The rollout is read once a second, never with a push. New weights are loaded beside the old ones, in a thread, before
the session follows the new rollout; if the registry does not answer soon, the session follows without them. A snapshot
keeps the weights with which it began.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock

import torch

from model.checkpoint import Checkpoint
from model.mesh_weights import Weights
from serve_app.api.schemas.models import ModelPin, RolloutDocument, TrialDocument
from serve_app.errors import ServeError, UnfitModel, UnknownModel
from serve_app.metrics import MODEL_CHANGES, WEIGHTS, Instruments
from serve_app.models.loader import NOT_LOADED, Loader, open_loader
from serve_app.models.registry import AsyncRegistry, Registry, open_registry
from serve_app.models.rollout import change_rollout, pins_of, read_rollout, rollout_of_sidecar
from serve_app.settings import Settings
from serve_app.stores.state_store import StateStore

EVERY_MESH = "*"  # stands for all meshes in the list of pinned ones
ANSWER_SHARE = 0.8  # share of a request's deadline for the registry's answer
ASK_SECONDS = 30.0  # time between a sidecar's reads of the registry's rollout
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """Weights, and where they come from.

    Attributes:
        pin: their version in the registry; None: they come from the settings.
    """

    checkpoint: Checkpoint
    pin: ModelPin | None = None


@dataclass(frozen=True, slots=True)
class Roles:
    """A trial's models in one mesh.

    Attributes:
        trial: the trial's id.
        candidate, baseline: their versions.
        is_candidate: whether the candidate makes the mesh's verdicts.
        beside: the other model, which scores the same snapshots; None: the configured weights.
    """

    trial: TrialDocument
    candidate: str
    baseline: str
    is_candidate: bool
    beside: ModelPin | None

    @property
    def active(self) -> str:
        """Version of the model that makes the verdicts."""
        return self.candidate if self.is_candidate else self.baseline

    @property
    def other(self) -> str:
        """Version of the model that scores the same snapshots."""
        return self.baseline if self.is_candidate else self.candidate


class ServedModels:
    """The models of one session with one event loop.

    Args:
        store: has the rollout; None: there is no registry, and only ``weights`` are used.
        registry: answers people's questions; None: there is none.
        sidecar: name of this process if it is a sidecar. It then follows the registry's rollout while its own store has
            none.
    """

    def __init__(
        self,
        settings: Settings,
        weights: Weights,
        loader: Loader,
        instruments: Instruments,
        store: StateStore | None = None,
        registry: AsyncRegistry | None = None,
        sidecar: str | None = None,
    ) -> None:
        self._sidecar, self._of_registry, self._asked_at = sidecar, RolloutDocument(), -math.inf
        self._store, self._loader, self._instruments = store, loader, instruments
        self.weights, self.registry = weights, registry
        self._default = ServedModel(weights.default)
        self._own = {mesh: ServedModel(weights.of(mesh)) for mesh in settings.weights_by_mesh}
        self._is_pinned = settings.model.weights is not None
        # None: not read yet. Without a registry, the rollout never changes.
        self._rollout = RolloutDocument() if store is None else None
        # A separate thread, so that a store that hangs blocks no other work.
        self._follower, self._following = ThreadPoolExecutor(1, "rollout"), Lock()
        self._reading: asyncio.Future[bool] | None = None

    @property
    def rollout(self) -> RolloutDocument:
        return self._rollout or RolloutDocument()

    def read_rollout(self) -> RolloutDocument:
        """Read the store's current rollout, which sessions follow within a second. Call it in a thread.

        Raises:
            ServeError: the store cannot be read.
        """
        return RolloutDocument() if self._store is None else self._read(self._store)

    @property
    def has_trial(self) -> bool:
        return self._rollout is not None and self._rollout.trial is not None

    @property
    def pinned(self) -> list[str]:
        """The meshes that ignore rollouts; ``*``: all."""
        return [EVERY_MESH] if self._is_pinned else sorted(self._own)

    @property
    def versions(self) -> frozenset[str]:
        """The versions in memory, including the versions that the settings name."""
        return self._loader.versions | {checkpoint.digest for checkpoint in self.weights.distinct()}

    @property
    def missing(self) -> list[str]:
        """A sentence for each model in the rollout that could not be loaded."""
        versions = {pin.version for pin in (*_pins(self.rollout), *self.rollout.meshes.values())}
        return [
            f"model {version}: not loaded, so its meshes use other weights; the log says why"
            for version in sorted(versions & self._loader.failed)
        ]

    def size_bytes(self) -> int:
        return self.weights.size_bytes() + self._loader.size_bytes()

    def measure(self) -> None:
        """Set the gauges for weights in memory. Call it every few seconds, as :meth:`Loader.measure` explains."""
        self._instruments.set(WEIGHTS, len(self.versions))
        self._loader.measure()

    def get(self, mesh: str) -> ServedModel | None:
        """Return the model that makes a mesh's verdicts if it is in memory; never wait."""
        if (model := self._of_settings(mesh)) is not None:
            return model
        if self._rollout is None:
            return None
        pin, _ = pins_of(self._rollout, mesh)
        return self._default if pin is None else self._in_memory(pin)

    def checkpoint(self, mesh: str) -> Checkpoint:
        """Return the weights that make a mesh's verdicts if they are in memory, else the configured weights."""
        return (self.get(mesh) or self._fallback()).checkpoint

    async def of(self, mesh: str) -> ServedModel:
        """Return the model that makes a mesh's verdicts. If it cannot be loaded soon, another one takes its place: a
        detector with other weights is better than none.

        Raises:
            ServeError: the rollout was never read, and the store does not answer.
        """
        if (model := self.get(mesh)) is not None:
            return model
        if self._rollout is None:
            await self.follow_once()
        pin, _ = pins_of(self.rollout, mesh)
        try:
            return await self.load(pin)
        except NOT_LOADED:  # already logged
            return self._fallback()

    def roles(self, mesh: str) -> Roles | None:
        """Return a trial's models in a mesh; None: it has no trial."""
        trial = self.rollout.trial
        if trial is None or self._of_settings(mesh) is not None:
            return None
        active, beside = pins_of(self.rollout, mesh)
        if active == beside:
            return None
        versions = self.version(trial.candidate), self.version(trial.baseline)
        return Roles(trial, *versions, is_candidate=active == trial.candidate, beside=beside)

    def is_broken(self, version: str) -> bool:
        """Return whether a version could not be loaded although the registry answered."""
        return version in self._loader.broken

    def version(self, pin: ModelPin | None) -> str:
        """Return a pin's version; None: the configured weights."""
        return self.weights.default.digest if pin is None else pin.version

    async def load(self, pin: ModelPin | None) -> ServedModel:
        """Return a pin's model; None: the configured weights.

        Raises:
            UnknownModel, RegistryGone, IncompatibleWeights: it cannot be loaded soon.
        """
        return self._default if pin is None else ServedModel(await self._loader.load(pin), pin)

    def follow(self, seconds: float | None = None) -> bool:
        """Read the rollout, follow it if it has changed, and return whether it has. Its weights are loaded first if
        possible. Call it in a thread.

        Args:
            seconds: maximum wait for weights; None: as in :meth:`Loader.prepare`.

        Raises:
            ServeError: the store cannot be read.
        """
        if self._store is None:
            return False
        with self._following:  # a slower read could otherwise restore an older rollout
            rollout = self._read(self._store)
            if rollout == self._rollout:
                return False
            self._loader.prepare(_pins(rollout), seconds)
            self._rollout = rollout
            return True

    def _read(self, store: StateStore) -> RolloutDocument:
        """Read the store's rollout; in a sidecar whose store has none, the registry's."""
        revision, rollout = read_rollout(store)
        if revision or self._sidecar is None or self.registry is None:
            return rollout
        if time.monotonic() - self._asked_at >= ASK_SECONDS:
            self._asked_at = time.monotonic()
            try:
                self._of_registry = rollout_of_sidecar(self.registry.ask_in_thread(Registry.rollout), self._sidecar)
            except ServeError as error:
                log.warning("the rollout of the registry cannot be read, and the one before stays: %s", error)
        return self._of_registry

    @property
    def is_following(self) -> bool:
        """Whether there is a rollout to follow and it is not being read."""
        return self._store is not None and self._reading is None

    async def follow_once(self) -> None:
        """Like :meth:`follow`. If the rollout is already being read, wait for that."""
        if self._reading is None:
            self._reading = asyncio.get_running_loop().run_in_executor(self._follower, self.follow)
            self._reading.add_done_callback(self._end_reading)
        await asyncio.shield(self._reading)

    def _end_reading(self, read: "asyncio.Future[bool]") -> None:
        self._reading = None
        if not read.cancelled():
            read.exception()  # retrieve it, in case no caller remains to do so

    async def pin(self, version: str, mesh: str | None) -> ModelPin:
        """Return the pin of a model to which meshes can switch, after loading it to make sure.

        Args:
            mesh: the only mesh to change; None: all.

        Raises:
            UnknownModel, RegistryGone, IncompatibleWeights: it cannot be loaded in time, or there is no registry.
            UnfitModel: it reads other neighbours, or the settings name the meshes' weights.
        """
        if self.registry is None:
            raise UnknownModel("model: there is no registry; set models.registry, and restart the service")
        if self._is_pinned or (mesh is not None and mesh in self._own):
            place = f"meshes.{mesh}.weights" if mesh is not None and mesh in self._own else "model.weights"
            raise UnfitModel(
                f"model {version}: expected meshes that use models of the registry, got a file in {place}; remove "
                "this setting, and restart the service"
            )
        card = await self.registry.ask(lambda registry: registry.card(version))
        pin = ModelPin(version=card.version, sha256=card.sha256)
        checkpoint = await self._loader.load(pin, seconds=self.registry.seconds, at_once=True)
        require_same_neighbours(self.weights.default, checkpoint)
        return pin

    def change(self, change: Callable[[RolloutDocument], RolloutDocument], *, by_rule: bool = False) -> RolloutDocument:
        """Change the rollout and follow it. Call it in a thread.

        Args:
            by_rule: whether a rule, not a person, makes the change; for the metric.

        Raises:
            UnfitModel, StoreConflict, ServeError: see :func:`change_rollout`; ``UnfitModel`` also without a registry.
        """
        if self._store is None:
            raise UnfitModel("model: there is no registry; set models.registry, and restart the service")
        before = self.rollout.history
        rollout = change_rollout(self._store, change)
        if rollout.history and rollout.history[-1] not in before:
            action = rollout.history[-1].action.value
            self._instruments.count(MODEL_CHANGES, action=action, by="rule" if by_rule else "person")
        self.follow()
        return rollout

    def _of_settings(self, mesh: str) -> ServedModel | None:
        return self._own.get(mesh) or (self._default if self._is_pinned else None)

    def _in_memory(self, pin: ModelPin) -> ServedModel | None:
        checkpoint = self._loader.get(pin.version)
        return None if checkpoint is None else ServedModel(checkpoint, pin)

    def _fallback(self) -> ServedModel:
        """Return the model of all meshes if it is in memory, else the previous one, else the configured weights."""
        candidates = (self._in_memory(pin) for pin in (self.rollout.active, self.rollout.previous) if pin is not None)
        return next((model for model in candidates if model is not None), self._default)


def require_same_neighbours(ours: Checkpoint, theirs: Checkpoint) -> None:
    """Raise ``UnfitModel`` unless meshes can switch between them and keep their state. This depends on the neighbours,
    and on the inputs, which loading checks."""
    before, after = (checkpoint.network.config.neighbours for checkpoint in (ours, theirs))
    if before != after:
        raise UnfitModel(
            f"model {theirs.digest}: expected a network that reads {before} neighbours, as the one in use, got one "
            f"that reads {after}; set model.weights to it and restart the service"
        )


def _pins(rollout: RolloutDocument) -> list[ModelPin]:
    """Return the models that a rollout names for all meshes: the one in use, and its trial's two models."""
    trial = rollout.trial
    pins = (rollout.active, *((trial.candidate, trial.baseline) if trial is not None else ()))
    return [pin for pin in pins if pin is not None]


def open_models(
    settings: Settings, weights: Weights, store: StateStore, instruments: Instruments, sidecar: str | None = None
) -> ServedModels:
    """Open a session's models; for ``sidecar``, see :class:`ServedModels`.

    Raises:
        BadSettings: the registry cannot be opened.
    """
    registry, loader = open_registry(settings.models.registry), open_loader(settings, torch.device("cpu"), instruments)
    if registry is None:
        return ServedModels(settings, weights, loader, instruments)
    answers = AsyncRegistry(registry, ANSWER_SHARE * settings.serve.deadline_seconds)
    return ServedModels(settings, weights, loader, instruments, store, answers, sidecar)
