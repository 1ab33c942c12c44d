"""The trial of a candidate in one session: scores in the shadow, and looks whether a limit is broken."""

import asyncio
import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime

from serve_app.api.schemas.models import ComparisonOfModels, MeshTrialDocument, RolloutDocument, TrialDocument
from serve_app.errors import UnknownModel
from serve_app.metrics import ObjectiveStatus, ServiceLevel
from serve_app.models.comparison import compare
from serve_app.models.gate import compare_trial, if_unchanged, next_change
from serve_app.models.served import ServedModels
from serve_app.models.shadow import Shadow
from serve_app.models.trial_documents import delete_trial, read_trial
from serve_app.settings import Settings
from serve_app.stores.state_store import StateStore

LATENCIES = ("p95", "p99")  # objectives of the service level
log = logging.getLogger(__name__)


class Trials:
    """The trials of one session, of one event loop.

    Args:
        settings: of the service.
        models: of the session.
        store: keeps what both models made of each snapshot.
        shadow: scores with the other model.
    """

    def __init__(self, settings: Settings, models: ServedModels, store: StateStore, shadow: Shadow) -> None:
        self._settings, self._models, self._store = settings, models, store
        self.shadow = shadow
        self._checked = time.monotonic()

    def is_check_due(self) -> bool:
        """Whether a trial has not been looked at for a while."""
        return self._models.has_trial and time.monotonic() - self._checked >= self._settings.models.check_seconds

    async def check(self, level: ServiceLevel) -> None:
        """Roll the candidate back if it breaks a limit; promote or confirm it if it is time for that.

        Args:
            level: of the service, for its latency targets.

        Raises:
            ServeError: the store cannot be used.
        """
        self._checked = time.monotonic()
        await asyncio.to_thread(self._check, level)

    def compare(self, candidate: str) -> ComparisonOfModels:
        """Compare a model with the baseline of its newest trial, over all that is kept. Call it in a thread.

        Raises:
            UnknownModel: it was never tried.
        """
        trials = [one for one in self._read_all() if one.candidate == candidate and (one.pairs or one.blocks)]
        if not trials:
            raise UnknownModel(
                f"model {candidate}: expected a model that was tried on snapshots, got another one; try it with "
                "`tagae models canary`"
            )
        newest = max(trials, key=_changed_at)
        return compare(candidate, newest.baseline, trials, self._settings.alert.budget)

    def of_mesh(self, mesh: str) -> MeshTrialDocument:
        """The trial in a mesh, with its last snapshots. Call it in a thread.

        Raises:
            UnknownModel: no candidate was tried on it.
        """
        revision, found = read_trial(self._store, mesh)
        found = self.shadow.document(mesh, revision) or found
        if found is None:
            raise UnknownModel(
                f"mesh {mesh!r}: expected a mesh on which a model was tried, got another one; `tagae models canary` "
                "begins a trial"
            )
        return found

    async def forget(self, mesh: str) -> None:
        """Delete the trial of a mesh.

        Raises:
            ServeError: the store cannot be used.
        """
        self.shadow.forget(mesh)
        if self._models.has_registry:  # without one, a store need not have documents
            await asyncio.to_thread(delete_trial, self._store, mesh)

    def _check(self, level: ServiceLevel) -> None:
        trial = self._models.rollout.trial
        if trial is None:
            return
        versions = (self._models.version(trial.candidate), self._models.version(trial.baseline))
        comparison = compare_trial(trial, *versions, self._read_all(), self._settings.alert.budget)
        missed = missed_latency(level, trial)
        due = next_change(trial, comparison, self._settings.models, datetime.now(UTC), missed)
        if due is not None:
            change, reason = due
            after = self._models.change(if_unchanged(trial, change), by_rule=True)
            _report(after, trial, versions[0], reason)

    def _read_all(self) -> Iterator[MeshTrialDocument]:
        for one in self._store.meshes():
            _, found = read_trial(self._store, one.mesh)
            if found is not None:
                yield found


def missed_latency(level: ServiceLevel, trial: TrialDocument) -> str:
    """The latency target that the service misses, in words, if meshes use the candidate; empty: none."""
    if trial.share <= 0:
        return ""
    for one in level.objectives:
        if one.name in LATENCIES and one.status is ObjectiveStatus.VIOLATED and one.current is not None:
            return f"the service misses its target for the {one.name} of {one.target:g} s, with {one.current:.2g} s"
    return ""


def _changed_at(trial: MeshTrialDocument) -> datetime:
    """The time of the newest snapshot, or block, of a trial that has one."""
    return trial.pairs[-1].observed_at if trial.pairs else trial.blocks[-1].began


def _report(after: RolloutDocument, trial: TrialDocument, candidate: str, reason: str) -> None:
    """Log a change that the gate made, if it was not another session that was first."""
    if after.trial == trial or not after.history or after.history[-1].reason != reason:
        return
    action = after.history[-1].action.value
    level = logging.WARNING if action == "rollback" else logging.INFO
    log.log(level, "model %s: %s by rule: %s", candidate, action, reason)
