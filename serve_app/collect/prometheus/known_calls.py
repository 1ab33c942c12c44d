"""The calls of a mesh that are known, with or without requests at the moment.

A call that is no longer made leaves no error behind: its counter stays flat, or its series ends. It is listed with 0
requests until it is forgotten, so that its end can be seen. Two calls without requests are not listed, because the
detector draws its own conclusions: if nothing of the caller is seen either, then telemetry is missing; if the callee
measured itself and does no more, then it has disappeared.
"""

from dataclasses import dataclass, field

import numpy as np

from model.snapshot import BoolArray, IntArray
from serve_app.collect.prometheus.client import Numbers
from serve_app.collect.prometheus.frames import Column, KeyIndex

KNOWN_SECONDS = 1800.0  # after its last request; the detector forgets calls after half an hour, too


@dataclass(frozen=True, slots=True)
class LastSeen:
    """When each key was last seen.

    Attributes:
        index: the keys.
        at: ``[len(index)]`` or shorter, Unix time; -inf: never.
    """

    index: KeyIndex = field(default_factory=KeyIndex)
    at: Numbers = field(default_factory=lambda: np.empty(0))

    def see(self, index: KeyIndex, numbers: IntArray, now: float) -> "LastSeen":
        """With these keys seen now; ``index`` may have grown, or be another one."""
        before, place = self.at, np.arange(len(self.at))
        if index is not self.index:
            recent = np.flatnonzero(self.is_known(now)).tolist()
            before, place = before[recent], np.array([index.number_of(self.index.keys[i]) for i in recent], np.int64)
        at = np.full(len(index), -np.inf)
        at[place] = before
        at[numbers] = np.maximum(at[numbers], now)
        return LastSeen(index, at)

    def is_known(self, now: float) -> BoolArray:
        """``[len(index)]`` which keys are not forgotten."""
        known = np.zeros(len(self.index), bool)
        known[: len(self.at)] = now - self.at <= KNOWN_SECONDS
        return known

    def forget(self, keys: BoolArray) -> "LastSeen":
        """Without these keys ``[K]``."""
        at = self.at.copy()
        at[: len(keys)][keys] = -np.inf
        return LastSeen(self.index, at)


@dataclass(frozen=True, slots=True)
class KnownCalls:
    """When each call was last made, and when each service last measured itself."""

    calls: LastSeen = field(default_factory=LastSeen)
    services: LastSeen = field(default_factory=LastSeen)

    def see_calls(self, requests: Column, now: float) -> "KnownCalls":
        """With the calls that are made now, by their requests."""
        made = requests.numbers[requests.values > 0]
        return KnownCalls(self.calls.see(requests.index, made, now), self.services)

    def forget(self, calls: BoolArray) -> "KnownCalls":
        """Without these calls ``[K]``, which have other names now."""
        return KnownCalls(self.calls.forget(calls), self.services)

    def list_all(self, requests: Column, services: Column, now: float) -> tuple["KnownCalls", Column]:
        """The requests of all known calls, 1/s, and 0 of those that are not made.

        Args:
            requests: of calls that have a series, as they were seen.
            services: requests of services that measure themselves.
        """
        index = requests.index
        source, destination = (index.part(begin, begin + 2, services.index) for begin in (0, 2))
        measured = np.zeros(len(services.index), bool)
        measured[services.numbers] = True
        seen = self.services.see(services.index, services.numbers, now)
        is_known = self.calls.is_known(now)
        values = np.zeros(len(index))
        values[requests.numbers] = requests.values
        reports = measured.copy()
        reports[source[requests.numbers]] = True
        gone = seen.is_known(now) & ~measured
        numbers = np.flatnonzero((values > 0) | ((values == 0) & is_known & reports[source] & ~gone[destination]))
        return KnownCalls(self.calls, seen), Column(index, numbers, values[numbers])
