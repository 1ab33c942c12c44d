"""Add and remove mutes: functions from state to state.

A mute takes effect with the next snapshot in its period. Its period is in the time of snapshots, so that it works for a
replayed mesh as for a live one.
"""

import hashlib
from dataclasses import replace
from datetime import datetime, timedelta

from model.incidents.mutes import OF_NAMESPACE, Mute
from model.snapshot import namespace_of
from model.state.mesh_state import MeshState
from serve_app.api.codec.mistakes import SHOWN, refuse_names, sentence_errors
from serve_app.api.schemas.actions import KeptMuteDocument, MuteDocument
from serve_app.errors import TooManyMutes, UnknownMute

MAX_MUTES = 100  # active and future ones of one mesh
MAX_DURATION = timedelta(days=30)


def add_mute(state: MeshState, document: MuteDocument, by: str = "") -> tuple[MeshState, Mute]:
    """Return the state with a mute added, and the stored mute; the same state if the mute exists.

    Raises:
        InvalidDocument: it names an unknown service, has ended, or is too long.
        TooManyMutes: the limit is reached.
    """
    assert state.observed_at is not None  # a mesh with a verdict has a snapshot
    services = tuple(sorted(set(document.services or ())))
    mutes = {mute.id: mute for mute in state.memory.mutes}
    if (before := mutes.get(_id(document, services))) is not None:
        return state, before
    _require_services(state, document)
    start = document.start or state.observed_at
    _require_times(document, start, state.observed_at)
    if len(mutes) >= MAX_MUTES:
        raise TooManyMutes(
            f"mutes: the limit of {MAX_MUTES} active and future mutes is reached; remove some, or put several services "
            "into one"
        )
    mute = Mute(_id(document, services), services, start, document.end, document.reason, state.observed_at, by)
    return replace(state, memory=replace(state.memory, mutes=(*state.memory.mutes, mute))), mute


def remove_mute(state: MeshState, mute_id: str) -> tuple[MeshState, Mute]:
    """Return the state without a mute, and the removed mute.

    Raises:
        UnknownMute: there is no mute with this id.
    """
    before = next((mute for mute in state.memory.mutes if mute.id == mute_id), None)
    if before is None:
        raise UnknownMute(
            f"mute {mute_id[:SHOWN]!r}: there is no such mute ({len(state.memory.mutes)} others exist); list the "
            "mutes, and correct the id; remove mutes of settings and annotations there"
        )
    return replace(state, memory=state.memory.remove_mute(mute_id)), before


def _id(document: MuteDocument, services: tuple[str, ...]) -> str:
    """Return the id, which is the same for the same request, so that a repeated request creates one mute."""
    start = document.start.isoformat() if document.start else ""
    content = "\n".join((start, document.end.isoformat(), document.reason, *services))
    return f"{document.end:%Y%m%dT%H%M%SZ}-{hashlib.blake2b(content.encode(), digest_size=4).hexdigest()}"


def _require_services(state: MeshState, document: MuteDocument) -> None:
    """Refuse unknown services: a misspelt one would not be muted, and would alert someone at night."""
    names = {*state.node_ids, *(namespace_of(name) + OF_NAMESPACE for name in state.node_ids)}
    problem = (
        f"is neither one of the {len(state.node_ids)} services of the mesh, nor one of its namespaces with /*; correct "
        "the name, or wait for its first snapshot"
    )
    refuse_names([(f"/services/{i}", name) for i, name in enumerate(document.services or ())], names, problem)


def _require_times(document: MuteDocument, start: datetime, newest: datetime) -> None:
    advice = f"got {document.end.isoformat()}; correct the time or its zone"
    reference = "start" if document.start else "newest snapshot, which it starts from"
    if document.end <= start:
        problem = f"end: expected a time after the {reference}, {start.isoformat()}, {advice}"
    elif document.end <= newest:
        problem = f"end: expected a time after the newest snapshot, {newest.isoformat()}, {advice}"
    elif document.end - start > MAX_DURATION:
        problem = f"end: more than {MAX_DURATION} after the {reference}, {start.isoformat()}, {advice}, or give a start"
    else:
        return
    raise sentence_errors([("/end", problem)])


def encode_mute(mute: Mute, now: datetime | None) -> KeptMuteDocument:
    """Return the document of a stored mute. ``now``: time of the newest snapshot; None if there is none."""
    return KeptMuteDocument.from_object(mute, in_force=now is not None and mute.start <= now < mute.end)
