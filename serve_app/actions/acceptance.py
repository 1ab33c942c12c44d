"""Accepts the present level of an incident as normal: a function from state to state.

It takes effect with the next snapshot. Earlier verdicts do not change.
"""

from model.names import list_first
from model.state import gaps
from model.state.mesh_state import MeshState
from serve_app.api.codec import json_body
from serve_app.api.codec.mistakes import validate_document
from serve_app.api.schemas.actions import AcceptanceDocument, KeptAcceptanceDocument
from serve_app.errors import UnknownIncident

SHOWN = 80  # characters of a value in an error
MAX_NAMED = 5  # open incidents in an error


def accept_incident(
    state: MeshState, incident: str, document: AcceptanceDocument, by: str = ""
) -> tuple[MeshState, KeptAcceptanceDocument]:
    """Return the state to which the present level of an open incident is normal, and what to keep of the decision.

    Args:
        state: of a mesh that has a verdict.
        incident: id of an open incident or notice.

    Raises:
        UnknownIncident: no open incident has this id.
    """
    try:
        after = gaps.accept_incident(state, incident)
    except KeyError:
        names = [one.id for one in state.memory.open]
        raise UnknownIncident(
            f"incident: expected an open incident ({list_first(names, MAX_NAMED) or 'there is none'}), got "
            f"{incident[:SHOWN]!r}; take the id from the newest verdict"
        ) from None
    assert state.observed_at is not None  # a mesh with a verdict has a snapshot
    return after, KeptAcceptanceDocument(
        incident=incident, accepted_at=state.observed_at, note=document.note, accepted_by=by
    )


def decode_acceptance(body: bytes) -> AcceptanceDocument:
    """Decode a JSON body; an empty one has no note.

    Raises:
        MalformedDocument: it is not JSON.
        DocumentTooLarge: it would take far more memory than its size.
        InvalidDocument: its content is wrong; ``details`` hold ``pointer`` and ``errors``.
    """
    if not body.strip():
        return AcceptanceDocument()
    return validate_document(json_body.parse(body), AcceptanceDocument)
