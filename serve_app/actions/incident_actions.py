"""Actions of people on an incident: who is on it, notes, what helped, and the acceptance of its level as normal.

They are kept with the incident in the archive, oldest first. An acceptance changes the state of the mesh, too, from the
next snapshot on. Earlier verdicts do not change.
"""

from model.names import list_first
from model.state import levels
from model.state.mesh_state import MeshState
from serve_app.api.codec.mistakes import SHOWN
from serve_app.api.schemas.actions import ActionDocument, ActionKind, KeptActionDocument
from serve_app.api.schemas.incidents import ArchivedIncidentDocument
from serve_app.errors import TooManyActions, UnknownIncident

MAX_ACTIONS = 100  # on one incident
MAX_NAMED = 5  # open incidents in an error


def add_action(
    state: MeshState, archived: ArchivedIncidentDocument | None, incident: str, document: ActionDocument, by: str = ""
) -> tuple[MeshState, ArchivedIncidentDocument | None, KeptActionDocument]:
    """Add an action. Returns the new state, the incident with the action, and the action; the same state and incident
    if it was added before.

    Args:
        archived: the incident in the archive; None: the archive has none, and only an acceptance is possible.

    Raises:
        UnknownIncident: no incident has this id, or it is not open and its level should be accepted.
        TooManyActions: the limit is reached.
    """
    known = archived.actions if archived is not None else []
    before = next((one for one in known if one.incident == incident and _is_same(one, document, by)), None)
    if before is not None:
        return state, archived, before
    if len(known) >= MAX_ACTIONS:
        raise TooManyActions(f"incident {incident}: the limit of {MAX_ACTIONS} actions is reached; nothing was added")
    assert state.observed_at is not None  # a mesh with a verdict has a snapshot
    kept = KeptActionDocument(incident=incident, kind=document.kind, text=document.text, by=by, at=state.observed_at)
    if document.kind is ActionKind.ACCEPT:
        state = _accept(state, incident)
    elif archived is None:
        raise _unknown(state, incident, "an incident, open or archived")
    if archived is not None:
        archived = archived.model_copy(update={"actions": [*known, kept]})
    return state, archived, kept


def _is_same(kept: KeptActionDocument, document: ActionDocument, by: str) -> bool:
    """Whether an action repeats one. A level can be accepted once."""
    is_same_kind = kept.kind is document.kind
    return is_same_kind and (kept.kind is ActionKind.ACCEPT or (kept.by, kept.text) == (by, document.text))


def _accept(state: MeshState, incident: str) -> MeshState:
    """Return the state to which the present level of an open incident or notice is normal."""
    try:
        return levels.accept_incident(state, incident)
    except KeyError:
        raise _unknown(state, incident, "an open incident") from None


def _unknown(state: MeshState, incident: str, expected: str) -> UnknownIncident:
    names = list_first([one.id for one in state.memory.open], MAX_NAMED) or "there is none"
    return UnknownIncident(
        f"incident: expected {expected} ({names}), got {incident[:SHOWN]!r}; take the id from a verdict or a list"
    )
