"""Kubernetes Events that may explain an incident: the kinds that count, the services concerned, a bounded memory.

Only unplanned events are kept. Planned changes come from kube-state-metrics (``prometheus/workloads.py``), which needs
no permission in the cluster and also covers the past.
"""

import re
from collections import OrderedDict
from collections.abc import Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

import msgspec

from model.verdict import ClusterEvent
from serve_app.collect.prometheus.keys import Key
from serve_app.collect.prometheus.workloads import WorkloadServices, services_of
from serve_app.collect.service_labels import SAFE

KINDS = frozenset({"Unhealthy", "BackOff", "Evicted", "FailedScheduling", "NodeNotReady", "Killing"})
MAX_AGE = timedelta(hours=1)  # an API server keeps them for as long by default
MAX_EVENTS = 2000  # beyond that, the oldest are dropped
MAX_MESSAGE = 300  # characters
_AHEAD = timedelta(minutes=5)  # how far another clock may be ahead; later times are not plausible


Time = Annotated[datetime, msgspec.Meta(tz=True)]  # a time without a zone could not be compared with others


# Any field may be null: writers of Events leave out what they do not know, each in its own way.
class Metadata(msgspec.Struct, rename="camel"):
    uid: str | None = None
    namespace: str | None = None
    name: str | None = None
    creation_timestamp: Time | None = None


class Reference(msgspec.Struct):
    """The object that an event is about."""

    kind: str | None = None
    namespace: str | None = None
    name: str | None = None


class Series(msgspec.Struct, rename="camel"):
    count: int | None = None
    last_observed_time: Time | None = None


class KubernetesEvent(msgspec.Struct, rename="camel"):
    """The fields of ``v1.Event`` that are used."""

    metadata: Metadata | None = None
    involved_object: Reference | None = None
    reason: str | None = None
    message: str | None = None
    count: int | None = None
    first_timestamp: Time | None = None
    last_timestamp: Time | None = None
    event_time: Time | None = None
    series: Series | None = None

    @property
    def about(self) -> Reference | None:
        """The object that the event is about; None if it has no name."""
        about = self.involved_object
        return about if about and about.name else None

    @property
    def first(self) -> datetime | None:
        """Time of the first occurrence; None if unknown."""
        return _first_known(self.first_timestamp, self.event_time)

    @property
    def last(self) -> datetime | None:
        """Time of the last occurrence; None if the event has no time."""
        return _first_known(
            self.series.last_observed_time if self.series else None,
            self.last_timestamp,
            self.event_time,
            self.metadata.creation_timestamp if self.metadata else None,
        )

    @property
    def occurrences(self) -> int:
        """Number of occurrences, at least 1."""
        repetitions = self.series.count if self.series else None
        return max(repetitions or self.count or 1, 1)


def _first_known(*times: datetime | None) -> datetime | None:
    """Return the first of these times that is given. Go writes year 1 for a missing time."""
    return next((at for at in times if at is not None and at.year > 1), None)


@dataclass(frozen=True, slots=True)
class _StoredEvent:
    """An event in the memory."""

    kind: str
    about: Reference
    message: str
    first: datetime
    last: datetime
    count: int


class EventMemory:
    """The newest events of ``KINDS``. A repeated event replaces its earlier version."""

    def __init__(self) -> None:
        self._events: OrderedDict[str, _StoredEvent] = OrderedDict()  # by uid, the latest at the end

    def __len__(self) -> int:
        return len(self._events)

    def add(self, event: KubernetesEvent, now: datetime) -> bool:
        """Store an event if its kind counts, and it is recent and about something. Returns whether it was stored."""
        kind, about, last = event.reason, event.about, event.last
        if kind not in KINDS or about is None or last is None or not now - MAX_AGE <= last <= now + _AHEAD:
            return False
        metadata, first = event.metadata or Metadata(), event.first or last
        name = metadata.name or f"{kind} {about.kind} {about.name}"
        uid = metadata.uid or f"{metadata.namespace or about.namespace}/{name}"
        message = " ".join((event.message or "").split())[:MAX_MESSAGE]
        self._events[uid] = _StoredEvent(kind, about, message, min(first, last), last, event.occurrences)
        self._events.move_to_end(uid)
        while len(self._events) > MAX_EVENTS:
            self._events.popitem(last=False)
        return True

    def find(self, services: Set[str], workload_services: WorkloadServices, now: datetime) -> tuple[ClusterEvent, ...]:
        """Return the stored events about these services, newest first. Drops events that are too old.

        Args:
            workload_services: services of each workload; a workload that is missing serves the service of its name.
        """
        for uid in [uid for uid, event in self._events.items() if event.last < now - MAX_AGE]:
            del self._events[uid]
        events = [
            ClusterEvent(
                event.kind,
                service,
                f"{event.about.kind or 'Object'} {event.about.name}",
                event.message,
                event.first,
                event.last,
                event.count,
            )
            for event in self._events.values()
            for service in find_services(event.about, services, workload_services)
        ]
        return tuple(sorted(events, key=lambda event: event.last, reverse=True))


_ENDINGS = {  # the endings of pods belong to a deployment, a stateful set and a daemon set
    "Pod": (f"-{SAFE}{{1,10}}-{SAFE}{{5}}", r"-\d+", f"-{SAFE}{{5}}"),
    "ReplicaSet": (f"-{SAFE}{{1,10}}",),
}
_NAMES = {kind: [re.compile(f"(.+){ending}") for ending in endings] for kind, endings in _ENDINGS.items()}


def find_services(about: Reference, services: Set[str], workload_services: WorkloadServices) -> list[str]:
    """Return the node ids of the services that an object belongs to; empty if it belongs to no service of this mesh."""
    namespace, name = about.namespace or "", about.name or ""
    suffix_matches = (pattern.fullmatch(name) for pattern in _NAMES.get(about.kind or "", ()))
    for workload in (*(match[1] for match in suffix_matches if match), name):
        key: Key = (namespace, workload)
        candidates = ["/".join(service) for service in services_of(key, workload_services)]
        if matches := [service for service in candidates if service in services]:
            return matches
    return []
