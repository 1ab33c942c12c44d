"""What a mesh has adapted to, as a document."""

import math

from model.adapter import LATENCIES, LEAST, MOST, USUAL, Adaptation, Adapter
from model.features import NODE_CHANNELS, P50, RATE
from serve_app.schemas import AdaptationDocument, AdapterDocument, LoadCurve


def encode_adaptation(adaptation: Adaptation) -> AdaptationDocument:
    """The document of the adapter in use and the one before it."""
    return AdaptationDocument(
        adapter=adaptation.adapter and _adapter(adaptation.adapter),
        former=adaptation.former and _adapter(adaptation.former),
        rolled_back_at=adaptation.taught_after,
    )


def _adapter(adapter: Adapter) -> AdapterDocument:
    return AdapterDocument(
        fitted_at=adapter.fitted_at,
        snapshots=adapter.snapshots,
        loss_before=adapter.loss_before,
        loss_after=adapter.loss_after,
        curves=_curves(adapter),
    )


def _curves(adapter: Adapter) -> list[LoadCurve]:
    """How much slower each service's median request is at most load than at least load, the steepest first."""
    at = LATENCIES.index(P50)
    factor = adapter.rise(adapter.load[:, MOST])[:, at] - adapter.rise(adapter.load[:, LEAST])[:, at]
    rate = NODE_CHANNELS[RATE].inverse
    curves = [
        LoadCurve(
            service=service,
            usual_request_rate=rate(float(load[USUAL])),
            least_request_rate=rate(float(load[LEAST])),
            most_request_rate=rate(float(load[MOST])),
            slowdown=math.exp(float(slower)),
        )
        for service, load, slower in zip(adapter.services, adapter.load, factor, strict=True)
    ]
    return sorted(curves, key=lambda curve: (-curve.slowdown, curve.service))
