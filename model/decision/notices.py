"""Notices: resources that are running out, before users are affected."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np

from model.decision.ranking import reasons_of
from model.evidence.gather import Evidence
from model.evidence.resources import Trend
from model.features import CONNECTIONS, CPU, CPU_PER_REQUEST, MEMORY, NODE_CHANNELS
from model.incidents.confirmation import follow_streaks, is_confirmed
from model.incidents.matching import FoundGroup, MatchedIncidents, groups, match_incidents, split_muted
from model.incidents.memory import IncidentMemory
from model.incidents.open_incident import OpenIncident, PastNotice, likely_services, renew
from model.incidents.policy import NOTICE_CLEAR_SECONDS, AlertPolicy, VerdictContext
from model.incidents.schedule import Schedule, Work, is_overdue
from model.snapshot import BoolArray, IntArray, SignalKind, mark_services
from model.verdict import MAX_SUSPECTS, OVERDUE, Reason, Severity, Suspect

NOTICE_CONFIRM, NOTICE_CONFIRM_OF = 3, 4  # k of the last n snapshots above the level; a notice is not urgent
SIGNALS = frozenset(SignalKind)
RESOURCE_METRICS = frozenset(NODE_CHANNELS[c].name for c in (CPU, MEMORY, CONNECTIONS, CPU_PER_REQUEST))


def follow_notices(
    evidence: Evidence,
    memory: IncidentMemory,
    alerting: Sequence[OpenIncident],
    muted: BoolArray,
    policy: AlertPolicy,
    when: VerdictContext,
) -> tuple[IncidentMemory, MatchedIncidents, frozenset[str]]:
    """Match resources that are running out with the open notices.

    No notice begins at a service of an alert, because a shortage there may be the harm of that fault. An open one
    continues; see :func:`drop_repeated` for its end.

    Returns:
        What alerting remembers next, the notices, and the services that would be part of one if they were not muted.
    """
    alerted = {name for incident in alerting for name in incident.members}
    before = [i for i in memory.open if not i.is_alert and not i.scope]
    noticed = {name for incident in before for name in incident.members}
    free = ~mark_services(evidence.names, alerted - noticed)
    policy = replace(policy, confirm=NOTICE_CONFIRM, confirm_of=NOTICE_CONFIRM_OF)
    member = (evidence.notice > when.notice_level) & free
    named = [evidence.names[row] for row in np.flatnonzero(member).tolist()]
    above = follow_streaks(memory.above_notice, named, policy.confirm_of, when.observed_at)
    confirmed = np.array([is_confirmed(above, name, policy) for name in evidence.names], bool)
    unmuted, hidden = split_muted(groups(member, confirmed, evidence.calls), confirmed, muted)
    found = [g for g in unmuted if g.confirmed]
    began = [min(above[evidence.names[i]][1] for i in g.rows if evidence.names[i] in above) for g in found]
    followed = match_incidents(
        before,
        [FoundGroup(group, since, Severity.NOTICE) for group, since in zip(found, began, strict=True)],
        evidence.names,
        max(2, round(NOTICE_CLEAR_SECONDS / when.interval_seconds)),
    )
    return replace(memory, above_notice=above), followed, frozenset(evidence.names[i] for i in hidden)


def drop_repeated(incidents: Sequence[OpenIncident]) -> tuple[OpenIncident, ...]:
    """Return the incidents without notices about services that an alert suspects: the alert tells the same story, and
    users are affected."""
    suspected = {name for one in incidents if one.is_alert for name in likely_services(one)}
    return tuple(one for one in incidents if one.is_alert or one.scope or suspected.isdisjoint(one.members))


def short_services(
    evidence: Evidence, rows: IntArray, memory: IncidentMemory, when: VerdictContext
) -> tuple[Suspect, ...]:
    """Return the services of a notice, the one whose resource deviates most first."""
    share = evidence.notice[rows] / max(float(evidence.notice[rows].sum()), 1e-6)
    best = np.argsort(-share, kind="stable")[:MAX_SUSPECTS]
    found = []
    for i in best:
        row = int(rows[i])
        began = memory.above_notice.get(evidence.names[row], (0, when.observed_at))[1]
        rising = tuple(_rising_reason(t, when.observed_at) for t in evidence.trends if t.row == row)
        grown = {reason.metric for reason in rising}
        others = (
            replace(reason, since=began)
            for reason in reasons_of(evidence, row, memory, when)
            if reason.metric in RESOURCE_METRICS and reason.metric not in grown
        )
        facts = (f for f in evidence.explanation.context.get(row, ()) if f.metric in SIGNALS)
        signals = (Reason(metric=f.metric, observed=f.observed, expected=f.expected, since=began) for f in facts)
        late = overdue_reason(memory.schedule, evidence.names[row], when.observed_at, when.interval_seconds)
        found.append(Suspect(evidence.names[row], float(share[i]), (*late, *signals, *rising, *others)))
    return tuple(found)


def open_notices(incidents: Sequence[OpenIncident], when: VerdictContext) -> list[PastNotice]:
    """Return the services of open notices, with their reasons."""
    return [
        PastNotice(suspect, incident.suspects_at or when.observed_at)
        for incident in incidents
        if incident.severity is Severity.NOTICE
        for suspect in incident.suspects
    ]


def remember_notices(
    evidence: Evidence, incidents: Sequence[OpenIncident], earlier: Sequence[PastNotice], when: VerdictContext
) -> tuple[OpenIncident, ...]:
    """Let incidents remember the notices about their services, those that just ended included. Resources that still
    rise have new forecasts."""
    found = [*earlier, *open_notices(incidents, when)]
    rising: dict[str, dict[str, Reason]] = {}
    for trend in evidence.trends:
        rising.setdefault(evidence.names[trend.row], {})[trend.metric] = _rising_reason(trend, when.observed_at)
    remembering = []
    for incident in incidents:
        heir = incident.inherit_notices(found)
        renewed = tuple(renew(one, rising.get(one.suspect.service, {}), when.observed_at) for one in heir.notices)
        remembering.append(replace(heir, notices=renewed) if renewed else heir)
    return tuple(remembering)


def _rising_reason(trend: Trend, now: datetime) -> Reason:
    began = now - timedelta(seconds=trend.seconds)
    return Reason(
        metric=trend.metric, observed=trend.observed, expected=trend.usual, since=began, forecast=trend.forecast
    )


def overdue_reason(schedule: Schedule, name: str, now: datetime, interval_seconds: float) -> tuple[Reason, ...]:
    """Return why a service has a notice although it uses nothing: its regular work did not run. Empty if it did."""
    work = schedule.works.get(name, Work())
    if not is_overdue(work, now.timestamp(), interval_seconds):
        return ()
    return (
        Reason(
            metric=OVERDUE,
            observed=now.timestamp() - work.came,
            expected=work.period,
            since=datetime.fromtimestamp(work.came, UTC),
        ),
    )
