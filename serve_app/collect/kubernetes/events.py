"""Kubernetes Events that may explain an incident: which kinds count, which services they concern, a bounded memory.

Only unplanned events are kept. Planned changes come from kube-state-metrics (``prometheus/workloads.py``), which needs
no permission in the cluster and also covers the past.
"""

import re
from collections import OrderedDict
from collections.abc import Set
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from model.verdict import ClusterEvent
from serve_app.collect.prometheus.frames import Key
from serve_app.collect.prometheus.workloads import WorkloadServices

KINDS = frozenset({"Unhealthy", "BackOff", "Evicted", "FailedScheduling", "NodeNotReady", "Killing"})
KEPT_FOR = timedelta(hours=1)  # an API server keeps them for as long by default
MOST_EVENTS = 2000  # beyond that, the oldest are dropped
MOST_MESSAGE = 300  # characters
_AHEAD = timedelta(minutes=5)  # how far another clock may be ahead; later times are not plausible


class Metadata(msgspec.Struct, rename="camel"):
    """Metadata of an object or of a list."""

    uid: str = ""
    namespace: str = ""
    name: str = ""
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    continue_: str | None = msgspec.field(default=None, name="continue")


class Reference(msgspec.Struct):
    """The object that an event is about."""

    kind: str = ""
    namespace: str = ""
    name: str = ""


class Series(msgspec.Struct, rename="camel"):
    """How often an event was repeated."""

    count: int = 1
    last_observed_time: datetime | None = None


class KubernetesEvent(msgspec.Struct, rename="camel"):
    """The fields of ``v1.Event`` that are used."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    involved_object: Reference = msgspec.field(default_factory=Reference)
    reason: str = ""
    message: str = ""
    count: int | None = None
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    series: Series | None = None

    @property
    def last(self) -> datetime | None:
        """Time of the last occurrence; None if the event has no time."""
        repeated = self.series.last_observed_time if self.series else None
        return repeated or self.last_timestamp or self.event_time or self.metadata.creation_timestamp


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

    def __init__(self, most: int = MOST_EVENTS) -> None:
        self._most = most
        self._events: OrderedDict[str, _StoredEvent] = OrderedDict()  # by uid, the latest at the end

    def __len__(self) -> int:
        return len(self._events)

    def add(self, event: KubernetesEvent, now: datetime) -> bool:
        """Store an event if its kind is in ``KINDS`` and it is recent. Returns whether it was stored."""
        last = event.last
        if event.reason not in KINDS or last is None or not now - KEPT_FOR <= last <= now + _AHEAD:
            return False
        first = event.first_timestamp or event.event_time or last
        count = event.series.count if event.series else event.count or 1
        uid = event.metadata.uid or f"{event.metadata.namespace}/{event.metadata.name}"
        about, message = event.involved_object, " ".join(event.message.split())[:MOST_MESSAGE]
        self._events[uid] = _StoredEvent(event.reason, about, message, min(first, last), last, count)
        self._events.move_to_end(uid)
        while len(self._events) > self._most:
            self._events.popitem(last=False)
        return True

    def find(self, services: Set[str], workload_services: WorkloadServices, now: datetime) -> tuple[ClusterEvent, ...]:
        """Stored events about these services, newest first. Drops events that are too old.

        Args:
            services: node ids of the mesh.
            workload_services: services of each workload; a workload that is missing serves the service of its name.
            now: UTC.
        """
        for uid in [uid for uid, event in self._events.items() if event.last < now - KEPT_FOR]:
            del self._events[uid]
        found = [
            ClusterEvent(
                one.kind, service, f"{one.about.kind} {one.about.name}", one.message, one.first, one.last, one.count
            )
            for one in self._events.values()
            for service in find_services(one.about, services, workload_services)
        ]
        return tuple(sorted(found, key=lambda event: event.last, reverse=True))


# Kubernetes generates the ends of names from letters that spell no words.
_LETTERS = "[bcdfghjklmnpqrstvwxz2456789]"
_ENDINGS = {
    "Pod": (
        f"-{_LETTERS}{{1,10}}-{_LETTERS}{{5}}",
        r"-\d+",
        f"-{_LETTERS}{{5}}",
    ),  # pods of a deployment, a stateful set, a daemon set
    "ReplicaSet": (f"-{_LETTERS}{{1,10}}",),
}
_NAMES = {kind: [re.compile(f"(.+){ending}") for ending in endings] for kind, endings in _ENDINGS.items()}


def find_services(about: Reference, services: Set[str], workload_services: WorkloadServices) -> list[str]:
    """Node ids of the services that an object belongs to; empty if it belongs to no service of this mesh.

    Args:
        about: the object.
        services: node ids of the mesh.
        workload_services: services of each workload; a workload that is missing serves the service of its name.
    """
    matches = (pattern.fullmatch(about.name) for pattern in _NAMES.get(about.kind, ()))
    for workload in (*(match[1] for match in matches if match), about.name):
        key: Key = (about.namespace, workload)
        known = ["/".join(service) for service in workload_services.get(key, (key,))]
        if found := [service for service in known if service in services]:
            return found
    return []
