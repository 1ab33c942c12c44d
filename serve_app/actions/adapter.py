"""Rolls back the adapter of a mesh: a function from state to state."""

import math
from datetime import datetime

from model.features import NODE_CHANNELS, P50, RATE
from model.state.adapter_fit import restore_former
from model.state.load_adapter import LATENCIES, LEAST, MOST, USUAL, Adaptation, Adapter
from model.state.mesh_state import MeshState
from serve_app.api.schemas.views import AdaptationDocument, AdapterDocument, LoadCurve
from serve_app.errors import NoAdapter

MOST_CURVES = 2000  # in a document


def roll_back(state: MeshState, fitted_at: datetime | None) -> tuple[MeshState, Adaptation]:
    """Return to the adapter before the one in use, or to none.

    Args:
        state: of the mesh.
        fitted_at: time of the adapter to roll back, so that a repeated request rolls back only one. If another is in
            use now, nothing changes.

    Returns:
        The new state and its adapters.

    Raises:
        NoAdapter: none is in use.
    """
    adapter = state.adaptation.adapter
    if fitted_at is None:
        raise NoAdapter("adapter: expected an adapter in use, got none; there is nothing to roll back")
    if adapter is not None and adapter.fitted_at == fitted_at:
        state = restore_former(state)
    return state, state.adaptation


def encode_adaptation(adaptation: Adaptation) -> AdaptationDocument:
    """The document of the adapter in use and the former one."""
    return AdaptationDocument(
        adapter=adaptation.adapter and _adapter(adaptation.adapter),
        former=adaptation.former and _adapter(adaptation.former),
        rolled_back_at=adaptation.rolled_back_at,
    )


def _adapter(adapter: Adapter) -> AdapterDocument:
    return AdapterDocument.from_object(adapter, services=len(adapter.services), curves=_curves(adapter))


def _curves(adapter: Adapter) -> list[LoadCurve]:
    """How much slower each service's median request is at the highest load than at the lowest, steepest first."""
    at = LATENCIES.index(P50)
    slower = (adapter.rise(adapter.load[:, MOST])[:, at] - adapter.rise(adapter.load[:, LEAST])[:, at]).tolist()
    steepest = sorted(range(len(slower)), key=lambda i: (-slower[i], adapter.services[i]))[:MOST_CURVES]
    rate = NODE_CHANNELS[RATE].inverse
    return [
        LoadCurve(
            service=adapter.services[i],
            usual_request_rate=rate(float(adapter.load[i, USUAL])),
            least_request_rate=rate(float(adapter.load[i, LEAST])),
            most_request_rate=rate(float(adapter.load[i, MOST])),
            slowdown=math.exp(slower[i]),
        )
        for i in steepest
    ]
