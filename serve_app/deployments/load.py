"""A replica's load, as reported for autoscaling."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

REQUESTS = "requests"  # name of the replicas' metric


class RequestLoad:
    """Counts the requests that a replica works on. Use it from one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._count = 0
        self._request_seconds = 0.0  # since the last report
        self._counted_at = self._reported_at = clock()

    @contextmanager
    def work(self) -> Iterator[None]:
        self._add(1)
        try:
            yield
        finally:
            self._add(-1)

    @property
    def is_busy(self) -> bool:
        return self._count > 0

    def report(self) -> dict[str, float]:
        """The average number of requests since the last report, as ``record_autoscaling_stats`` returns it."""
        self._add(0)
        now = self._counted_at
        seconds, self._reported_at = now - self._reported_at, now
        total, self._request_seconds = self._request_seconds, 0.0
        return {REQUESTS: total / seconds if seconds > 0 else float(self._count)}

    def _add(self, requests: int) -> None:
        now = self._clock()
        self._request_seconds += self._count * (now - self._counted_at)
        self._count, self._counted_at = self._count + requests, now
