"""The service level of the last seconds. The window is far too long to see what a measure has changed."""

from collections import Counter, deque
from dataclasses import dataclass, field

from serve_app.deployments.sla.counts import DOWN, UP, Count, Counts, Outcome, of_kind
from serve_app.deployments.sla.durations import count_longer, quantile

RECENT_SECONDS = 15.0  # three reports of a gate


@dataclass(frozen=True, slots=True)
class RecentLevel:
    """The pushes of the last seconds.

    Attributes:
        p95, p99: time from push to verdict, s; None: no push has one.
        served, on_time: verdicts, and those within the target of ``p95``, for each second of a gate.
        shed: pushes that were refused because of overload.
        pushes: all that had an outcome.
    """

    p95: float | None = None
    p99: float | None = None
    served: float = 0.0
    on_time: float = 0.0
    shed: int = 0
    pushes: int = 0


@dataclass(slots=True)
class RecentCounts:
    """Sums what arrived in the last ``RECENT_SECONDS``, by arrival."""

    _arrived: deque[tuple[float, Counts]] = field(default_factory=deque)

    def add(self, counts: Counts, now: float) -> None:
        """Add counts that are new at ``now``, s of a monotonic clock."""
        self._arrived.append((now, counts))
        self._forget(now)

    def level(self, target_seconds: float, now: float) -> RecentLevel:
        """The level now. Verdicts within the target, s, are on time."""
        self._forget(now)
        total: Counts = Counter()
        for _, counts in self._arrived:
            total.update(counts)
        bins = {int(number): count for number, count in of_kind(total, Count.DURATION)}
        seconds = sum(total[Count.MILLISECONDS, state] for state in (UP, DOWN)) / 1000
        served = total[Count.PUSH, Outcome.SERVED]
        in_time = sum(bins.values()) - count_longer(bins, target_seconds)
        rate = 1 / seconds if seconds else 0.0
        return RecentLevel(
            p95=quantile(bins, 0.95),
            p99=quantile(bins, 0.99),
            served=rate * served,
            on_time=rate * min(in_time, served),
            shed=total[Count.PUSH, Outcome.SHED],
            pushes=sum(total[Count.PUSH, outcome] for outcome in Outcome),
        )

    def _forget(self, now: float) -> None:
        while self._arrived and now - self._arrived[0][0] >= RECENT_SECONDS:
            self._arrived.popleft()
