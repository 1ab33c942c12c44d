"""Alerts to one Alertmanager: all that fire, every minute, and what ended, until it is sure to have heard.

Alerts are state and not messages, so nothing queues: a replica that was away is told how things are when it is back.
``endsAt`` of what fires is four minutes ahead of each post, so that alerts lapse by themselves if we die, and are not
posted any more when no verdict of their mesh has come for a while.
"""

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

from serve_app.alerts.alert import Alert, AlertState, Name
from serve_app.alerts.payloads import encode_alerts
from serve_app.alerts.state_file import StateFile
from serve_app.metrics import NOTICES_DROPPED, NOTICES_SENT, Instruments
from serve_app.net.http import HttpSender, Reply

PATH = "/api/v2/alerts"
RECEIVER = "alertmanager"
MOST_BYTES = 1 << 16  # of one alert's texts
BATCH = 1000  # alerts in one post; 2,000 took Alertmanager 0.07 s
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_ONE_IS_BAD = (400, 413, 422)
log = logging.getLogger("ray.serve")


@dataclass(frozen=True, slots=True)
class Pace:
    """When alerts are posted.

    Attributes:
        resend: between two posts of what has not changed.
        ahead: of the post: the end of what fires.
        lapse: without a verdict of their mesh, after which alerts are left to lapse.
        repeat: after its end, for how long an alert is posted though it was acknowledged: a replica whose clock is
            behind takes the end for one to come.
        keep: after its end, when an alert is given up that a replica has not acknowledged; it lapsed long before.
    """

    resend: timedelta = timedelta(seconds=60)
    ahead: timedelta = timedelta(minutes=4)
    lapse: timedelta = timedelta(minutes=5)
    repeat: timedelta = timedelta(minutes=2)
    keep: timedelta = timedelta(hours=4)


@dataclass(frozen=True, slots=True)
class _Acknowledged:
    ended: bool
    at: datetime


class Replica:
    """One Alertmanager of a cluster: each is told by itself, since they do not forward alerts to each other.

    Args:
        poster: to ``.../api/v2/alerts``.
        ledger: what is told.
        pace: when.
        instruments: counts.
        clock: UTC now.
    """

    receiver = RECEIVER

    def __init__(
        self, poster: HttpSender, ledger: StateFile, pace: Pace, instruments: Instruments, clock: Callable[[], datetime]
    ) -> None:
        self.poster = poster
        self._ledger = ledger
        self._pace = pace
        self._instruments = instruments
        self._clock = clock
        self._acknowledged: dict[Name, _Acknowledged] = {}
        self._refused: dict[Name, Alert] = {}
        self._posted_at: float | None = None  # all of them, monotonic

    def waiting(self) -> int:
        """Alerts that it has not acknowledged as they are now."""
        return sum(self._is_news(alert) for alert in current(self._ledger.published, self._clock(), self._pace.lapse))

    def knows(self, alert: Alert) -> bool:
        """Whether it is sure to know of an end: acknowledged long enough after it."""
        known = self._acknowledged.get(alert.name)
        return bool(known and known.ended and alert.ends_at and known.at >= alert.ends_at + self._pace.repeat)

    def next_in(self) -> float:
        """Seconds until something is due though nothing changes."""
        if self._posted_at is None:
            return self._pace.resend.total_seconds()
        return max(0.0, self._posted_at + self._pace.resend.total_seconds() - time.monotonic())

    async def send(self) -> Reply | None:
        """Post what is due; None: nothing is."""
        now = self._clock()
        alerts = [alert for alert in current(self._ledger.published, now, self._pace.lapse) if not self.knows(alert)]
        self._forget(alerts)
        if not alerts:
            self._posted_at = None
            return None
        if self.next_in() > 0 and not any(map(self._is_news, alerts)):
            return None
        reply: Reply | None = None
        for batch in batches([alert for alert in alerts if self._is_sound(alert)]):
            reply = await self._post(batch)
            if reply.failed:
                return reply
        self._posted_at = time.monotonic()
        return reply

    async def _post(self, batch: Sequence[Alert]) -> Reply:
        """A batch; where one in it is refused, each by itself: Alertmanager stores the good ones and says not which."""
        now = self._clock()
        ahead = [(alert, alert.ends_at or max(now, alert.starts_at) + self._pace.ahead) for alert in batch]
        reply = await self.poster.post(encode_alerts(ahead), {})
        if reply.status in _ONE_IS_BAD and len(batch) > 1:
            for alert in batch:
                reply = await self._post([alert])
                if reply.failed:
                    return reply
            return Reply(status=200)
        if reply.status in _ONE_IS_BAD:
            self._drop(batch[0], "refused", reply.detail)
        elif reply.failed:
            return reply
        else:
            self._instruments.count(NOTICES_SENT, len(batch), receiver=RECEIVER)
        self._acknowledged |= {alert.name: _Acknowledged(alert.ends_at is not None, now) for alert in batch}
        return Reply(status=200)

    def _is_news(self, alert: Alert) -> bool:
        known = self._acknowledged.get(alert.name)
        return known is None or known.ended != (alert.ends_at is not None)

    def _is_sound(self, alert: Alert) -> bool:
        """Whether it may be posted: not what would be refused, nor what was, as long as it stays the same."""
        if self._refused.get(alert.name) == alert:
            return False
        if wrong := fault(alert):
            self._drop(alert, "invalid", wrong)
            self._acknowledged[alert.name] = _Acknowledged(alert.ends_at is not None, self._clock())
            return False
        return True

    def _drop(self, alert: Alert, reason: str, detail: str) -> None:
        self._refused[alert.name] = alert
        self._instruments.count(NOTICES_DROPPED, receiver=RECEIVER, reason=reason)
        log.error("%s: alert %s left out until it changes: %s", self.poster.endpoint.origin, dict(alert.name), detail)

    def _forget(self, alerts: Iterable[Alert]) -> None:
        """What lapsed, so that it is news when it comes back, and what nobody tells any more."""
        names = {alert.name for alert in (*alerts, *self._ledger.published.ended)}
        self._acknowledged = {name: known for name, known in self._acknowledged.items() if name in names}
        self._refused = {name: alert for name, alert in self._refused.items() if name in names}


def current(book: AlertState, now: datetime, lapse: timedelta) -> list[Alert]:
    """What is to be known: alerts of meshes that were heard lately, and those that ended."""
    heard = [told for told in book.meshes.values() if told.at is not None and now - told.at < lapse]
    return [*(page.alert for told in heard for page in told.open), *book.ended]


def batches(alerts: Sequence[Alert], most: int = BATCH) -> Iterator[list[Alert]]:
    """At most so many in each, those of one incident together: the end of one severity goes with the rise."""

    def incident(alert: Alert) -> tuple[str, str]:
        return alert.labels.get("mesh", ""), alert.labels.get("incident", "")

    batch: list[Alert] = []
    for _, together in groupby(sorted(alerts, key=incident), incident):
        group = list(together)
        if batch and len(batch) + len(group) > most:
            yield batch
            batch = []
        batch += group
    if batch:
        yield batch


def fault(alert: Alert) -> str:
    """What Alertmanager would refuse; empty: nothing. One bad alert makes it answer 400 for all that came with it."""
    for kind, pairs in (("label", alert.labels), ("annotation", alert.annotations)):
        for name, value in pairs.items():
            if not _LABEL.fullmatch(name):
                return f"{kind} {name!r}: expected letters, digits and underscores, no digit first"
            if not value:
                return f"{kind} {name}: expected a value, came none"
            if not _is_utf8(value):
                return f"{kind} {name}: expected UTF-8"
    if not alert.labels:
        return "expected a label at least"
    if alert.starts_at.tzinfo is None or (alert.ends_at and alert.ends_at.tzinfo is None):
        return "expected times with their zone"
    if alert.ends_at and alert.ends_at < alert.starts_at:
        return f"expected an end after the start {alert.starts_at}, came {alert.ends_at}"
    if alert.url and not re.match(r"https?://[^\s/]", alert.url):
        return f"generatorURL: expected http(s)://..., came {alert.url!r}"
    size = sum(len(text.encode()) for pair in (alert.labels | alert.annotations).items() for text in pair)
    return f"expected at most {MOST_BYTES} bytes, came {size}" if size > MOST_BYTES else ""


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
