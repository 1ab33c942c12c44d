"""Posts events to one webhook, signed if it has a key."""

import asyncio
import hashlib
import hmac
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from serve_app.alerts.alert import IncidentEvent
from serve_app.alerts.event_queue import receiver_key
from serve_app.alerts.receivers.receiver import ReceiverPlugin
from serve_app.alerts.receivers.slack import slack_message
from serve_app.net.endpoint import SecretUnreadable, read_secret
from serve_app.net.http import HttpSender, Reply
from serve_app.settings.receivers import WebhookSettings

KIND = "webhook"
MAX_BYTES = 1_000_000  # in a body; nginx refuses more than 1 MiB


class Webhook:
    """Posts events to one webhook.

    Args:
        secret_file: key that signs each request; None: requests are not signed.
        format: the body's format: the event itself, or a Slack message.
    """

    kind = KIND

    def __init__(
        self, sender: HttpSender, secret_file: Path | None = None, format: Literal["event", "slack"] = "event"
    ) -> None:
        self.sender = sender
        self.name = sender.endpoint.origin
        self.key = receiver_key(KIND, sender.endpoint.url)
        self.secret_file = secret_file
        self.format = format

    async def deliver(self, event: IncidentEvent) -> Reply:
        """Post an event. Every attempt sends the same bytes."""
        body = msgspec.json.encode(slack_message(event.document)) if self.format == "slack" else encode(event.document)
        headers = {"idempotency-key": event.id, "tagae-event": str(event.document.get("event", ""))}
        try:
            return await self.sender.post(body, headers | await self._sign(body))
        except SecretUnreadable as error:
            return Reply("secret", detail=str(error))

    async def check(self) -> Reply:
        """Read the secrets and open a connection, because any request would be an event."""
        try:
            await self._sign(b"")
        except SecretUnreadable as error:
            return Reply("secret", detail=str(error))
        return await self.sender.connect()

    async def close(self) -> None:
        await self.sender.close()

    async def _sign(self, body: bytes) -> dict[str, str]:
        if self.secret_file is None:
            return {}
        key = await asyncio.to_thread(read_secret, self.secret_file)
        return {"tagae-signature": signature(key, body, int(time.time()))}


def encode(event: Mapping[str, Any]) -> bytes:
    """Return an event as JSON. Its longest lists are halved until proxies accept its size."""
    body = msgspec.json.encode(event)
    incident = dict(event["incident"])
    while len(body) > MAX_BYTES:
        sizes = {name: len(msgspec.json.encode(value)) for name, value in incident.items() if isinstance(value, list)}
        name = max(sizes, key=lambda name: sizes[name])
        if not incident[name]:
            break
        incident[name] = incident[name][: len(incident[name]) // 2]
        body = msgspec.json.encode({**event, "incident": incident})
    return body


def signature(key: str, body: bytes, at: int) -> str:
    """``t=1767225600,v1=HEX``: HMAC-SHA256 of ``TIME.BODY``. The time is signed, too, so that a receiver can refuse a
    replayed request.

    Args:
        at: Unix time, s.
    """
    digest = hmac.new(key.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def _open(settings: WebhookSettings, deadline_seconds: float) -> Webhook:
    return Webhook(HttpSender(settings.endpoint(settings.url), deadline_seconds), settings.secret_file, settings.format)


WEBHOOK = ReceiverPlugin(options=WebhookSettings, open=_open)
