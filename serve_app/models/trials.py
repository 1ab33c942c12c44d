"""The trials of a candidate: one document for each mesh in the store, and whether a limit is broken."""

import asyncio
import logging
import time
from collections.abc import Iterator

from serve_app.api.schemas.models import ComparisonOfModels, MeshTrialDocument
from serve_app.errors import UnknownModel
from serve_app.models.comparison import compare
from serve_app.models.gate import broken_limit
from serve_app.models.rollout import roll_back
from serve_app.models.served import ServedModels
from serve_app.settings import Settings
from serve_app.stores.state_store import StateStore

CHECK_SECONDS = 30.0  # between two looks at a trial
log = logging.getLogger(__name__)


class Trials:
    """The trials of one session, of one event loop."""

    def __init__(self, settings: Settings, models: ServedModels, store: StateStore) -> None:
        self._settings, self._models, self._store = settings, models, store
        self._checked = time.monotonic()

    def is_check_due(self) -> bool:
        """Whether a trial has not been looked at for a while."""
        return self._models.has_trial and time.monotonic() - self._checked >= CHECK_SECONDS

    async def check(self) -> None:
        """Roll the candidate back if it breaks a limit.

        Raises:
            ServeError: the store cannot be used.
        """
        self._checked = time.monotonic()
        await asyncio.to_thread(self._check)

    def compare(self, candidate: str) -> ComparisonOfModels:
        """Compare a model with the baseline of its newest trial, over all that is kept. Call it in a thread.

        Raises:
            UnknownModel: it was never tried.
        """
        trials = [one for one in self._read_all() if one.candidate == candidate and one.blocks]
        if not trials:
            raise UnknownModel(
                f"model {candidate}: expected a model that was tried on snapshots, got another one; try it with "
                "`tagae models canary`"
            )
        newest = max(trials, key=lambda one: one.blocks[-1].began)
        return compare(candidate, newest.baseline, trials, self._settings.alert.budget)

    def _check(self) -> None:
        trial = self._models.rollout.trial
        if trial is None:
            return
        candidate, baseline = self._models.version(trial.candidate), self._models.version(trial.baseline)
        found = compare(candidate, baseline, self._read_all(), self._settings.alert.budget, trial.since)
        reason = broken_limit(found, self._settings.models)
        if not reason:
            return
        after = self._models.change(
            # Every session judges the trial, and one is first.
            lambda rollout: roll_back(rollout, reason=reason) if rollout.trial == trial else rollout,
            by_rule=True,
        )
        last = after.history[-1] if after.history else None
        if after.trial != trial and last is not None and last.reason == reason:  # else another session was first
            log.warning("model %s: rolled back by rule: %s", candidate, reason)

    def _read_all(self) -> Iterator[MeshTrialDocument]:
        for one in self._store.meshes():
            _, found = read_trial(self._store, one.mesh)
            if found is not None:
                yield found


def read_trial(store: StateStore, mesh: str) -> tuple[int, MeshTrialDocument | None]:
    """The revision and the trial of a mesh; 0 and None if there is none. One of another version counts as none."""
    found = store.read_document(_name(mesh))
    if found is None:
        return 0, None
    try:
        return found.revision, MeshTrialDocument.model_validate_json(found.content)
    except ValueError:
        return found.revision, None


def write_trial(store: StateStore, document: MeshTrialDocument, revision: int) -> int:
    """Replace the trial of a mesh; arguments, result and errors as of :meth:`StateStore.write_document`."""
    return store.write_document(_name(document.mesh), document.model_dump_json().encode(), revision=revision)


def delete_trial(store: StateStore, mesh: str) -> None:
    """Delete the trial of a mesh, if there is one.

    Raises:
        ServeError: the store cannot be used, or another process changed the trial meanwhile.
    """
    found = store.read_document(_name(mesh))
    if found is not None:
        store.write_document(_name(mesh), b"", revision=found.revision)


def _name(mesh: str) -> str:
    return f"trial/{mesh}"
