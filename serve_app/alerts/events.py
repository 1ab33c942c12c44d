"""Incident events: webhooks get them as JSON, and other receivers build their messages from them."""

import hashlib
import json
from datetime import datetime
from typing import Any, Literal

from serve_app.alerts.alert import IncidentAlert, IncidentEvent
from serve_app.alerts.event_text import who_is_on_it
from serve_app.alerts.links import Links, incident_subject
from serve_app.api.schemas.verdict import IncidentDocument

EVENT_VERSION = 1
MAX_ACTIONS = 10  # of people, in one event: waiting events are kept in memory
EventKind = Literal["opened", "severity_raised", "cause_changed", "acted", "muted", "unmuted", "merged", "resolved"]


def incident_json(incident: IncidentDocument) -> dict[str, Any]:
    """An incident as plain JSON values; NaN is null."""
    document: dict[str, Any] = json.loads(incident.model_dump_json())
    return document


def build_event(
    kind: EventKind, incident: IncidentAlert, mesh: str, at: datetime, links: Links, **more: str
) -> IncidentEvent:
    """Build an event with everything that is known about its incident, so that a receiver needs no other event.

    Args:
        incident: its state after the event; ``sequence`` is the event's number.
        at: time of the event, UTC.
        more: ``previous_severity``, ``previous_cause``, ``mute_reason``, ``muted_until``, ``merged_into``, or the
            ``reason`` of its end.
    """
    key = (links.cluster, mesh, incident.incident, incident.opened_at.isoformat(), str(incident.sequence))
    name = hashlib.blake2b("\n".join(key).encode("utf-8", "replace"), digest_size=16).hexdigest()
    since = datetime.fromisoformat(incident.document["since"])
    subject = incident_subject(
        mesh, incident.incident, next(iter(incident.services), ""), incident.document["kind"], since, at
    )
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
        "links": links.urls(subject),
        "incident": incident.document,
        "on_it": who_is_on_it(incident.actions),
        "actions": list(incident.actions[-MAX_ACTIONS:]),
    }
    return IncidentEvent(name, at, document)
