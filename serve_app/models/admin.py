"""Answers people's questions about models, and makes their changes: the registry, the trial, and each mesh's version.

A candidate that breaks a limit of its trial is rolled back; otherwise people promote it. A limit is broken only if the
whole interval is beyond it, so that chance rarely rolls back a good model.
"""

import asyncio
import logging
import time
from collections.abc import Iterator

from serve_app.api.schemas.models import ComparisonOfModels, MeshTrialDocument, ModelsDocument, RolloutDocument
from serve_app.api.schemas.views import ModelDocument
from serve_app.api.views import model_document
from serve_app.errors import UnknownModel
from serve_app.models.comparison import compare
from serve_app.models.registry import Registry
from serve_app.models.rollout import ALL_MESHES, limit_to, promote, roll_back, start_canary
from serve_app.models.served import EVERY_MESH, ServedModels
from serve_app.models.shadow import read_trial
from serve_app.settings import Settings
from serve_app.settings.model import ModelsSettings
from serve_app.stores.state_store import StateStore

CANARY_SHARE = 0.1  # default share of the meshes
CHECK_SECONDS = 30.0  # time between two checks of a trial
MIN_SNAPSHOTS = 100  # scored by both models before a limit counts; for failures, by one of them
MAX_FAILURES = 0.05  # share of the snapshots that the candidate fails to score in time
log = logging.getLogger(__name__)


class ModelAdmin:
    """Answers questions, makes changes, and ends trials by rule, in one session with one event loop."""

    def __init__(self, settings: Settings, models: ServedModels, store: StateStore) -> None:
        self._settings, self._models, self._store = settings, models, store
        self._checked = time.monotonic()

    async def all(self, meshes: frozenset[str] | None = None) -> ModelsDocument:
        """Return the registry's models, and each mesh's model, for a caller who may see only ``meshes``; None: all.

        Raises:
            RegistryGone: the registry does not answer.
        """
        registry = self._models.registry
        cards = [] if registry is None else await registry.ask(Registry.cards)
        rollout = limit_to(await asyncio.to_thread(self._models.read_rollout), lambda mesh: _is_among(meshes, mesh))
        pinned = [mesh for mesh in self._models.pinned if mesh == EVERY_MESH or _is_among(meshes, mesh)]
        return ModelsDocument(models=cards, rollout=rollout, pinned=pinned)

    def in_use(self, meshes: frozenset[str] | None = None) -> ModelDocument:
        """Return the model of all meshes, and the own models of visible meshes."""
        digests = {mesh: checkpoint.digest for mesh, checkpoint in self._models.weights.by_mesh.items()}
        versions = {mesh: pin.version for mesh, pin in self._models.rollout.meshes.items()} | digests
        visible = {mesh: version for mesh, version in versions.items() if _is_among(meshes, mesh)}
        return model_document(self._models.checkpoint(ALL_MESHES), visible)

    def compare(self, version: str) -> ComparisonOfModels:
        """Compare a model with the baseline of its newest trial, over all stored blocks.

        Raises:
            UnknownModel: the model was never tried, or there is no registry.
        """
        if self._models.registry is None:
            raise UnknownModel("model: there is no registry; set models.registry")
        trials = [trial for trial in self._read_trials() if trial.candidate == version and trial.blocks]
        if not trials:
            raise UnknownModel(f"model {version}: it was never tried on snapshots; try it with `tagae models canary`")
        newest = max(trials, key=lambda trial: trial.blocks[-1].began)
        return compare(version, newest.baseline, trials, self._settings.alert.budget)

    async def try_out(self, version: str, share: float | None, by: str = "") -> RolloutDocument:
        """Try a model on a share of the meshes; None: ``CANARY_SHARE``.

        Raises:
            UnknownModel, RegistryGone, IncompatibleWeights: it cannot be loaded.
            UnfitModel: meshes cannot switch to it now.
            StoreConflict: other processes kept changing the rollout.
        """
        share = CANARY_SHARE if share is None else share
        pin = await self._models.pin(version, None)
        return await asyncio.to_thread(self._models.change, lambda rollout: start_canary(rollout, pin, share, by))

    async def promote(self, version: str, mesh: str | None, by: str = "") -> RolloutDocument:
        """Make all meshes, or one, use a model. Raises the errors of :meth:`try_out`."""
        pin = await self._models.pin(version, mesh)
        return await asyncio.to_thread(self._models.change, lambda rollout: promote(rollout, pin, by, mesh=mesh))

    def roll_back(self, mesh: str | None, reason: str, by: str = "") -> RolloutDocument:
        """End a model's trial, or go back to the previous model; with a mesh, remove its own model.

        Raises:
            UnfitModel: there is nothing to go back to.
            StoreConflict: other processes kept changing the rollout.
        """
        return self._models.change(lambda rollout: roll_back(rollout, by, reason, mesh=mesh))

    def is_check_due(self) -> bool:
        """Return whether a trial has not been checked for a while."""
        return self._models.has_trial and time.monotonic() - self._checked >= CHECK_SECONDS

    async def check(self) -> None:
        """Roll the candidate back if it breaks a limit.

        Raises:
            ServeError: the store cannot be used.
        """
        self._checked = time.monotonic()
        await asyncio.to_thread(self._check)

    def _check(self) -> None:
        trial = self._models.rollout.trial
        if trial is None:
            return
        candidate, baseline = self._models.version(trial.candidate), self._models.version(trial.baseline)
        comparison = compare(candidate, baseline, self._read_trials(), self._settings.alert.budget, trial.since)
        reason = broken_limit(comparison, self._settings.models)
        if not reason:
            return
        after = self._models.change(
            # Every session checks the trial, and one is first.
            lambda rollout: roll_back(rollout, reason=reason) if rollout.trial == trial else rollout,
            by_rule=True,
        )
        last = after.history[-1] if after.history else None
        if after.trial != trial and last is not None and last.reason == reason:  # not by another session
            log.warning("model %s: rolled back by rule: %s", candidate, reason)

    def _read_trials(self) -> Iterator[MeshTrialDocument]:
        for stored in self._store.meshes():
            _, trial = read_trial(self._store, stored.mesh)
            if trial is not None:
                yield trial


def broken_limit(comparison: ComparisonOfModels, limits: ModelsSettings) -> str:
    """Describe the limit that the candidate certainly breaks; empty if there is none, or too little is known."""
    failures, usual = comparison.candidate_failed, comparison.baseline_failed.value or 0.0
    if comparison.attempts >= MIN_SNAPSHOTS and failures.low is not None and failures.low > max(MAX_FAILURES, usual):
        return (
            f"it could not score {failures.value:.0%} of the snapshots (95% interval from {failures.low:.0%}), at most "
            f"{MAX_FAILURES:.0%}, with the baseline {usual:.0%}"
        )
    if comparison.snapshots < MIN_SNAPSHOTS:
        return ""
    alerts, baseline_alerts = comparison.candidate_alerts_per_day, comparison.baseline_alerts_per_day
    if comparison.budget_per_day is not None and alerts.low is not None and baseline_alerts.value is not None:
        limit = limits.max_alerts * comparison.budget_per_day
        if alerts.low > max(limit, baseline_alerts.value):
            return (
                f"its alerts per day leave the budget: {alerts.value:.2g} (95% interval from {alerts.low:.2g}), at "
                f"most {limit:.2g}, with the baseline {baseline_alerts.value:.2g}"
            )
    agreement = comparison.same_status
    if agreement.high is not None and agreement.high < limits.min_agreement:
        return (
            f"it agrees with the baseline in {agreement.value:.0%} of the snapshots (95% interval to "
            f"{agreement.high:.0%}), at least {limits.min_agreement:.0%}"
        )
    return ""


def _is_among(meshes: frozenset[str] | None, mesh: str) -> bool:
    return meshes is None or mesh in meshes
