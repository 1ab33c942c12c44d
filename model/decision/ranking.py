"""The ranking of suspects with their reasons, and the probability of an incident."""

from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import torch

from model.decision.meta_model import MetaModel, detect_inputs
from model.evidence.explanations import Fact
from model.evidence.gather import Evidence
from model.evidence.kinds import WORTH_A_LOOK, EvidenceKind
from model.features import Array
from model.incidents.memory import IncidentMemory
from model.incidents.policy import VerdictContext
from model.ordering import largest_of_group
from model.snapshot import IntArray
from model.verdict import MAX_SUSPECTS, Reason, Suspect

# Nats in the ranking for each decade of page score. Many more decades than a disappearance has show the damage rather
# than the cause.
PAGE_NATS, MAX_DECADES = 1.5, 8.0
OTHERS_SHARE = 0.5  # of a service's page score, that a callee which deviates as much, or a caller, takes away from it


def root_cause_shares(evidence: Evidence, rows: IntArray, preferences: Array) -> Array:
    """Return each candidate's probability that the fault starts there, ``[R]``: a softmax over the nats that
    speak for it, from its page score, and from what its calls and its callers' calls explain."""
    nats = (page_nats(evidence) + attribution_nats(evidence) + preferences)[rows]
    odds = np.exp(nats - nats.max())
    shares: Array = odds / odds.sum()
    return shares


def with_neighbours(rows: IntArray, calls: IntArray) -> IntArray:
    """Add the callers and callees of a group, because the root cause may show no symptom itself."""
    touching = np.isin(calls, rows).any(axis=0)
    return np.union1d(rows, calls[:, touching].ravel()).astype(np.int64)


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
        evidence.inbound_load,
    )


def page_nats(evidence: Evidence) -> Array:
    """Return nats ``[M]`` for each candidate from its own page score: less if its callees deviate, unless it may have
    flooded them, or if a caller floods it. What a service sends beyond its requests is a flood as far as it deviates
    itself: where traffic returns, callers send more, too, and are well.

    A service that disappeared counts in full: the surprise of that is moderate, while its callers can fail all their
    requests.
    """
    kinds, (source, destination) = evidence.kinds, evidence.calls
    flood = np.minimum(kinds[:, EvidenceKind.CALLS_OUT], evidence.page)
    own = evidence.page.clip(max=MAX_DECADES)
    own[kinds[:, EvidenceKind.VANISHED] > WORTH_A_LOOK] = MAX_DECADES
    of_callees = np.where(flood >= WORTH_A_LOOK, 0, kinds[:, EvidenceKind.CALLEES])
    of_callers = largest_of_group(flood[source], destination, len(own))
    of_others = OTHERS_SHARE * np.minimum(own, np.maximum(of_callees, of_callers))
    return (PAGE_NATS * (own - of_others)).astype(np.float32)


def probability(meta: MetaModel, evidence: Evidence, memory: IncidentMemory, level: float) -> float:
    with torch.inference_mode():
        logit = meta.incident_logit(detect_inputs(evidence, memory, level))
    return float(torch.sigmoid(logit))


def suspects(
    evidence: Evidence,
    rows: IntArray,
    memory: IncidentMemory,
    context: VerdictContext,
    preferences: Array,
    independent: IntArray | None = None,
) -> tuple[Suspect, ...]:
    """Rank these candidates by root-cause score and explain the best ones.

    Args:
        preferences: ``[M]`` nats for services that feedback named before.
        independent: candidates with a fault of their own, which are explained although others are more suspect.
    """
    if not len(rows):
        return ()
    share = root_cause_shares(evidence, rows, preferences)
    order = np.argsort(-share, kind="stable")
    is_listed = np.isin(rows[order], [] if independent is None else independent)
    is_listed[: MAX_SUSPECTS - min(int(is_listed[MAX_SUSPECTS:].sum()), MAX_SUSPECTS - 1)] = True
    ranking = []
    for i in order[is_listed][:MAX_SUSPECTS].tolist():
        row = int(rows[i])
        since = _deviating_since(evidence, row, memory, context.observed_at)
        facts = tuple(_as_reason(fact, since) for fact in evidence.explanation.context.get(row, ()))
        reasons = reasons_of(evidence, row, memory, context)
        ranking.append(Suspect(evidence.names[row], float(share[i]), reasons, facts))
    return tuple(ranking)


def reasons_of(evidence: Evidence, row: int, memory: IncidentMemory, context: VerdictContext) -> tuple[Reason, ...]:
    now, explanation = context.observed_at, evidence.explanation
    since = _deviating_since(evidence, row, memory, now)
    if explanation.gone[row]:
        since = min(since, now - timedelta(seconds=(int(explanation.gone[row]) - 1) * context.interval_seconds))
    reasons = [_as_reason(fact, since) for fact in explanation.reasons[row]]
    if reasons:  # the load is reported once
        reasons[0] = replace(reasons[0], load=float(explanation.load[row]))
    return tuple(reasons)


def _as_reason(fact: Fact, since: datetime) -> Reason:
    return Reason(
        metric=fact.metric,
        observed=fact.observed,
        expected=fact.expected,
        since=since,
        source=fact.source,
        destination=fact.destination,
    )


def _deviating_since(evidence: Evidence, row: int, memory: IncidentMemory, now: datetime) -> datetime:
    """Return the first snapshot of a candidate's present deviation."""
    track = memory.tracks.get(evidence.names[row])
    return track.above_since or now if track else now
