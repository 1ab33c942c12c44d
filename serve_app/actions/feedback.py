"""Adds and withdraws feedback on incidents: functions from state to state.

Feedback takes effect with the next snapshot. Earlier verdicts do not change.
"""

from dataclasses import replace
from datetime import datetime

from model.incidents.feedback import SYMPTOMS, Feedback, Moves, PastIncident, feedback_on_missed, feedback_on_past
from model.incidents.tracking import REMEMBERED, IncidentMemory, incident_id
from model.state.mesh_state import MeshState
from serve_app.api.codec import structs
from serve_app.api.codec.validation import error_at, validate_document
from serve_app.api.schemas.actions import FeedbackDocument, KeptFeedbackDocument, MissedDocument, PageLevels
from serve_app.errors import InvalidDocument, TooMuchFeedback, UnknownIncident

SHOWN = 80  # characters of a value in an error


def add_feedback(
    state: MeshState, document: FeedbackDocument | MissedDocument, most: int, by: str = ""
) -> tuple[MeshState, Feedback]:
    """Add feedback. Returns the new state and the stored feedback; the same state if it was given before.

    Args:
        state: of a mesh that has a verdict.
        document: feedback on an incident, or a missed incident.
        most: feedback that is stored at a time.
        by: who gives it.

    Raises:
        UnknownIncident: the incident is not remembered.
        InvalidDocument: it names an unknown service, or a time in the future.
        TooMuchFeedback: the limit is reached.
    """
    about = _of_missed(state, document) if isinstance(document, MissedDocument) else _of_past(state, document)
    feedback = replace(about, given_by=by)
    _require_services(state, feedback, document)
    before = _find_feedback(state.memory, feedback.incident)
    if before is not None and replace(feedback, given_at=before.given_at, given_by=before.given_by) == before:
        return state, before
    if before is None and len(state.memory.feedback) >= most:
        raise TooMuchFeedback(
            f"feedback: expected feedback on at most {most} incidents, came one more; withdraw some, or raise "
            "limits.max_feedback"
        )
    return replace(state, memory=state.memory.add_feedback(feedback)), feedback


def withdraw_feedback(state: MeshState, incident: str) -> tuple[MeshState, Feedback]:
    """Withdraw the feedback on an incident. Returns the new state and the former feedback.

    Raises:
        UnknownIncident: there is no feedback on it.
    """
    before = _find_feedback(state.memory, incident)
    if before is None:
        raise UnknownIncident(
            f"incident {incident[:SHOWN]!r}: there is no feedback on it ({len(state.memory.feedback)} other incidents "
            "have some); list the feedback, and correct the id"
        )
    return replace(state, memory=state.memory.remove_feedback(incident)), before


def _find_feedback(memory: IncidentMemory, incident: str) -> Feedback | None:
    return next((one for one in memory.feedback if one.incident == incident), None)


def _of_past(state: MeshState, document: FeedbackDocument) -> Feedback:
    return feedback_on_past(
        _past(state.memory, document.incident),
        was_incident=document.was_incident,
        given_at=_now(state),
        culprit=document.culprit or "",
        note=document.note,
    )


def _past(memory: IncidentMemory, incident: str) -> PastIncident:
    for one in memory.past:
        if one.id == incident:
            return one
    raise UnknownIncident(
        f"incident: expected an open one or one of the last {REMEMBERED}, came {incident[:SHOWN]!r}; take the id "
        "from a verdict; if it is in none, send its services and time instead",
        pointer="/incident",
    )


def _of_missed(state: MeshState, document: MissedDocument) -> Feedback:
    newest, until = _now(state), document.until or document.since
    for field, time in (("since", document.since), ("until", until)):
        if time > newest:
            raise InvalidDocument(
                f"{field}: expected a time up to the newest snapshot, {newest.isoformat()}, came {time.isoformat()}; "
                "correct the time or its zone",
                pointer=f"/{field}",
            )
    services = tuple(sorted(set(document.services)))
    return feedback_on_missed(
        incident_id(document.since, services),
        services,
        document.since,
        until,
        given_at=newest,
        culprit=document.culprit or "",
        note=document.note,
    )


def _require_services(state: MeshState, feedback: Feedback, document: FeedbackDocument | MissedDocument) -> None:
    known = {*state.node_ids} if feedback.missed else {*state.node_ids, *feedback.services}
    named = [("/culprit", document.culprit)] if document.culprit else []
    if isinstance(document, MissedDocument):
        named += [(f"/services/{i}", service) for i, service in enumerate(document.services)]
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
    assert state.observed_at is not None  # a mesh with a verdict has a snapshot
    return state.observed_at


def decode_feedback(body: bytes) -> FeedbackDocument | MissedDocument:
    """Decode a JSON body. One with ``services`` is about a missed incident.

    Raises:
        MalformedDocument: it is not JSON.
        DocumentTooLarge: it would take far more memory than its size.
        InvalidDocument: its content is wrong; ``details`` hold ``pointer`` and ``errors``.
    """
    content = structs.parse(structs.JSON, body)
    is_missed = isinstance(content, dict) and "services" in content
    document = validate_document(content, MissedDocument) if is_missed else validate_document(content, FeedbackDocument)
    if isinstance(document, MissedDocument):
        if document.until is not None and document.until < document.since:
            raise error_at("/until", f"expected a time not before since, came {document.until.isoformat()}; correct it")
    elif document.culprit and not document.was_incident:
        raise error_at(
            "/culprit", "expected none where was_incident is false, came one; remove it, or set was_incident to true"
        )
    return document


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
        given_by=feedback.given_by,
        page_levels={service: _levels(moves) for service, moves in feedback.moves.items()},
    )


def _levels(moves: Moves) -> PageLevels:
    """Feedback that an older version stored has no shortage."""
    return PageLevels(**dict(zip(SYMPTOMS, moves, strict=False)))
