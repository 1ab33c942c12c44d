"""What people ask about models, and change: the registry, the trial, and which mesh uses which version."""

import asyncio
from collections.abc import Callable

from serve_app.api.schemas.models import ComparisonOfModels, ModelsDocument, RolloutDocument
from serve_app.api.schemas.views import ModelDocument
from serve_app.api.views import model_document
from serve_app.errors import UnknownModel
from serve_app.models.rollout import (
    ALL_MESHES,
    limit_to,
    promote,
    promote_for_mesh,
    roll_back,
    roll_back_mesh,
    start_canary,
)
from serve_app.models.served import EVERY_MESH, ServedModels
from serve_app.models.trials import Trials

CANARY_SHARE = 0.1  # of the meshes, if a person names none
Meshes = frozenset[str] | None  # that the caller may see; None: all


class ModelDesk:
    """The questions and changes of people, in one session."""

    def __init__(self, models: ServedModels, trials: Trials) -> None:
        self._models, self._trials = models, trials

    async def all(self, meshes: Meshes = None) -> ModelsDocument:
        """The models of the registry, which mesh uses which, and the weights in use.

        Raises:
            RegistryGone: it does not answer.
        """
        registry = self._models.registry
        cards = [] if registry is None else await registry.cards()
        rollout = limit_to(await asyncio.to_thread(self._models.read_rollout), _is_among(meshes))
        pinned = [mesh for mesh in self._models.pinned if mesh == EVERY_MESH or _is_among(meshes)(mesh)]
        in_use = await asyncio.to_thread(self.in_use, meshes)
        return ModelsDocument(in_use=in_use, models=cards, rollout=rollout, pinned=pinned)

    def in_use(self, meshes: Meshes = None) -> ModelDocument:
        """The weights in use."""
        digests = {mesh: one.digest for mesh, one in self._models.weights.by_mesh.items()}
        own = {mesh: pin.version for mesh, pin in self._models.rollout.meshes.items()} | digests
        visible = {mesh: digest for mesh, digest in own.items() if _is_among(meshes)(mesh)}
        return model_document(self._models.checkpoint(ALL_MESHES), visible)

    def compare(self, version: str) -> ComparisonOfModels:
        """Where a model differs from the one that it was tried against.

        Raises:
            UnknownModel: it was never tried, or there is no registry.
        """
        if self._models.registry is None:
            raise UnknownModel("model: expected a registry, got none; set models.registry")
        return self._trials.compare(version)

    async def try_out(self, version: str, share: float | None, by: str = "") -> RolloutDocument:
        """Try a model on a share of the meshes; None: on ``CANARY_SHARE``.

        Raises:
            UnknownModel, RegistryGone, IncompatibleWeights: it cannot be loaded.
            UnfitModel: meshes cannot change to it now.
            StoreConflict: other processes changed the rollout again and again.
        """
        share = CANARY_SHARE if share is None else share
        pin = await self._models.pin(version, None)
        return await self._change(lambda rollout: start_canary(rollout, pin, share, by))

    async def promote(self, version: str, mesh: str | None, by: str = "") -> RolloutDocument:
        """Have all meshes use a model, or one. Errors as of :meth:`try_out`."""
        pin = await self._models.pin(version, mesh)
        if mesh is None:
            return await self._change(lambda rollout: promote(rollout, pin, by))
        return await self._change(lambda rollout: promote_for_mesh(rollout, pin, mesh, by))

    async def roll_back(self, mesh: str | None, reason: str, by: str = "") -> RolloutDocument:
        """End the trial of a model, or go back to the model before; with a mesh, take its own model away.

        Raises:
            UnfitModel: there is nothing to go back to.
            StoreConflict: other processes changed the rollout again and again.
        """
        if mesh is None:
            return await self._change(lambda rollout: roll_back(rollout, by, reason))
        return await self._change(lambda rollout: roll_back_mesh(rollout, mesh, by, reason))

    async def _change(self, change: Callable[[RolloutDocument], RolloutDocument]) -> RolloutDocument:
        return await asyncio.to_thread(self._models.change, change)


def _is_among(meshes: Meshes) -> Callable[[str], bool]:
    return lambda mesh: meshes is None or mesh in meshes
