"""From a verdict, and what was told before, to what is told now: pure, one alert for each incident.

What is open is what ``Verdict.incidents`` lists: the detector keeps an incident listed through quiet and through parts
that did not answer, for as long as it holds it open. One that is no longer listed has merged where its services belong
to another one now; else it is over, unless this verdict could not have seen it: a mesh that is learned anew has
forgotten its incidents, and silence of a part that was not scored is no news.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from model.verdict import Incident, Severity, Status, Verdict
from serve_app.alerts.alert import Alert, AlertedIncident, IncidentEvent, MeshAlerts, Transition
from serve_app.alerts.annotations import AlertLinks, annotations, labels, unseen
from serve_app.alerts.payloads import event, incident_document

# A verdict older than the newest was overtaken on its way; if none came for so long, the mesh has another clock now.
LATE = timedelta(minutes=5)
_RANK = list(Severity)


class _Step(NamedTuple):
    """What becomes of one incident: its page while it is open, alerts that end, what happened."""

    page: AlertedIncident | None
    ended: tuple[Alert, ...] = ()
    events: tuple[IncidentEvent, ...] = ()


def transition(told: MeshAlerts, mesh: str, verdict: Verdict, now: datetime, place: AlertLinks) -> Transition:
    """What a verdict changes.

    Args:
        told: before.
        mesh: name.
        verdict: of this mesh; one that was overtaken on the way changes nothing.
        now: UTC, the clock of whoever tells.
        place: where alerts come from.
    """
    if _overtaken(told, verdict, now):
        return Transition(told)
    listed = {incident.id: incident for incident in verdict.incidents}
    known = {page.incident: page for page in told.open}
    steps = [
        _gone(page, mesh, verdict, _survivor(page, listed.values(), known), now, place)
        for page in told.open
        if page.incident not in listed
    ]
    for incident in listed.values():
        if page := known.get(incident.id):
            steps.append(_followed(page, mesh, incident, verdict, now, place))
        else:
            steps.append(_opened(mesh, incident, verdict, now, place))
    return _together(verdict.observed_at, now, steps)


def dismissed(told: MeshAlerts, mesh: str, now: datetime, place: AlertLinks, why: str) -> Transition:
    """Everything of a mesh ends: it was deleted, or nobody speaks of it any more."""
    return _together(told.observed_at, now, [_over(page, mesh, now, place, why) for page in told.open])


def _together(observed_at: datetime | None, now: datetime, steps: Sequence[_Step]) -> Transition:
    return Transition(
        MeshAlerts(now, observed_at, tuple(step.page for step in steps if step.page)),
        tuple(alert for step in steps for alert in step.ended),
        tuple(event for step in steps for event in step.events),
    )


def _overtaken(told: MeshAlerts, verdict: Verdict, now: datetime) -> bool:
    if told.at is None or told.observed_at is None:
        return False
    return verdict.observed_at < told.observed_at and abs(now - told.at) < LATE


def _opened(mesh: str, incident: Incident, verdict: Verdict, now: datetime, place: AlertLinks) -> _Step:
    alert = Alert(
        labels(place, mesh, incident),
        annotations(place, mesh, incident, incident.severity, verdict),
        min(incident.since, now),  # the telemetry's clock may be ahead of this one
        url=place.links(mesh, incident.id).get("verdict_url", ""),
    )
    document = incident_document(incident, verdict.observed_at)
    page = AlertedIncident(incident.id, incident.severity, now, 1, _services(incident), alert, document)
    return _Step(page, events=(event("opened", page, mesh, now, place),))


def _followed(
    page: AlertedIncident, mesh: str, incident: Incident, verdict: Verdict, now: datetime, place: AlertLinks
) -> _Step:
    """Told again as it is now; a higher severity is another alert, fired in the batch that ends the lower one."""
    severity = max(page.severity, incident.severity, key=_RANK.index)
    alert = replace(page.alert, annotations=annotations(place, mesh, incident, severity, verdict))
    document = {**incident_document(incident, verdict.observed_at), "severity": severity.value}
    page_now = replace(page, services=_services(incident), alert=alert, document=document)
    if severity is page.severity:
        return _Step(page_now)
    risen = replace(
        page_now,
        severity=severity,
        sequence=page.sequence + 1,
        alert=replace(alert, labels={**page.alert.labels, "severity": severity.value}),
    )
    before = page.alert.ended(now, superseded=f"severity rose to {severity.value}")
    what = event("severity_raised", risen, mesh, now, place, previous_severity=page.severity.value)
    return _Step(risen, (before,), (what,))


def _gone(
    page: AlertedIncident, mesh: str, verdict: Verdict, survivor: Incident | None, now: datetime, place: AlertLinks
) -> _Step:
    """Of an incident that is no longer listed."""
    if survivor is not None:
        last = replace(page, sequence=page.sequence + 1)
        what = event("merged", last, mesh, now, place, merged_into=survivor.id)
        return _Step(None, (page.alert.ended(now, merged_into=survivor.id),), (what,))
    if _sees_all(verdict):
        return _over(page, mesh, now, place, "over")
    told = page.alert.annotations
    told = {**told, "description": unseen(told.get("description", ""), verdict)}
    return _Step(replace(page, alert=replace(page.alert, annotations=told)))


def _over(page: AlertedIncident, mesh: str, now: datetime, place: AlertLinks, why: str) -> _Step:
    last = replace(page, sequence=page.sequence + 1)
    return _Step(None, (page.alert.ended(now),), (event("resolved", last, mesh, now, place, reason=why),))


def _survivor(page: AlertedIncident, listed: Iterable[Incident], known: Iterable[str]) -> Incident | None:
    """Whoever has most of its services now, among those told before or begun no later: merging keeps the oldest, and
    what begins after an end is another incident."""
    known, services = set(known), set(page.services)
    shared = [
        (len(services.intersection(_services(incident))), incident)
        for incident in listed
        if incident.id in known or incident.since <= page.alert.starts_at
    ]
    best = min(shared, key=lambda row: (-row[0], row[1].since, row[1].id), default=None)
    return best[1] if best and best[0] else None


def _sees_all(verdict: Verdict) -> bool:
    """Whether an incident that is not listed is over: nothing was left out, and the mesh is not learned anew."""
    return verdict.status in (Status.NORMAL, Status.ANOMALOUS) and verdict.coverage >= 1 and not verdict.missing_parts


def _services(incident: Incident) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*(suspect.service for suspect in incident.suspects), *incident.affected)))
