"""The event log of an incident, with planned changes, Kubernetes events and people's actions."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from serve_app.api.number_text import anomaly_text
from serve_app.api.schemas.actions import KeptActionDocument
from serve_app.api.schemas.verdict import IncidentDocument
from serve_app.web.report.case import ReportedIncident


class Step(NamedTuple):
    at: datetime
    text: str


def event_log(case: ReportedIncident, actions: Sequence[KeptActionDocument] = ()) -> list[Step]:
    """Return an incident's event log, oldest first. Only snapshots that changed something are steps."""
    incident = case.incident
    steps = [Step(change.at, _change(change.kind, change.service, change.reason)) for change in incident.changes]
    steps += [
        Step(event.first, f"Kubernetes: {event.kind} of {event.service} ({event.message})") for event in incident.events
    ]
    steps.append(Step(incident.since, "The deviation begins."))
    before: IncidentDocument | None = None
    for moment in case.moments:
        for current in moment.verdict.incidents:
            if current.id == incident.id:
                steps += [Step(moment.verdict.observed_at, text) for text in _news(before, current)]
                before = current
    top = case.worst.verdict.observed_at
    steps.append(Step(top, f"The score is highest: {anomaly_text(incident.score)}. {len(incident.affected)} affected."))
    if case.ended:
        unseen = "No data was received for too long, so it was closed; its outcome is unknown."
        steps.append(Step(case.ended, unseen if case.ended_unseen else "The incident is over."))
    steps += [Step(action.at, action.words) for action in actions]
    return sorted(steps, key=lambda step: step.at)


def _news(before: IncidentDocument | None, current: IncidentDocument) -> list[str]:
    """Return the changes of an incident in a snapshot; ``before``: None for the first snapshot with it."""
    first = current.first_suspect or "none"
    if before is None:
        return [f"TAGAE reports it: {current.severity}, first suspect {first}."]
    news = []
    if current.severity != before.severity:
        news.append(f"The severity rises to {current.severity}.")
    if first != (before.first_suspect or "none"):
        news.append(f"The first suspect is now {first}.")
    if current.is_unseen and not before.is_unseen:
        news.append("The first suspect sends no telemetry any more, so its state is unknown.")
    elif current.recovering != before.recovering:
        news.append("Its services are back to normal." if current.recovering else "Its services deviate again.")
    return news


def _change(kind: str, service: str, reason: str) -> str:
    return f"Planned change: {kind.replace('_', ' ')} of {service}{f' ({reason})' if reason else ''}"


def reporting_delay(case: ReportedIncident) -> timedelta | None:
    """Return the time from the start of the deviation to the first snapshot that reported it; None if not kept."""
    times = (
        moment.verdict.observed_at
        for moment in case.moments
        if any(incident.id == case.incident.id for incident in moment.verdict.incidents)
    )
    first = next(times, None)
    return None if first is None else first - case.incident.since
