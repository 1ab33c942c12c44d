"""People's actions on an incident: acknowledgements, notes, what helped, and the acceptance of its level as normal.

The archive keeps them with the incident, oldest first. An acceptance also changes the mesh's state from the next
snapshot on. Earlier verdicts do not change.
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
    state: MeshState,
    archived_incident: ArchivedIncidentDocument | None,
    incident: str,
    document: ActionDocument,
    by: str = "",
) -> tuple[MeshState, ArchivedIncidentDocument | None, KeptActionDocument]:
    """Return the state and the incident with an action added, and the stored action; the same state and incident if it
    was added before.

    Raises:
        UnknownIncident: no incident has this id, the level of an incident that is not open should be accepted, or the
            incident is not in the archive (``archived_incident`` is None) and the action is something else.
        TooManyActions: the limit is reached.
    """
    actions = archived_incident.actions if archived_incident is not None else []
    before = next(
        (action for action in actions if action.incident == incident and _repeats(action, document, by)), None
    )
    if before is not None:
        return state, archived_incident, before
    if len(actions) >= MAX_ACTIONS:
        raise TooManyActions(f"incident {incident}: the limit of {MAX_ACTIONS} actions is reached; nothing was added")
    assert state.observed_at is not None  # a mesh with a verdict has a snapshot
    action = KeptActionDocument(incident=incident, kind=document.kind, text=document.text, by=by, at=state.observed_at)
    if document.kind is ActionKind.ACCEPT:
        state = _accept(state, incident)
    elif archived_incident is None:
        raise _unknown_incident(state, incident, "an incident, open or archived")
    if archived_incident is not None:
        archived_incident = archived_incident.model_copy(update={"actions": [*actions, action]})
    return state, archived_incident, action


def _repeats(action: KeptActionDocument, document: ActionDocument, by: str) -> bool:
    """Whether a document repeats a stored action. A level can be accepted once."""
    is_same_kind = action.kind is document.kind
    return is_same_kind and (action.kind is ActionKind.ACCEPT or (action.by, action.text) == (by, document.text))


def _accept(state: MeshState, incident: str) -> MeshState:
    """Return the state in which the present level of an open incident or notice is normal."""
    try:
        return levels.accept_incident(state, incident)
    except KeyError:
        raise _unknown_incident(state, incident, "an open incident") from None


def _unknown_incident(state: MeshState, incident: str, expected: str) -> UnknownIncident:
    ids = list_first([open_incident.id for open_incident in state.memory.open], MAX_NAMED) or "there is none"
    return UnknownIncident(
        f"incident: expected {expected} ({ids}), got {incident[:SHOWN]!r}; take the id from a verdict or a list"
    )
