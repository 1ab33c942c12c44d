"""One receiver's event queue: each event is delivered at least once, in order, one at a time.

An event that cannot be delivered delays the events behind it: a rise in severity must not arrive before the event that
opened the incident. But some receivers answer 500 to an event that they will never accept. So after ``MAX_FAILURES``
failures, the events of other incidents are tried. If the receiver accepts one of them, but not this event for
``SET_ASIDE_SECONDS`` after that, the event is set aside: a recovering receiver may still fail now and then. If other
incidents have no events, the newest event of the same incident takes its place, after more failures.

The queue is bounded. Beyond ``max_events``, the oldest are dropped and counted. The others are enough, since each event
has everything that is known about its incident, and ``sequence`` shows the gap.
"""

import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from model.verdict import Severity
from serve_app.alerts.alert import IncidentEvent
from serve_app.alerts.receivers.receiver import EventReceiver
from serve_app.alerts.saved_state import SavedState
from serve_app.metrics import NOTIFICATIONS_DROPPED, NOTIFICATIONS_SENT, Instruments
from serve_app.net.http import Reply

# Failures of one event before events of other incidents are tried, with the usual backoff after about 7 s; and before
# the newest event of the same incident is tried, after about 10 minutes.
MAX_FAILURES, MAX_FAILURES_ALONE = 4, 15
SET_ASIDE_SECONDS = 600.0
_MAY_BE_THE_EVENT = frozenset({"failed", "broken", "late"})  # other failures are certainly the receiver's
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How many events may wait for a receiver, and for how long."""

    max_events: int = 1000
    max_age: timedelta = timedelta(hours=24)

    def trim(
        self, events: tuple[IncidentEvent, ...], now: datetime
    ) -> tuple[tuple[IncidentEvent, ...], dict[str, int]]:
        """Return the remaining events, and the number of dropped ones by reason: ``expired``, ``full``."""
        young = tuple(event for event in events if now - event.at < self.max_age)
        remaining = young[-self.max_events :]
        return remaining, {"expired": len(events) - len(young), "full": len(young) - len(remaining)}


def receiver_key(kind: str, *identity: str) -> str:
    """Return a receiver's name in the saved state, with a hash of its identity, since a URL may be a secret."""
    return f"{kind}-{hashlib.blake2b(chr(10).join(identity).encode(), digest_size=8).hexdigest()}"


@dataclass(frozen=True, slots=True)
class ChosenReceiver:
    """A receiver that the settings name.

    Attributes:
        open: opens it with the deadline for one delivery, s.
        notices: whether it gets notices, too.
    """

    open: Callable[[float], EventReceiver]
    notices: bool = True


class EventQueue:
    """The events that wait for one receiver.

    Args:
        notices: whether it gets notices, too.
        saved: the state with the events.
    """

    def __init__(self, receiver: EventReceiver, notices: bool, state: SavedState, instruments: Instruments) -> None:
        self.kind, self.name, self.key = receiver.kind, receiver.name, receiver.key
        self.dropped = 0
        self._receiver = receiver
        self._notices = notices
        self._state = state
        self._instruments = instruments
        self._failures: Counter[str] = Counter()  # by waiting event's id
        self._took_another = False  # after the oldest event failed too often
        self._works_since: float | None = None  # when it first took another, monotonic

    def select(self, events: Iterable[IncidentEvent]) -> tuple[IncidentEvent, ...]:
        """Return the events that the receiver gets."""
        return tuple(event for event in events if self._notices or not _is_notice(event))

    def count_waiting(self) -> int:
        """Count unacknowledged events."""
        return len(self._state.published.events.get(self.key, ()))

    def next_in(self) -> float:
        """Return infinity: it sends only when an event is new."""
        return float("inf")

    async def send(self) -> Reply | None:
        """Deliver the next event, and return None if none waits. A refused event is not retried."""
        queue = self._state.published.events.get(self.key, ())
        if not queue:
            return None
        event = self._choose(queue)
        is_first, is_apart = event is queue[0], event is queue[0] and self._took_another
        reply = await self._receiver.deliver(event)
        self._took_another = not reply.failed and _incident(event) != _incident(queue[0])
        if self._took_another and self._works_since is None:
            self._works_since = time.monotonic()
        if reply.failed == "refused":
            self._drop(event, "refused", reply.detail)
        elif reply.failed in _MAY_BE_THE_EVENT and is_first and self._is_hopeless():
            self._drop(event, "set_aside", f"{reply.detail}; the receiver takes other events")
        elif reply.failed:
            self._failures[event.id] += reply.failed in _MAY_BE_THE_EVENT
            if not is_apart or len(queue) == 1:
                return reply
        else:
            if is_first:
                self._works_since = None
            del self._failures[event.id]
            self._state.acknowledge(self.key, event.id)
            self._instruments.count(NOTIFICATIONS_SENT, receiver=self.kind)
            for older in [] if is_first else queue[: queue.index(event)]:
                if _incident(older) == _incident(event):  # may not arrive after this one
                    self._drop(older, "set_aside", "the receiver took a newer event of this incident")
        return Reply(status=reply.status)

    def _choose(self, queue: Sequence[IncidentEvent]) -> IncidentEvent:
        """Return the oldest event; if it has failed too often, the oldest of another incident, or the newest of its
        own."""
        first = queue[0]
        if self._failures[first.id] < MAX_FAILURES or self._took_another:
            return first
        oldest = {_incident(event): event for event in reversed(queue)}
        alternatives = [event for event in oldest.values() if event is not first]
        if alternatives:
            return min(alternatives, key=lambda event: self._failures[event.id])
        return first if self._failures[first.id] < MAX_FAILURES_ALONE else queue[-1]

    def _is_hopeless(self) -> bool:
        """Return whether the receiver has accepted other events for so long that the oldest event must be the cause."""
        return self._works_since is not None and time.monotonic() - self._works_since >= SET_ASIDE_SECONDS

    def _drop(self, event: IncidentEvent, reason: str, detail: str) -> None:
        del self._failures[event.id]
        self._works_since = None
        self._state.acknowledge(self.key, event.id)
        self.dropped += 1
        self._instruments.count(NOTIFICATIONS_DROPPED, receiver=self.kind, reason=reason)
        outcome = "was refused" if reason == "refused" else "is set aside"
        log.error("%s: event %s %s and is not retried: %s", self.name, event.id, outcome, detail)

    async def check(self) -> Reply:
        return await self._receiver.check()

    async def close(self) -> None:
        await self._receiver.close()


def _is_notice(event: IncidentEvent) -> bool:
    severity: str = event.document["incident"]["severity"]
    return severity == Severity.NOTICE


def _incident(event: IncidentEvent) -> tuple[str, str]:
    return event.document["mesh"], event.document["incident"]["id"]
