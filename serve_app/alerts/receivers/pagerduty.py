"""Sends incidents to PagerDuty as alerts of its Events API v2.

All events of an incident have the same ``dedup_key``, so PagerDuty has one alert for it, however often an event is
repeated. A ``trigger`` for an open alert adds to its log. PagerDuty answers 202 to an accepted event; 400 means that it
will never accept the event.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from model.names import list_first, readable
from serve_app.alerts.alert import IncidentEvent
from serve_app.alerts.annotations import truncate
from serve_app.alerts.event_queue import receiver_key
from serve_app.alerts.event_text import (
    ENDS,
    event_title,
    first_suspect,
    incident_key,
    named_links,
    news,
    next_step,
    what_happened,
)
from serve_app.alerts.receivers.receiver import ReceiverPlugin
from serve_app.api.schemas.actions import ActionKind
from serve_app.net.endpoint import SecretUnreadable, read_secret
from serve_app.net.http import HttpSender, Reply
from serve_app.settings.receivers import PagerDutySettings

KIND = "pagerduty"
SEVERITIES = {"critical": "critical", "major": "error", "minor": "warning", "notice": "info"}
MAX_SUMMARY, MAX_KEY, MAX_FIELD, MAX_DETAIL = 1024, 255, 1024, 8192  # characters
MAX_AFFECTED = 20
KEY_LENGTH = 32  # characters of a routing key
_ACTIONS = {  # for events that do not end an incident; all others trigger
    "acted": ("acknowledge",),  # calls no one else, and the alert stays open
    "muted": ("acknowledge",),
    "unmuted": ("resolve", "trigger"),  # a trigger calls no one while its alert is acknowledged
}


class PagerDuty:
    """Sends events to one PagerDuty service."""

    kind = KIND

    def __init__(self, sender: HttpSender, settings: PagerDutySettings) -> None:
        self._sender = sender
        self._settings = settings
        self.name = sender.endpoint.origin
        self.key = receiver_key(KIND, sender.endpoint.url, str(settings.routing_key_file))

    async def deliver(self, event: IncidentEvent) -> Reply:
        """Post an event. PagerDuty accepts a repeated event without effect."""
        try:
            key = await asyncio.to_thread(_read_key, self._settings)
        except SecretUnreadable as error:
            return Reply("secret", detail=str(error))
        reply = Reply(status=200)
        for request in pagerduty_events(event.document):
            reply = await self._sender.post(encode(request, key), {})
            if reply.failed:
                break
        return replace(reply, detail=reply.detail.replace(key, "ROUTING_KEY"))  # if an answer repeats it

    async def check(self) -> Reply:
        """Read the key and open a connection, because any request would be an event."""
        try:
            await asyncio.to_thread(_read_key, self._settings)
        except SecretUnreadable as error:
            return Reply("secret", detail=str(error))
        return await self._sender.connect()

    async def close(self) -> None:
        await self._sender.close()


def encode(request: Mapping[str, Any], routing_key: str) -> bytes:
    """Return the body of a request. Its fields are limited so that it stays below 512,000 bytes, PagerDuty's limit."""
    return msgspec.json.encode({"routing_key": routing_key, **request})


def pagerduty_events(event: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return an event in the format of the Events API v2, in order, without the routing key.

    Args:
        event: the document that webhooks get.
    """
    incident = event["incident"]
    page = event["links"].get("page_url")
    service = readable(first_suspect(event))
    summary = f"{what_happened(event)}: {event['summary']}" if event["event"] != "opened" else event["summary"]
    payload = {
        "summary": truncate(summary or event_title(event), MAX_SUMMARY),
        "source": truncate(f"{event['cluster']}/{event['mesh']}", MAX_FIELD),
        "severity": SEVERITIES[incident["severity"]],
        "timestamp": event["at"],
        "component": truncate(service, MAX_FIELD),
        "group": truncate(event["mesh"], MAX_FIELD),
        "class": incident["kind"],
        "custom_details": details(event),
    }
    fields = {
        "dedup_key": incident_key(event, MAX_KEY),
        "client": "TAGAE",
        **({"client_url": page} if page else {}),
        "links": [{"href": url, "text": name} for name, url in named_links(event)],
        "payload": {name: value for name, value in payload.items() if value},
    }
    return [{"event_action": action, **fields} for action in _actions_of(event)]


def _actions_of(event: Mapping[str, Any]) -> tuple[str, ...]:
    """PagerDuty's actions for an event, in order. It has no action for a note, and a ``trigger`` would call people
    again if someone has resolved the alert there."""
    if event["event"] in ENDS:
        return ("resolve",)
    if event["event"] == "acted" and event["actions"][-1]["kind"] != ActionKind.ACKNOWLEDGE:
        return ()
    return _ACTIONS.get(event["event"], ("trigger",))


def details(event: Mapping[str, Any]) -> dict[str, str]:
    """Return the facts for a person on call, by name."""
    incident = event["incident"]
    impact = incident["impact"]
    texts = {
        "incident": incident["id"],
        "continues": event.get("continues", ""),
        "news": news(event),
        "on it": event.get("on_it", ""),
        "what to do": next_step(event),
        "since": incident["since"],
        "what": event["description"],
        "affected": readable(list_first(incident["affected"], MAX_AFFECTED)),
        "impact": impact["text"] if impact else "",
        "changes": readable("\n".join(change["text"] for change in incident["changes"])),
        "error budget": readable("\n".join(budget["text"] for budget in incident["error_budgets"])),
    }
    return {name: truncate(text, MAX_DETAIL) for name, text in texts.items() if text}


def _read_key(settings: PagerDutySettings) -> str:
    key = read_secret(settings.routing_key_file)
    if len(key) != KEY_LENGTH:
        raise SecretUnreadable(
            f"expected a routing key of {KEY_LENGTH} characters in {settings.routing_key_file}, got {len(key)}; copy "
            "the integration key of an Events API v2 integration"
        )
    return key


def _open(settings: PagerDutySettings, deadline_seconds: float) -> PagerDuty:
    return PagerDuty(HttpSender(settings.endpoint(settings.url), deadline_seconds), settings)


PAGERDUTY = ReceiverPlugin(options=PagerDutySettings, open=_open)
