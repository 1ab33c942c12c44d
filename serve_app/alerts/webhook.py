"""Events to one webhook: each at least once, in order, one request at a time.

What is at the head of the queue keeps those behind it waiting, since a rise must not overtake what it rose from. The
queue is bounded: beyond ``most`` the oldest are dropped, and counted. What remains is enough, as each event tells all
that is known of its incident, and ``sequence`` shows the gap.
"""

import asyncio
import hashlib
import hmac
import logging
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from serve_app.alerts.alert import IncidentEvent
from serve_app.alerts.payloads import encode_event
from serve_app.alerts.state_file import StateFile
from serve_app.metrics import NOTICES_DROPPED, NOTICES_SENT, Instruments
from serve_app.net.endpoint import SecretUnreadable, secret
from serve_app.net.http import HttpSender, Reply

RECEIVER = "webhook"
log = logging.getLogger("ray.serve")


@dataclass(frozen=True, slots=True)
class Queue:
    """How much waits for a webhook: ``most`` events, none for longer than ``keep``."""

    most: int = 1000
    keep: timedelta = timedelta(hours=24)

    def bounded(
        self, events: tuple[IncidentEvent, ...], now: datetime
    ) -> tuple[tuple[IncidentEvent, ...], dict[str, int]]:
        """Those that go on waiting, and how many are dropped, by reason: ``expired``, ``full``."""
        young = tuple(event for event in events if now - event.at < self.keep)
        kept = young[-self.most :]
        return kept, {"expired": len(events) - len(young), "full": len(young) - len(kept)}


class Webhook:
    """One webhook.

    Args:
        poster: to its URL.
        ledger: what waits for it.
        instruments: counts.
        secret_file: signs each request; None: unsigned.
    """

    receiver = RECEIVER

    def __init__(
        self, poster: HttpSender, ledger: StateFile, instruments: Instruments, secret_file: Path | None = None
    ) -> None:
        self.poster = poster
        self.key = webhook_key(poster.endpoint.url)
        self._ledger = ledger
        self._instruments = instruments
        self._secret_file = secret_file

    def waiting(self) -> int:
        """Events that it has not acknowledged."""
        return len(self._ledger.published.events.get(self.key, ()))

    def next_in(self) -> float:
        """Nothing is due that is not new."""
        return float("inf")

    async def send(self) -> Reply | None:
        """Post the oldest event; None: none waits. One that is refused for itself is not repeated."""
        queue = self._ledger.published.events.get(self.key, ())
        if not queue:
            return None
        event = queue[0]
        body = encode_event(event)
        headers = {"idempotency-key": event.id, "tagae-event": str(event.document.get("event", ""))}
        try:
            reply = await self.poster.post(body, headers | await self._signed(body))
        except SecretUnreadable as error:
            return Reply("secret", detail=str(error))
        if reply.failed == "refused":
            self._instruments.count(NOTICES_DROPPED, receiver=RECEIVER, reason="refused")
            log.error("%s: event %s is not repeated: %s", self.poster.endpoint.origin, event.id, reply.detail)
        elif reply.failed:
            return reply
        else:
            self._instruments.count(NOTICES_SENT, receiver=RECEIVER)
        self._ledger.acknowledged(self.key, event.id)
        return Reply(status=reply.status)

    async def _signed(self, body: bytes) -> dict[str, str]:
        if self._secret_file is None:
            return {}
        key = await asyncio.to_thread(secret, self._secret_file)
        return {"tagae-signature": signature(key, body, int(time.time()))}


def signature(key: str, body: bytes, at: int) -> str:
    """``t=1767225600,v1=HEX``: HMAC-SHA256 of ``TIME.BODY``. The time is signed too, so that whoever checks it against
    the clock refuses what was recorded and sent again.

    Args:
        key: shared secret.
        body: as it is sent.
        at: Unix time, s.
    """
    digest = hmac.new(key.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def webhook_key(url: str) -> str:
    """What a webhook's events are kept under: its URL may be a secret."""
    return hashlib.blake2b(url.encode(), digest_size=8).hexdigest()
