"""A mesh's known calls, with or without current requests.

A call that is no longer made leaves no error behind: its counter stays flat, or its series ends. It is listed with 0
requests until it is forgotten, so that its end is visible. In two cases a call without requests is not listed, because
the detector draws its own conclusions: if the caller sends nothing either, telemetry is missing; if the callee no
longer measures itself, it has disappeared.
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
        """Add the calls that are made now, from their requests."""
        return KnownCalls(_see(self.calls, requests.only(requests.array > 0), now), self.services)

    def forget(self, keys: KeyTable, names: IntArray) -> "KnownCalls":
        """Remove calls with these numbers, and calls of services with these numbers: they have other names now."""
        calls = self.calls.to(keys)
        is_forgotten = [keys.among(numbers, names) for numbers in (calls.numbers, calls.part(0, 2), calls.part(2))]
        return KnownCalls(calls.only(~np.any(is_forgotten, axis=0)), self.services)

    def list_all(self, requests: Column, services: Column, now: float) -> tuple["KnownCalls", Column]:
        """Return the requests of all known calls, 1/s; 0 for calls that are not made.

        Args:
            requests: requests of calls that have a series.
            services: requests of services that measure themselves; the same table.
        """
        keys = requests.table
        seen_services, calls = _see(self.services, services, now), self.calls.to(keys)
        caller, callee = calls.part(0, 2), calls.part(2)
        reports = keys.among(caller, services.numbers, requests.part(0, 2))
        is_callee_gone = keys.among(callee, seen_services.numbers) & ~keys.among(callee, services.numbers)
        is_made = keys.among(calls.numbers, requests.numbers[requests.array != 0])
        silent = calls.only(reports & ~is_callee_gone & ~is_made)
        none = Column(keys, silent.numbers, np.zeros(len(silent)))
        return KnownCalls(calls, seen_services), Column.first_of([requests.only(requests.array > 0), none])


def _see(before: Column, current: Column, now: float) -> Column:
    """Return when each key was last seen, without forgotten keys."""
    times = before.to(current.table)
    times = times.only(now - times.array <= KNOWN_SECONDS)
    new_times = np.fmax(times.at(current.numbers), now)
    return Column.first_of([Column(times.table, current.numbers, new_times), times])
