"""Opens what a process needs of the registry: a loader of its weights, and the models that a session serves."""

import torch

from model.checkpoint import Checkpoint
from model.mesh_weights import Weights
from serve_app.api.schemas.models import ModelPin
from serve_app.metrics import Instruments
from serve_app.models.loader import Loader
from serve_app.models.registry import AsyncRegistry, Registry, open_registry
from serve_app.models.rollout import Rollouts
from serve_app.models.served import ServedModels
from serve_app.models.weights_memory import WeightsMemory
from serve_app.settings import Settings
from serve_app.stores.state_store import StateStore

ANSWER_SHARE = 0.8  # of the deadline of a request, for an answer of the registry


def open_loader(settings: Settings, device: torch.device, instruments: Instruments) -> Loader | None:
    """The loader of weights from the registry; None without a registry.

    Raises:
        BadSettings: the registry cannot be opened.
    """
    registry = open_registry(settings.models.registry, settings.model.network)
    return None if registry is None else _loader_of(registry, settings, device, instruments)


def open_models(settings: Settings, weights: Weights, store: StateStore, instruments: Instruments) -> ServedModels:
    """The models that a session serves.

    Args:
        settings: of the service.
        weights: of the settings.
        store: that has the rollout.
        instruments: measure loads.

    Raises:
        BadSettings: the registry cannot be opened.
    """
    registry = open_registry(settings.models.registry, settings.model.network)
    if registry is None:
        return ServedModels(settings, weights, instruments=instruments)
    loader = _loader_of(registry, settings, torch.device("cpu"), instruments)
    answers = AsyncRegistry(registry, ANSWER_SHARE * settings.serve.deadline_seconds)
    return ServedModels(settings, weights, Rollouts(store), loader, answers, instruments)


def _loader_of(registry: Registry, settings: Settings, device: torch.device, instruments: Instruments) -> Loader:
    def load(pin: ModelPin) -> Checkpoint:
        return registry.load(pin.version, pin.sha256)

    return Loader(WeightsMemory(load, settings.models.memory_bytes, device, instruments))
