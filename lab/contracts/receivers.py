"""The receivers' contract: they accept each event, even a repeated one, or report the failure.

A package with a receiver of its own subclasses :class:`ReceiverContract` in a test module::

    class TestFileReceiver(ReceiverContract):
        @pytest.fixture
        def choice(self, tmp_path: Path) -> ReceiverChoice:
            return ReceiverChoice(kind="file", options={"path": str(tmp_path / "events")})

        @pytest.fixture
        def away(self, tmp_path: Path) -> ReceiverChoice:
            return ReceiverChoice(kind="file", options={"path": str(tmp_path / "missing" / "events")})

The receiver is opened as the service opens it: by the name of its kind.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import pytest

from model.verdict import Incident, IncidentKind, Severity, Status, Suspect, Verdict
from serve_app.alerts.alert import IncidentEvent, MeshAlerts
from serve_app.alerts.delivery import receivers
from serve_app.alerts.links import Links
from serve_app.alerts.receivers.receiver import EventReceiver
from serve_app.alerts.transitions import act, resolve_all, transition
from serve_app.api.codec import encode_verdict
from serve_app.api.schemas.actions import ActionKind, KeptActionDocument
from serve_app.net.http import Reply
from serve_app.settings import NotifySettings, Settings
from serve_app.settings.alerting import ReceiverChoice

T = TypeVar("T")
DEADLINE_SECONDS = 30.0  # for a delivery, which takes milliseconds here
START = datetime(2026, 3, 1, 3, 14, tzinfo=UTC)


def events() -> tuple[IncidentEvent, ...]:
    """Return an incident's events from start to end, with an action of each kind, and texts that a receiver must
    escape."""
    suspect = Suspect("shop/cart", 0.8, ())
    incident = Incident(
        id="<a>&b",
        since=START,
        severity=Severity.MAJOR,
        kind=IncidentKind.SLOW,
        suspects=(suspect,),
        affected=("shop/cart", "shop/wäb"),
        score=7.5,
    )
    verdict = Verdict(
        observed_at=START,
        sequence=20,
        status=Status.ANOMALOUS,
        mesh_score=7.5,
        threshold=4.0,
        probability=0.9,
        suspects=(),
        incidents=(incident,),
        coverage=1.0,
        missing_parts=(),
    )
    links = Links("eu-1", "https://tagae.example")
    opening = transition(MeshAlerts(), "shop", encode_verdict(verdict), START, links)
    actions = [
        KeptActionDocument(incident=incident.id, kind=kind, text="<b>&\n*x*", by="<a>", at=START).model_dump(
            mode="json"
        )
        for kind in ActionKind
    ]
    actions_taken = act(opening.alerts, "shop", {incident.id: actions}, START + timedelta(minutes=5), links)
    ending = resolve_all(actions_taken.alerts, "shop", START + timedelta(minutes=9), links, "mesh_deleted")
    return (*opening.events, *actions_taken.events, *ending.events)


class ReceiverContract:
    """The tests that every receiver passes.

    A subclass, or its module, has two fixtures: ``choice`` is a receiver that accepts every event, and ``away`` one of
    the same kind that is unreachable.
    """

    def test_it_says_what_and_where_it_is(self, choice: ReceiverChoice, away: ReceiverChoice) -> None:
        async def names(receiver: EventReceiver) -> tuple[str, str, str]:
            return receiver.kind, receiver.name, receiver.key

        kind, name, key = _use(choice, names)
        assert kind == choice.kind
        assert name.isprintable()
        assert name
        assert key
        assert _use(choice, names) == (kind, name, key), "the key finds the queue again after a restart"
        assert _use(away, names)[2] != key, "each receiver has a queue of its own"

    def test_every_event_of_an_incident_is_delivered(self, choice: ReceiverChoice) -> None:
        async def deliver(receiver: EventReceiver) -> list[Reply]:
            return [await receiver.deliver(event) for event in events()]

        assert [reply.failed for reply in _use(choice, deliver)] == [""] * len(events())

    def test_an_event_can_come_again(self, choice: ReceiverChoice) -> None:
        async def deliver(receiver: EventReceiver) -> list[Reply]:
            return [await receiver.deliver(events()[0]) for _ in range(2)]

        assert [reply.failed for reply in _use(choice, deliver)] == ["", ""]
        assert [reply.failed for reply in _use(choice, deliver)] == ["", ""], "also after a restart"

    def test_a_receiver_that_is_away_keeps_the_event(self, away: ReceiverChoice) -> None:
        async def deliver(receiver: EventReceiver) -> Reply:
            return await receiver.deliver(events()[0])

        reply = _use(away, deliver)
        assert reply.failed, "expected a failure, so that the event is sent again"
        assert reply.failed != "refused", "a refused event is dropped"
        assert reply.detail, "the log has it"

    def test_a_check_tells_whether_an_event_would_arrive(self, choice: ReceiverChoice, away: ReceiverChoice) -> None:
        async def check(receiver: EventReceiver) -> Reply:
            return await receiver.check()

        assert not _use(choice, check).failed
        reply = _use(away, check)
        assert reply.failed
        assert reply.detail, "people see it on the page"

    def test_other_work_goes_on_during_a_delivery(self, choice: ReceiverChoice) -> None:
        async def deliver(receiver: EventReceiver) -> bool:
            steps = 0

            async def work() -> None:
                nonlocal steps
                while True:
                    steps += 1
                    await asyncio.sleep(0)

            task = asyncio.create_task(work())
            await receiver.deliver(events()[0])
            task.cancel()
            return steps > 0

        assert _use(choice, deliver), "a receiver waits for files and networks in a thread, or with `await`"

    def test_unknown_options_are_refused(self, choice: ReceiverChoice) -> None:
        with pytest.raises(ValueError, match="no_such_option"):
            ReceiverChoice(kind=choice.kind, options={**choice.options, "no_such_option": 1})


def _use(choice: ReceiverChoice, use: Callable[[EventReceiver], Awaitable[T]]) -> T:
    """Open a receiver as the service does, use it, and close it."""

    async def run() -> T:
        (receiver_choice,) = receivers(Settings(notify=NotifySettings(receivers=(choice,)))).events
        receiver = receiver_choice.open(DEADLINE_SECONDS)
        try:
            return await use(receiver)
        finally:
            await receiver.close()

    return asyncio.run(run())
