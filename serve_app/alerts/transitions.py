"""The changes that a verdict makes to a mesh's alerts: pure functions, one alert per incident.

``Verdict.incidents`` lists the open incidents: the detector keeps one listed while it is quiet or while a part does not
answer, for as long as the incident is open. An incident that is no longer listed was merged if its services now belong
to another incident and it was not recovering. Otherwise it is over, unless this verdict could not see it: a mesh that
is being learned again has no incidents, and a part without scores says nothing. While no data arrives, there is no
verdict, so nothing changes. ``Verdict.lost`` lists incidents without data for too long: they are closed, and their
outcome is unknown.

An incident that a mute hides continues. Its event and its alert say so. It is over when snapshots have not shown it for
``CLEAR_HOLDS``, or ``NOTICE_CLEAR_HOLDS`` for a notice. If it outlasts the mute, the detector lists it again, or
another incident at its services, which continues it.

A person's action on an incident is an event, too. There are no events for actions that come with a merged incident, or
on an incident that is over or muted.

A changed cause is an event once another first suspect has led for ``CAUSE_HOLDS``: two alternating suspects are not
news. An incident that begins at the first suspect of one that ended within ``CONTINUES`` says that it continues it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from model.incidents.mutes import EVERY, matches
from model.incidents.policy import NOTICE_CLEAR_SECONDS
from model.verdict import Severity, Status, worst
from serve_app.alerts.alert import Alert, AlertedIncident, EndedIncident, IncidentEvent, MeshAlerts, Transition
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
# Time without a sign of it in snapshots; under a mute, nothing else shows that an incident is over.
CLEAR_HOLDS, NOTICE_CLEAR_HOLDS = timedelta(minutes=2), timedelta(seconds=NOTICE_CLEAR_SECONDS)
MUTED = "muted"  # label and annotation of an alert
ON_IT = "on_it"  # annotation
MAX_ENDED = 20  # remembered per mesh


class _Step(NamedTuple):
    """One incident's transition: its new state while it is open, the alerts that end, the events."""

    incident: AlertedIncident | None
    ended: tuple[Alert, ...] = ()
    events: tuple[IncidentEvent, ...] = ()


class _Moment(NamedTuple):
    """When alerts change, and in which mesh."""

    mesh: str
    now: datetime
    links: Links

    def event(self, kind: EventKind, incident: AlertedIncident, **more: str) -> IncidentEvent:
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
    listed = {incident.id: incident for incident in verdict.incidents}
    known = {alerted.incident: alerted for alerted in alerts.open}
    moment, steps, unmuted = _Moment(mesh, now, links), [], {}
    for alerted in alerts.open:
        if alerted.incident not in listed:
            successor = _find_successor(alerted, listed.values(), known)
            steps.append(_leave(moment, alerted, verdict, successor))
            if alerted.is_muted and successor and steps[-1].incident is None:
                unmuted[successor.id] = alerted.incident
    for incident in listed.values():
        if alerted_before := known.get(incident.id):
            change = _unmute if alerted_before.is_muted else _update
            steps.append(change(moment, alerted_before, incident, verdict))
        else:
            continues = unmuted.get(incident.id) or _find_continued(alerts.ended, incident, now)
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
    for alerted in alerts.open:
        news = [one for one in actions.get(alerted.incident, ()) if one not in alerted.actions]
        for one in [] if alerted.is_muted else news:
            alerted = _with_actions(alerted, (*alerted.actions, one))
            if one["incident"] == alerted.incident:
                alerted = replace(alerted, sequence=alerted.sequence + 1)
                events.append(moment.event("acted", alerted))
        still_open.append(alerted)
    return Transition(replace(alerts, open=tuple(still_open)), (), tuple(events))


def _with_actions(alerted: AlertedIncident, actions: tuple[dict[str, Any], ...]) -> AlertedIncident:
    """The incident with these actions. An annotation says who is on it, not a label, since another label would be
    another alert."""
    on_it = who_is_on_it(actions)
    texts = alerted.alert.annotations | ({ON_IT: truncate(on_it, TEXT_LENGTH)} if on_it else {})
    return replace(alerted, actions=actions, alert=replace(alerted.alert, annotations=texts))


def resolve_all(alerts: MeshAlerts, mesh: str, now: datetime, links: Links, why: str) -> Transition:
    """Resolve all alerts of a mesh that was deleted or has been silent for too long."""
    moment = _Moment(mesh, now, links)
    steps = [_resolve(moment, alerted, why) for alerted in alerts.open]
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


def _open(moment: _Moment, incident: IncidentDocument, verdict: VerdictDocument, continues: str) -> _Step:
    severity = Severity(incident.severity)
    alert = Alert(
        labels(moment.links, moment.mesh, incident),
        moment.describe(incident, severity, verdict, continues),
        min(incident.since, moment.now),  # the telemetry's clock may be ahead of this one
        url=moment.links.verdict_url(moment.mesh),
    )
    alerted = AlertedIncident(
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
    return _Step(alerted, events=(moment.event("opened", alerted),))


def _update(moment: _Moment, alerted: AlertedIncident, incident: IncidentDocument, verdict: VerdictDocument) -> _Step:
    """Update a listed incident. A higher severity is another alert; one batch fires it and ends the lower one. Its
    event also reports a changed cause."""
    updated = _follow(moment, alerted, incident, verdict)
    if updated.severity is alerted.severity:
        return _follow_cause(moment, updated, first_service(incident))
    raised = _lead_by(updated, first_service(incident))
    ended = alerted.alert.resolve(moment.now, superseded=f"severity rose to {raised.severity.value}")
    before = {"previous_severity": alerted.severity.value}
    if alerted.cause and alerted.cause != raised.cause:
        before["previous_cause"] = alerted.cause
    event = moment.event("severity_raised", raised, **before)
    return _Step(raised, (ended,), (event,))


def _unmute(moment: _Moment, alerted: AlertedIncident, incident: IncidentDocument, verdict: VerdictDocument) -> _Step:
    """Say that an incident outlasted its mute. One batch fires the alert without the label and ends the muted one."""
    plain = {name: value for name, value in alerted.alert.labels.items() if name != MUTED}
    listed = replace(alerted, is_muted=False, alert=replace(alerted.alert, labels=plain))
    after = _lead_by(_follow(moment, listed, incident, verdict), first_service(incident))
    ended = alerted.alert.resolve(moment.now, superseded="unmuted")
    return _Step(after, (ended,), (moment.event("unmuted", after),))


def _follow(
    moment: _Moment, alerted: AlertedIncident, incident: IncidentDocument, verdict: VerdictDocument
) -> AlertedIncident:
    """The state after a verdict that lists the incident. Its severity never falls."""
    severity = worst(alerted.severity, Severity(incident.severity))
    followed = replace(
        alerted,
        severity=severity,
        services=services_of(incident),
        alert=replace(
            alerted.alert,
            labels={**alerted.alert.labels, "severity": severity.value},
            annotations=moment.describe(incident, severity, verdict, alerted.continues),
        ),
        document={**incident_json(incident), "severity": severity.value},
        clear_since=None,
    )
    return _with_actions(followed, alerted.actions)


def _lead_by(alerted: AlertedIncident, cause: str) -> AlertedIncident:
    """The state after an event that names the first suspect."""
    return replace(alerted, sequence=alerted.sequence + 1, cause=cause, next_cause="", next_cause_since=None)


def _follow_cause(moment: _Moment, alerted: AlertedIncident, cause: str) -> _Step:
    """Report a first suspect that differs from the last event's, if it has led for long enough."""
    if not alerted.cause or not cause:  # a traffic incident may have no service
        return _Step(replace(alerted, cause=cause))
    if cause == alerted.cause:
        return _Step(replace(alerted, next_cause="", next_cause_since=None))
    since = alerted.next_cause_since if alerted.next_cause == cause else None
    if since is None or moment.now - since < CAUSE_HOLDS:
        return _Step(replace(alerted, next_cause=cause, next_cause_since=since or moment.now))
    changed = _lead_by(alerted, cause)
    event = moment.event("cause_changed", changed, previous_cause=alerted.cause)
    return _Step(changed, events=(event,))


def _leave(
    moment: _Moment, alerted: AlertedIncident, verdict: VerdictDocument, successor: IncidentDocument | None
) -> _Step:
    """Merge, mute, resolve or keep an incident that is no longer listed."""
    if alerted.incident in verdict.lost:
        return _resolve(moment, alerted, "unseen")
    mute = _find_mute(alerted, verdict)
    if mute is not None and alerted.is_muted:
        return _Step(replace(alerted, clear_since=None))
    if successor is not None:
        return _merge(moment, alerted, successor)
    if mute is not None:
        return _mute(moment, alerted, mute)
    if not _sees_all(verdict):
        texts = alerted.alert.annotations
        texts = {**texts, "description": mark_unseen(texts.get("description", ""), verdict)}
        return _Step(replace(alerted, alert=replace(alerted.alert, annotations=texts)))
    if alerted.is_muted or _may_be_muted(alerted, verdict):
        since = alerted.clear_since or verdict.observed_at
        if verdict.observed_at - since < (NOTICE_CLEAR_HOLDS if alerted.severity is Severity.NOTICE else CLEAR_HOLDS):
            return _Step(replace(alerted, clear_since=since))
    return _resolve(moment, alerted, "over")


def _merge(moment: _Moment, alerted: AlertedIncident, into: IncidentDocument) -> _Step:
    last = replace(alerted, sequence=alerted.sequence + 1)
    why = {"reason": "unmuted"} if alerted.is_muted else {}
    event = moment.event("merged", last, merged_into=into.id, **why)
    return _Step(None, (alerted.alert.resolve(moment.now, merged_into=into.id),), (event,))


def _mute(moment: _Moment, alerted: AlertedIncident, mute: MuteInForceDocument) -> _Step:
    """Say that an incident is muted. A muted alert is another alert, so that a route can keep it from people; one batch
    fires it and ends the alert without the label."""
    until = {"muted_until": mute.until.isoformat()} if mute.until else {}
    more = {"mute_reason": mute.reason, **until}
    before = alerted.alert
    alert = replace(
        before,
        labels={**before.labels, MUTED: "true"},
        annotations={**before.annotations, MUTED: truncate(muted_until(more), TEXT_LENGTH)},
    )
    muted = replace(alerted, sequence=alerted.sequence + 1, alert=alert, is_muted=True, clear_since=None)
    event = moment.event("muted", muted, **more)
    return _Step(muted, (before.resolve(moment.now, superseded=MUTED),), (event,))


def _resolve(moment: _Moment, alerted: AlertedIncident, why: str) -> _Step:
    last = replace(alerted, sequence=alerted.sequence + 1)
    event = moment.event("resolved", last, reason=why)
    alert = alerted.alert.resolve(moment.now)
    texts = {name: text for name, text in alert.annotations.items() if name != MUTED}
    return _Step(None, (replace(alert, annotations=texts),), (event,))


def _find_mute(alerted: AlertedIncident, verdict: VerdictDocument) -> MuteInForceDocument | None:
    """The mute that hides an incident: some of its services would now be part of one, so it is not over."""
    services = set(alerted.services)
    return next((mute for mute in verdict.muted if not services.isdisjoint(mute.hides)), None)


def _may_be_muted(alerted: AlertedIncident, verdict: VerdictDocument) -> bool:
    """Whether a mute covers the first suspect. A single snapshot in which it hides nothing does not show that the
    incident is over."""
    return any(matches(mute.services or (EVERY,), [alerted.cause]).all() for mute in verdict.muted)


def _find_successor(
    alerted: AlertedIncident, listed: Iterable[IncidentDocument], known: Iterable[str]
) -> IncidentDocument | None:
    """The incident that an unlisted one was merged into: the one with most of its services. Only incidents that have an
    alert or began no later count: a merge keeps the oldest, and an incident that begins after an end is new. An alert
    is not merged into a notice. A recovering incident has ended, though its services may have another fault. An
    incident that a mute hid may return as one that began later."""
    if alerted.document.get("recovering") and not alerted.is_muted:
        return None
    known, services = set(known), set(alerted.services)
    least = min(alerted.severity.rank, Severity.MINOR.rank)
    shared = [
        (len(services.intersection(services_of(incident))), incident)
        for incident in listed
        if (alerted.is_muted or incident.id in known or incident.since <= alerted.alert.starts_at)
        and Severity(incident.severity).rank >= least
    ]
    best = min(shared, key=lambda row: (-row[0], row[1].since, row[1].id), default=None)
    return best[1] if best and best[0] else None


def _find_continued(ended: Sequence[EndedIncident], incident: IncidentDocument, now: datetime) -> str:
    """The id of the newest incident that ended recently at the same first suspect; empty: there is none."""
    cause = first_service(incident)
    same = [one.incident for one in ended if cause and one.cause == cause and now - one.at < CONTINUES]
    return next((name for name in reversed(same) if name != incident.id), "")


def _sees_all(verdict: VerdictDocument) -> bool:
    """Whether an unlisted incident is over: everything was scored, and the mesh is not being learned again."""
    return verdict.status in (Status.NORMAL, Status.ANOMALOUS) and verdict.coverage >= 1 and not verdict.missing_parts
