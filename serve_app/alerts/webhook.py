"""Sends events to one webhook: each at least once, in order, one request at a time.

An event that cannot be delivered delays the events behind it: a rise in severity must not arrive before the event that
opened the incident. The queue is bounded. Beyond ``max_events`` the oldest are dropped and counted. The others are
enough, since each event holds all that is known of its incident, and ``sequence`` shows the gap.
"""

import asyncio
import hashlib
import hmac
import logging
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from serve_app.alerts.alert import IncidentEvent
from serve_app.alerts.payloads import encode_event, encode_slack
from serve_app.alerts.state_file import StateFile
from serve_app.metrics import NOTICES_DROPPED, NOTICES_SENT, Instruments
from serve_app.net.endpoint import Endpoint, SecretUnreadable, read_secret
from serve_app.net.http import HttpSender, Reply

KIND = "webhook"
WebhookFormat = Literal["event", "slack"]
_ENCODE = {"event": encode_event, "slack": encode_slack}
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How many events wait for a webhook, and for how long."""

    max_events: int = 1000
    max_age: timedelta = timedelta(hours=24)

    def trim(
        self, events: tuple[IncidentEvent, ...], now: datetime
    ) -> tuple[tuple[IncidentEvent, ...], dict[str, int]]:
        """The events that stay, and how many are dropped by reason: ``expired``, ``full``."""
        young = tuple(event for event in events if now - event.at < self.max_age)
        kept = young[-self.max_events :]
        return kept, {"expired": len(events) - len(young), "full": len(young) - len(kept)}


@dataclass(frozen=True, slots=True)
class WebhookReceiver:
    """Where a webhook is, and what it gets.

    Attributes:
        endpoint: its URL.
        secret_file: key that signs each request; None: requests are not signed.
        format: of the body: the event itself, or the message for Slack.
    """

    endpoint: Endpoint
    secret_file: Path | None = None
    format: WebhookFormat = "event"


class Webhook:
    """One webhook.

    Args:
        sender: for its URL.
        state_file: holds the events that wait for it.
        instruments: counters.
        to: what it gets.
    """

    kind = KIND

    def __init__(
        self, sender: HttpSender, state_file: StateFile, instruments: Instruments, to: WebhookReceiver
    ) -> None:
        self.sender = sender
        self.key = webhook_key(sender.endpoint.url)
        self._state_file = state_file
        self._instruments = instruments
        self._secret_file = to.secret_file
        self._encode = _ENCODE[to.format]

    def count_waiting(self) -> int:
        """How many events it has not acknowledged."""
        return len(self._state_file.published.events.get(self.key, ()))

    def next_in(self) -> float:
        """Infinite: only a new event is a reason to send."""
        return float("inf")

    async def send(self) -> Reply | None:
        """Post the oldest event. Returns None if none waits. An event that the webhook refuses is not retried."""
        queue = self._state_file.published.events.get(self.key, ())
        if not queue:
            return None
        event = queue[0]
        body = self._encode(event)
        headers = {"idempotency-key": event.id, "tagae-event": str(event.document.get("event", ""))}
        try:
            reply = await self.sender.post(body, headers | await self._sign(body))
        except SecretUnreadable as error:
            return Reply("secret", detail=str(error))
        if reply.failed == "refused":
            self._instruments.count(NOTICES_DROPPED, receiver=KIND, reason="refused")
            log.error(
                "%s: event %s was refused and is not retried: %s", self.sender.endpoint.origin, event.id, reply.detail
            )
        elif reply.failed:
            return reply
        else:
            self._instruments.count(NOTICES_SENT, receiver=KIND)
        self._state_file.acknowledge(self.key, event.id)
        return Reply(status=reply.status)

    async def _sign(self, body: bytes) -> dict[str, str]:
        if self._secret_file is None:
            return {}
        key = await asyncio.to_thread(read_secret, self._secret_file)
        return {"tagae-signature": signature(key, body, int(time.time()))}


def signature(key: str, body: bytes, at: int) -> str:
    """``t=1767225600,v1=HEX``: HMAC-SHA256 of ``TIME.BODY``. The time is signed too, so that a receiver can refuse a
    request that was recorded and is sent again later.

    Args:
        key: shared secret.
        body: of the request.
        at: Unix time, s.
    """
    digest = hmac.new(key.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def webhook_key(url: str) -> str:
    """The name of a webhook in the state file: a hash, since the URL may be a secret."""
    return hashlib.blake2b(url.encode(), digest_size=8).hexdigest()
