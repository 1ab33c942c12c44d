"""Sends incidents to Opsgenie, or to the same interface of Jira Service Management, as alerts of the Alert API v2.

The alias of an alert is the key of its incident. While an alert is open, Opsgenie counts another one with its alias
instead of adding it, and a change of severity or cause updates its fields and adds a note. A note has no key that makes
a repeated request harmless, so it begins with the number of its event, and is not added if the alert has it already.
Opsgenie answers 202 to what it accepts, and does it later.
"""

import asyncio
import hashlib
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from model.names import list_first, readable
from serve_app.alerts.alert import IncidentEvent
from serve_app.alerts.annotations import truncate
from serve_app.alerts.event_queue import SKIPPED, ReceiverPlugin
from serve_app.alerts.event_text import (
    ENDS,
    event_title,
    first_suspect,
    incident_key,
    named_links,
    news,
    next_step,
)
from serve_app.net.endpoint import SecretUnreadable, read_secret
from serve_app.net.http import HttpSender, Reply
from serve_app.settings.receivers import OpsgenieSettings

KIND = "opsgenie"
PATH = "/v2/alerts"
PRIORITIES = {"critical": "P1", "major": "P2", "minor": "P3", "notice": "P5"}
MAX_MESSAGE, MAX_ALIAS, MAX_DESCRIPTION, MAX_NOTE, MAX_ENTITY = 130, 512, 15_000, 25_000, 512  # characters
MAX_TAG, MAX_DETAILS = 50, 8000  # characters of a tag, and of all details together
MAX_AFFECTED = 20
NO_SUCH, FORBIDDEN = (404, 405), (401, 403)  # alert or route; permission
_MOST_BYTES = 1 << 20  # of an answer with notes
SOURCE = "tagae"


class Opsgenie:
    """Sends events to one integration of Opsgenie.

    Args:
        sender: for ``.../v2/alerts``.
        settings: of the receiver.
    """

    kind = KIND

    def __init__(self, sender: HttpSender, settings: OpsgenieSettings) -> None:
        self._sender = sender
        self._settings = settings
        self.name = sender.endpoint.origin
        identity = f"{sender.endpoint.url}\n{settings.api_key_file}"
        self.key = f"opsgenie-{hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()}"

    async def deliver(self, event: IncidentEvent) -> Reply:
        """Create, update or close the alert of an event's incident. A repeated event changes nothing."""
        document = event.document
        if not self._settings.notices and document["incident"]["severity"] == "notice":
            return SKIPPED
        try:
            key = await asyncio.to_thread(read_secret, self._settings.api_key_file)
        except SecretUnreadable as error:
            return Reply("secret", detail=str(error))
        headers = {"authorization": f"GenieKey {key}"}
        if document["event"] in ENDS:
            return await self._post("close", document, {"note": note(document)}, headers)
        if document["event"] == "opened":
            return await self._create(document, headers)
        return await self._update(document, headers)

    async def close(self) -> None:
        """Close the connection."""
        await self._sender.close()

    async def _create(self, event: Mapping[str, Any], headers: Mapping[str, str]) -> Reply:
        return await self._sender.post(json.dumps(opsgenie_alert(event, self._settings)).encode(), headers)

    async def _update(self, event: Mapping[str, Any], headers: Mapping[str, str]) -> Reply:
        """Change the fields of an open alert, and add a note. One that a person closed, or that was never created, is
        created. Jira Service Management has no route for the fields; the note says what changed."""
        listed = await self._sender.send("GET", _path(event, "notes", limit=100), b"", headers, _MOST_BYTES)
        if listed.failed and listed.status not in (*FORBIDDEN, *NO_SUCH):  # the key may have no permission to read
            return listed
        if listed.status in NO_SUCH:
            reply = await self._create(event, headers)
            if reply.failed:
                return reply
        else:
            alert = opsgenie_alert(event, self._settings)
            for field in ("priority", "message", "description"):
                body = json.dumps({field: alert[field]}).encode()
                reply = await self._sender.send("PUT", _path(event, field), body, headers)
                if reply.failed and reply.status not in NO_SUCH:
                    return reply
        text = note(event)
        if text in _notes(listed.content):
            return Reply(status=listed.status)
        return await self._post("notes", event, {"note": text}, headers)

    async def _post(
        self, action: str, event: Mapping[str, Any], fields: Mapping[str, str], headers: Mapping[str, str]
    ) -> Reply:
        body = json.dumps({**fields, "source": SOURCE}).encode()
        return await self._sender.send("POST", _path(event, action), body, headers)


def opsgenie_alert(event: Mapping[str, Any], settings: OpsgenieSettings) -> dict[str, Any]:
    """Return the alert of an event's incident, as Opsgenie creates it.

    Args:
        event: the document that webhooks get.
        settings: of the receiver.
    """
    incident = event["incident"]
    links = [f"{name}: {url}" for name, url in named_links(event)]
    tags = ["tagae", f"mesh:{event['mesh']}", f"severity:{incident['severity']}", *settings.tags]
    return {
        "message": truncate(readable(event["summary"]) or event_title(event), MAX_MESSAGE),
        "alias": incident_key(event, MAX_ALIAS),
        "description": truncate("\n".join([event["description"], *links]), MAX_DESCRIPTION),
        **({"responders": [one.document() for one in settings.responders]} if settings.responders else {}),
        "tags": [truncate(tag, MAX_TAG) for tag in tags],
        "details": details(event),
        "entity": truncate(readable(first_suspect(event)), MAX_ENTITY),
        "source": SOURCE,
        "priority": PRIORITIES[incident["severity"]],
    }


def details(event: Mapping[str, Any]) -> dict[str, str]:
    """Return the custom properties of an alert, which fit the limit together."""
    incident = event["incident"]
    impact, budget = incident.get("impact"), incident.get("error_budgets")
    found = {
        "incident": incident["id"],
        "continues": event.get("continues", ""),
        "cluster": event["cluster"],
        "mesh": event["mesh"],
        "kind": incident.get("kind", ""),
        "what to do": next_step(event),
        "since": incident["since"],
        "impact": impact["text"] if impact else "",
        "affected": readable(list_first(incident["affected"], MAX_AFFECTED)),
        "error budget": readable("\n".join(one["text"] for one in budget or ())),
    }
    room, kept = MAX_DETAILS, {}
    for name, text in found.items():
        if text and room - len(name) > 3:  # truncate() needs three for its dots
            kept[name] = truncate(text, room - len(name))
            room -= len(name) + len(kept[name])
    return kept


def note(event: Mapping[str, Any]) -> str:
    """Return the note of an event. It begins with the event's number in its incident, so that it is added once."""
    return truncate(f"{event['sequence']}. {news(event)} {readable(event['summary'])}", MAX_NOTE)


def _path(event: Mapping[str, Any], action: str, **query: object) -> str:
    more = "".join(f"&{name}={value}" for name, value in query.items())
    return f"/{quote(incident_key(event, MAX_ALIAS), safe='')}/{action}?identifierType=alias{more}"


def _notes(content: bytes) -> set[str]:
    """The notes of an answer; none if it is something else."""
    try:
        return {one["note"] for one in json.loads(content)["data"]}
    except (ValueError, TypeError, KeyError):
        return set()


def _open(settings: OpsgenieSettings, deadline_seconds: float) -> Opsgenie:
    return Opsgenie(HttpSender(settings.endpoint(settings.url.rstrip("/") + PATH), deadline_seconds), settings)


OPSGENIE = ReceiverPlugin(options=OpsgenieSettings, open=_open)
