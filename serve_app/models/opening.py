"""Opens what a process needs of the registry: the memory of its weights, and the models that a session serves."""

import asyncio

import torch

from model.checkpoint import Checkpoint
from model.mesh_weights import Weights
from serve_app.api.schemas.models import ModelPin
from serve_app.errors import UnknownModel
from serve_app.metrics import Instruments
from serve_app.models.memory import WeightsMemory
from serve_app.models.registry import Registry
from serve_app.models.rollout import Rollouts
from serve_app.models.served import ServedModels
from serve_app.settings import Settings
from serve_app.stores.base import StateStore


def open_memory(settings: Settings, device: torch.device, instruments: Instruments) -> WeightsMemory | None:
    """The memory of weights from the registry; None without a registry.

    Raises:
        BadSettings: the registry cannot be opened.
    """
    if settings.models.registry is None:
        return None
    registry, network = Registry(settings.models.registry), settings.model.network

    def load(pin: ModelPin) -> Checkpoint:
        return registry.load(pin.version, pin.sha256, network)

    return WeightsMemory(load, settings.models.memory_bytes, device, instruments)


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
    memory = open_memory(settings, torch.device("cpu"), instruments)
    return ServedModels(settings, weights, None if memory is None else Rollouts(store), memory, instruments)


async def checkpoint_of(pin: ModelPin, memory: WeightsMemory | None, weight: float = 1.0) -> Checkpoint:
    """The weights of a version, loaded if they are not in memory, for a request with this weight by priority.

    Raises:
        UnknownModel, RegistryGone, IncompatibleWeights: they cannot be loaded, or there is no registry.
    """
    if memory is None:
        raise UnknownModel(f"model {pin.version}: expected a registry, got none; set models.registry on this node too")
    found = memory.get(pin.version, weight)
    return found if found is not None else await asyncio.to_thread(memory.load, pin, weight)
