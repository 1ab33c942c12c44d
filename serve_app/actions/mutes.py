"""Taking in what shall page nobody for a while, and taking it back: a state in, a state out.

A mute is in force from the next snapshot on that is of its time. Times are those of snapshots, so that it holds for a
mesh that is replayed as for one that lives.
"""

import hashlib
from dataclasses import replace
from datetime import datetime, timedelta

from model.incidents.mutes import OF_NAMESPACE, Mute
from model.snapshot import namespace_of
from model.state.mesh_state import MeshState
from serve_app.api.codec import structs
from serve_app.api.codec.validation import validated
from serve_app.api.schemas.actions import KeptMuteDocument, MuteDocument
from serve_app.errors import InvalidDocument, TooManyMutes, UnknownMute
from serve_app.settings import LimitSettings

SHOWN = 80  # letters of what came


def add_mute(state: MeshState, said: MuteDocument, limits: LimitSettings) -> tuple[MeshState, Mute]:
    """The state that heeds it, and what is kept; the very same state where the same was said before.

    Args:
        state: of a mesh that has a verdict.
        said: who, when and why.
        limits: how many, and how long.

    Raises:
        InvalidDocument: it names a service that is not there, is over, or takes too long.
        TooManyMutes: there is no room for more.
    """
    assert state.observed_at is not None  # a mesh without a snapshot has no verdict
    services = tuple(sorted(set(said.services or ())))
    known = {one.id: one for one in state.memory.mutes}
    if (before := known.get(_id(said, services))) is not None:
        return state, before
    _require_services(state, said)
    start = said.start or state.observed_at
    _require_times(said, start, state.observed_at, limits.max_mute_seconds)
    if len(known) >= limits.max_mutes:
        raise TooManyMutes(
            f"mutes: expected at most {limits.max_mutes} in force and to come, came one more; take some back, name "
            "several services in one, or raise limits.max_mutes"
        )
    mute = Mute(_id(said, services), services, start, said.end, said.reason, state.observed_at)
    return replace(state, memory=replace(state.memory, mutes=(*state.memory.mutes, mute))), mute


def remove_mute(state: MeshState, mute: str) -> tuple[MeshState, Mute]:
    """The state without a mute, and what it was.

    Raises:
        UnknownMute: there is none of this id.
    """
    before = next((one for one in state.memory.mutes if one.id == mute), None)
    if before is None:
        raise UnknownMute(
            f"mute {mute[:SHOWN]!r}: none of this id is in force or to come ({len(state.memory.mutes)} others are); "
            "list the mutes, and correct the id; those of settings and annotations end where they were given"
        )
    return replace(state, memory=state.memory.remove_mute(mute)), before


def _id(said: MuteDocument, services: tuple[str, ...]) -> str:
    """The same for the same request, so that one which is sent again is one mute."""
    start = said.start.isoformat() if said.start else ""
    content = "\n".join((start, said.end.isoformat(), said.reason, *services))
    return f"{said.end:%Y%m%dT%H%M%SZ}-{hashlib.blake2b(content.encode(), digest_size=4).hexdigest()}"


def _require_services(state: MeshState, said: MuteDocument) -> None:
    """What is misspelt would mute nobody, and page somebody at night."""
    known = {*state.node_ids, *(namespace_of(name) + OF_NAMESPACE for name in state.node_ids)}
    errors = [
        {
            "pointer": f"/services/{i}",
            "detail": f"/services/{i}: {service[:SHOWN]!r} is no service of the mesh ({len(state.node_ids)}), nor all "
            "of a namespace that it has; correct the name, or wait for its first snapshot",
        }
        for i, service in enumerate(said.services or ())
        if service not in known
    ]
    if errors:
        raise InvalidDocument(errors[0]["detail"], pointer=errors[0]["pointer"], errors=errors)


def _require_times(said: MuteDocument, start: datetime, newest: datetime, longest_seconds: float) -> None:
    longest = timedelta(seconds=longest_seconds)
    came = f"came {said.end.isoformat()}; correct the time or its zone"
    whose = "start" if said.start else "newest snapshot, which it starts from"
    if said.end <= start:
        problem = f"end: expected a time after the {whose}, {start.isoformat()}, {came}"
    elif said.end <= newest:
        problem = f"end: expected a time after the newest snapshot, {newest.isoformat()}, {came}"
    elif said.end - start > longest:
        problem = f"end: expected at most {longest} after the {whose}, {start.isoformat()}, {came}, or give a start"
    else:
        return
    raise InvalidDocument(problem, pointer="/end", errors=[{"pointer": "/end", "detail": problem}])


def decode_mute(body: bytes) -> MuteDocument:
    """Of a JSON body.

    Raises:
        MalformedDocument: it is not JSON.
        DocumentTooLarge: it would take far more memory than its size.
        InvalidDocument: its content is wrong; ``details`` hold ``pointer`` and ``errors``.
    """
    return validated(structs.plain(structs.JSON, body), MuteDocument)


def encode_mute(mute: Mute, now: datetime | None) -> KeptMuteDocument:
    """The document of a stored mute. ``now`` is the time of the newest snapshot; None: there is none."""
    return KeptMuteDocument(
        id=mute.id,
        services=list(mute.services),
        start=mute.start,
        end=mute.end,
        reason=mute.reason,
        given_at=mute.given_at,
        in_force=now is not None and mute.start <= now < mute.end,
    )
