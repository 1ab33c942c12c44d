"""Sends alerts to Alertmanager: firing ones every minute, ended ones until Alertmanager has certainly received them.

Alertmanager takes the current state, so there is no queue: after an outage, a replica gets the current alerts. A firing
alert's ``endsAt`` is four minutes after each post, so that alerts lapse if this process dies. If a mesh has no verdict
for five minutes, or for three of its intervals if that is longer, its alerts are no longer posted, and lapse, too.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby

import msgspec

from serve_app.alerts.alert import Alert, AlertState, LabelSet
from serve_app.alerts.saved_state import SavedState
from serve_app.metrics import NOTIFICATIONS_DROPPED, NOTIFICATIONS_SENT, Instruments
from serve_app.net.endpoint import Endpoint
from serve_app.net.http import HttpSender, Reply

PATH, STATUS_PATH = "/api/v2/alerts", "/api/v2/status"
KIND = "alertmanager"
LAPSE_INTERVALS = 3  # a mesh with longer intervals keeps its alerts for as many, like the page
BATCH = 1000  # alerts in one post; 2,000 took Alertmanager 0.07 s
_REJECTED = (400, 413, 422)  # one alert in the batch is not acceptable
MAX_FAILURES = 3  # single alerts that fail with 500 before one is accepted; after that, Alertmanager itself fails
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PostTiming:
    """When alerts are posted.

    Attributes:
        resend: time between two posts of unchanged alerts.
        ahead: time from a post to a firing alert's ``endsAt``.
        lapse: minimum time without a verdict after which a mesh's alerts are no longer posted.
        repeat: time after its end for which an alert is posted even if acknowledged: for a replica with a slow clock,
            the end is still in the future.
        keep: time after its end at which an alert is dropped even if not acknowledged; it lapsed long before.
    """

    resend: timedelta = timedelta(seconds=60)
    ahead: timedelta = timedelta(minutes=4)
    lapse: timedelta = timedelta(minutes=5)
    repeat: timedelta = timedelta(minutes=2)
    keep: timedelta = timedelta(hours=4)


@dataclass(frozen=True, slots=True)
class _Acknowledgement:
    is_end: bool
    at: datetime


class AlertmanagerReceiver:
    """One Alertmanager of a cluster. Each gets all alerts, since they do not forward alerts to each other."""

    kind = KIND

    def __init__(
        self,
        sender: HttpSender,
        state: SavedState,
        timing: PostTiming,
        instruments: Instruments,
        clock: Callable[[], datetime],
    ) -> None:
        self._sender = sender
        self.name = sender.endpoint.origin
        self._state = state
        self._timing = timing
        self._instruments = instruments
        self._clock = clock
        self._acknowledgements: dict[LabelSet, _Acknowledgement] = {}
        self._refused: dict[LabelSet, Alert] = {}
        self.dropped = 0
        self._posted_at: float | None = None  # last post of all alerts, monotonic

    def count_waiting(self) -> int:
        """Count alerts that it has not acknowledged in their current state."""
        return sum(map(self._is_news, self._current_alerts()))

    def knows_end(self, alert: Alert) -> bool:
        """Return whether it certainly knows that an alert has ended: it acknowledged it long enough after the end."""
        newest = self._acknowledgements.get(alert.label_set)
        return bool(newest and newest.is_end and alert.ends_at and newest.at >= alert.ends_at + self._timing.repeat)

    def next_in(self) -> float:
        """Return the seconds until alerts are posted again even if nothing changes."""
        if self._posted_at is None:
            return self._timing.resend.total_seconds()
        return max(0.0, self._posted_at + self._timing.resend.total_seconds() - time.monotonic())

    async def send(self) -> Reply | None:
        """Post alerts if they are due, otherwise return None."""
        alerts = [alert for alert in self._current_alerts() if not self.knows_end(alert)]
        self._forget_others(alerts)
        if not alerts:
            self._posted_at = None
            return None
        if self.next_in() > 0 and not any(map(self._is_news, alerts)):
            return None
        reply: Reply | None = None
        for batch in split_batches([alert for alert in alerts if self._refused.get(alert.label_set) != alert]):
            reply = await self._post(batch)
            if reply.failed:
                return reply
        self._posted_at = time.monotonic()
        return reply

    async def check(self) -> Reply:
        return await check(self._sender.endpoint, self._sender.deadline_seconds)

    async def close(self) -> None:
        await self._sender.close()

    async def _post(self, batch: Sequence[Alert]) -> Reply:
        """Post a batch. If it fails, perhaps because of one alert, post them one by one."""
        now = self._clock()
        ends = [(alert, alert.ends_at or max(now, alert.starts_at) + self._timing.ahead) for alert in batch]
        reply = await self._sender.post(encode_alerts(ends), {})
        if reply.status in (*_REJECTED, 500) and len(batch) > 1:
            return await self._post_apart(batch)
        if reply.status in _REJECTED:
            self._drop(batch[0], "refused", reply.detail)
        elif reply.failed:
            return reply
        else:
            self._instruments.count(NOTIFICATIONS_SENT, len(batch), receiver=KIND)
        self._acknowledgements |= {alert.label_set: _Acknowledgement(alert.ends_at is not None, now) for alert in batch}
        return Reply(status=200)

    async def _post_apart(self, batch: Sequence[Alert]) -> Reply:
        """Post alerts one by one: Alertmanager stores the good ones, but does not say which one is bad. An alert is
        skipped if it fails with 500, and again after others were accepted."""
        failures: list[Alert] = []
        for number, alert in enumerate(batch, 1):
            reply = await self._post([alert])
            if reply.status == 500:
                failures.append(alert)
                if len(failures) == min(MAX_FAILURES, len(batch)) == number:
                    return reply
            elif reply.failed:
                return reply
        for alert in failures:
            reply = await self._post([alert])
            if reply.failed and reply.status != 500:
                return reply
            if reply.failed:
                self._drop(alert, "set_aside", reply.detail)
                self._acknowledgements[alert.label_set] = _Acknowledgement(alert.ends_at is not None, self._clock())
        return Reply(status=200)

    def _current_alerts(self) -> list[Alert]:
        return current_alerts(self._state.published, self._clock(), self._timing.lapse)

    def _is_news(self, alert: Alert) -> bool:
        newest = self._acknowledgements.get(alert.label_set)
        return newest is None or newest.is_end != (alert.ends_at is not None)

    def _drop(self, alert: Alert, reason: str, detail: str) -> None:
        self._refused[alert.label_set] = alert
        self.dropped += 1
        self._instruments.count(NOTIFICATIONS_DROPPED, receiver=KIND, reason=reason)
        log.error("%s: alert %s is skipped until it changes: %s", self.name, dict(alert.label_set), detail)

    def _forget_others(self, alerts: Iterable[Alert]) -> None:
        """Forget alerts that lapsed or ended, so that they count as new if they come back."""
        keys = {alert.label_set for alert in (*alerts, *self._state.published.ended)}
        self._acknowledgements = {key: newest for key, newest in self._acknowledgements.items() if key in keys}
        self._refused = {key: alert for key, alert in self._refused.items() if key in keys}


async def check(endpoint: Endpoint, deadline_seconds: float) -> Reply:
    """Ask an Alertmanager for its status, which notifies no one."""
    status = HttpSender(replace(endpoint, url=endpoint.url.removesuffix(PATH) + STATUS_PATH), deadline_seconds)
    try:
        return await status.send("GET", "")
    finally:
        await status.close()


def current_alerts(state: AlertState, now: datetime, lapse: timedelta) -> list[Alert]:
    """Return the alerts to post: firing alerts of meshes with a recent verdict, and ended alerts."""
    recent = [
        alerts
        for alerts in state.meshes.values()
        if alerts.at is not None
        and now - alerts.at < max(lapse, LAPSE_INTERVALS * timedelta(seconds=alerts.interval_seconds))
    ]
    return [*(entry.alert for alerts in recent for entry in alerts.open), *state.ended]


def encode_alerts(alerts: Iterable[tuple[Alert, datetime]]) -> bytes:
    """Return the body of ``POST /api/v2/alerts``: each alert with its ``endsAt``."""
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


def split_batches(alerts: Sequence[Alert], limit: int = BATCH) -> Iterator[list[Alert]]:
    """Yield batches of up to ``limit`` alerts. An incident's alerts stay together: one severity ends as the next
    fires."""

    def incident(alert: Alert) -> tuple[str, str]:
        return alert.labels.get("mesh", ""), alert.labels.get("incident", "")

    batch: list[Alert] = []
    for _, alerts_of_incident in groupby(sorted(alerts, key=incident), incident):
        group = list(alerts_of_incident)
        if batch and len(batch) + len(group) > limit:
            yield batch
            batch = []
        batch += group
    if batch:
        yield batch
