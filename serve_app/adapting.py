"""Taking back what a mesh has adapted to: a state in, a state out."""

from datetime import datetime

from model.adaptation import rolled_back
from model.adapter import Adaptation
from model.state import MeshState
from serve_app.errors import NoAdapter


def taken_back(state: MeshState, fitted_at: datetime | None) -> tuple[MeshState, Adaptation]:
    """The state with the adapter before the one in use, or none, and what it has adapted to then.

    Args:
        state: of the mesh.
        fitted_at: of the adapter to be taken back, so that to ask twice takes back one; where another is in use by now,
            nothing changes.

    Raises:
        NoAdapter: none was in use.
    """
    adapter = state.adaptation.adapter
    if fitted_at is None:
        raise NoAdapter("adapter: expected one in use, came none; there is nothing to take back")
    if adapter is not None and adapter.fitted_at == fitted_at:
        state = rolled_back(state)
    return state, state.adaptation
