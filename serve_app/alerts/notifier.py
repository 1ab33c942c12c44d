"""Tells people of incidents: verdicts in, alerts and events out, from one event loop.

    told(mesh, verdict) -> book -> file -> a courier for each Alertmanager and each webhook

``told`` only reckons; what goes over disk and network does so in :meth:`Notifier.run`, each endpoint by itself.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from model.verdict import Verdict
from serve_app.alerts.alert import Alert, AlertState, MeshAlerts, Transition
from serve_app.alerts.alertmanager import PATH, Pace, Replica
from serve_app.alerts.alertmanager import RECEIVER as ALERTMANAGER
from serve_app.alerts.annotations import AlertLinks
from serve_app.alerts.send_loop import Receiver, SendLoop
from serve_app.alerts.state_file import StateFile
from serve_app.alerts.transitions import dismissed, transition
from serve_app.alerts.webhook import RECEIVER as WEBHOOK
from serve_app.alerts.webhook import Queue, Webhook
from serve_app.metrics import NOTICES_DROPPED, NOTICES_WAITING, Instruments
from serve_app.net.endpoint import Endpoint
from serve_app.net.http import Backoff, HttpSender
from serve_app.settings import NotifySettings, Settings

DIRECTORY = "notify"
FORGOTTEN = timedelta(hours=24)  # without a verdict, after which a mesh is taken for gone
MOST_ENDED = 2000  # resolved alerts that wait for replicas that are away
MEASURED_EVERY_SECONDS = 2.0  # Ray forgets a gauge that was not set for two of its reports, 20 s
log = logging.getLogger("ray.serve")


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Receivers:
    """Who is told, and how.

    Attributes:
        alertmanagers: all replicas, with complete URLs.
        webhooks: with the file of the secret that signs.
        place: where alerts come from.
        pace, queue, backoff: when, and how much may wait.
        deadline_seconds: of one request.
        drain_seconds: for what waits at the end.
    """

    alertmanagers: tuple[Endpoint, ...] = ()
    webhooks: tuple[tuple[Endpoint, Path | None], ...] = ()
    place: AlertLinks = field(default_factory=AlertLinks)
    pace: Pace = field(default_factory=Pace)
    queue: Queue = field(default_factory=Queue)
    backoff: Backoff = field(default_factory=Backoff)
    deadline_seconds: float = 10.0
    drain_seconds: float = 5.0


def receivers(settings: NotifySettings) -> Receivers:
    """As the settings say."""
    return Receivers(
        tuple(one.endpoint(one.url.rstrip("/") + PATH) for one in settings.alertmanagers),
        tuple((one.endpoint(one.url), one.secret_file) for one in settings.webhooks),
        AlertLinks(
            settings.cluster, settings.external_url or "", settings.runbook_url or "", settings.dashboard_url or ""
        ),
        Pace(resend=timedelta(seconds=settings.resend_seconds)),
        backoff=Backoff(longest_seconds=settings.longest_backoff_seconds),
        deadline_seconds=settings.deadline_seconds,
        drain_seconds=settings.drain_seconds,
    )


def directory(settings: Settings) -> Path:
    """Where what was told is kept."""
    return settings.notify.path or settings.store.path / DIRECTORY


class AlertDelivery:
    """What one process tells; drive it from one event loop.

    Args:
        to: who is told, and how.
        directory: for what was told, which outlives the process; not shared with another one.
        instruments: counts.
        clock: UTC now.

    Raises:
        BadSettings: the directory cannot be written, or certificates cannot be read.
    """

    def __init__(
        self, to: Receivers, directory: Path, instruments: Instruments, clock: Callable[[], datetime] = utc_now
    ) -> None:
        self._to = to
        self._instruments = instruments
        self._clock = clock
        self._began = clock()
        self._ledger = StateFile(directory, instruments)
        self._replicas = [
            Replica(HttpSender(one, to.deadline_seconds), self._ledger, to.pace, instruments, clock)
            for one in to.alertmanagers
        ]
        self._webhooks = [
            Webhook(HttpSender(one, to.deadline_seconds), self._ledger, instruments, secret)
            for one, secret in to.webhooks
        ]
        self._errands: list[Receiver] = [*self._replicas, *self._webhooks]
        self._couriers = [SendLoop(errand, self._ledger.reader(), to.backoff, instruments) for errand in self._errands]
        self._closing = asyncio.Event()
        self._ended = asyncio.Event()
        self._running = False
        self._tidy()

    def told(self, mesh: str, verdict: Verdict, now: datetime) -> None:
        """Take in a mesh's newest verdict; returns at once. ``now``: UTC."""
        before = self._ledger.book.meshes.get(mesh, MeshAlerts())
        self._put(mesh, transition(before, mesh, verdict, now, self._to.place), now)

    def gone(self, mesh: str, now: datetime) -> None:
        """The mesh was deleted: what is open of it is resolved, and it may begin anew at any time."""
        self._dismiss(mesh, now, "mesh_deleted")

    def open(self, mesh: str) -> tuple[Alert, ...]:
        """What fires for a mesh."""
        told = self._ledger.book.meshes.get(mesh, MeshAlerts())
        return tuple(page.alert for page in told.open)

    def waiting(self) -> dict[str, int]:
        """How much is not acknowledged yet, by receiver, over all of a kind."""
        found = dict.fromkeys((ALERTMANAGER, WEBHOOK), 0)
        for errand in self._errands:
            found[errand.receiver] += errand.waiting()
        return found

    async def run(self) -> None:
        """Deliver until :meth:`close`; what waits then has ``drain_seconds``. Cancelling it drains nothing."""
        if self._closing.is_set():
            return
        self._running = True
        house = [
            asyncio.create_task(self._ledger.keep()),
            asyncio.create_task(self._keep_house()),
            asyncio.create_task(self._measure()),
        ]
        ways = [asyncio.create_task(courier.run()) for courier in self._couriers]
        try:
            await self._closing.wait()
            await self._ledger.publish()
            for courier in self._couriers:
                courier.close()
            if ways:
                await asyncio.wait(ways, timeout=self._to.drain_seconds)
        finally:
            for task in (*house, *ways):
                task.cancel()
            await asyncio.gather(*house, *ways, return_exceptions=True)
            await self._put_away()
            self._ended.set()

    async def close(self) -> None:
        """End :meth:`run`, or, if it never ran, keep what was told."""
        await asyncio.sleep(0)  # a run that was made a task just now begins, and delivers
        self._closing.set()
        if self._running:
            await self._ended.wait()
        else:
            await self._put_away()

    async def _put_away(self) -> None:
        await self._ledger.flush()
        for errand in self._errands:
            await errand.poster.close()

    def _put(self, mesh: str, heard: Transition, now: datetime) -> None:
        book = self._ledger.book.after(mesh, heard, [webhook.key for webhook in self._webhooks])
        changed = bool(heard.ended or heard.events)
        self._ledger.change(self._bounded(book, now) if changed else book, write=changed)

    def _dismiss(self, mesh: str, now: datetime, why: str) -> None:
        if told := self._ledger.book.meshes.get(mesh):
            self._put(mesh, dismissed(told, mesh, now, self._to.place, why), now)
            self._ledger.change(self._ledger.book.without(mesh))

    async def _keep_house(self) -> None:
        """Now and then what nobody waits for is dropped, and times of what is open are kept."""
        while True:
            try:
                self._tidy()
            except Exception:  # a fault of ours here must not end the deliveries, nor itself
                log.exception("notifications: unexpected error while tidying")
            await asyncio.sleep(self._to.pace.resend.total_seconds())

    def _tidy(self) -> None:
        now = self._clock()
        for mesh, told in self._ledger.book.meshes.items():
            if now - max(told.at or self._began, self._began) > FORGOTTEN:
                log.warning("mesh %s: no verdict for %s; it is taken for gone", mesh, FORGOTTEN)
                self._dismiss(mesh, now, "mesh_silent")
        before = self._ledger.book
        book = self._bounded(before, now)
        if book != before or any(True for _ in book.firing()):
            self._ledger.change(book)

    async def _measure(self) -> None:
        """What waits, over and over: a gauge that nobody sets is forgotten, and with it the alert that none arrives."""
        while True:
            for receiver, count in self.waiting().items():
                self._instruments.set(NOTICES_WAITING, count, receiver=receiver)
            await asyncio.sleep(MEASURED_EVERY_SECONDS)

    def _bounded(self, book: AlertState, now: datetime) -> AlertState:
        """Without what every replica knows, or is too old or too much to wait."""
        keep, ended = self._to.pace.keep, [alert for alert in book.ended if not self._is_known(alert)]
        young = [alert for alert in ended if alert.ends_at and now - alert.ends_at < keep]
        kept = tuple(young[-MOST_ENDED:])
        dropped = {"expired": len(ended) - len(young), "full": len(young) - len(kept)}
        self._dropped(ALERTMANAGER, dropped)
        events = {}
        for webhook in self._webhooks:  # of a webhook that is no more, nothing is kept
            events[webhook.key], dropped = self._to.queue.bounded(book.events.get(webhook.key, ()), now)
            self._dropped(WEBHOOK, dropped)
        return replace(book, ended=kept, events=events)

    def _is_known(self, alert: Alert) -> bool:
        return all(replica.knows(alert) for replica in self._replicas)

    def _dropped(self, receiver: str, counts: dict[str, int]) -> None:
        for reason, count in counts.items():
            if count:
                self._instruments.count(NOTICES_DROPPED, count, receiver=receiver, reason=reason)
                log.error("%s: %d given up: %s", receiver, count, reason)
