"""Events of Kubernetes that may explain an incident: which ones, of whom, and kept for about an hour.

Only what nobody planned is kept. What somebody decided is read from kube-state-metrics (``prometheus/decisions.py``),
which needs no permission here and can be asked about the past.
"""

import re
from collections import OrderedDict
from collections.abc import Set
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from model.verdict import ClusterEvent
from serve_app.collect.prometheus.frames import Key
from serve_app.collect.prometheus.workloads import Served

KINDS = frozenset({"Unhealthy", "BackOff", "Evicted", "FailedScheduling", "NodeNotReady", "Killing"})
KEPT_FOR = timedelta(hours=1)  # as long as an API server keeps them
MOST = 2000  # kept; beyond, the oldest go
MESSAGE = 300  # characters kept of one
_AHEAD = timedelta(minutes=5)  # another clock's lead, beyond which a time is none


class Metadata(msgspec.Struct, rename="camel"):
    """Of an object or of a list of them."""

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
    """How often an event came again."""

    count: int = 1
    last_observed_time: datetime | None = None


class KubernetesEvent(msgspec.Struct, rename="camel"):
    """``v1.Event``, as far as it is read."""

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
        """When it came last; None: it does not say."""
        again = self.series.last_observed_time if self.series else None
        return again or self.last_timestamp or self.event_time or self.metadata.creation_timestamp


@dataclass(frozen=True, slots=True)
class _Noted:
    """An event that is kept."""

    kind: str
    about: Reference
    message: str
    first: datetime
    last: datetime
    count: int


class EventMemory:
    """The newest events of the kinds that explain; one that comes again takes the place of what it was."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._noted: OrderedDict[str, _Noted] = OrderedDict()  # by uid, what was told last at the end

    def __len__(self) -> int:
        return len(self._noted)

    def note(self, event: KubernetesEvent, now: datetime) -> bool:
        """Keep an event if it is of a kind that explains, and young; whether it is kept."""
        last = event.last
        if event.reason not in KINDS or last is None or not now - KEPT_FOR <= last <= now + _AHEAD:
            return False
        first = event.first_timestamp or event.event_time or last
        count = event.series.count if event.series else event.count or 1
        uid = event.metadata.uid or f"{event.metadata.namespace}/{event.metadata.name}"
        about, message = event.involved_object, " ".join(event.message.split())[:MESSAGE]
        self._noted[uid] = _Noted(event.reason, about, message, min(first, last), last, count)
        self._noted.move_to_end(uid)
        while len(self._noted) > self._most:
            self._noted.popitem(last=False)
        return True

    def of(self, services: Set[str], serves: Served, now: datetime) -> tuple[ClusterEvent, ...]:
        """All that is kept of these services, newest first; what has grown old is forgotten.

        Args:
            services: node ids of the mesh.
            serves: services of each workload, where they are not named alike.
            now: UTC.
        """
        for uid in [uid for uid, noted in self._noted.items() if noted.last < now - KEPT_FOR]:
            del self._noted[uid]
        found = [
            ClusterEvent(
                one.kind, service, f"{one.about.kind} {one.about.name}", one.message, one.first, one.last, one.count
            )
            for one in self._noted.values()
            for service in services_of(one.about, services, serves)
        ]
        return tuple(sorted(found, key=lambda event: event.last, reverse=True))


# Kubernetes makes up the ends of names from letters that spell no words.
_LETTERS = "[bcdfghjklmnpqrstvwxz2456789]"
_ENDINGS = {
    "Pod": (
        f"-{_LETTERS}{{1,10}}-{_LETTERS}{{5}}",
        r"-\d+",
        f"-{_LETTERS}{{5}}",
    ),  # of a deployment, a stateful set, ...
    "ReplicaSet": (f"-{_LETTERS}{{1,10}}",),
}
_NAMES = {kind: [re.compile(f"(.+){ending}") for ending in endings] for kind, endings in _ENDINGS.items()}


def services_of(about: Reference, services: Set[str], serves: Served) -> list[str]:
    """Node ids of the services that an object belongs to: of its workload, or of the workload's name. None: it belongs
    to nobody of this mesh."""
    matches = (pattern.fullmatch(about.name) for pattern in _NAMES.get(about.kind, ()))
    for workload in (*(match[1] for match in matches if match), about.name):
        key: Key = (about.namespace, workload)
        known = ["/".join(service) for service in serves.get(key, (key,))]
        if found := [service for service in known if service in services]:
            return found
    return []
