"""The calls of a mesh that are known, with or without requests at the moment.

A call that is no longer made leaves no error behind: its counter stays flat, or its series ends. It is listed with 0
requests until it is forgotten, so that its end can be seen. Two calls without requests are not listed, because the
detector draws its own conclusions: if nothing of the caller is seen either, then telemetry is missing; if the callee
measured itself and does no more, then it has disappeared.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from serve_app.collect.prometheus.frames import Column, Key

KNOWN_SECONDS = 1800.0  # after its last request; the detector forgets calls after half an hour, too


@dataclass(frozen=True, slots=True)
class KnownCalls:
    """When each call was last made, and when each service last measured itself, Unix time."""

    calls: Mapping[Key, float] = field(default_factory=dict)
    services: Mapping[Key, float] = field(default_factory=dict)

    def see_calls(self, requests: Column, now: float) -> "KnownCalls":
        """With the calls that are made now, by their requests."""
        return KnownCalls(_see(self.calls, [key for key, rate in requests.items() if rate > 0], now), self.services)

    def forget(self, calls: Collection[Key]) -> "KnownCalls":
        """Without these calls, which have other names now."""
        return KnownCalls({key: at for key, at in self.calls.items() if key not in calls}, self.services)

    def list_all(self, requests: Column, services: Column, now: float) -> tuple["KnownCalls", Column]:
        """The requests of all known calls, 1/s, and 0 of those that are not made.

        Args:
            requests: of calls that have a series, as they were seen.
            services: requests of services that measure themselves.
        """
        seen = _see(self.services, services, now)
        reports = services.keys() | {key[:2] for key in requests}
        gone = seen.keys() - services.keys()
        silent = (
            key for key in self.calls if requests.get(key, 0.0) == 0.0 and key[:2] in reports and key[2:] not in gone
        )
        listed = {key: rate for key, rate in requests.items() if rate > 0} | dict.fromkeys(silent, 0.0)
        return KnownCalls(self.calls, seen), listed


def _see(before: Mapping[Key, float], now_seen: Collection[Key], now: float) -> dict[Key, float]:
    """When each key was last seen, without those that are forgotten."""
    known = {key: at for key, at in before.items() if now - at <= KNOWN_SECONDS}
    return known | {key: max(now, known.get(key, now)) for key in now_seen}
