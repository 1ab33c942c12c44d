"""Taking in what people say of a mesh's incidents, and taking it back: a state in, a state out.

What somebody says is in force from the next snapshot on; verdicts that were given stand.
"""

from dataclasses import replace
from datetime import datetime

from model.incidents.feedback import SYMPTOMS, Feedback, Moves, PastIncident, feedback_on_missed, feedback_on_past
from model.incidents.tracking import REMEMBERED, IncidentMemory, incident_id
from model.state.mesh_state import MeshState
from serve_app.api.codec import structs
from serve_app.api.codec.validation import validated, wrong
from serve_app.api.schemas.actions import FeedbackDocument, KeptFeedbackDocument, MissedDocument, PageLevels
from serve_app.errors import InvalidDocument, TooMuchFeedback, UnknownIncident

SHOWN = 80  # letters of what came


def add_feedback(state: MeshState, said: FeedbackDocument | MissedDocument, most: int) -> tuple[MeshState, Feedback]:
    """The state that heeds it, and what is kept; the very same state where that was said before.

    Args:
        state: of a mesh that has a verdict.
        said: of an incident that paged, or was missed.
        most: feedback that is kept at a time.

    Raises:
        UnknownIncident: no such incident is remembered.
        InvalidDocument: it names a service that is not there, or a time that has not come.
        TooMuchFeedback: there is no room for more.
    """
    feedback = _of_missed(state, said) if isinstance(said, MissedDocument) else _of_past(state, said)
    _require_services(state, feedback, said)
    before = _kept(state.memory, feedback.incident)
    if before is not None and replace(feedback, given_at=before.given_at) == before:
        return state, before
    if before is None and len(state.memory.feedback) >= most:
        raise TooMuchFeedback(
            f"feedback: expected at most {most} incidents to be spoken of, came one more; take some back, or raise "
            "limits.max_feedback"
        )
    return replace(state, memory=state.memory.add_feedback(feedback)), feedback


def withdraw_feedback(state: MeshState, incident: str) -> tuple[MeshState, Feedback]:
    """The state as if nobody had spoken of the incident, and what was said.

    Raises:
        UnknownIncident: nobody had.
    """
    before = _kept(state.memory, incident)
    if before is None:
        raise UnknownIncident(
            f"incident {incident[:SHOWN]!r}: nothing is said of it ({len(state.memory.feedback)} others are spoken "
            "of); list the feedback, and correct the id"
        )
    return replace(state, memory=state.memory.remove_feedback(incident)), before


def _kept(memory: IncidentMemory, incident: str) -> Feedback | None:
    return next((one for one in memory.feedback if one.incident == incident), None)


def _of_past(state: MeshState, said: FeedbackDocument) -> Feedback:
    return feedback_on_past(
        _past(state.memory, said.incident),
        was_incident=said.was_incident,
        given_at=_now(state),
        culprit=said.culprit or "",
        note=said.note,
    )


def _past(memory: IncidentMemory, incident: str) -> PastIncident:
    for one in memory.past:
        if one.id == incident:
            return one
    raise UnknownIncident(
        f"incident: expected an open one or one of the last {REMEMBERED}, came {incident[:SHOWN]!r}; read the ids in "
        "the verdicts; if it paged nobody, name its services and time instead",
        pointer="/incident",
    )


def _of_missed(state: MeshState, said: MissedDocument) -> Feedback:
    newest, until = _now(state), said.until or said.since
    for field, time in (("since", said.since), ("until", until)):
        if time > newest:
            raise InvalidDocument(
                f"{field}: expected a time up to the newest snapshot, {newest.isoformat()}, came {time.isoformat()}; "
                "correct the time or its zone",
                pointer=f"/{field}",
            )
    services = tuple(sorted(set(said.services)))
    return feedback_on_missed(
        incident_id(said.since, services),
        services,
        said.since,
        until,
        given_at=newest,
        culprit=said.culprit or "",
        note=said.note,
    )


def _require_services(state: MeshState, feedback: Feedback, said: FeedbackDocument | MissedDocument) -> None:
    known = {*state.node_ids} if feedback.missed else {*state.node_ids, *feedback.services}
    named = [("/culprit", said.culprit)] if said.culprit else []
    if isinstance(said, MissedDocument):
        named += [(f"/services/{i}", service) for i, service in enumerate(said.services)]
    errors = [
        {
            "pointer": pointer,
            "detail": f"{pointer}: {service[:SHOWN]!r} is not among the services of the mesh ({len(state.node_ids)}); "
            "correct the name",
        }
        for pointer, service in named
        if service not in known
    ]
    if errors:
        raise InvalidDocument(errors[0]["detail"], pointer=errors[0]["pointer"], errors=errors)


def _now(state: MeshState) -> datetime:
    assert state.observed_at is not None  # a mesh without a snapshot has no verdict to speak of
    return state.observed_at


def decode_feedback(body: bytes) -> FeedbackDocument | MissedDocument:
    """Of a JSON body; one that names ``services`` is about an incident that was missed.

    Raises:
        MalformedDocument: it is not JSON.
        DocumentTooLarge: it would take far more memory than its size.
        InvalidDocument: its content is wrong; ``details`` hold ``pointer`` and ``errors``.
    """
    document = structs.plain(structs.JSON, body)
    is_missed = isinstance(document, dict) and "services" in document
    said = validated(document, MissedDocument) if is_missed else validated(document, FeedbackDocument)
    if isinstance(said, MissedDocument):
        if said.until is not None and said.until < said.since:
            raise wrong("/until", f"expected a time not before since, came {said.until.isoformat()}; correct it")
    elif said.culprit and not said.was_incident:
        raise wrong("/culprit", "expected none where was_incident is false, came one; leave it out, or say true")
    return said


def encode_feedback(feedback: Feedback) -> KeptFeedbackDocument:
    """The document of stored feedback."""
    return KeptFeedbackDocument(
        incident=feedback.incident,
        was_incident=feedback.was_incident,
        missed=feedback.missed,
        services=list(feedback.services),
        since=feedback.since,
        until=feedback.until,
        given_at=feedback.given_at,
        culprit=feedback.culprit or None,
        note=feedback.note,
        page_levels={service: _levels(moves) for service, moves in feedback.moves.items()},
    )


def _levels(moves: Moves) -> PageLevels:
    return PageLevels(**dict(zip(SYMPTOMS, moves, strict=True)))
