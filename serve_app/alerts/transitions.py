"""The changes that a verdict makes to a mesh's alerts: pure functions, one alert per incident.

``Verdict.incidents`` lists all open incidents, even while they are quiet or a part does not answer. An incident that is
no longer listed was merged if its services now belong to another incident and it was not recovering. Otherwise it is
over, unless this verdict could not see it: a mesh that is being learned again has no incidents, and a part without
scores says nothing. While no data arrives, there is no verdict, so nothing changes. ``Verdict.lost`` lists incidents
without data for too long: they are closed, and their outcome is unknown.

An incident that a mute hides continues. Its event and its alert say so. It is over when snapshots have not shown it for
``CLEAR_HOLDS``, or ``NOTICE_CLEAR_HOLDS`` for a notice. If it outlasts the mute, the detector lists it again, or
another incident at its services, which continues it.

A person's action on an incident is an event, too. There are no events for actions that come with a merged incident, or
on an incident that is over or muted.

A changed cause is an event once another first suspect has led for ``CAUSE_HOLDS``: two alternating suspects are not
news. An incident that begins at the first suspect of one that ended within ``CONTINUES`` says that it continues it.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from model.incidents.mutes import EVERY, matches
from model.incidents.policy import NOTICE_CLEAR_SECONDS
from model.verdict import Severity, Status, worst
from serve_app.alerts.alert import Alert, EndedIncident, IncidentAlert, IncidentEvent, MeshAlerts, Transition
from serve_app.alerts.annotations import (
    TEXT_LENGTH,
    annotations,
    first_service,
    labels,
    mark_unseen,
    services_of,
    truncate,
)
from serve_app.alerts.event_text import muted_until, who_is_on_it
from serve_app.alerts.events import EventKind, build_event, incident_json
from serve_app.alerts.links import Links
from serve_app.api.schemas.verdict import IncidentDocument, MuteInForceDocument, VerdictDocument

CAUSE_HOLDS = timedelta(minutes=1)
CONTINUES = timedelta(hours=1)
# Time without the incident in snapshots; under a mute, nothing else shows that it is over.
CLEAR_HOLDS, NOTICE_CLEAR_HOLDS = timedelta(minutes=2), timedelta(seconds=NOTICE_CLEAR_SECONDS)
MUTED = "muted"  # label and annotation of an alert
ON_IT = "on_it"  # annotation
MAX_ENDED = 20  # remembered per mesh


class _Step(NamedTuple):
    """One incident's transition: its new entry if it stays open, the alerts that end, the events."""

    entry: IncidentAlert | None
    ended: tuple[Alert, ...] = ()
    events: tuple[IncidentEvent, ...] = ()


class _Moment(NamedTuple):
    """The time and mesh of a change."""

    mesh: str
    now: datetime
    links: Links

    def event(self, kind: EventKind, incident: IncidentAlert, **more: str) -> IncidentEvent:
        return build_event(kind, incident, self.mesh, self.now, self.links, **more)

    def describe(
        self, incident: IncidentDocument, severity: Severity, verdict: VerdictDocument, continues: str
    ) -> dict[str, str]:
        return annotations(self.links, self.mesh, incident, severity, verdict.observed_at, continues)


def transition(alerts: MeshAlerts, mesh: str, verdict: VerdictDocument, now: datetime, links: Links) -> Transition:
    """Return the changes that a verdict makes.

    Args:
        alerts: the mesh's alerts before the verdict.
        verdict: the mesh's next stored verdict.
        now: when the verdict arrived, UTC.
    """
    incidents = {incident.id: incident for incident in verdict.incidents}
    entries = {entry.incident: entry for entry in alerts.open}
    moment, steps, unmuted_ids = _Moment(mesh, now, links), [], {}
    for entry in alerts.open:
        if entry.incident not in incidents:
            successor = _find_successor(entry, incidents.values(), entries.keys())
            steps.append(_leave(moment, entry, verdict, successor))
            if entry.is_muted and successor and steps[-1].entry is None:
                unmuted_ids[successor.id] = entry.incident
    for incident in incidents.values():
        if previous := entries.get(incident.id):
            change = _unmute if previous.is_muted else _update
            steps.append(change(moment, previous, incident, verdict))
        else:
            continues = unmuted_ids.get(incident.id) or _find_continued(alerts.ended, incident, now)
            steps.append(_open(moment, incident, verdict, continues))
    return _combine(alerts, verdict.observed_at, now, steps)


def act(
    alerts: MeshAlerts, mesh: str, actions: Mapping[str, Sequence[dict[str, Any]]], now: datetime, links: Links
) -> Transition:
    """Return the changes that people's actions make.

    Args:
        alerts: the mesh's alerts before the actions.
        actions: by incident, all actions on it, oldest first (``KeptActionDocument``).
    """
    moment, still_open, events = _Moment(mesh, now, links), [], []
    for entry in alerts.open:
        news = [action for action in actions.get(entry.incident, ()) if action not in entry.actions]
        for action in [] if entry.is_muted else news:
            entry = _with_actions(entry, (*entry.actions, action))
            if action["incident"] == entry.incident:
                entry = replace(entry, sequence=entry.sequence + 1)
                events.append(moment.event("acted", entry))
        still_open.append(entry)
    return Transition(replace(alerts, open=tuple(still_open)), (), tuple(events))


def _with_actions(entry: IncidentAlert, actions: tuple[dict[str, Any], ...]) -> IncidentAlert:
    """Replace an incident's actions. An annotation says who is on it, not a label, since another label would be another
    alert."""
    on_it = who_is_on_it(actions)
    texts = entry.alert.annotations | ({ON_IT: truncate(on_it, TEXT_LENGTH)} if on_it else {})
    return replace(entry, actions=actions, alert=replace(entry.alert, annotations=texts))


def resolve_all(alerts: MeshAlerts, mesh: str, now: datetime, links: Links, reason: str) -> Transition:
    """Return the changes when a mesh was deleted or has been silent for too long: all its alerts are resolved."""
    moment = _Moment(mesh, now, links)
    steps = [_resolve(moment, entry, reason) for entry in alerts.open]
    return _combine(alerts, alerts.observed_at, now, steps)


def _combine(before: MeshAlerts, observed_at: datetime | None, now: datetime, steps: Sequence[_Step]) -> Transition:
    still_open = tuple(step.entry for step in steps if step.entry)
    ids = {entry.incident for entry in still_open}
    ends = [end for end in before.ended if now - end.at < CONTINUES]
    ends += [EndedIncident(entry.incident, now, entry.cause) for entry in before.open if entry.incident not in ids]
    return Transition(
        MeshAlerts(now, observed_at, still_open, tuple(ends[-MAX_ENDED:])),
        tuple(alert for step in steps for alert in step.ended),
        tuple(event for step in steps for event in step.events),
    )


def _open(moment: _Moment, incident: IncidentDocument, verdict: VerdictDocument, continues: str) -> _Step:
    severity = Severity(incident.severity)
    alert = Alert(
        labels(moment.links, moment.mesh, incident),
        moment.describe(incident, severity, verdict, continues),
        min(incident.since, moment.now),  # the telemetry's clock may be ahead of this one
        url=moment.links.verdict_url(moment.mesh),
    )
    entry = IncidentAlert(
        incident.id,
        severity,
        moment.now,
        1,
        services_of(incident),
        alert,
        incident_json(incident),
        cause=first_service(incident),
        continues=continues,
    )
    return _Step(entry, events=(moment.event("opened", entry),))


def _update(moment: _Moment, entry: IncidentAlert, incident: IncidentDocument, verdict: VerdictDocument) -> _Step:
    """Update a listed incident. A higher severity is another alert; one batch fires it and ends the lower one. Its
    event also reports a changed cause."""
    after = _follow(moment, entry, incident, verdict)
    if after.severity is entry.severity:
        return _follow_cause(moment, after, first_service(incident))
    after = _lead_by(after, first_service(incident))
    resolved_alert = entry.alert.resolve(moment.now, superseded=f"severity rose to {after.severity.value}")
    before = {"previous_severity": entry.severity.value}
    if entry.cause and entry.cause != after.cause:
        before["previous_cause"] = entry.cause
    return _Step(after, (resolved_alert,), (moment.event("severity_raised", after, **before),))


def _unmute(moment: _Moment, entry: IncidentAlert, incident: IncidentDocument, verdict: VerdictDocument) -> _Step:
    """Report that an incident outlasted its mute. One batch fires the alert without the label and ends the muted
    one."""
    plain_labels = {name: value for name, value in entry.alert.labels.items() if name != MUTED}
    plain_entry = replace(entry, is_muted=False, alert=replace(entry.alert, labels=plain_labels))
    after = _lead_by(_follow(moment, plain_entry, incident, verdict), first_service(incident))
    resolved_alert = entry.alert.resolve(moment.now, superseded="unmuted")
    return _Step(after, (resolved_alert,), (moment.event("unmuted", after),))


def _follow(
    moment: _Moment, entry: IncidentAlert, incident: IncidentDocument, verdict: VerdictDocument
) -> IncidentAlert:
    """Return the entry after a verdict that lists the incident. Its severity never falls."""
    severity = worst(entry.severity, Severity(incident.severity))
    after = replace(
        entry,
        severity=severity,
        services=services_of(incident),
        alert=replace(
            entry.alert,
            labels={**entry.alert.labels, "severity": severity.value},
            annotations=moment.describe(incident, severity, verdict, entry.continues),
        ),
        document={**incident_json(incident), "severity": severity.value},
        clear_since=None,
    )
    return _with_actions(after, entry.actions)


def _lead_by(entry: IncidentAlert, cause: str) -> IncidentAlert:
    """Return the entry after an event that names the first suspect."""
    return replace(entry, sequence=entry.sequence + 1, cause=cause, next_cause="", next_cause_since=None)


def _follow_cause(moment: _Moment, entry: IncidentAlert, cause: str) -> _Step:
    """Report a first suspect that differs from the last event's, if it has led for long enough."""
    if not entry.cause or not cause:  # a traffic incident may have no service
        return _Step(replace(entry, cause=cause))
    if cause == entry.cause:
        return _Step(replace(entry, next_cause="", next_cause_since=None))
    since = entry.next_cause_since if entry.next_cause == cause else None
    if since is None or moment.now - since < CAUSE_HOLDS:
        return _Step(replace(entry, next_cause=cause, next_cause_since=since or moment.now))
    after = _lead_by(entry, cause)
    return _Step(after, events=(moment.event("cause_changed", after, previous_cause=entry.cause),))


def _leave(
    moment: _Moment, entry: IncidentAlert, verdict: VerdictDocument, successor: IncidentDocument | None
) -> _Step:
    """Merge, mute, resolve or keep an incident that is no longer listed."""
    if entry.incident in verdict.lost:
        return _resolve(moment, entry, "unseen")
    mute = _find_mute(entry, verdict)
    if mute is not None and entry.is_muted:
        return _Step(replace(entry, clear_since=None))
    if successor is not None:
        return _merge(moment, entry, successor)
    if mute is not None:
        return _mute(moment, entry, mute)
    if not _sees_all(verdict):
        texts = entry.alert.annotations
        texts = {**texts, "description": mark_unseen(texts.get("description", ""), verdict)}
        return _Step(replace(entry, alert=replace(entry.alert, annotations=texts)))
    if entry.is_muted or _may_be_muted(entry, verdict):
        since = entry.clear_since or verdict.observed_at
        if verdict.observed_at - since < (NOTICE_CLEAR_HOLDS if entry.severity is Severity.NOTICE else CLEAR_HOLDS):
            return _Step(replace(entry, clear_since=since))
    return _resolve(moment, entry, "over")


def _merge(moment: _Moment, entry: IncidentAlert, into: IncidentDocument) -> _Step:
    last = replace(entry, sequence=entry.sequence + 1)
    reason = {"reason": "unmuted"} if entry.is_muted else {}
    event = moment.event("merged", last, merged_into=into.id, **reason)
    return _Step(None, (entry.alert.resolve(moment.now, merged_into=into.id),), (event,))


def _mute(moment: _Moment, entry: IncidentAlert, mute: MuteInForceDocument) -> _Step:
    """Report that an incident is muted. A muted alert is another alert, so that a route can keep it from people; one
    batch fires it and ends the alert without the label."""
    fields = {"mute_reason": mute.reason, **({"muted_until": mute.until.isoformat()} if mute.until else {})}
    before = entry.alert
    alert = replace(
        before,
        labels={**before.labels, MUTED: "true"},
        annotations={**before.annotations, MUTED: truncate(muted_until(fields), TEXT_LENGTH)},
    )
    after = replace(entry, sequence=entry.sequence + 1, alert=alert, is_muted=True, clear_since=None)
    resolved_alert = before.resolve(moment.now, superseded=MUTED)
    return _Step(after, (resolved_alert,), (moment.event("muted", after, **fields),))


def _resolve(moment: _Moment, entry: IncidentAlert, reason: str) -> _Step:
    last = replace(entry, sequence=entry.sequence + 1)
    event = moment.event("resolved", last, reason=reason)
    alert = entry.alert.resolve(moment.now)
    texts = {name: text for name, text in alert.annotations.items() if name != MUTED}
    return _Step(None, (replace(alert, annotations=texts),), (event,))


def _find_mute(entry: IncidentAlert, verdict: VerdictDocument) -> MuteInForceDocument | None:
    """Return the mute that hides an incident: some of its services would now be part of one, so it is not over."""
    services = set(entry.services)
    return next((mute for mute in verdict.muted if not services.isdisjoint(mute.hides)), None)


def _may_be_muted(entry: IncidentAlert, verdict: VerdictDocument) -> bool:
    """Return whether a mute covers the first suspect. A single snapshot in which it hides nothing does not show that
    the incident is over."""
    return any(matches(mute.services or (EVERY,), [entry.cause]).all() for mute in verdict.muted)


def _find_successor(
    entry: IncidentAlert, incidents: Iterable[IncidentDocument], open_ids: Set[str]
) -> IncidentDocument | None:
    """Return the incident that an unlisted one was merged into: the one with most of its services. Only incidents that
    have an alert or began no later count: a merge keeps the oldest, and an incident that begins after an end is new. An
    alert is not merged into a notice. A recovering incident has ended, though its services may have another fault. An
    incident that a mute hid may return as one that began later."""
    if entry.document.get("recovering") and not entry.is_muted:
        return None
    services, min_rank = set(entry.services), min(entry.severity.rank, Severity.MINOR.rank)
    overlaps = [
        (len(services.intersection(services_of(incident))), incident)
        for incident in incidents
        if (entry.is_muted or incident.id in open_ids or incident.since <= entry.alert.starts_at)
        and Severity(incident.severity).rank >= min_rank
    ]
    best = min(overlaps, key=lambda row: (-row[0], row[1].since, row[1].id), default=None)
    return best[1] if best and best[0] else None


def _find_continued(ended: Sequence[EndedIncident], incident: IncidentDocument, now: datetime) -> str:
    """Return the newest incident that ended recently at the same first suspect; empty: there is none."""
    cause = first_service(incident)
    ids = [end.incident for end in ended if cause and end.cause == cause and now - end.at < CONTINUES]
    return next((name for name in reversed(ids) if name != incident.id), "")


def _sees_all(verdict: VerdictDocument) -> bool:
    """Return whether an unlisted incident is over: everything was scored, and the mesh is not being learned again."""
    return verdict.status in (Status.NORMAL, Status.ANOMALOUS) and verdict.coverage >= 1 and not verdict.missing_parts
