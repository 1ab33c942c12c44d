"""Tries the configured receivers outside the notifier: with checks that send nothing, and with a test alert."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial

from model.verdict import Incident, IncidentKind, Severity, Status, Verdict
from serve_app.alerts.alert import Alert, IncidentEvent, MeshAlerts
from serve_app.alerts.delivery import receivers
from serve_app.alerts.links import Links
from serve_app.alerts.receiver_status import ReceiverStatus, read_statuses
from serve_app.alerts.receivers import alertmanager
from serve_app.alerts.receivers.receiver import EventReceiver
from serve_app.alerts.transitions import transition
from serve_app.api.codec import encode_verdict
from serve_app.errors import UnknownReceiver
from serve_app.net.endpoint import Endpoint
from serve_app.net.http import HttpSender, Reply
from serve_app.settings import Settings
from serve_app.stores.state_store import StateStore

TRIAL_SECONDS = 3.0  # for one receiver: shorter than a request's deadline, so that the answer can name late receivers
TEST_MESH = "test"
TEST_TEXT = "Test alert of TAGAE: if you can read this, alerts arrive"
TEST_LASTS = timedelta(minutes=5)  # in Alertmanager; elsewhere a person closes it


class ReceiverAdmin:
    """The receivers in the settings, and the notifier's reports on them in the store."""

    def __init__(self, settings: Settings, store: StateStore) -> None:
        self._settings, self._store = settings, store

    def problems(self) -> tuple[tuple[str, str], ...]:
        """Return two sentences for each receiver with a problem: one for everyone, and one with its address."""
        if not self._settings.notify.has_receivers:
            return ()
        statuses = [status for status in read_statuses(self._store) if status.has_problem]
        return tuple((status.text(public=True), status.text()) for status in statuses)

    async def send_test(self, receiver: str | None) -> tuple[ReceiverStatus, ...]:
        return await send_test_alert(self._settings, receiver)


async def check_receivers(settings: Settings) -> tuple[ReceiverStatus, ...]:
    """Try every receiver without sending anything.

    Raises:
        BadSettings: certificates cannot be read.
    """

    async def check(receiver: EventReceiver) -> Reply:
        return await receiver.check()

    return await _with_each(settings, None, alertmanager.check, check)


async def send_test_alert(settings: Settings, receiver: str | None = None) -> tuple[ReceiverStatus, ...]:
    """Send a test alert, and return the status of each receiver.

    Args:
        receiver: kind or address of the receivers; None: all.

    Raises:
        BadSettings: certificates cannot be read.
        UnknownReceiver: there is no such receiver.
    """
    alert, event = make_test_alert(Links.from_settings(settings), datetime.now(UTC))

    async def post(endpoint: Endpoint, deadline_seconds: float) -> Reply:
        sender = HttpSender(endpoint, deadline_seconds)
        try:
            return await sender.post(alertmanager.encode_alerts([(alert, alert.starts_at + TEST_LASTS)]), {})
        finally:
            await sender.close()

    async def deliver(receiver: EventReceiver) -> Reply:
        return await receiver.deliver(event)

    return await _with_each(settings, receiver, post, deliver)


def make_test_alert(links: Links, now: datetime) -> tuple[Alert, IncidentEvent]:
    """Return an alert and an event that say that they are a test."""
    incident = Incident(
        id=f"{now:%Y%m%dT%H%M%SZ}-test",
        since=now,
        severity=Severity.MINOR,
        kind=IncidentKind.UNCLEAR,
        suspects=(),
        affected=(),
        score=0.0,
    )
    verdict = Verdict(
        observed_at=now,
        sequence=0,
        status=Status.ANOMALOUS,
        mesh_score=0.0,
        threshold=0.0,
        probability=0.0,
        suspects=(),
        incidents=(incident,),
        coverage=1.0,
        missing_parts=(),
    )
    document = encode_verdict(verdict)
    texts = {"headline": TEST_TEXT, "title": "test alert", "next_step": "Nothing is wrong; close this alert."}
    document.incidents[0] = document.incidents[0].model_copy(update=texts)
    change = transition(MeshAlerts(), TEST_MESH, document, now, links)
    return change.alerts.open[0].alert, change.events[0]


async def _with_each(
    settings: Settings,
    name: str | None,
    ask: Callable[[Endpoint, float], Awaitable[Reply]],
    use: Callable[[EventReceiver], Awaitable[Reply]],
) -> tuple[ReceiverStatus, ...]:
    """Try the receivers with this kind or address, None: all. ``ask`` tries an Alertmanager, ``use`` any other."""
    to = receivers(settings)
    event_receivers = [choice.open(TRIAL_SECONDS) for choice in to.events]
    try:
        trials = [
            *((alertmanager.KIND, peer.origin, partial(ask, peer, TRIAL_SECONDS)) for peer in to.alertmanagers),
            *((receiver.kind, receiver.name, partial(use, receiver)) for receiver in event_receivers),
        ]
        selection = [trial for trial in trials if name in (None, *trial[:2])]
        if name is not None and not selection:
            choices = ", ".join(f"{kind} {address}" for kind, address, _ in trials) or "none"
            raise UnknownReceiver(f"receiver {name[:80]!r}: expected the kind or address of one of these: {choices}")
        replies = await asyncio.gather(*(_in_time(call()) for *_, call in selection))
    finally:
        for receiver in event_receivers:
            await receiver.close()
    return tuple(
        ReceiverStatus(kind, address, reply.failed, reply.detail)
        for (kind, address, _), reply in zip(selection, replies, strict=True)
    )


async def _in_time(trial: Awaitable[Reply]) -> Reply:
    """Return the reply; ``late`` if a trial's requests together take too long."""
    try:
        async with asyncio.timeout(TRIAL_SECONDS):
            return await trial
    except TimeoutError:
        return Reply("late", detail=f"no complete response within {TRIAL_SECONDS:g} s")
