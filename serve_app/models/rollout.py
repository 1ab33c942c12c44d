"""Which mesh uses which model: one small document in the state store, changed with compare-and-set. Sidecars have a
store each, and follow such a document in their registry instead.

A trial has one number, the share of the meshes that use the candidate. A mesh is among them if a hash of its name is
below the share, so the same meshes stay as the share grows, and all nodes agree without asking each other.
"""

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime

from serve_app.api.schemas.models import ModelPin, RolloutAction, RolloutDocument, RolloutEvent, TrialDocument
from serve_app.errors import CorruptState, UnfitModel
from serve_app.stores.documents import change_document
from serve_app.stores.records import ROLLOUT
from serve_app.stores.state_store import StateStore

MAX_EVENTS = 100  # of the history
ALL_MESHES = ""  # in place of the name of a mesh: the model of all that are not part of a canary
Pin = ModelPin | None


def pins_of(rollout: RolloutDocument, mesh: str) -> tuple[Pin, Pin]:
    """The model that makes the verdicts of a mesh, and the other model of its trial; both are the same without one."""
    if mesh in rollout.meshes:
        own = rollout.meshes[mesh]
        return own, own
    trial = rollout.trial
    if trial is None:
        return rollout.active, rollout.active
    if uses_candidate(mesh, trial):
        return trial.candidate, trial.baseline
    return trial.baseline, trial.candidate


def uses_candidate(mesh: str, trial: TrialDocument) -> bool:
    """Whether a mesh is among those that use the candidate of a trial."""
    if mesh == ALL_MESHES:
        return trial.share >= 1
    salt = "" if trial.candidate is None else trial.candidate.version  # not the same meshes for each candidate
    digest = hashlib.blake2b(f"{salt} {mesh}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64 < trial.share


def rollout_of_sidecar(rollout: RolloutDocument, sidecar: str) -> RolloutDocument:
    """What one sidecar makes of the rollout of a registry: the model of its share, without a trial of its own.

    Args:
        sidecar: its name, by which it belongs to the share of a canary or not.
    """
    active, _ = pins_of(rollout.model_copy(update={"meshes": {}}), sidecar)
    return RolloutDocument(active=active, meshes=rollout.meshes)


def limit_to(rollout: RolloutDocument, can_see: Callable[[str], bool]) -> RolloutDocument:
    """The rollout for a caller who may see some meshes: without the models, and the changes, of single other ones."""
    meshes = {mesh: pin for mesh, pin in rollout.meshes.items() if can_see(mesh)}
    history = [event for event in rollout.history if not event.mesh or can_see(event.mesh)]
    return rollout.model_copy(update={"meshes": meshes, "history": history})


def start_canary(rollout: RolloutDocument, pin: ModelPin, share: float, by: str = "") -> RolloutDocument:
    """Try a candidate on a share of the meshes, or change the share of its trial.

    Raises:
        UnfitModel: it is in use already, or another candidate is tried.
    """
    trial = rollout.trial
    if trial is not None and trial.candidate != pin:
        raise UnfitModel(
            f"model {pin.version}: expected no other trial, got one of {model_name(trial.candidate)}; promote it or "
            "roll it back first"
        )
    if trial is None and pin == rollout.active:
        raise UnfitModel(f"model {pin.version}: expected another model than the one in use, got the same")
    baseline = rollout.active if trial is None else trial.baseline
    began = TrialDocument(candidate=pin, baseline=baseline, share=share, since=_now(), by=by)
    event = RolloutEvent(at=began.since, action=RolloutAction.CANARY, model=pin, share=share, by=by)
    return _with_event(rollout, event, trial=began)


def promote(rollout: RolloutDocument, pin: ModelPin, by: str = "", *, mesh: str | None = None) -> RolloutDocument:
    """Have all meshes use a model, and end its trial; or have one mesh use it. If they do already, nothing changes.

    Raises:
        UnfitModel: another candidate is tried on all meshes.
    """
    event = RolloutEvent(at=_now(), action=RolloutAction.PROMOTE, model=pin, mesh=mesh or "", by=by)
    if mesh is not None:
        is_used = rollout.meshes.get(mesh) == pin
        return rollout if is_used else _with_event(rollout, event, meshes={**rollout.meshes, mesh: pin})
    trial = rollout.trial
    if trial is not None and trial.candidate != pin:
        raise UnfitModel(
            f"model {pin.version}: expected the candidate of the trial, {model_name(trial.candidate)}, got another "
            "one; roll it back first"
        )
    if pin == rollout.active and trial is None:
        return rollout
    return _with_event(rollout, event, active=pin, previous=rollout.active, trial=None)


def roll_back(rollout: RolloutDocument, by: str = "", reason: str = "", *, mesh: str | None = None) -> RolloutDocument:
    """End a trial with its baseline in use; without a trial, go back to the model before the one in use. With a mesh,
    take its own model away, so that it uses the one of all.

    Directly after a rollback, nothing changes: a repeated request, or a person who follows a rule, means the same
    model. To go back further, promote the version.

    Raises:
        UnfitModel: there is neither a trial nor a model before, or the mesh has no model of its own.
    """
    event = RolloutEvent(at=_now(), action=RolloutAction.ROLLBACK, model=None, mesh=mesh or "", by=by, reason=reason)
    if mesh is not None:
        if mesh not in rollout.meshes:
            raise UnfitModel(f"rollback: expected a mesh with a model of its own, got {mesh!r}; leave out the mesh")
        meshes = {name: pin for name, pin in rollout.meshes.items() if name != mesh}
        back = pins_of(rollout.model_copy(update={"meshes": meshes}), mesh)[0]
        return _with_event(rollout, event.model_copy(update={"model": back}), meshes=meshes)
    back = rollout.previous if rollout.trial is None else rollout.trial.baseline
    if rollout.trial is None:
        last = next((event for event in reversed(rollout.history) if not event.mesh), None)
        if last is not None and last.action is RolloutAction.ROLLBACK:
            return rollout
        if rollout.active == back:
            raise UnfitModel("rollback: expected a trial, or a model before the one in use, got neither")
    return _with_event(rollout, event.model_copy(update={"model": back}), active=back, trial=None)


def read_rollout(store: StateStore) -> tuple[int, RolloutDocument]:
    """The revision and the rollout of a store; 0 and an empty one if there is none.

    Raises:
        CorruptState: this version cannot read it.
        ServeError: the store cannot be read.
    """
    found = store.read_document(ROLLOUT)
    return found.revision, _stored_rollout(found.content)


def change_rollout(store: StateStore, change: Callable[[RolloutDocument], RolloutDocument]) -> RolloutDocument:
    """Change the rollout of a store, and return it. If the change returns the same one, nothing is written.

    Raises:
        UnfitModel: of the change.
        StoreConflict: other processes changed it again and again.
        ServeError: the store cannot be used.
    """

    def change_content(content: bytes) -> tuple[bytes | None, RolloutDocument]:
        before = _stored_rollout(content)
        after = change(before)
        return None if after is before else after.model_dump_json().encode(), after

    return change_document(store, ROLLOUT, change_content)


def _stored_rollout(content: bytes) -> RolloutDocument:
    return decode_rollout(content) if content else RolloutDocument()


def decode_rollout(content: bytes) -> RolloutDocument:
    """The rollout in a document; ``CorruptState`` if this version cannot read it."""
    try:
        return RolloutDocument.model_validate_json(content)
    except ValueError as error:
        raise CorruptState(
            f"stored rollout: expected a document of this version, got another one ({error}); use the version that "
            "wrote it"
        ) from error


def _with_event(rollout: RolloutDocument, event: RolloutEvent, **changes: object) -> RolloutDocument:
    return rollout.model_copy(update={**changes, "history": [*rollout.history, event][-MAX_EVENTS:]})


def model_name(pin: Pin) -> str:
    """The version of a model, for people."""
    return "the weights of the settings" if pin is None else pin.version


def _now() -> datetime:
    return datetime.now(UTC)
