"""The rollout: a small document in the state store that says which mesh uses which model, changed with compare-and-set.
Each sidecar has its own store, and follows such a document in its registry instead.

A trial has one number, the share of meshes that use the candidate. A mesh uses it if a hash of its name is below the
share, so the same meshes remain as the share grows, and all nodes agree without communication.
"""

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime

from serve_app.api.schemas.models import ModelPin, RolloutAction, RolloutDocument, RolloutEvent, TrialDocument
from serve_app.errors import CorruptState, UnfitModel
from serve_app.stores.documents import change_document
from serve_app.stores.records import ROLLOUT
from serve_app.stores.state_store import StateStore

MAX_EVENTS = 100  # in the history
ALL_MESHES = ""  # instead of a mesh's name: the model of all meshes outside a canary
Pin = ModelPin | None


def pins_of(rollout: RolloutDocument, mesh: str) -> tuple[Pin, Pin]:
    """Return the model that makes a mesh's verdicts, and its trial's other model, the same without a trial."""
    if mesh in rollout.meshes:
        pin = rollout.meshes[mesh]
        return pin, pin
    trial = rollout.trial
    if trial is None:
        return rollout.active, rollout.active
    if uses_candidate(mesh, trial):
        return trial.candidate, trial.baseline
    return trial.baseline, trial.candidate


def uses_candidate(mesh: str, trial: TrialDocument) -> bool:
    """Return whether a mesh uses a trial's candidate."""
    if mesh == ALL_MESHES:
        return trial.share >= 1
    salt = "" if trial.candidate is None else trial.candidate.version  # so that each candidate gets different meshes
    digest = hashlib.blake2b(f"{salt} {mesh}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64 < trial.share


def rollout_of_sidecar(rollout: RolloutDocument, sidecar: str) -> RolloutDocument:
    """Return a sidecar's view of the registry's rollout: the model of its share, without its own trial.

    Args:
        sidecar: its name, which decides whether it belongs to a canary's share.
    """
    active, _ = pins_of(rollout.model_copy(update={"meshes": {}}), sidecar)
    return RolloutDocument(active=active, meshes=rollout.meshes)


def limit_to(rollout: RolloutDocument, can_see: Callable[[str], bool]) -> RolloutDocument:
    """Return the rollout for a caller who may see only some meshes: without other meshes' own models and changes."""
    meshes = {mesh: pin for mesh, pin in rollout.meshes.items() if can_see(mesh)}
    history = [event for event in rollout.history if not event.mesh or can_see(event.mesh)]
    return rollout.model_copy(update={"meshes": meshes, "history": history})


def start_canary(rollout: RolloutDocument, pin: ModelPin, share: float, by: str = "") -> RolloutDocument:
    """Try a candidate on a share of the meshes, or change its trial's share.

    Raises:
        UnfitModel: it is already in use, or another candidate is on trial.
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
    """Make all meshes use a model, and end its trial; or make one mesh use it. If they already do, nothing changes.

    Raises:
        UnfitModel: another candidate is on trial on all meshes.
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
    """End a trial and use its baseline; without a trial, go back to the previous model. With a mesh, remove its own
    model, so that it uses the same model as all.

    Directly after a rollback, nothing changes: the request may be a retry, or a person may repeat what a rule did. To
    go back further, promote a version.

    Raises:
        UnfitModel: there is neither a trial nor a previous model, or the mesh has no model of its own.
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
    """Read a store's rollout and its revision; 0 and an empty rollout if there is none.

    Raises:
        CorruptState: this version cannot read it.
        ServeError: the store cannot be read.
    """
    document = store.read_document(ROLLOUT)
    return document.revision, _stored_rollout(document.content)


def change_rollout(store: StateStore, change: Callable[[RolloutDocument], RolloutDocument]) -> RolloutDocument:
    """Change and return a store's rollout. If the change returns the same one, nothing is written.

    Raises:
        UnfitModel: raised by ``change``.
        StoreConflict: other processes kept changing it.
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
    """Return the rollout in a document; raise ``CorruptState`` if this version cannot read it."""
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
    """Return a model's display name."""
    return "the weights of the settings" if pin is None else pin.version


def _now() -> datetime:
    return datetime.now(UTC)
