"""What people say of incidents, as documents."""

from model.feedback import SYMPTOMS, Feedback, Moves
from serve_app.codec import structs
from serve_app.codec.documents import validated, wrong
from serve_app.spoken import FeedbackDocument, KeptFeedbackDocument, MissedDocument, PageLevels


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
    """The document of what is kept."""
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
