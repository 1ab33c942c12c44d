"""The ranking of suspects: what was learned, what was measured, and the probability of an incident."""

import numpy as np
import torch
from torch import Tensor

from model.decision.meta_model import MetaModel, detect_inputs, rank_inputs
from model.evidence.evidence import Evidence
from model.evidence.kinds import WORTH_A_LOOK, EvidenceKind
from model.features import Array
from model.incidents.memory import IncidentMemory
from model.snapshot import IntArray

# Nats in the ranking for each decade of page score, whatever was learned. Many more decades than a disappearance has
# show the damage rather than the cause.
PAGE_NATS, MAX_DECADES = 1.5, 8.0


def root_cause_shares(meta: MetaModel, evidence: Evidence, rows: IntArray, preferred: Array) -> Array:
    """Return the probability of each of R candidates that the fault starts there, ``[R]``; arguments as in
    :func:`suspects`."""
    with torch.inference_mode():
        scores = meta.root_cause_score(rank_inputs(evidence, rows), measured_nats(evidence, rows))
        shares: Array = torch.softmax(scores + torch.from_numpy(preferred[rows]), 0).numpy()
    return shares


def with_neighbours(rows: IntArray, calls: IntArray) -> IntArray:
    """Add the callers and callees of a group, because the root cause may show no symptom itself."""
    touching = np.isin(calls, rows).any(axis=0)
    near: IntArray = np.union1d(rows, calls[:, touching].ravel()).astype(np.int64)
    return near


def measured_nats(evidence: Evidence, rows: IntArray) -> Tensor:
    """Return the nats ``[R]`` of each candidate that are not learned: from its page score, and from what its calls and
    its callers' calls explain."""
    return page_nats(evidence, rows) + torch.from_numpy(attribution_nats(evidence)[rows])


def attribution_nats(evidence: Evidence) -> Array:
    """Return nats ``[M]`` for each candidate: fewer for what its callees explain, more for what it explains of its
    callers. 0 if the calls are unknown."""
    if evidence.attribution is None or not evidence.calls.shape[1]:
        return np.zeros(len(evidence.names), np.float32)
    kinds = evidence.kinds
    return evidence.attribution.nats(
        evidence.calls,
        kinds[:, [EvidenceKind.ERROR_RAW, EvidenceKind.CALLS_IN_ERROR]].max(axis=1),
        kinds[:, [EvidenceKind.LATENCY_RAW, EvidenceKind.CALLS_IN_LATENCY]].max(axis=1),
        kinds[:, EvidenceKind.VANISHED],
        evidence.pushed,
    )


def page_nats(evidence: Evidence, rows: IntArray) -> Tensor:
    """Return nats ``[R]`` for each candidate from its own page score.

    A service that disappeared counts in full: the surprise of that is moderate, while its callers can fail all their
    requests.
    """
    page = evidence.page[rows]
    is_missed = evidence.kinds[rows, EvidenceKind.VANISHED] > WORTH_A_LOOK
    return torch.from_numpy(PAGE_NATS * np.where(is_missed, MAX_DECADES, page.clip(max=MAX_DECADES)))


def probability(meta: MetaModel, evidence: Evidence, memory: IncidentMemory, level: float) -> float:
    """Return the probability that an incident is in progress, 0 to 1."""
    with torch.inference_mode():
        logit = meta.incident_logit(detect_inputs(evidence, memory, level))
    return float(torch.sigmoid(logit))
