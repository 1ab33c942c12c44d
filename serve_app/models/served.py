"""Which weights make the verdicts of a mesh, in one session: of the settings, or of the rollout in the store.

The rollout is read once a second, never with a push. New weights are loaded beside the old ones, in a thread, before
the session follows the new rollout. A snapshot keeps the weights with which it began.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from model.checkpoint import Checkpoint
from model.errors import IncompatibleWeights
from model.mesh_weights import Weights
from serve_app.api.schemas.models import ModelPin, RolloutDocument
from serve_app.errors import RegistryGone, UnfitModel, UnknownModel
from serve_app.metrics import MODEL_CHANGES, Instruments
from serve_app.models.fit import require_fit
from serve_app.models.memory import WeightsMemory
from serve_app.models.registry import Registry
from serve_app.models.rollout import ALL_MESHES, Rollouts, pins_of
from serve_app.settings import Settings

RETRY_SECONDS = 30.0  # after weights could not be loaded
LONGEST_LOAD_SECONDS = 1.0  # for which a snapshot waits for its weights
NOT_LOADED = (UnknownModel, RegistryGone, IncompatibleWeights)
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """Weights, and where they come from.

    Attributes:
        checkpoint: the weights.
        pin: their version in the registry; None: they are weights of the settings.
    """

    checkpoint: Checkpoint
    pin: ModelPin | None = None


class ServedModels:
    """The models of one session, of one event loop.

    Args:
        settings: of the service.
        weights: of the settings.
        rollouts: in the store; None: there is no registry, and ``weights`` are all.
        memory: of weights from the registry; None without one.
        instruments: count changes.
    """

    def __init__(
        self,
        settings: Settings,
        weights: Weights,
        rollouts: Rollouts | None = None,
        memory: WeightsMemory | None = None,
        instruments: Instruments | None = None,
    ) -> None:
        self._settings, self._rollouts, self._memory = settings, rollouts, memory
        self._instruments = instruments
        self.weights = weights
        self._default = ServedModel(weights.default)
        self._own = {mesh: ServedModel(weights.of(mesh)) for mesh in settings.weights_by_mesh}
        self._is_pinned = settings.model.weights is not None
        # None: not read yet. Without a registry, it never changes.
        self._rollout = RolloutDocument() if rollouts is None else None
        self._revision = 0
        self._failed: dict[str, float] = {}  # when versions could not be loaded, s of the monotonic clock
        self._loads: dict[str, asyncio.Future[None]] = {}
        # Threads of their own: a registry that hangs holds no other work.
        self._loader, self._follower = ThreadPoolExecutor(1, "models"), ThreadPoolExecutor(1, "rollout")
        self._is_reading = False

    @property
    def rollout(self) -> RolloutDocument:
        """The rollout that this session follows."""
        return self._rollout or RolloutDocument()

    @property
    def has_registry(self) -> bool:
        """Whether models can change."""
        return self._rollouts is not None

    @property
    def has_trial(self) -> bool:
        """Whether a candidate is tried."""
        return self._rollout is not None and self._rollout.trial is not None

    @property
    def pinned(self) -> list[str]:
        """The meshes that no rollout changes; ``*``: all."""
        return ["*"] if self._is_pinned else sorted(self._own)

    @property
    def versions(self) -> frozenset[str]:
        """The versions in memory, including the versions that the settings name."""
        loaded = frozenset[str]() if self._memory is None else self._memory.versions
        return loaded | {one.digest for one in self.weights.distinct()}

    def size_bytes(self) -> int:
        """Memory of their parameters."""
        return self.weights.size_bytes() + (0 if self._memory is None else self._memory.size_bytes())

    def get(self, mesh: str) -> ServedModel | None:
        """The model that makes the verdicts of a mesh if it is in memory; never waits."""
        if (own := self._of_settings(mesh)) is not None:
            return own
        if self._rollout is None:
            return None
        pin, _ = pins_of(self._rollout, mesh)
        return self._default if pin is None else self._in_memory(pin, mesh)

    def checkpoint(self, mesh: str) -> Checkpoint:
        """The weights that make the verdicts of a mesh if they are in memory, else the weights of the settings."""
        return (self.get(mesh) or self._fallback()).checkpoint

    async def of(self, mesh: str) -> ServedModel:
        """The model that makes the verdicts of a mesh. One that cannot be loaded soon is replaced: a detector with
        other weights is better than none.

        Raises:
            ServeError: the rollout was never read, and the store does not answer.
        """
        if (found := self.get(mesh)) is not None:
            return found
        if self._rollout is None:
            await asyncio.to_thread(self.follow)
        pin, _ = pins_of(self.rollout, mesh)
        return (None if pin is None else await self._load(pin, mesh)) or self._fallback()

    async def other(self, mesh: str) -> ServedModel | None:
        """The other model of a mesh's trial, which scores the same snapshots; None: there is none, or it cannot be
        loaded."""
        if not self.has_trial or self._of_settings(mesh) is not None:
            return None
        used, other = pins_of(self.rollout, mesh)
        if used == other:
            return None
        return self._default if other is None else await self._load(other, mesh)

    def follow(self) -> bool:
        """Read the rollout, and follow it if it changed; its weights are loaded first. Call it in a thread. Returns
        whether it changed.

        Raises:
            ServeError: the store cannot be read.
        """
        if self._rollouts is None or self._memory is None:
            return False
        revision, rollout = self._rollouts.read()
        if self._rollout is not None and revision == self._revision:
            return False
        trial = rollout.trial
        wanted = (rollout.active, *((trial.candidate, trial.baseline) if trial is not None else ()))
        for pin in filter(None, wanted):
            self._read(pin, 1.0)
        self._rollout, self._revision = rollout, revision
        return True

    @property
    def is_following(self) -> bool:
        """Whether there is a rollout to follow, and no read of it under way."""
        return self._rollouts is not None and not self._is_reading

    async def follow_once(self) -> None:
        """As :meth:`follow`, unless a read is under way."""
        if not self.is_following:
            return
        self._is_reading = True
        try:
            await asyncio.get_running_loop().run_in_executor(self._follower, self.follow)
        finally:
            self._is_reading = False

    def require_fit(self, registry: Registry, version: str, mesh: str | None) -> ModelPin:
        """The pin of a model that meshes can change to. It is loaded to be sure. Call it in a thread.

        Args:
            registry: that has it.
            version: of the model.
            mesh: the only mesh that changes; None: all.

        Raises:
            UnknownModel, RegistryGone, IncompatibleWeights: it cannot be loaded.
            UnfitModel: it has other inputs, or the weights of the meshes are in the settings.
        """
        if self._is_pinned or (mesh is not None and mesh in self._own):
            place = f"meshes.{mesh}.weights" if mesh is not None and mesh in self._own else "model.weights"
            raise UnfitModel(
                f"model {version}: expected meshes that use models of the registry, got a file in {place}; remove "
                "this setting, and restart the service"
            )
        card = registry.card(version)
        require_fit(card, self.weights.default.network.config.neighbours)
        pin = ModelPin(version=card.version, sha256=card.sha256)
        assert self._memory is not None  # there is a registry
        self._memory.load(pin)
        return pin

    def change(self, change: Callable[[RolloutDocument], RolloutDocument], *, by_rule: bool = False) -> RolloutDocument:
        """Change the rollout, and follow it. Call it in a thread.

        Args:
            change: returns the new rollout.
            by_rule: whether no person wants it, for the metric.

        Raises:
            UnfitModel, StoreConflict, ServeError: as of :meth:`Rollouts.change`; without a registry, the first.
        """
        if self._rollouts is None:
            raise UnfitModel("model: expected a registry, got none; set models.registry, and restart the service")
        before = self.rollout.history
        rollout = self._rollouts.change(change)
        if self._instruments is not None and rollout.history and rollout.history[-1] not in before:
            action = rollout.history[-1].action.value
            self._instruments.count(MODEL_CHANGES, action=action, by="rule" if by_rule else "person")
        self.follow()
        return rollout

    def _of_settings(self, mesh: str) -> ServedModel | None:
        """The model that the settings pin for a mesh."""
        return self._own.get(mesh) or (self._default if self._is_pinned else None)

    def _in_memory(self, pin: ModelPin, mesh: str) -> ServedModel | None:
        assert self._memory is not None  # a pin comes from a registry
        checkpoint = self._memory.get(pin.version, self._settings.priority(mesh).weight)
        return None if checkpoint is None else ServedModel(checkpoint, pin)

    async def _load(self, pin: ModelPin, mesh: str) -> ServedModel | None:
        """The model of this version; None if it cannot be loaded, or takes long. Then the load continues."""
        if (found := self._in_memory(pin, mesh)) is not None:
            return found
        failed = self._failed.get(pin.version)
        if failed is not None and time.monotonic() - failed < RETRY_SECONDS:
            return None
        load = self._loads.get(pin.version)
        if load is None:
            weight = self._settings.priority(mesh).weight
            load = asyncio.get_running_loop().run_in_executor(self._loader, self._read, pin, weight)
            self._loads[pin.version] = load
            load.add_done_callback(lambda _: self._loads.pop(pin.version))
        await asyncio.wait({load}, timeout=LONGEST_LOAD_SECONDS)
        return self._in_memory(pin, mesh)

    def _read(self, pin: ModelPin, weight: float) -> None:
        """Load a version into memory. If that fails, the log says so once, and it is not tried again for a while."""
        assert self._memory is not None
        try:
            self._memory.load(pin, weight)
        except NOT_LOADED as error:
            self._failed[pin.version] = time.monotonic()
            log.error("model %s: not loaded, and other weights are in use: %s", pin.version, error)
        else:
            self._failed.pop(pin.version, None)

    def _fallback(self) -> ServedModel:
        """The model of all meshes if it is in memory, else the weights of the settings."""
        active = self.rollout.active
        return (None if active is None else self._in_memory(active, ALL_MESHES)) or self._default
