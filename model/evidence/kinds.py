"""Kinds of evidence for and against a service, and its page score: how unusual and relevant its symptoms are."""

from enum import IntEnum

import numpy as np

from model.features import Array
from model.ordering import largest_of_rows
from model.snapshot import BoolArray


class EvidenceKind(IntEnum):
    """Columns of ``kinds [*, K]``: what speaks for or against a service."""

    LATENCY = 0  # latency that neighbours do not explain; the worst of p50, p99 and self time
    LATENCY_RAW = 1  # latency, explained or not
    ERROR = 2  # errors that neighbours do not explain
    ERROR_RAW = 3  # errors, explained or not
    OWN_TIME = 4  # self time, without downstream calls
    RESOURCES = 5  # cpu, in total or per request
    CALLS_IN_LATENCY = 6  # latency of the worst call into the service
    CALLS_IN_ERROR = 7  # errors of the worst call into the service
    CALLS_OUT = 8  # extra traffic on the service's own calls
    CALLEES = 9  # symptoms of the worst service it calls
    CALLERS = 10  # symptoms of the worst service that calls it
    VANISHED = 11  # the service is gone and missed, or calls to it were rerouted or dropped


K = len(EvidenceKind)
# What makes a service part of an incident beside it: symptoms, explained or not, and calls out beyond its own load. The
# source of a storm of calls may show no other symptom, yet it links the victims.
AFFECTED = [
    EvidenceKind.LATENCY_RAW,
    EvidenceKind.ERROR_RAW,
    EvidenceKind.CALLS_IN_LATENCY,
    EvidenceKind.CALLS_IN_ERROR,
    EvidenceKind.CALLS_OUT,
    EvidenceKind.VANISHED,
]
CALLED_SYMPTOMS = AFFECTED[:4]  # what a caller sees of the services it calls
WORTH_A_LOOK = 2.0  # surprise from which a service is a candidate: one in a hundred
# Of an event that normal traffic never shows, decades: more than the threshold of the most restless mesh.
EVENT_SURPRISE = 8.0


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
    return (strong[:, -1] > 0) & (strong[:, -1] >= largest_of_rows(strong))
