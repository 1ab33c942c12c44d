"""The service level over the window, from the reports of all processes, compared with the targets."""

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from serve_app.deployments.sla.counts import (
    DOWN,
    REPORT_SECONDS,
    SLOT_SECONDS,
    SLOTS,
    UP,
    WINDOW_SECONDS,
    Count,
    Counts,
    Outcome,
    Report,
    of_kind,
)
from serve_app.deployments.sla.durations import count_longer, quantile
from serve_app.deployments.sla.violations import Violations
from serve_app.metrics import Objective, ObjectiveStatus, ServiceLevel
from serve_app.settings.sla import SlaSettings

SESSION = "(service level)"  # id of the session that adds up; no mesh can have this name
MIN_KNOWN = 0.9  # share of the window that must be known before a target counts as fulfilled
MIN_BAD = 2  # requests, or seconds: a single bad request is not a violation, however few there are
SHED_SHARE = 0.01  # of the pushes up to the target rate that may be shed
MAX_MESHES = 20  # in a report


@dataclass(slots=True)
class ServiceLevels:
    """Adds up the slots of all processes.

    Attributes:
        settings: targets.
        clock: monotonic, s.
    """

    settings: SlaSettings
    clock: Callable[[], float] = time.monotonic
    _processes: dict[str, dict[int, Counts]] = field(default_factory=dict)  # slots by our numbers
    _shifts: dict[str, int] = field(default_factory=dict)  # from the numbers of a process to ours
    _reported_at: float | None = None  # when the last report arrived, Unix time
    _judged: float = -math.inf  # when the violations were last followed, s of the clock
    _violations: Violations = field(default_factory=Violations)

    def take(self, report: Report) -> None:
        """Accept the slots of a process, in place of its last report. Repeated reports change nothing."""
        # Its clock is another one. The shift stays, so that a late report does not move its slots.
        shift = self._shifts.setdefault(report.process, self._now() - report.now)
        self._processes[report.process] = {number + shift: slot for number, slot in report.slots.items()}
        self._reported_at = time.time()
        if self.clock() - self._judged >= REPORT_SECONDS:
            self.level()  # records since when a target has been missed, even if no one reads it

    def level(self) -> ServiceLevel:
        """The service level now."""
        self._judged = self.clock()
        slots = self._slots()
        total: Counts = Counter()
        for slot in slots:
            total.update(slot)
        known = sum(self._known_seconds(slot) for slot in slots) / WINDOW_SECONDS
        causes = dict(Counter({str(cause): number for cause, number in of_kind(total, Count.CAUSE)}).most_common())
        objectives = self._objectives(slots, total, known)
        pushes, requests = (_outcomes(total, kind) for kind in (Count.PUSH, Count.REQUEST))
        worst = Counter({str(mesh): number for mesh, number in of_kind(total, Count.MESH)})
        return ServiceLevel(
            window_seconds=WINDOW_SECONDS,
            known=min(1.0, known),
            reported_at=self._reported_at,
            objectives=tuple(self._violations.follow(one, causes, time.time()) for one in objectives),
            pushes=pushes,
            requests=requests,
            meshes=dict(worst.most_common(MAX_MESHES)),
            causes=causes,
            violations=self._violations.newest_first(),
        )

    def _objectives(self, slots: Sequence[Counts], total: Counts, known: float) -> list[Objective]:
        """Each target with what the window says about it."""
        sla = self.settings
        bins = {int(number): count for number, count in of_kind(total, Count.DURATION)}
        measured = sum(bins.values())
        requests = _outcomes(total, Count.REQUEST)
        failed = requests.get(Outcome.FAILED, 0)
        ended = failed + requests.get(Outcome.SERVED, 0)
        up, down = (total[Count.MILLISECONDS, state] / 1000 for state in (UP, DOWN))
        shed, promised = self._shed_below_the_target(slots)
        served = total[Count.PUSH, Outcome.SERVED]
        known_seconds = known * WINDOW_SECONDS
        return [
            _judge(
                "p95", sla.p95_seconds, quantile(bins, 0.95), count_longer(bins, sla.p95_seconds), measured, 0.05, known
            ),
            _judge(
                "p99", sla.p99_seconds, quantile(bins, 0.99), count_longer(bins, sla.p99_seconds), measured, 0.01, known
            ),
            _judge(
                "requests_per_second",
                sla.requests_per_second,
                served / known_seconds if known_seconds else None,
                shed,
                promised,
                SHED_SHARE if sla.requests_per_second else 1.0,
                known,
            ),
            _judge(
                "error_rate", sla.error_rate, failed / ended if ended else None, failed, ended, sla.error_rate, known
            ),
            _judge(
                "availability",
                sla.availability,
                up / (up + down) if up + down else None,
                down,
                up + down,
                1 - sla.availability,
                known,
            ),
        ]

    def _shed_below_the_target(self, slots: Sequence[Counts]) -> tuple[int, int]:
        """Pushes that were shed while fewer than the target rate were served, and all pushes up to that rate. Of each
        slot, since a calm hour does not make up for a refusal."""
        most = round(self.settings.requests_per_second * SLOT_SECONDS)
        shed = promised = 0
        for slot in slots:
            served, refused = slot[Count.PUSH, Outcome.SERVED], slot[Count.PUSH, Outcome.SHED]
            shed += min(refused, max(0, most - served))
            promised += min(served + refused, most)
        return shed, promised

    def _known_seconds(self, slot: Counts) -> float:
        """How much of a slot is known. Several processes know the same time."""
        return min(SLOT_SECONDS, (slot[Count.MILLISECONDS, UP] + slot[Count.MILLISECONDS, DOWN]) / 1000)

    def _now(self) -> int:
        return int(self.clock() // SLOT_SECONDS)

    def _slots(self) -> list[Counts]:
        """The slots of the window, of all processes together. Processes without any are forgotten."""
        oldest = self._now() - SLOTS + 1
        summed: dict[int, Counts] = {}
        for name, slots in list(self._processes.items()):
            kept = self._processes[name] = {number: slot for number, slot in slots.items() if number >= oldest}
            for number, slot in kept.items():
                summed.setdefault(number, Counter()).update(slot)
            if not kept:
                del self._processes[name], self._shifts[name]
        return list(summed.values())


def _judge(
    name: str, target: float, current: float | None, bad: float, total: float, allowed: float, known: float
) -> Objective:
    """Compare one target with the window.

    Args:
        name: of the objective.
        target: as in the settings.
        current: value over the window; None: unknown.
        bad: requests, or seconds, that miss the target.
        total: requests, or seconds.
        allowed: share of them that may be bad: the error budget.
        known: share of the window that is known. Until most of it is, the budget of the whole window applies, since the
            rest may be good: a bad minute after a restart is no violation, just as in a full window.
    """
    weight = known if known < MIN_KNOWN else 1.0
    spent = weight * bad / total if total else 0.0
    if allowed >= 1 or target == float("inf"):
        status = ObjectiveStatus.NO_TARGET
    elif spent > allowed and bad >= MIN_BAD:
        status = ObjectiveStatus.VIOLATED
    elif not total or spent > allowed or known < MIN_KNOWN:
        status = ObjectiveStatus.UNKNOWN
    else:
        status = ObjectiveStatus.FULFILLED
    has_budget = total and 0 < allowed < 1 and status is not ObjectiveStatus.NO_TARGET
    return Objective(name, status, target, current, 1 - spent / allowed if has_budget else None)


def _outcomes(counts: Counts, kind: Count) -> dict[str, int]:
    return {outcome.value: counts[kind, outcome] for outcome in Outcome if counts[kind, outcome]}
