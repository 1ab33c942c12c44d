"""The changes that a verdict makes to the alerts of a mesh: pure functions, one alert for each incident.

``Verdict.incidents`` lists the open incidents: the detector keeps one listed while it is quiet or while a part does not
answer, for as long as the incident is open. An incident that is no longer listed was merged, if its services belong to
another incident now and it was not recovering. One that a mute hides continues, but no one is notified while the mute
lasts. Otherwise it is over, unless this verdict could not see it: a mesh that
is being learned again has no incidents, and a part that was not scored says nothing. While no data arrives, there is no
verdict, so nothing changes. ``Verdict.lost`` lists incidents of which nothing was seen for too long: they are closed,
and how they ended is unknown.

A change of cause is an event once another first suspect has led for ``CAUSE_HOLDS``: two suspects that take turns are
no news. An incident that begins at the first suspect of one that ended within ``CONTINUES`` says that it continues it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from model.verdict import Severity, Status
from serve_app.alerts.alert import Alert, AlertedIncident, EndedIncident, IncidentEvent, MeshAlerts, Transition
from serve_app.alerts.annotations import annotations, first_service, labels, mark_unseen
from serve_app.alerts.events import build_event, incident_json
from serve_app.alerts.links import Links
from serve_app.api.schemas.verdict import IncidentDocument, MuteInForceDocument, VerdictDocument

CAUSE_HOLDS = timedelta(minutes=1)
CONTINUES = timedelta(hours=1)
MAX_ENDED = 20  # of a mesh that are remembered
_RANK = list(Severity)


class _Step(NamedTuple):
    """The transition of one incident: its new state while it is open, the alerts that end, the events."""

    incident: AlertedIncident | None
    ended: tuple[Alert, ...] = ()
    events: tuple[IncidentEvent, ...] = ()


def transition(alerts: MeshAlerts, mesh: str, verdict: VerdictDocument, now: datetime, links: Links) -> Transition:
    """Return the changes that a verdict makes.

    Args:
        alerts: of the mesh before it.
        mesh: its name.
        verdict: of this mesh, the next one that it stored.
        now: when it was made, UTC.
        links: for the texts.
    """
    listed = {incident.id: incident for incident in verdict.incidents}
    known = {alerted.incident: alerted for alerted in alerts.open}
    steps = [
        _leave(alerted, mesh, verdict, _find_successor(alerted, listed.values(), known), now, links)
        for alerted in alerts.open
        if alerted.incident not in listed
    ]
    for incident in listed.values():
        if alerted := known.get(incident.id):
            steps.append(_update(alerted, mesh, incident, verdict, now, links))
        else:
            steps.append(_open(mesh, incident, verdict, now, links, _find_continued(alerts.ended, incident, now)))
    return _combine(alerts, verdict.observed_at, now, steps)


def resolve_all(alerts: MeshAlerts, mesh: str, now: datetime, links: Links, why: str) -> Transition:
    """Resolve all alerts of a mesh that was deleted or has sent nothing for long."""
    steps = [_resolve(alerted, mesh, now, links, why) for alerted in alerts.open]
    return _combine(alerts, alerts.observed_at, now, steps)


def _combine(before: MeshAlerts, observed_at: datetime | None, now: datetime, steps: Sequence[_Step]) -> Transition:
    still_open = tuple(step.incident for step in steps if step.incident)
    names = {alerted.incident for alerted in still_open}
    ended = [one for one in before.ended if now - one.at < CONTINUES]
    ended += [EndedIncident(one.incident, now, one.cause) for one in before.open if one.incident not in names]
    return Transition(
        MeshAlerts(now, observed_at, still_open, tuple(ended[-MAX_ENDED:])),
        tuple(alert for step in steps for alert in step.ended),
        tuple(event for step in steps for event in step.events),
    )


def _open(
    mesh: str, incident: IncidentDocument, verdict: VerdictDocument, now: datetime, links: Links, continues: str
) -> _Step:
    severity = Severity(incident.severity)
    alert = Alert(
        labels(links, mesh, incident),
        _annotations(links, mesh, incident, severity, verdict, continues),
        min(incident.since, now),  # the telemetry's clock may be ahead of this one
        url=links.verdict_url(mesh),
    )
    alerted = AlertedIncident(
        incident.id,
        severity,
        now,
        1,
        _services(incident),
        alert,
        incident_json(incident),
        cause=first_service(incident),
        continues=continues,
    )
    return _Step(alerted, events=(build_event("opened", alerted, mesh, now, links),))


def _update(
    alerted: AlertedIncident,
    mesh: str,
    incident: IncidentDocument,
    verdict: VerdictDocument,
    now: datetime,
    links: Links,
) -> _Step:
    """Update a listed incident. A higher severity is another alert; one batch fires it and ends the lower one. Its
    event tells another cause, too."""
    severity = max(alerted.severity, Severity(incident.severity), key=_RANK.index)
    texts = _annotations(links, mesh, incident, severity, verdict, alerted.continues)
    alert = replace(alerted.alert, annotations=texts)
    document = {**incident_json(incident), "severity": severity.value}
    updated = replace(alerted, services=_services(incident), alert=alert, document=document)
    if severity is alerted.severity:
        return _follow_cause(updated, first_service(incident), mesh, now, links)
    raised = replace(
        updated,
        severity=severity,
        sequence=alerted.sequence + 1,
        cause=first_service(incident),
        next_cause="",
        next_cause_since=None,
        alert=replace(alert, labels={**alerted.alert.labels, "severity": severity.value}),
    )
    ended = alerted.alert.resolve(now, superseded=f"severity rose to {severity.value}")
    before = {"previous_severity": alerted.severity.value}
    if alerted.cause and alerted.cause != raised.cause:
        before["previous_cause"] = alerted.cause
    event = build_event("severity_raised", raised, mesh, now, links, **before)
    return _Step(raised, (ended,), (event,))


def _annotations(
    links: Links, mesh: str, incident: IncidentDocument, severity: Severity, verdict: VerdictDocument, continues: str
) -> dict[str, str]:
    """The annotations of an alert, with the incident that it continues."""
    texts = annotations(links, mesh, incident, severity, verdict)
    return {**texts, "continues": continues} if continues else texts


def _follow_cause(alerted: AlertedIncident, cause: str, mesh: str, now: datetime, links: Links) -> _Step:
    """Report another first suspect than the last event had, if it has led for long enough."""
    if not alerted.cause or not cause:  # an incident of traffic may have no service
        return _Step(replace(alerted, cause=cause))
    if cause == alerted.cause:
        return _Step(replace(alerted, next_cause="", next_cause_since=None))
    since = alerted.next_cause_since if alerted.next_cause == cause else None
    if since is None or now - since < CAUSE_HOLDS:
        return _Step(replace(alerted, next_cause=cause, next_cause_since=since or now))
    changed = replace(alerted, sequence=alerted.sequence + 1, cause=cause, next_cause="", next_cause_since=None)
    event = build_event("cause_changed", changed, mesh, now, links, previous_cause=alerted.cause)
    return _Step(changed, events=(event,))


def _leave(
    alerted: AlertedIncident,
    mesh: str,
    verdict: VerdictDocument,
    successor: IncidentDocument | None,
    now: datetime,
    links: Links,
) -> _Step:
    """Merge, resolve or keep an incident that is no longer listed."""
    if alerted.incident in verdict.lost:
        return _resolve(alerted, mesh, now, links, "unseen")
    if successor is not None:
        last = replace(alerted, sequence=alerted.sequence + 1)
        event = build_event("merged", last, mesh, now, links, merged_into=successor.id)
        return _Step(None, (alerted.alert.resolve(now, merged_into=successor.id),), (event,))
    if (mute := _find_mute(alerted, verdict)) is not None:
        until = {"muted_until": mute.until.isoformat()} if mute.until else {}
        return _resolve(alerted, mesh, now, links, "muted", mute_reason=mute.reason, **until)
    if _sees_all(verdict):
        return _resolve(alerted, mesh, now, links, "over")
    texts = alerted.alert.annotations
    texts = {**texts, "description": mark_unseen(texts.get("description", ""), verdict)}
    return _Step(replace(alerted, alert=replace(alerted.alert, annotations=texts)))


def _resolve(alerted: AlertedIncident, mesh: str, now: datetime, links: Links, why: str, **more: str) -> _Step:
    last = replace(alerted, sequence=alerted.sequence + 1)
    event = build_event("resolved", last, mesh, now, links, reason=why, **more)
    return _Step(None, (alerted.alert.resolve(now, **more),), (event,))


def _find_mute(alerted: AlertedIncident, verdict: VerdictDocument) -> MuteInForceDocument | None:
    """The mute that hides an incident: some of its services would be part of one now. It is not over."""
    services = set(alerted.services)
    return next((mute for mute in verdict.muted if not services.isdisjoint(mute.hides)), None)


def _find_successor(
    alerted: AlertedIncident, listed: Iterable[IncidentDocument], known: Iterable[str]
) -> IncidentDocument | None:
    """The incident that an unlisted one was merged into: the one with most of its services. Only incidents with an
    alert, or that began no later, count: a merge keeps the oldest, and what begins after an end is a new incident. An
    alert is not merged into a notice. One that was recovering has ended, though another fault may be at its
    services."""
    if alerted.document.get("recovering"):
        return None
    known, services = set(known), set(alerted.services)
    least = _RANK.index(min(alerted.severity, Severity.MINOR, key=_RANK.index))
    shared = [
        (len(services.intersection(_services(incident))), incident)
        for incident in listed
        if (incident.id in known or incident.since <= alerted.alert.starts_at)
        and _RANK.index(Severity(incident.severity)) >= least
    ]
    best = min(shared, key=lambda row: (-row[0], row[1].since, row[1].id), default=None)
    return best[1] if best and best[0] else None


def _find_continued(ended: Sequence[EndedIncident], incident: IncidentDocument, now: datetime) -> str:
    """The id of the newest incident that ended a short time ago at the same first suspect; empty: there is none."""
    cause = first_service(incident)
    same = [one.incident for one in ended if cause and one.cause == cause and now - one.at < CONTINUES]
    return next((name for name in reversed(same) if name != incident.id), "")


def _sees_all(verdict: VerdictDocument) -> bool:
    """Whether an incident that is not listed is over: all was scored, and the mesh is not being learned again."""
    return verdict.status in (Status.NORMAL, Status.ANOMALOUS) and verdict.coverage >= 1 and not verdict.missing_parts


def _services(incident: IncidentDocument) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*(suspect.service for suspect in incident.suspects), *incident.affected)))
