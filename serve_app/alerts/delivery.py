"""Notifies people of incidents: verdicts in, alerts and events out.

    accept_verdict(mesh, verdict) -> state -> storage -> a send loop for each receiver

``accept_verdict`` only computes. :meth:`AlertDelivery.run` stores the state and sends, to each endpoint independently.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import AsyncExitStack, suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from serve_app.alerts.alert import AlertState, MeshAlerts, Transition
from serve_app.alerts.event_queue import ChosenReceiver, EventQueue, QueueLimits
from serve_app.alerts.links import Links
from serve_app.alerts.raster import render_png
from serve_app.alerts.receiver_status import ReceiverStatus, write_statuses
from serve_app.alerts.receivers.alertmanager import KIND as ALERTMANAGER
from serve_app.alerts.receivers.alertmanager import PATH, AlertmanagerReceiver, PostTiming
from serve_app.alerts.receivers.receiver import PictureReceiver, ReceiverPlugin
from serve_app.alerts.receivers.webhook import KIND as WEBHOOK
from serve_app.alerts.saved_state import SavedState
from serve_app.alerts.send_loop import SendLoop
from serve_app.alerts.storage import AlertStorage
from serve_app.alerts.transitions import act, resolve_all, transition
from serve_app.api.schemas.verdict import VerdictDocument
from serve_app.errors import BadSettings, ServeError
from serve_app.metrics import NOTIFICATIONS_DROPPED, NOTIFICATIONS_WAITING, RECEIVER_FAILING, Instruments
from serve_app.net.backoff import Backoff
from serve_app.net.endpoint import Endpoint
from serve_app.net.http import HttpSender
from serve_app.plugins import RECEIVERS
from serve_app.settings import Settings
from serve_app.stores.state_store import StateStore

FORGET_AFTER = timedelta(hours=24)  # without a verdict; the mesh's alerts are then resolved
MAX_ENDED = 2000  # resolved alerts that wait for replicas that are down
PICTURE_SECONDS, PICTURE_WIDTH = 5.0, 1200  # deadline for drawing, which takes about 1 s; pixels
MEASURE_SECONDS = 2.0  # Ray drops a gauge that is not set for two of its reports, 20 s
log = logging.getLogger(__name__)


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Receivers:
    """The destinations of alerts and events, with limits.

    Attributes:
        alertmanagers: all replicas, with complete URLs.
        drain_seconds: time to send waiting alerts and events when the process ends.
    """

    alertmanagers: tuple[Endpoint, ...] = ()
    events: tuple[ChosenReceiver, ...] = ()
    _: KW_ONLY
    links: Links = field(default_factory=Links)
    timing: PostTiming = field(default_factory=PostTiming)
    queue: QueueLimits = field(default_factory=QueueLimits)
    backoff: Backoff = field(default_factory=Backoff)
    deadline_seconds: float = 10.0
    drain_seconds: float = 5.0


def receivers(settings: Settings) -> Receivers:
    notify = settings.notify
    events = []
    for receiver in notify.receivers:
        plugin: ReceiverPlugin[Any] = RECEIVERS.load(receiver.kind, ReceiverPlugin)
        events.append(ChosenReceiver(partial(plugin.open, plugin.check_options(receiver.options)), receiver.notices))
    return Receivers(
        tuple(receiver.endpoint(receiver.url.rstrip("/") + PATH) for receiver in notify.alertmanagers),
        tuple(events),
        links=Links.from_settings(settings),
    )


class AlertDelivery:
    """Sends the alerts and events of one process. Use it from one event loop.

    Args:
        store: for the state, which outlives the process.
        draw: draws an open incident as SVG, by mesh and id; None: there are no pictures.

    Raises:
        BadSettings: certificates cannot be read.
        StoreGone: the store is unavailable.
    """

    def __init__(
        self,
        to: Receivers,
        store: StateStore,
        instruments: Instruments,
        clock: Callable[[], datetime] = utc_now,
        draw: Callable[[str, str], str] | None = None,
    ) -> None:
        self._to = to
        self._instruments = instruments
        self._clock = clock
        self._draw = draw
        self._began = clock()
        self._store = store
        self._reported: tuple[ReceiverStatus, ...] | None = None
        self._saved = SavedState(AlertStorage(store), instruments)
        self._replicas = [
            AlertmanagerReceiver(HttpSender(endpoint, to.deadline_seconds), self._saved, to.timing, instruments, clock)
            for endpoint in to.alertmanagers
        ]
        self._queues = [self._open(endpoint) for endpoint in to.events]
        _require_different_keys(self._queues)
        self._receivers: list[AlertmanagerReceiver | EventQueue] = [*self._replicas, *self._queues]
        self._loops = [
            SendLoop(receiver, self._saved.subscribe(), to.backoff, instruments) for receiver in self._receivers
        ]
        self._closing = asyncio.Event()
        self._ended = asyncio.Event()
        self._running = False
        self._tidy()

    def known_meshes(self) -> Set[str]:
        return self._saved.state.meshes.keys()

    def newest(self, mesh: str) -> datetime | None:
        """Return the snapshot time of a mesh's newest accepted verdict; None: there is none."""
        return self._saved.state.meshes.get(mesh, MeshAlerts()).observed_at

    def accept_verdict(self, mesh: str, verdict: VerdictDocument, now: datetime, interval_seconds: float = 0.0) -> None:
        """Update a mesh's alerts from its next verdict, which arrives ``now`` (UTC); returns at once.

        Args:
            interval_seconds: measured time between snapshots; 0: unknown.
        """
        before = self._saved.state.meshes.get(mesh, MeshAlerts())
        change = transition(before, mesh, verdict, now, self._to.links)
        after = replace(change.alerts, interval_seconds=interval_seconds)
        self._apply(mesh, replace(change, alerts=after), now)

    def open_incidents(self, mesh: str) -> Set[str]:
        """Return the ids of a mesh's open incidents that have an alert."""
        return {entry.incident for entry in self._saved.state.meshes.get(mesh, MeshAlerts()).open}

    def accept_actions(self, mesh: str, actions: Mapping[str, Sequence[dict[str, Any]]], now: datetime) -> None:
        """Update a mesh's alerts from all of people's actions, by incident; returns at once."""
        before = self._saved.state.meshes.get(mesh, MeshAlerts())
        self._apply(mesh, act(before, mesh, actions, now, self._to.links), now)

    def forget_mesh(self, mesh: str, now: datetime) -> None:
        """Resolve the alerts of a deleted mesh. The mesh may return at any time."""
        self._resolve_all(mesh, now, "mesh_deleted")
        self._saved.update(self._saved.state.without(mesh))

    @property
    def is_taken_over(self) -> bool:
        """Whether :meth:`run` ended because another process owns the storage."""
        return self._saved.is_taken_over

    def count_waiting(self) -> dict[str, int]:
        """Count unacknowledged alerts and events by kind of receiver."""
        counts = dict.fromkeys((ALERTMANAGER, WEBHOOK), 0)
        for receiver in self._receivers:
            counts[receiver.kind] = counts.get(receiver.kind, 0) + receiver.count_waiting()
        return counts

    async def run(self) -> None:
        """Deliver until :meth:`close`, then for ``drain_seconds`` more. Cancelling ends delivery at once, and so does
        another process that takes over the storage."""
        if self._closing.is_set():
            return
        self._running = True
        try:
            await self._deliver()
        finally:
            try:
                await self._shut_down()
            finally:
                self._ended.set()

    async def close(self) -> None:
        """End :meth:`run`. If it never ran, save the state."""
        await asyncio.sleep(0)  # lets a task that was just created enter run(), so that it delivers
        self._closing.set()
        if self._running:
            await self._ended.wait()
        else:
            await self._shut_down()

    def _open(self, choice: ChosenReceiver) -> EventQueue:
        receiver = choice.open(self._to.deadline_seconds)
        if isinstance(receiver, PictureReceiver):
            receiver.use_pictures(self._picture)
        return EventQueue(receiver, choice.notices, self._saved, self._instruments)

    async def _deliver(self) -> None:
        """Save and send until closing or taken over. All tasks have ended when it returns."""
        saving = asyncio.create_task(self._saved.run())
        closing = asyncio.create_task(self._closing.wait())
        background = [
            saving,
            closing,
            asyncio.create_task(self._tidy_regularly()),
            asyncio.create_task(self._measure()),
        ]
        sending = [asyncio.create_task(loop.run()) for loop in self._loops]
        try:
            await asyncio.wait({saving, closing}, return_when=asyncio.FIRST_COMPLETED)
            await self._saved.publish()
            for loop in self._loops:
                loop.close()
            if sending and not self._saved.is_taken_over:
                await asyncio.wait(sending, timeout=self._to.drain_seconds)
        finally:
            for task in (*background, *sending):
                task.cancel()
            await asyncio.gather(*background, *sending, return_exceptions=True)

    async def _shut_down(self) -> None:
        """Save the state and close all connections, even if this is cancelled meanwhile: after a takeover, the task
        that runs the delivery can be cancelled while it saves."""
        async with AsyncExitStack() as connections:
            for receiver in self._receivers:
                connections.push_async_callback(receiver.close)
            await self._saved.flush()

    def _apply(self, mesh: str, change: Transition, now: datetime) -> None:
        events = {queue.key: queue.select(change.events) for queue in self._queues}
        state = self._saved.state.apply(mesh, change, events)
        has_news = bool(change.ended or change.events)
        self._saved.update(self._trim(state, now) if has_news else state, write=has_news)

    def _resolve_all(self, mesh: str, now: datetime, reason: str) -> None:
        if alerts := self._saved.state.meshes.get(mesh):
            self._apply(mesh, resolve_all(alerts, mesh, now, self._to.links, reason), now)

    async def _tidy_regularly(self) -> None:
        while True:
            try:
                self._tidy()
            except Exception:  # a bug here must end neither the deliveries nor this loop
                log.exception("notifications: unexpected error during cleanup")
            await asyncio.sleep(self._to.timing.resend.total_seconds())

    def _tidy(self) -> None:
        """Resolve silent meshes, drop what needs no delivery, and save the state, which also shows other processes that
        this one is the owner."""
        now = self._clock()
        for mesh, alerts in self._saved.state.meshes.items():
            if alerts.open and now - max(alerts.at or self._began, self._began) > FORGET_AFTER:
                log.warning("mesh %s: no verdict for %s; its alerts are resolved", mesh, FORGET_AFTER)
                self._resolve_all(mesh, now, "mesh_silent")
        self._saved.update(self._trim(self._saved.state, now))

    async def _picture(self, mesh: str, incident: str) -> bytes | None:
        """Draw an open incident as PNG; None if that fails, since a message is useful without a picture."""
        if self._draw is None:
            return None
        try:
            async with asyncio.timeout(PICTURE_SECONDS):
                svg = await asyncio.to_thread(self._draw, mesh, incident)
                return await asyncio.to_thread(render_png, svg, PICTURE_WIDTH)
        except TimeoutError:
            log.warning("the picture of incident %s took longer than %g s, and is omitted", incident, PICTURE_SECONDS)
        except Exception as error:  # of any kind
            log.warning("mesh %s: no picture of incident %s: %s", mesh, incident, error)
        return None

    async def _measure(self) -> None:
        """Set the gauge repeatedly: Ray drops a gauge that is not set, and so any alert on it."""
        while True:
            for kind, count in self.count_waiting().items():
                self._instruments.set(NOTIFICATIONS_WAITING, count, receiver=kind)
            for status in (statuses := tuple(loop.status() for loop in self._loops)):
                self._instruments.set(RECEIVER_FAILING, bool(status.failed), receiver=status.kind, name=status.name)
            if statuses != self._reported:
                with suppress(ServeError):  # the store logs why it is unavailable; the next attempt follows
                    await asyncio.to_thread(write_statuses, self._store, statuses)
                    self._reported = statuses
            await asyncio.sleep(MEASURE_SECONDS)

    def _trim(self, state: AlertState, now: datetime) -> AlertState:
        """Drop entries that every replica knows, that are too old, or that exceed the limits."""
        pending = [alert for alert in state.ended if not all(replica.knows_end(alert) for replica in self._replicas)]
        young = [alert for alert in pending if alert.ends_at and now - alert.ends_at < self._to.timing.keep]
        remaining = tuple(young[-MAX_ENDED:])
        self._count_dropped(ALERTMANAGER, {"expired": len(pending) - len(young), "full": len(young) - len(remaining)})
        events = {}
        for queue in self._queues:  # events of a receiver that was removed from the settings are dropped
            events[queue.key], counts = self._to.queue.trim(state.events.get(queue.key, ()), now)
            self._count_dropped(queue.kind, counts)
        return replace(state, ended=remaining, events=events)

    def _count_dropped(self, kind: str, counts: dict[str, int]) -> None:
        for reason, count in counts.items():
            if count:
                self._instruments.count(NOTIFICATIONS_DROPPED, count, receiver=kind, reason=reason)
                log.error("%s: %d dropped: %s", kind, count, reason)


def _require_different_keys(queues: Iterable[EventQueue]) -> None:
    """Refuse two receivers with the same key: they would share a queue, so each would get only some of the events."""
    (key, count), *_ = Counter(queue.key for queue in queues).most_common(1) or [("", 0)]
    if count > 1:
        raise BadSettings(f"notify: expected each receiver once, got {key} {count} times; remove all but one")
