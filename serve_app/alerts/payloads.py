"""What is told to people as documents: events for webhooks, and what is kept of both over a restart."""

import hashlib
import json
from datetime import datetime
from typing import Any, Literal

import msgspec

from model.verdict import Incident
from serve_app.alerts.alert import Alert, AlertedIncident, AlertState, IncidentEvent
from serve_app.alerts.annotations import AlertLinks
from serve_app.api.codec.verdicts import encode_incident
from serve_app.errors import CorruptState

EVENT_VERSION = 1
BOOK_VERSION = 1
Kind = Literal["opened", "severity_raised", "merged", "resolved"]


def incident_document(incident: Incident, observed_at: datetime) -> dict[str, Any]:
    """``IncidentDocument`` as plain JSON values; what is no number is null."""
    document: dict[str, Any] = json.loads(encode_incident(incident, observed_at).model_dump_json())
    return document


def event(kind: Kind, page: AlertedIncident, mesh: str, at: datetime, place: AlertLinks, **more: str) -> IncidentEvent:
    """What happened to an incident, with all that is known of it, so that one document is enough.

    Args:
        kind: what happened.
        page: as it is told from now on, or was last; ``sequence`` is the event's.
        mesh: name.
        at: when it is told, UTC.
        place: where it comes from.
        more: ``previous_severity``, ``merged_into``, ``reason`` of a resolution.
    """
    key = (place.cluster, mesh, page.incident, page.opened_at.isoformat(), str(page.sequence))
    name = hashlib.blake2b("\n".join(key).encode("utf-8", "replace"), digest_size=16).hexdigest()
    document = {
        "version": EVENT_VERSION,
        "id": name,
        "event": kind,
        "sequence": page.sequence,
        "at": at.isoformat(),
        "cluster": place.cluster,
        "mesh": mesh,
        "opened_at": page.opened_at.isoformat(),
        **more,
        "summary": page.alert.annotations.get("summary", ""),
        "description": page.alert.annotations.get("description", ""),
        "links": place.links(mesh, page.incident),
        "incident": page.document,
    }
    return IncidentEvent(name, at, document)


def encode_event(event: IncidentEvent) -> bytes:
    """The body of a webhook's request: the same bytes however often it is sent."""
    return msgspec.json.encode(event.document)


def encode_alerts(alerts: list[tuple[Alert, datetime]]) -> bytes:
    """The body of Alertmanager's ``POST /api/v2/alerts``: each alert with the end that it is given now."""
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


class _Kept(msgspec.Struct):
    version: int
    book: AlertState


def encode_book(book: AlertState) -> bytes:
    """For the file that outlives the process."""
    return msgspec.json.format(msgspec.json.encode(_Kept(BOOK_VERSION, book)), indent=1)


def decode_book(content: bytes) -> AlertState:
    """What :func:`encode_book` wrote.

    Raises:
        CorruptState: it is not that, or of another version.
    """
    try:
        kept = msgspec.json.decode(content, type=_Kept)
    except msgspec.MsgspecError as error:
        raise CorruptState(f"notifications: expected what this service wrote, came {error}") from None
    if kept.version != BOOK_VERSION:
        raise CorruptState(f"notifications: expected version {BOOK_VERSION}, came {kept.version}")
    if not all(at.tzinfo for at in _moments(kept.book)):
        raise CorruptState("notifications: expected times with their zone, came one without")
    return kept.book


def _moments(book: AlertState) -> list[datetime]:
    alerts = [*book.firing(), *book.ended]
    pages = [page for told in book.meshes.values() for page in told.open]
    found = [told_at for told in book.meshes.values() for told_at in (told.at, told.observed_at)]
    found += [at for alert in alerts for at in (alert.starts_at, alert.ends_at)]
    found += [page.opened_at for page in pages]
    found += [one.at for events in book.events.values() for one in events]
    return [at for at in found if at is not None]
