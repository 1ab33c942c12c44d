"""Accepts the present level of an incident as normal: a function from state to state.

It takes effect with the next snapshot. Earlier verdicts do not change.
"""

from model.names import list_first
from model.state import levels
from model.state.mesh_state import MeshState
from serve_app.api.codec.mistakes import SHOWN
from serve_app.api.schemas.actions import AcceptanceDocument, KeptAcceptanceDocument
from serve_app.errors import UnknownIncident

MAX_NAMED = 5  # open incidents in an error


def accept_incident(
    state: MeshState, incident: str, document: AcceptanceDocument, by: str = ""
) -> tuple[MeshState, KeptAcceptanceDocument]:
    """Return the state to which the present level of an open incident or notice is normal, and what to keep of the
    decision.

    Raises:
        UnknownIncident: no open incident has this id.
    """
    try:
        after = levels.accept_incident(state, incident)
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
