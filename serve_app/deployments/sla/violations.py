"""The history of violations: from when to when each objective was violated, how far, and why."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from serve_app.deployments.sla.counts import Cause
from serve_app.metrics import Objective, ObjectiveStatus, Violation

MAX_VIOLATIONS = 50  # that have ended; older ones are forgotten
SLOW = frozenset({Cause.STORE, Cause.SCORER, Cause.DECODE, Cause.PIPELINE, Cause.QUEUE, Cause.DEADLINE})
CAUSES = {  # of an objective; what makes the service unavailable is not known here
    "p95": SLOW,
    "p99": SLOW,
    "requests_per_second": frozenset({Cause.SHED}),
    "error_rate": frozenset({Cause.DEADLINE, Cause.FAILED}),
}
WORST: dict[str, Callable[[Iterable[float]], float]] = {"requests_per_second": min, "availability": min}  # others: max


@dataclass(slots=True)
class Violations:
    """Follows the objectives, and keeps their violations. It is lost with its process."""

    _open: dict[str, Violation] = field(default_factory=dict)  # by objective
    _ended: deque[Violation] = field(default_factory=lambda: deque(maxlen=MAX_VIOLATIONS))  # the oldest first

    def follow(self, objective: Objective, causes: Mapping[str, int], now: float) -> Objective:
        """Note the status of an objective, and return it with the time since which it is violated.

        Args:
            objective: now.
            causes: bad pushes in the window, by cause.
            now: Unix time.
        """
        known = self._open.pop(objective.name, None)
        if objective.status is not ObjectiveStatus.VIOLATED:
            if known is not None:
                self._ended.append(replace(known, until=now))
            return objective
        if known is None:
            known = Violation(objective.name, now, None, None, None)
        self._open[objective.name] = _update_violation(known, objective, causes)
        return objective.mark_violated(known.since)

    def newest_first(self) -> tuple[Violation, ...]:
        """Violations that last, then those that ended."""
        lasting = sorted(self._open.values(), key=lambda one: one.since, reverse=True)
        return (*lasting, *reversed(self._ended))


def _update_violation(known: Violation, objective: Objective, causes: Mapping[str, int]) -> Violation:
    """The violation with the value of now and its cause, if it is the worst so far."""
    value = objective.current
    if value is None:
        return known
    if known.worst is not None and (value == known.worst or _worst(known, value) == known.worst):
        return known
    relevant = {cause: number for cause, number in causes.items() if cause in CAUSES.get(objective.name, ())}
    cause = max(relevant, key=relevant.__getitem__) if relevant else None
    return replace(known, worst=value, cause=cause or known.cause)


def _worst(known: Violation, value: float) -> float:
    assert known.worst is not None
    return WORST.get(known.objective, max)((known.worst, value))
