"""Add and withdraw feedback on incidents: functions from state to state.

Feedback takes effect with the next snapshot. Earlier verdicts do not change.
"""

from dataclasses import replace
from datetime import datetime

from model.incidents.feedback import SYMPTOMS, Feedback, Moves, moves_of_missed
from model.incidents.memory import REMEMBERED, IncidentMemory
from model.incidents.open_incident import incident_id
from model.state.mesh_state import MeshState
from model.state.traffic import accept_traffic
from serve_app.api.codec import json_text
from serve_app.api.codec.mistakes import SHOWN, error_at, refuse_names, validate_document
from serve_app.api.schemas.actions import (
    FeedbackDocument,
    FeedbackEffect,
    KeptFeedbackDocument,
    MissedDocument,
    PageLevels,
)
from serve_app.api.schemas.incidents import ArchivedIncidentDocument
from serve_app.errors import InvalidDocument, TooMuchFeedback, UnknownIncident

MAX_FEEDBACK = 200  # of one mesh


def add_feedback(
    state: MeshState, document: FeedbackDocument | MissedDocument, limit: int, by: str = ""
) -> tuple[MeshState, Feedback]:
    """Return the state with feedback added, and the stored feedback; the same state if it was given before.

    Raises:
        UnknownIncident: the state has forgotten the incident.
        InvalidDocument: it names an unknown service, or a time in the future.
        TooMuchFeedback: the limit is reached.
    """
    if isinstance(document, MissedDocument):
        feedback = replace(_feedback_on_missed(state, document), given_by=by)
    else:
        feedback = replace(_feedback_on_past(state, document), given_by=by)
    _require_services({*state.node_ids, *(() if feedback.missed else feedback.services)}, document)
    before = _find_feedback(state.memory, feedback.incident)
    if before is not None and replace(feedback, given_at=before.given_at, given_by=before.given_by) == before:
        return state, before
    if before is None and len(state.memory.feedback) >= limit:
        raise TooMuchFeedback(f"feedback: the limit of {limit} incidents is reached; withdraw some")
    return replace(_accept_usual_traffic(state, feedback), memory=state.memory.add_feedback(feedback)), feedback


def _accept_usual_traffic(state: MeshState, feedback: Feedback) -> MeshState:
    """Return the state to which the present requests from outside are usual, if the feedback says that an open incident
    of traffic is a false alarm. Otherwise the incident would begin again with the next snapshot."""
    incidents = [incident for incident in state.memory.open if incident.scope and incident.id == feedback.incident]
    if feedback.was_incident or not incidents:
        return state
    return replace(state, traffic=accept_traffic(state.traffic, incidents[0].members))


def record_feedback(
    state: MeshState, incident: ArchivedIncidentDocument, document: FeedbackDocument, by: str = ""
) -> tuple[MeshState, ArchivedIncidentDocument, KeptFeedbackDocument]:
    """Record feedback with an ended, archived incident that the state has forgotten.

    It replaces the state's earlier feedback on the incident, and has no effect of its own.

    Raises:
        InvalidDocument: it names an unknown service.
    """
    assert incident.until is not None  # it has ended
    services = sorted({*incident.affected, *(suspect.service for suspect in incident.suspects)})
    _require_services({*state.node_ids, *services}, document)
    feedback = KeptFeedbackDocument(
        incident=incident.id,
        was_incident=document.was_incident,
        missed=False,
        services=services,
        since=incident.since,
        until=incident.until,
        given_at=_now(state),
        culprit=document.culprit,
        note=document.note,
        given_by=by,
        page_levels={},
        effect=FeedbackEffect.RECORDED,
    )
    before = incident.feedback
    if before is not None and _has_same_text(feedback, before):
        feedback = before
    if _find_feedback(state.memory, incident.id) is not None:
        state = replace(state, memory=state.memory.remove_feedback(incident.id))
    return state, incident.model_copy(update={"feedback": feedback}), feedback


def _has_same_text(feedback: KeptFeedbackDocument, before: KeptFeedbackDocument) -> bool:
    """Whether two feedbacks say the same; author and time may differ."""
    return feedback.model_copy(update={"given_at": before.given_at, "given_by": before.given_by}) == before


def withdraw_feedback(state: MeshState, incident: str) -> tuple[MeshState, Feedback]:
    """Return the state without the feedback on an incident, and the former feedback.

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
    return next((feedback for feedback in memory.feedback if feedback.incident == incident), None)


def _feedback_on_past(state: MeshState, document: FeedbackDocument) -> Feedback:
    before = _find_feedback(state.memory, document.incident)
    past = next((incident for incident in state.memory.past if incident.id == document.incident), None)
    if past is None and before is not None and not before.missed and before.was_incident == document.was_incident:
        return replace(before, given_at=_now(state), culprit=document.culprit or "", note=document.note)
    if past is None:
        raise UnknownIncident(
            f"incident: expected an open incident, one of the last {REMEMBERED}, or an archived one, got "
            f"{document.incident[:SHOWN]!r}; take the id from a verdict; if no verdict has it, send its services and "
            "time instead",
            pointer="/incident",
        )
    return Feedback(
        incident=past.id,
        was_incident=document.was_incident,
        services=past.members,
        since=past.since,
        until=past.until,
        given_at=_now(state),
        moves={} if document.was_incident else past.excess,  # a false alarm raises the levels of what raised it
        culprit=document.culprit or "",
        note=document.note,
    )


def _feedback_on_missed(state: MeshState, document: MissedDocument) -> Feedback:
    newest, until = _now(state), document.until or document.since
    for field, time in (("since", document.since), ("until", until)):
        if time > newest:
            raise InvalidDocument(
                f"{field}: expected a time up to the newest snapshot, {newest.isoformat()}, got {time.isoformat()}; "
                "correct the time or its zone",
                pointer=f"/{field}",
            )
    services = tuple(sorted(set(document.services)))
    return Feedback(
        incident=incident_id(document.since, services),
        was_incident=True,
        services=services,
        since=document.since,
        until=until,
        given_at=newest,
        moves=moves_of_missed(services),
        missed=True,
        culprit=document.culprit or "",
        note=document.note,
    )


def _require_services(services: set[str], document: FeedbackDocument | MissedDocument) -> None:
    names = [("/culprit", document.culprit)] if document.culprit else []
    if isinstance(document, MissedDocument):
        names += [(f"/services/{i}", service) for i, service in enumerate(document.services)]
    refuse_names(names, services, f"is not among the services of the mesh ({len(services)}); correct the name")


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
    content = json_text.parse(body)
    is_missed = isinstance(content, dict) and "services" in content
    document = validate_document(content, MissedDocument) if is_missed else validate_document(content, FeedbackDocument)
    if isinstance(document, MissedDocument):
        if document.until is not None and document.until < document.since:
            raise error_at(
                "/until", f"expected a time no earlier than `since`, got {document.until.isoformat()}; correct it"
            )
    elif document.culprit and not document.was_incident:
        raise error_at(
            "/culprit", "expected no culprit if was_incident is false, got one; remove it, or set was_incident to true"
        )
    return document


def encode_feedback(feedback: Feedback) -> KeptFeedbackDocument:
    """Return the document of stored feedback."""
    return KeptFeedbackDocument.from_object(
        feedback,
        culprit=feedback.culprit or None,
        page_levels={service: _levels(moves) for service, moves in feedback.moves.items()},
    )


def _levels(moves: Moves) -> PageLevels:
    return PageLevels(**dict(zip(SYMPTOMS, moves, strict=False)))  # what an older version stored has no shortage
