"""Shows incidents as annotations in Grafana: one per incident, from its start to its end.

Grafana has no idempotency key. So each annotation has a tag that names its incident, and an event first looks for the
annotation with this tag, and updates it if it exists. So a repeated event changes nothing, even after a lost response.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from html import escape
from typing import Any
from urllib.parse import urlencode

from serve_app.alerts.alert import IncidentEvent
from serve_app.alerts.annotations import truncate
from serve_app.alerts.event_queue import receiver_key
from serve_app.alerts.event_text import ENDS, first_suspect, how_it_ended, named_links, news, next_step
from serve_app.alerts.receivers.receiver import ReceiverPlugin
from serve_app.net.http import HttpSender, Reply
from serve_app.settings.receivers import GrafanaSettings

KIND = "grafana"
PATH = "/api/annotations"
MAX_TAG = 100  # bytes in a tag's value as JSON: Grafana accepts 100 characters, and 500 bytes for all tags as JSON
MAX_TEXT = 2000  # characters in each text: Grafana accepts 65,535 bytes in total after escaping
_MAX_BYTES = 1 << 16  # in an answer


class Grafana:
    """Writes annotations to one Grafana."""

    kind = KIND

    def __init__(self, sender: HttpSender) -> None:
        self._sender = sender
        self.name = sender.endpoint.origin
        self.key = receiver_key(KIND, sender.endpoint.url)

    async def deliver(self, event: IncidentEvent) -> Reply:
        """Add or update the annotation of the event's incident."""
        document = annotation(event.document)
        query = urlencode({"type": "annotation", "limit": 1, "tags": incident_tag(event.document)})
        reply = await self._sender.send("GET", f"?{query}", keep=_MAX_BYTES)
        if reply.failed:
            return reply
        try:
            annotation_id = _find_id(reply.content)
        except (ValueError, TypeError, KeyError) as error:
            return Reply("broken", reply.status, f"expected a list of annotations: {type(error).__name__}: {error}")
        body = json.dumps(document).encode()
        if annotation_id is not None:
            return await self._sender.send("PATCH", f"/{annotation_id}", body)
        return await self._sender.send("POST", "", body)

    async def check(self) -> Reply:
        """Look for an annotation, which requires a valid token and read permission."""
        return await self._sender.send("GET", f"?{urlencode({'type': 'annotation', 'limit': 1, 'tags': 'tagae'})}")

    async def close(self) -> None:
        await self._sender.close()


def annotation(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an incident's annotation after an event. Until the incident ends, it is a point in time.

    Args:
        event: the document that webhooks get.
    """
    incident, is_over = event["incident"], event["event"] in ENDS
    since, at = datetime.fromisoformat(incident["since"]), datetime.fromisoformat(event["at"])
    links = [f'<a href="{escape(url)}" target="_blank">{name}</a>' for name, url in named_links(event)]
    continues = f", which continues {escape(event['continues'])}" if event.get("continues") else ""
    on_it = event.get("on_it", "")
    texts = [
        escape(truncate(event["summary"], MAX_TEXT)),
        escape(truncate(f"On it: {on_it}", MAX_TEXT)) if on_it else "",
        escape(truncate(next_step(event), MAX_TEXT)),
        escape(truncate(news(event), MAX_TEXT)) if event["event"] == "muted" else how_it_ended(event),
        " · ".join(links),
        f"incident {escape(incident['id'])}{continues}",
    ]
    service = first_suspect(event)
    return {
        "time": _milliseconds(since),
        **({"timeEnd": max(_milliseconds(at), _milliseconds(since))} if is_over else {}),
        "tags": [
            "tagae",
            f"cluster:{_fit(event['cluster'])}",
            f"mesh:{_fit(event['mesh'])}",
            f"severity:{incident['severity']}",
            *([f"service:{_fit(service)}"] if service else []),
            *(["muted"] if event["event"] == "muted" else []),
            *(["acknowledged"] if on_it else []),
            incident_tag(event),
        ],
        "text": "<br>".join(text for text in texts if text),
    }


def incident_tag(event: Mapping[str, Any]) -> str:
    """Return an incident's tag; an id that is opened again later has another tag."""
    key = "\n".join((event["cluster"], event["mesh"], event["incident"]["id"], event["opened_at"]))
    return f"incident:{hashlib.blake2b(key.encode('utf-8', 'replace'), digest_size=8).hexdigest()}"


def _fit(value: str) -> str:
    """Shorten a value so that it fits into a tag."""
    result, room = "", MAX_TAG
    for character in truncate(value, MAX_TAG):
        # Grafana stores tags as Go's JSON, which escapes these characters with six bytes.
        room -= 6 if character in '<>&"\\' or not character.isprintable() else len(character.encode())
        if room < 0:
            break
        result += character
    return result


def _find_id(content: bytes) -> int | None:
    """Return the annotation's id in an answer; None: there is none. Raise an error for any other answer."""
    annotations = json.loads(content)
    if not isinstance(annotations, list):
        raise TypeError(f"got {type(annotations).__name__}")
    return int(annotations[0]["id"]) if annotations else None


def _milliseconds(at: datetime) -> int:
    return round(1000 * at.timestamp())


def _open(settings: GrafanaSettings, deadline_seconds: float) -> Grafana:
    return Grafana(HttpSender(settings.endpoint(settings.url.rstrip("/") + PATH), deadline_seconds))


GRAFANA = ReceiverPlugin(options=GrafanaSettings, open=_open)
