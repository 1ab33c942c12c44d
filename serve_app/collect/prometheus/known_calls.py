"""The calls of a mesh that are known, with or without requests at the moment.

A call that is no longer made leaves no error behind: its counter stays flat, or its series ends. It is listed with 0
requests until it is forgotten, so that its end can be seen. Two calls without requests are not listed, because the
detector draws its own conclusions: if nothing of the caller is seen either, then telemetry is missing; if the callee
measured itself and does no more, then it has disappeared.
"""

from dataclasses import dataclass, field

import numpy as np

from model.snapshot import IntArray
from serve_app.collect.prometheus.keys import Column, KeyTable

KNOWN_SECONDS = 1800.0  # after its last request; the detector forgets calls after half an hour, too


@dataclass(frozen=True, slots=True)
class KnownCalls:
    """When each call was last made, and when each service last measured itself, Unix time."""

    calls: Column = field(default_factory=lambda: Column.of({}))
    services: Column = field(default_factory=lambda: Column.of({}))

    def see_calls(self, requests: Column, now: float) -> "KnownCalls":
        """With the calls that are made now, by their requests."""
        return KnownCalls(_see(self.calls, requests.only(requests.array > 0), now), self.services)

    def forget(self, keys: KeyTable, names: IntArray) -> "KnownCalls":
        """Without the calls and the calls of services that have these numbers: they have other names now."""
        calls = self.calls.to(keys)
        gone = [keys.among(one, names) for one in (calls.numbers, calls.part(0, 2), calls.part(2))]
        return KnownCalls(calls.only(~np.any(gone, axis=0)), self.services)

    def list_all(self, requests: Column, services: Column, now: float) -> tuple["KnownCalls", Column]:
        """The requests of all known calls, 1/s, and 0 of those that are not made.

        Args:
            requests: of calls that have a series, as they were seen.
            services: requests of services that measure themselves, with the same table.
        """
        keys = requests.table
        seen, calls = _see(self.services, services, now), self.calls.to(keys)
        caller, callee = calls.part(0, 2), calls.part(2)
        reports = keys.among(caller, services.numbers, requests.part(0, 2))
        gone = keys.among(callee, seen.numbers) & ~keys.among(callee, services.numbers)
        is_made = keys.among(calls.numbers, requests.numbers[requests.array != 0])
        silent = calls.only(reports & ~gone & ~is_made)
        none = Column(keys, silent.numbers, np.zeros(len(silent)))
        return KnownCalls(calls, seen), Column.first_of([requests.only(requests.array > 0), none])


def _see(before: Column, now_seen: Column, now: float) -> Column:
    """When each key was last seen, without those that are forgotten."""
    known = before.to(now_seen.table)
    known = known.only(now - known.array <= KNOWN_SECONDS)
    times = np.fmax(known.at(now_seen.numbers), now)
    return Column.first_of([Column(known.table, now_seen.numbers, times), known])
