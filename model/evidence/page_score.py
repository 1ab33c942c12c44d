"""The page score: how unusual and how relevant the symptoms of a service are."""

import numpy as np

from model.evidence.kinds import EvidenceKind
from model.features import Array
from model.ordering import largest_of_rows
from model.snapshot import BoolArray

RESOURCES = 0.6  # weight of a surprise in resources relative to one in latency or errors


def page_score(kinds: Array) -> Array:
    """Return the page score ``[N]``: the strongest symptom.

    Symptoms are latency and errors (own, or of calls into the service), disappearance and, with a lower weight,
    resources. Load is context and never raises an alert.
    """
    return largest_of_rows(symptoms(kinds))


def symptoms(kinds: Array) -> Array:
    """Return ``[N, 4]``: latency, errors, disappearance and weighted resources. These can raise alerts."""
    latency = np.maximum(kinds[:, EvidenceKind.LATENCY], kinds[:, EvidenceKind.CALLS_IN_LATENCY])
    error = np.maximum(kinds[:, EvidenceKind.ERROR], kinds[:, EvidenceKind.CALLS_IN_ERROR])
    return np.stack(
        [latency, error, kinds[:, EvidenceKind.VANISHED], np.float32(RESOURCES) * kinds[:, EvidenceKind.RESOURCES]],
        axis=1,
    )


def led_by_resources(kinds: Array) -> BoolArray:
    """Return in which rows ``[N]`` no symptom is stronger than resources."""
    strong = symptoms(kinds)
    led: BoolArray = (strong[:, -1] > 0) & (strong[:, -1] >= largest_of_rows(strong))
    return led


def without_resources(kinds: Array) -> Array:
    """Return the evidence ``[N, K]`` as if resources were as usual."""
    kinds = kinds.copy()
    kinds[:, EvidenceKind.RESOURCES] = 0
    return kinds
