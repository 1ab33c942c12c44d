"""The calls of a mesh that are known, with or without requests at the moment.

A call that is no longer made leaves no error behind: its counter stays flat, or its series ends. It is listed with 0
requests until it is forgotten, so that its end can be seen. If nothing of its caller is seen either, then telemetry is
missing, and nothing is known about the call.
"""

from dataclasses import dataclass, field

import numpy as np

from model.snapshot import BoolArray
from serve_app.collect.prometheus.client import Numbers
from serve_app.collect.prometheus.frames import Column, KeyIndex

KNOWN_SECONDS = 1800.0  # after its last request; the detector forgets calls after half an hour, too


@dataclass(frozen=True, slots=True)
class KnownCalls:
    """When each call was last made.

    Attributes:
        index: the calls.
        last: ``[len(index)]`` or shorter, Unix time; -inf: never.
    """

    index: KeyIndex = field(default_factory=KeyIndex)
    last: Numbers = field(default_factory=lambda: np.empty(0))

    def see(self, requests: Column, at: float) -> "KnownCalls":
        """With the calls that are made at this time, by their requests."""
        index, known = requests.index, self
        if index is not self.index:
            recent = np.flatnonzero(at - self.last <= KNOWN_SECONDS).tolist()
            numbers = np.array([index.number_of(self.index.keys[number]) for number in recent], np.int64)
            known = KnownCalls(index, np.full(len(index), -np.inf))
            known.last[numbers] = self.last[recent]
        last = np.full(len(index), -np.inf)
        last[: len(known.last)] = known.last
        made = requests.numbers[requests.values > 0]
        last[made] = np.maximum(last[made], at)
        return KnownCalls(index, last)

    def forget(self, calls: BoolArray) -> "KnownCalls":
        """Without these calls ``[K]``, which have other names now."""
        last = self.last.copy()
        last[: len(calls)][calls] = -np.inf
        return KnownCalls(self.index, last)

    def list_all(self, requests: Column, services: Column, at: float) -> Column:
        """The requests of all known calls, 1/s, and 0 of those that are not made.

        Args:
            requests: of calls that have a series; their index is that of the known calls.
            services: requests of services.
        """
        index = requests.index
        callers = index.part(0, 2, services.index)
        is_seen = np.zeros(len(services.index), bool)
        is_seen[services.numbers] = True
        is_seen[callers[requests.numbers]] = True
        values = np.zeros(len(index))
        is_listed = is_seen[callers]
        values[requests.numbers], is_listed[requests.numbers] = requests.values, ~np.isnan(requests.values)
        is_listed[: len(self.last)] &= at - self.last <= KNOWN_SECONDS
        is_listed[len(self.last) :] = False
        numbers = np.flatnonzero(is_listed)
        return Column(index, numbers, values[numbers])
