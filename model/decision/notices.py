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
    context: VerdictContext,
) -> tuple[IncidentMemory, MatchedIncidents, frozenset[str]]:
    """Match resources that are running out with the open notices.

    No notice begins at a service of an alert, because a shortage there may be the harm of that fault. An open one
    continues; see :func:`drop_repeated` for its end.

    Returns:
        What alerting remembers next, the notices, and the services that would be part of one if they were not muted.
    """
    alerted = {name for incident in alerting for name in incident.members}
    before = [i for i in memory.open if not i.is_alert and not i.scope]
    notice_members = {name for incident in before for name in incident.members}
    free = ~mark_services(evidence.names, alerted - notice_members)
    policy = replace(policy, confirm=NOTICE_CONFIRM, confirm_of=NOTICE_CONFIRM_OF)
    member = (evidence.notice > context.notice_level) & free
    names = [evidence.names[row] for row in np.flatnonzero(member).tolist()]
    above = follow_streaks(memory.above_notice, names, policy.confirm_of, context.observed_at)
    confirmation = np.array([is_confirmed(above, name, policy) for name in evidence.names], bool)
    visible_groups, hidden_rows = split_muted(groups(member, confirmation, evidence.calls), confirmation, muted)
    confirmed_groups = [g for g in visible_groups if g.is_confirmed]
    began = [min(above[evidence.names[i]][1] for i in g.rows if evidence.names[i] in above) for g in confirmed_groups]
    matches = match_incidents(
        before,
        [FoundGroup(group, since, Severity.NOTICE) for group, since in zip(confirmed_groups, began, strict=True)],
        evidence.names,
        max(2, round(NOTICE_CLEAR_SECONDS / context.interval_seconds)),
    )
    return replace(memory, above_notice=above), matches, frozenset(evidence.names[i] for i in hidden_rows)


def drop_repeated(incidents: Sequence[OpenIncident]) -> tuple[OpenIncident, ...]:
    """Return the incidents without notices about services that an alert suspects: the alert tells the same story, and
    users are affected."""
    suspects = {name for incident in incidents if incident.is_alert for name in likely_services(incident)}
    return tuple(
        incident
        for incident in incidents
        if incident.is_alert or incident.scope or suspects.isdisjoint(incident.members)
    )


def short_services(
    evidence: Evidence, rows: IntArray, memory: IncidentMemory, context: VerdictContext
) -> tuple[Suspect, ...]:
    """Return the services of a notice, the one whose resource deviates most first."""
    share = evidence.notice[rows] / max(float(evidence.notice[rows].sum()), 1e-6)
    best = np.argsort(-share, kind="stable")[:MAX_SUSPECTS]
    services = []
    for i in best:
        row = int(rows[i])
        began = memory.above_notice.get(evidence.names[row], (0, context.observed_at))[1]
        rising = tuple(_rising_reason(t, context.observed_at) for t in evidence.trends if t.row == row)
        rising_metrics = {reason.metric for reason in rising}
        other_reasons = (
            replace(reason, since=began)
            for reason in reasons_of(evidence, row, memory, context)
            if reason.metric in RESOURCE_METRICS and reason.metric not in rising_metrics
        )
        facts = (f for f in evidence.explanation.context.get(row, ()) if f.metric in SIGNALS)
        signals = (Reason(metric=f.metric, observed=f.observed, expected=f.expected, since=began) for f in facts)
        late = overdue_reason(memory.schedule, evidence.names[row], context.observed_at, context.interval_seconds)
        services.append(Suspect(evidence.names[row], float(share[i]), (*late, *signals, *rising, *other_reasons)))
    return tuple(services)


def open_notices(incidents: Sequence[OpenIncident], context: VerdictContext) -> list[PastNotice]:
    """Return the services of open notices, with their reasons."""
    return [
        PastNotice(suspect, incident.suspects_at or context.observed_at)
        for incident in incidents
        if incident.severity is Severity.NOTICE
        for suspect in incident.suspects
    ]


def remember_notices(
    evidence: Evidence, incidents: Sequence[OpenIncident], earlier: Sequence[PastNotice], context: VerdictContext
) -> tuple[OpenIncident, ...]:
    """Let incidents remember the notices about their services, those that just ended included. Resources that still
    rise have new forecasts."""
    past_notices = [*earlier, *open_notices(incidents, context)]
    rising: dict[str, dict[str, Reason]] = {}
    for trend in evidence.trends:
        rising.setdefault(evidence.names[trend.row], {})[trend.metric] = _rising_reason(trend, context.observed_at)
    remembering = []
    for incident in incidents:
        heir = incident.inherit_notices(past_notices)
        notices = tuple(
            renew(notice, rising.get(notice.suspect.service, {}), context.observed_at) for notice in heir.notices
        )
        remembering.append(replace(heir, notices=notices) if notices else heir)
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
