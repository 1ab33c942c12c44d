"""From the candidates of a snapshot to the open incidents that raise an alert."""

from collections.abc import Sequence
from datetime import datetime

import numpy as np

from model.decision.meta_model import MetaModel
from model.decision.ranking import root_cause_shares, with_neighbours
from model.evidence.evidence import Evidence
from model.incidents.matching import CLEAR_SHARE, Culprit, FoundGroup, Group, MatchedIncidents, match_incidents
from model.incidents.memory import IncidentMemory
from model.incidents.open_incident import OpenIncident, is_unseen
from model.incidents.policy import AlertPolicy, VerdictContext
from model.incidents.threshold import CLOSES, SEVERE, began
from model.verdict import Severity

UNSEEN_SECONDS = 900.0  # without telemetry of its services, after which an incident is given up ...
BLIND_SHARE = 0.5  # ... unless more than this share of the services is silent


def follow_alerts(
    meta: MetaModel,
    evidence: Evidence,
    memory: IncidentMemory,
    found: Sequence[Group],
    policy: AlertPolicy,
    when: VerdictContext,
) -> MatchedIncidents:
    """Match the groups of this snapshot with the open incidents that raise an alert."""
    described = [
        FoundGroup(
            group,
            first_evidence(evidence, group, memory, policy, when),
            Severity.MINOR,  # until its harm is known
            _culprit(meta, evidence, group, memory, policy, when) if group.confirmed else Culprit(),
        )
        for group in found
    ]
    before = [i for i in memory.open if i.is_alert and not i.scope]
    high = {name for name, page in zip(evidence.names, evidence.page, strict=True) if page > CLOSES * when.level}
    unseen = {one.id for one in before if is_unseen(one, evidence.unseen)}
    return match_incidents(
        before,
        described,
        evidence.names,
        policy.clear,
        when.interval_seconds,
        deviating=high,
        unseen=unseen,
        lately=memory.ended_lately(when.observed_at),
    )


def find_lost(
    evidence: Evidence, incidents: Sequence[OpenIncident], policy: AlertPolicy, when: VerdictContext
) -> tuple[str, ...]:
    """Return the ids of the incidents of which nothing was seen for too long, although snapshots come. If they show
    nothing of most services, they are as good as missing."""
    is_blind = evidence.silence is not None and evidence.silence.share > BLIND_SHARE
    longest = policy.longest_gap_seconds if is_blind else min(UNSEEN_SECONDS, policy.longest_gap_seconds)
    return tuple(
        incident.id
        for incident in incidents
        if is_unseen(incident, evidence.unseen) and incident.unseen * when.interval_seconds > longest
    )


def _culprit(
    meta: MetaModel,
    evidence: Evidence,
    group: Group,
    memory: IncidentMemory,
    policy: AlertPolicy,
    when: VerdictContext,
) -> Culprit:
    """Return the service where a group probably starts, and when it arose if it is confirmed and severe."""
    rows = with_neighbours(group.rows, evidence.calls)
    share = root_cause_shares(meta, evidence, rows, np.zeros(len(evidence.names), np.float32))
    best = int(share.argmax())
    if share[best] < CLEAR_SHARE:
        return Culprit()
    name = evidence.names[rows[best]]
    is_severe = evidence.page[rows[best]] > SEVERE * when.level
    track = memory.tracks.get(name)
    if not is_severe or track is None or track.times_above(when.level, policy.confirm_of) < policy.confirm:
        return Culprit(name)
    return Culprit(name, track.above_since)


def first_evidence(
    evidence: Evidence, group: Group, memory: IncidentMemory, policy: AlertPolicy, when: VerdictContext
) -> datetime:
    """Return when the first deviation of a group began."""
    names = [evidence.names[row] for row in group.rows]
    now, interval = when.observed_at, when.interval_seconds
    return min((began(memory.tracks, name, when.level, policy, now, interval) for name in names), default=now)
