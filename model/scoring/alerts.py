"""From the candidates of a snapshot to the open incidents that raise an alert."""

from collections.abc import Sequence
from datetime import datetime

import numpy as np

from model.incidents.confirmation import Streaks, is_confirmed
from model.incidents.groups import Group
from model.incidents.matching import CLEAR_SHARE, Culprit, MatchedIncidents, match_incidents
from model.incidents.memory import IncidentMemory
from model.incidents.open_incident import OpenIncident, is_unseen
from model.incidents.policy import AlertPolicy
from model.scoring.evidence import Evidence
from model.scoring.lasting import SEVERE
from model.scoring.meta_model import MetaModel
from model.scoring.ranking import root_cause_shares, with_neighbours
from model.scoring.verdict_context import VerdictContext
from model.verdict import Severity

RETURNED_SHARE = 0.5  # of the page level, below which the page scores of an incident's services are back to normal


def follow_alerts(
    meta: MetaModel,
    evidence: Evidence,
    memory: IncidentMemory,
    found: Sequence[Group],
    policy: AlertPolicy,
    when: VerdictContext,
) -> MatchedIncidents:
    """Match the groups of this snapshot with the open incidents that raise an alert."""
    began = [first_evidence(memory.above_level, evidence, g, when.observed_at) for g in found]
    severities = [_severity(evidence, g, when.level) for g in found]
    culprits = [_culprit(meta, evidence, g, memory, policy, when) if g.confirmed else Culprit() for g in found]
    before = [i for i in memory.open if i.is_alert and not i.scope]
    deviating = _find_deviating(evidence, before, when.level)
    clear, interval = policy.clear, when.interval_seconds
    return MatchedIncidents(
        *match_incidents(before, found, evidence.names, began, severities, culprits, clear, interval, deviating)
    )


def _find_deviating(evidence: Evidence, incidents: Sequence[OpenIncident], level: float) -> set[str]:
    """Return the ids of the incidents with a service whose page score is not back to normal."""
    high = {name for name, page in zip(evidence.names, evidence.page, strict=True) if page > RETURNED_SHARE * level}
    return {
        incident.id
        for incident in incidents
        if not high.isdisjoint(incident.members) or is_unseen(incident, evidence.unseen)
    }


def find_lost(
    evidence: Evidence, incidents: Sequence[OpenIncident], policy: AlertPolicy, when: VerdictContext
) -> tuple[str, ...]:
    """Return the ids of the incidents of which nothing was seen for too long."""
    return tuple(
        incident.id
        for incident in incidents
        if is_unseen(incident, evidence.unseen) and incident.quiet * when.interval_seconds > policy.longest_gap_seconds
    )


def _severity(evidence: Evidence, group: Group, level: float) -> Severity:
    """Critical: twice the page level over three services; major: either of them; else minor."""
    strong = bool(evidence.page[group.rows].max() > 2 * level)
    wide = len(group.rows) >= 3
    return Severity.CRITICAL if strong and wide else Severity.MAJOR if strong or wide else Severity.MINOR


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
    if not is_severe or not is_confirmed(memory.above_level, [name], policy.confirm)[0]:
        return Culprit(name)
    return Culprit(name, memory.above_level[name][1])


def first_evidence(above: Streaks, evidence: Evidence, group: Group, now: datetime) -> datetime:
    """Return when the first streak above the level began in a group; ``above`` as in ``IncidentMemory``."""
    return min((above[evidence.names[i]][1] for i in group.rows if evidence.names[i] in above), default=now)
