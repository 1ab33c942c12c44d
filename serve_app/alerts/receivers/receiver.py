"""The contract of a receiver, and what a package provides to add one. ``lab/contracts/receivers.py`` tests it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from serve_app.alerts.alert import IncidentEvent
from serve_app.net.http import Reply
from serve_app.plugins import O, Plugin

Picture = Callable[[str, str], Awaitable[bytes | None]]  # of mesh and incident: the picture as PNG, if there is one


class EventReceiver(Protocol):
    """Where events go. It needs three attributes, three methods and no state:
    :class:`~serve_app.alerts.event_queue.EventQueue` keeps, orders, repeats and counts the events.

    Cost of each method: ``deliver`` is called once for each event of an incident, a few times an hour, and again after
    a failure, at most once a minute. No other event of this receiver goes out meanwhile. It must not block its thread,
    and must end within the deadline with which the receiver was opened. So must ``check``, which is called every half
    minute in which there is no event. ``close`` is called once.

    Attributes:
        kind: its name in the settings, and label of the counters.
        name: where it is, for the log; without secrets.
        key: its name in the saved state; the same after a restart, and different for each receiver.
    """

    kind: str
    name: str
    key: str

    async def deliver(self, event: IncidentEvent) -> Reply:
        """Try once to deliver an event. The same event may be delivered again: compare ``event.id``.

        Returns:
            Whether it was delivered. A ``refused`` event is dropped, any other failure is repeated.
        """

    async def check(self) -> Reply:
        """Find out whether an event would be delivered now, as far as that is possible without a notification."""

    async def close(self) -> None:
        """Close its connections."""


@runtime_checkable
class PictureReceiver(Protocol):
    """A receiver that shows the picture of an incident."""

    def use_pictures(self, picture: Picture) -> None:
        """Take the function that returns pictures; called once, before the first event."""


@dataclass(frozen=True, kw_only=True)
class ReceiverPlugin(Plugin[O]):
    """A receiver that settings can choose: what a package provides as an entry point of ``tagae.receivers``.

    Attributes:
        open: opens a receiver with its options; the second argument is the deadline of one delivery, s.
    """

    open: Callable[[O, float], EventReceiver]
