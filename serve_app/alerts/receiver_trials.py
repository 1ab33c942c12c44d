"""Tries the configured receivers outside the notifier: checks that send nothing, and a test alert."""

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
    """Answers questions about the service's receivers.

    Args:
        settings: the service's settings; ``notify`` is used.
        store: where the notifier reports.
    """

    def __init__(self, settings: Settings, store: StateStore) -> None:
        self._settings, self._store = settings, store

    def problems(self) -> tuple[tuple[str, str], ...]:
        """For each receiver with a problem, a sentence for everyone, and one with its address."""
        if not self._settings.notify.has_receivers:
            return ()
        found = [one for one in read_statuses(self._store) if one.has_problem]
        return tuple((one.text(public=True), one.text()) for one in found)

    async def send_test(self, wanted: str | None) -> tuple[ReceiverStatus, ...]:
        return await send_test_alert(self._settings, wanted)


async def check_receivers(settings: Settings) -> tuple[ReceiverStatus, ...]:
    """Try every receiver without sending anything.

    Raises:
        BadSettings: certificates cannot be read.
    """

    async def check(receiver: EventReceiver) -> Reply:
        return await receiver.check()

    return await _with_each(settings, None, alertmanager.check, check)


async def send_test_alert(settings: Settings, wanted: str | None = None) -> tuple[ReceiverStatus, ...]:
    """Send a test alert, and return which receivers took it.

    Args:
        wanted: kind or address of the receivers; None: all.

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

    return await _with_each(settings, wanted, post, deliver)


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
    wanted: str | None,
    ask: Callable[[Endpoint, float], Awaitable[Reply]],
    use: Callable[[EventReceiver], Awaitable[Reply]],
) -> tuple[ReceiverStatus, ...]:
    to = receivers(settings)
    opened = [chosen.open(TRIAL_SECONDS) for chosen in to.events]
    try:
        tried = [(alertmanager.KIND, one.origin, partial(ask, one, TRIAL_SECONDS)) for one in to.alertmanagers]
        tried += [(one.kind, one.name, partial(use, one)) for one in opened]
        names = [name for kind, where, _ in tried for name in (kind, where)]
        if wanted is not None and wanted not in names:
            known = ", ".join(f"{kind} {where}" for kind, where, _ in tried) or "none"
            raise UnknownReceiver(f"receiver {wanted[:80]!r}: expected the kind or address of one of these: {known}")
        chosen = [one for one in tried if wanted in (None, *one[:2])]
        replies = await asyncio.gather(*(_in_time(call()) for *_, call in chosen))
    finally:
        for receiver in opened:
            await receiver.close()
    return tuple(
        ReceiverStatus(kind, where, reply.failed, reply.detail)
        for (kind, where, _), reply in zip(chosen, replies, strict=True)
    )


async def _in_time(trial: Awaitable[Reply]) -> Reply:
    """The reply; ``late`` if a trial's requests together take too long."""
    try:
        async with asyncio.timeout(TRIAL_SECONDS):
            return await trial
    except TimeoutError:
        return Reply("late", detail=f"no complete response within {TRIAL_SECONDS:g} s")
