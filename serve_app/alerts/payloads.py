"""Bodies of requests to webhooks and Alertmanager, and the content of the state file."""

import hashlib
import json
from datetime import datetime
from typing import Any, Literal

import msgspec

from model.verdict import Incident, Verdict
from serve_app.alerts.alert import Alert, AlertedIncident, AlertState, IncidentEvent
from serve_app.alerts.links import Links, LinkSubject, incident_subject
from serve_app.alerts.slack import slack_message
from serve_app.api.codec.verdicts import encode_incident
from serve_app.errors import CorruptState

EVENT_VERSION = 1
STATE_VERSION = 1
Kind = Literal["opened", "severity_raised", "cause_changed", "merged", "resolved"]


def incident_document(incident: Incident, verdict: Verdict) -> dict[str, Any]:
    """``IncidentDocument`` as plain JSON values; NaN is null."""
    encoded = encode_incident(incident, verdict.observed_at, verdict.alerts)
    document: dict[str, Any] = json.loads(encoded.model_dump_json())
    return document


def build_event(
    kind: Kind, incident: AlertedIncident, mesh: str, at: datetime, links: Links, **more: str
) -> IncidentEvent:
    """An event with all that is known about its incident, so that a receiver needs no other event.

    Args:
        incident: its state after the event; ``sequence`` is the event's number.
        at: time of the event, UTC.
        more: ``previous_severity``, ``previous_cause``, ``merged_into``, or ``reason`` of a resolution.
    """
    key = (links.cluster, mesh, incident.incident, incident.opened_at.isoformat(), str(incident.sequence))
    name = hashlib.blake2b("\n".join(key).encode("utf-8", "replace"), digest_size=16).hexdigest()
    document = {
        "version": EVENT_VERSION,
        "id": name,
        "event": kind,
        "sequence": incident.sequence,
        "at": at.isoformat(),
        "cluster": links.cluster,
        "mesh": mesh,
        "opened_at": incident.opened_at.isoformat(),
        **more,
        **({"continues": incident.continues} if incident.continues else {}),
        "summary": incident.alert.annotations.get("summary", ""),
        "description": incident.alert.annotations.get("description", ""),
        "links": links.urls(_subject(mesh, incident, at)),
        "incident": incident.document,
    }
    return IncidentEvent(name, at, document)


def _subject(mesh: str, incident: AlertedIncident, at: datetime) -> LinkSubject:
    """The subject of the links of an event. An earlier version stored no kind."""
    service, document = next(iter(incident.services), ""), incident.document
    since = datetime.fromisoformat(document["since"])
    return incident_subject(mesh, incident.incident, service, document.get("kind", ""), since, at)


def encode_event(event: IncidentEvent) -> bytes:
    """The body of a webhook request. Every attempt sends the same bytes."""
    return msgspec.json.encode(event.document)


def encode_slack(event: IncidentEvent) -> bytes:
    """The body of a request to an incoming webhook of Slack."""
    return msgspec.json.encode(slack_message(event.document))


def encode_alerts(alerts: list[tuple[Alert, datetime]]) -> bytes:
    """The body of Alertmanager's ``POST /api/v2/alerts``: each alert with its ``endsAt``."""
    return msgspec.json.encode(
        [
            {
                "labels": alert.labels,
                "annotations": alert.annotations,
                "startsAt": alert.starts_at,
                "endsAt": ends_at,
                **({"generatorURL": alert.url} if alert.url else {}),
            }
            for alert, ends_at in alerts
        ]
    )


class _StoredState(msgspec.Struct):
    version: int
    state: AlertState = msgspec.field(name="book")


def encode_state(state: AlertState) -> bytes:
    """The content of the state file."""
    return msgspec.json.format(msgspec.json.encode(_StoredState(STATE_VERSION, state)), indent=1)


def decode_state(content: bytes) -> AlertState:
    """Read what :func:`encode_state` wrote.

    Raises:
        CorruptState: the content is something else, or of another version.
    """
    try:
        stored = msgspec.json.decode(content, type=_StoredState)
    except msgspec.MsgspecError as error:
        raise CorruptState(f"notifications: expected a state file of this service, got {error}") from None
    if stored.version != STATE_VERSION:
        raise CorruptState(f"notifications: expected version {STATE_VERSION}, got {stored.version}")
    if not all(at.tzinfo for at in _find_times(stored.state)):
        raise CorruptState("notifications: expected times with a time zone, got one without")
    return stored.state


def _find_times(state: AlertState) -> list[datetime]:
    alerts = [*state.firing_alerts(), *state.ended]
    found = [at for mesh in state.meshes.values() for at in (mesh.at, mesh.observed_at)]
    found += [at for alert in alerts for at in (alert.starts_at, alert.ends_at)]
    found += [at for mesh in state.meshes.values() for one in mesh.open for at in (one.opened_at, one.next_cause_since)]
    found += [one.at for mesh in state.meshes.values() for one in mesh.ended]
    found += [event.at for events in state.events.values() for event in events]
    return [at for at in found if at is not None]
