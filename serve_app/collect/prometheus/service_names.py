"""Finds the names of services whose workloads have other names, or whose labels were not filled.

Calls name the callee by its Service and the caller by its workload, or by a label of its pods. Service ``cart-svc``
with the workload ``cart`` would be two services, and the chain of calls would end at each of them. Which workload
serves which Service is in the same metrics: the proxies count the requests of each workload by Service.

Telemetry fills some labels only after a connection, so a refused call has the namespace or the cluster ``unknown``. It
is a call to the known service with that name, never to a new one. If there are several, the one nearest to the caller
counts.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from serve_app.collect.prometheus.keys import Key
from serve_app.collect.service_labels import LATE, OUTSIDE

NO_SERVICE: Key = ("", "")  # the service of a row without one
MORE_REQUESTS = 2.0  # a name with this many times the present name's requests replaces it
MAX_WORKLOADS = 100_000  # also for services; beyond that, the oldest are forgotten


@dataclass(slots=True)
class ServiceNames:
    """The Service of each workload or caller. Names are remembered: a service without traffic keeps its name.

    A workload may serve several Services, for example one for users and one for administrators. It is named after the
    Service with its own name; otherwise after the one with the most requests so far, and among equal ones after the
    first by name.

    Attributes:
        placeholders: names that belong to no workload, such as ``unknown``.
        version: increases whenever a service may have got another name.
    """

    placeholders: frozenset[str] = frozenset()
    version: int = 0
    _requests: dict[Key, dict[Key, float]] = field(default_factory=dict)  # by workload, then by Service
    _services: set[Key] = field(default_factory=set)
    _workloads: dict[Key, set[Key]] = field(default_factory=dict)  # by caller
    _names: dict[Key, Key] = field(default_factory=dict)  # current names, by caller
    _contested_callers: set[Key] = field(default_factory=set)  # callers with several known Services
    _services_seen: dict[Key, None] = field(default_factory=dict)  # services with a namespace
    _by_name: dict[str, set[Key]] = field(default_factory=dict)  # the same

    def see(self, services: Iterable[Key]) -> None:
        """Learn which services exist. Labels that were not filled may mean one of them."""
        for key in services:
            if key in self._services_seen or not key[0] or LATE in (key[1], *_place(key)):
                continue
            self.version += 1
            self._services_seen[key] = None
            self._by_name.setdefault(key[1], set()).add(key)
        while len(self._services_seen) > MAX_WORKLOADS:
            oldest = next(iter(self._services_seen))
            del self._services_seen[oldest]
            self._by_name[oldest[1]].discard(oldest)

    def settle(self, service: Key, caller: Key | None = None) -> Key:
        """Return the service that is meant if labels were not filled; other services are returned unchanged.

        Args:
            caller: the call's caller; a service without a namespace is searched in the caller's namespace.
        """
        if LATE not in service[0] or service[1] == LATE or LATE not in (place := _place(service)):
            return service
        host = service[1].partition(":")[0]  # without a port
        name, _, domain = host.partition(".")
        candidates = [key for key in self._by_name.get(host, ()) if _fits(place, _place(key))]
        if domain and not candidates:  # a host: `cart.shop`
            place = place[0], domain.partition(".")[0]
            candidates = [key for key in self._by_name.get(name, ()) if _fits(place, _place(key))]
        if domain and not candidates:
            return OUTSIDE, host
        if caller is not None and len(candidates) != 1:
            cluster, namespace = (
                caller_part if part == LATE else part for part, caller_part in zip(place, _place(caller), strict=True)
            )
            near = f"{cluster}.{namespace}" if cluster else namespace, host
            if not candidates or near in candidates:
                return near
            candidates = [key for key in candidates if _place(key)[0] == cluster]
        return candidates[0] if len(candidates) == 1 else NO_SERVICE

    def settle_key(self, key: Key) -> Key:
        """Return the key of a service or call, with the services that are meant."""
        first = self.settle(key[:2])
        if not key[2:]:
            return first if first[1] not in self.placeholders else NO_SERVICE
        second = self.settle(key[2:], first)
        return (*first, *(second if second[1] not in self.placeholders else NO_SERVICE))

    def add_served(self, serves: Mapping[Key, float]) -> None:
        """Learn which workload serves which Service, from both joined keys and the requests so far."""
        has_new = False
        for key, count in serves.items():
            if key[1] not in self.placeholders:
                self._services.add(key[2:4])
                counts = self._requests.setdefault(key[:2], {})
                has_new |= key[2:4] not in counts
                # A restart resets the counter, but the main Service stays the same.
                counts[key[2:4]] = max(counts.get(key[2:4], 0.0), count if np.isfinite(count) else 0.0)
        while len(self._requests) > MAX_WORKLOADS:
            del self._requests[next(iter(self._requests))]
        self._rename(self._names if has_new else self._contested_callers & self._names.keys())

    def add_callers(self, callers: Iterable[Key], queried_callers: Iterable[Key]) -> None:
        """Learn which caller runs as which workload.

        Args:
            queried_callers: known from now on, even without a workload.
        """
        for caller in queried_callers:
            self._workloads.setdefault(caller, set())
        for key in callers:
            self._workloads.setdefault(key[:2], set()).add(key[2:4])
        self._rename(self._names)

    def is_known(self, caller: Key) -> bool:
        """Return whether the caller's workloads were queried."""
        return caller in self._workloads or caller[1] in self.placeholders

    def of(self, caller: Key) -> Key:
        """Return the Service of a caller or workload; its own name if it serves none."""
        name = self._names.get(caller)
        if name is None:
            self._names[caller] = name = self._choose(caller, caller)
        return name

    def of_callee(self, callee: Key) -> Key:
        """Return the Service of a callee that may be named by its workload. A Service may have the name of another
        Service's workload."""
        return callee if callee in self._services else self.of(callee)

    def _rename(self, callers: Iterable[Key]) -> None:
        new_names = {caller: self._choose(caller, self._names[caller]) for caller in callers}
        self.version += any(name != self._names[caller] for caller, name in new_names.items())
        self._names |= new_names

    def _choose(self, caller: Key, current: Key) -> Key:
        if caller[1] in self.placeholders:
            return caller
        workloads: set[Key] = {caller, *self._workloads.get(caller, ())}
        counts: dict[Key, float] = defaultdict(float)
        for workload in workloads:
            for service, count in self._requests.get(workload, {}).items():
                counts[service] += count
        if not counts:
            return current
        if len(counts) > 1:
            self._contested_callers.add(caller)
        for name in (caller, *sorted(workloads)):
            if name in counts:
                return name
        busiest: Key = min(counts, key=lambda service: (-counts[service], service))
        if current in counts and counts[busiest] <= MORE_REQUESTS * counts[current]:
            return current
        return busiest


def _place(service: Key) -> tuple[str, str]:
    """Return the cluster, if namespaces begin with one, and the namespace."""
    cluster, _, namespace = service[0].rpartition(".")
    return cluster, namespace


def _fits(late_place: tuple[str, str], place: tuple[str, str]) -> bool:
    return all(late_part in (LATE, part) for late_part, part in zip(late_place, place, strict=True))
