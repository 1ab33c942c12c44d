"""Incidents of traffic: changes of the requests from outside, followed from snapshot to snapshot."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime

from model.evidence.traffic import MESH, TrafficChange, contains, traffic_score
from model.incidents.confirmation import follow_streaks, is_confirmed
from model.incidents.memory import IncidentMemory
from model.incidents.open_incident import FADED_SECONDS, OpenIncident, advance_quiet, incident_id, is_over, reopen
from model.incidents.policy import AlertPolicy, VerdictContext
from model.verdict import Reason, Severity, Suspect, worst

MIN = 3  # snapshots that confirm a change, however long they are
HALF = 0.5  # times a namespace's or entry point's usual requests, below which their loss is major


@dataclass(frozen=True, slots=True)
class FollowedTraffic:
    """The memory with the newest streaks, the open incidents of traffic that raise an alert and those that do not,
    those that ended with this snapshot, the muted entry points that would be part of an alert, and the decisive score
    of traffic that is not muted."""

    memory: IncidentMemory
    alerts: tuple[OpenIncident, ...]
    notices: tuple[OpenIncident, ...]
    ended: tuple[OpenIncident, ...]
    hidden_services: frozenset[str]
    score: float


def follow_traffic(
    changes: Sequence[TrafficChange],
    memory: IncidentMemory,
    alerted: AbstractSet[str],
    silent: AbstractSet[str],
    policy: AlertPolicy,
    context: VerdictContext,
) -> FollowedTraffic:
    """Match the changes of traffic in a snapshot with the open incidents of traffic.

    Args:
        memory: with the open incidents of traffic, and the scopes that were not as usual before.
        alerted: services in other alerts. If they are all that gets fewer requests, their alert says why.
        silent: services whose telemetry is missing. A service that cannot be seen is not back to normal.
    """
    now = context.observed_at
    unmuted_entries = {change.scope: memory.active_mutes.drop_muted(change.entry_points) for change in changes}
    by_scope = {change.scope: change for change in changes if unmuted_entries[change.scope]}
    far = {change.scope: change for change in changes if change.is_far}
    surprise = {scope: traffic_score(change) for scope, change in far.items()}
    sure = replace(policy, confirm=max(policy.confirm, MIN), confirm_of=max(policy.confirm_of, MIN + 1))
    # A part's requests vary more than the sum.
    unsure = replace(sure, confirm=sure.confirm + sure.doubtful, confirm_of=sure.confirm_of + sure.doubtful)
    above = follow_streaks(memory.above_traffic, far, unsure.confirm_of, now)
    certain = [scope for scope in far if is_confirmed(above, scope, sure if scope == MESH else unsure)]
    open_now = [_widen(incident, by_scope) for incident in memory.open if incident.scope]
    lately = {
        (incident.scope, _is_surge(incident)): incident for incident in memory.ended_lately(now) if incident.scope
    }
    new = [
        _start(far[scope], unmuted_entries[scope], above[scope][1], lately.get((scope, far[scope].is_surge)))
        for scope in certain
        if unmuted_entries[scope]
        and (surprise[scope] >= context.level or not far[scope].is_gross)
        and not any(contains(incident.scope, scope) for incident in open_now)
        and not alerted >= set(far[scope].entry_points)
    ]
    unseen = {incident.id for incident in open_now if incident.members and silent >= set(incident.members)}
    advanced_incidents = [
        _follow(
            incident,
            by_scope.get(incident.scope),
            unmuted_entries.get(incident.scope, ()),
            incident.id in unseen,
            policy,
        )
        for incident in open_now
    ]
    fades_after = max(FADED_SECONDS / context.interval_seconds, policy.clear)
    distinct = _distinct(advanced_incidents)
    ended_incidents = tuple(
        incident for incident in distinct if incident.id not in unseen and is_over(incident, policy.clear, fades_after)
    )
    alive = [incident for incident in (*distinct, *new) if incident not in ended_incidents]
    explained_incidents = tuple(_with_suspects(incident, by_scope.get(incident.scope), now) for incident in alive)
    alerts, notices = (
        tuple(incident for incident in explained_incidents if incident.is_alert is kind) for kind in (True, False)
    )
    hidden_services = {
        name for scope in certain if surprise[scope] >= context.level for name in far[scope].entry_points
    }
    hidden_services.difference_update(*unmuted_entries.values())
    score = max((surprise[scope] for scope in certain if unmuted_entries[scope]), default=0.0)
    return FollowedTraffic(
        replace(memory, above_traffic=above), alerts, notices, ended_incidents, frozenset(hidden_services), score
    )


def _widen(incident: OpenIncident, changes: dict[str, TrafficChange]) -> OpenIncident:
    """Return the incident with the widest scope that changed in the same way and contains its own."""
    wider = [
        change
        for scope, change in changes.items()
        if change.is_far and change.is_surge == _is_surge(incident) and contains(scope, incident.scope)
    ]
    return replace(incident, scope=wider[0].scope) if wider else incident


def _distinct(incidents: Sequence[OpenIncident]) -> list[OpenIncident]:
    oldest: dict[str, OpenIncident] = {}
    for incident in sorted(incidents, key=lambda i: (i.since, i.id)):
        oldest.setdefault(incident.scope, incident)
    return list(oldest.values())


def _start(
    change: TrafficChange, entry_points: Sequence[str], since: datetime, lately: OpenIncident | None
) -> OpenIncident:
    """Return the incident of a change at these entry points: a new one, or ``lately``, about the same, if it ended
    shortly before."""
    members = tuple(sorted(entry_points))
    if lately:
        return replace(reopen(lately), severity=_severity(change), members=members)
    return OpenIncident(
        id=incident_id(since, (change.scope,)),
        since=since,
        severity=_severity(change),
        members=members,
        scope=change.scope,
    )


def _follow(
    incident: OpenIncident,
    change: TrafficChange | None,
    entry_points: Sequence[str],
    is_silent: bool,
    policy: AlertPolicy,
) -> OpenIncident:
    if change is not None and change.is_surge != _is_surge(incident):
        change = None  # what was lost is back, and more
    is_far = change is not None and change.is_far
    incident = advance_quiet(incident, is_far, change is not None, policy.clear, is_unseen=is_silent)
    if change is None or not is_far:
        return incident
    severity = worst(incident.severity, _severity(change))
    members = tuple(sorted({*incident.members, *entry_points}))
    return replace(incident, severity=severity, members=members)


def _severity(change: TrafficChange) -> Severity:
    """Return the severity: a surge is a notice, or minor if it is gross; a loss is critical for the mesh, and major or
    minor for a part of it."""
    if change.is_surge:
        return Severity.MINOR if change.is_gross else Severity.NOTICE
    if change.scope == MESH:
        return Severity.CRITICAL
    return Severity.MAJOR if change.observed < HALF * change.expected else Severity.MINOR


def _is_surge(incident: OpenIncident) -> bool:
    reason = incident.suspects[0].reasons[0]
    return reason.observed > reason.expected


def _with_suspects(incident: OpenIncident, change: TrafficChange | None, now: datetime) -> OpenIncident:
    """Return the incident with the entry points that changed most. The first one has the requests of the whole scope
    as its reason."""
    if change is None or (incident.suspects and (not change.is_far or change.is_surge != _is_surge(incident))):
        return incident
    reason = Reason(metric="request_rate", observed=change.observed, expected=change.expected, since=incident.since)
    share = 1 / len(change.entry_points)
    suspects = tuple(Suspect(name, share, (reason,) if i == 0 else ()) for i, name in enumerate(change.entry_points))
    return replace(incident, peak=abs(change.observed - change.expected), suspects=suspects, suspects_at=now)
