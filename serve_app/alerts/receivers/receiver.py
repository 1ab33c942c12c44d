"""The contract of a receiver, and the plugin with which a package adds one. ``lab/contracts/receivers.py`` tests it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from serve_app.alerts.alert import IncidentEvent
from serve_app.net.http import Reply
from serve_app.plugins import O, Plugin

Picture = Callable[[str, str], Awaitable[bytes | None]]  # PNG by mesh and incident, if there is one


class EventReceiver(Protocol):
    """A destination of events. It needs three attributes, three methods and no state:
    :class:`~serve_app.alerts.event_queue.EventQueue` keeps, orders, repeats and counts the events.

    ``deliver`` is called once for each event of an incident, a few times an hour, and again after a failure, at most
    once a minute; the receiver gets no other event meanwhile. ``check`` is called every half minute without an event.
    Both must end within the receiver's deadline without blocking their thread. ``close`` is called once.

    Attributes:
        kind: its name in the settings, and a label of the counters.
        name: its address for the log, without secrets.
        key: its name in the saved state; the same after a restart, and different for each receiver.
    """

    kind: str
    name: str
    key: str

    async def deliver(self, event: IncidentEvent) -> Reply:
        """Try once to deliver an event. The same event may be delivered again: compare ``event.id``.

        Returns:
            Whether it was delivered. A ``refused`` event is dropped; after any other failure it is repeated.
        """

    async def check(self) -> Reply:
        """Find out whether an event would be delivered now, as far as possible without a notification."""

    async def close(self) -> None:
        """Close its connections."""


@runtime_checkable
class PictureReceiver(Protocol):
    """A receiver that shows the picture of an incident."""

    def use_pictures(self, picture: Picture) -> None:
        """Take the function that returns pictures; called once, before the first event."""


@dataclass(frozen=True, kw_only=True)
class ReceiverPlugin(Plugin[O]):
    """A receiver that settings can choose, provided by a package as an entry point of ``tagae.receivers``.

    Attributes:
        open: opens a receiver with its options; the second argument is the deadline for one delivery, s.
    """

    open: Callable[[O, float], EventReceiver]
