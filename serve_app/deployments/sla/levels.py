"""The service level over the window, from the reports of all processes, compared with the targets."""

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from serve_app.deployments.sla.counts import DOWN, SLOTS, UP, Count, Counts, Outcome, Report, of_kind
from serve_app.deployments.sla.durations import count_longer, quantile
from serve_app.deployments.sla.recent import RecentCounts
from serve_app.deployments.sla.steering import Steering, steer
from serve_app.deployments.sla.violations import Violations
from serve_app.metrics import Action, Objective, ObjectiveStatus, ServiceLevel
from serve_app.settings.sla import SlaSettings

log = logging.getLogger(__name__)
SESSION = "(service level)"  # id of the session that adds up; no mesh can have this name
LEAST_KNOWN = 0.9  # share of the window that must be known before a target counts as fulfilled
LEAST_BAD = 2  # requests, or seconds: a single bad request is not a violation, however few there are
SHED_SHARE = 0.01  # of the pushes up to the target rate that may be shed
MOST_PROCESSES = 64  # with slots of their own; the slots of the others are added up
MOST_MESHES = 20  # in a report
FORMER = "(former)"  # name of the sum of processes that were silent longest


@dataclass(slots=True)
class Process:
    """The slots of one process, by our numbers.

    Attributes:
        shift: to add to the numbers of the process, whose clock is another one.
        slots: by number.
    """

    shift: int
    slots: dict[int, Counts] = field(default_factory=dict)


@dataclass(slots=True)
class ServiceLevels:
    """Adds up the slots of all processes. A slot enters the sum of the window with one addition, and leaves it with one
    subtraction.

    Attributes:
        settings: targets and window.
        clock: monotonic, s.
    """

    settings: SlaSettings
    clock: Callable[[], float] = time.monotonic
    _processes: dict[str, Process] = field(default_factory=dict)  # the one that reported last is last
    _slots: dict[int, Counts] = field(default_factory=dict)  # of all processes together
    _total: Counts = field(default_factory=Counter)  # of the slots in the window
    _newest: float | None = None  # when the last report arrived, Unix time
    _violations: Violations = field(default_factory=Violations)
    _recent: RecentCounts = field(default_factory=RecentCounts)
    _steering: Steering = field(default_factory=Steering)
    _acting_since: float = 0.0  # Unix time; of the steps in force
    _oldest: int | None = None  # slot of the window
    _is_warned: bool = False

    @property
    def slot_seconds(self) -> float:
        """Length of a slot."""
        return self.settings.window_seconds / SLOTS

    def take(self, report: Report) -> float:
        """Accept the slots of a process, and return the factor of its limit of admission. Repeated reports change
        nothing."""
        if report.slot_seconds != self.slot_seconds:
            if not self._is_warned:
                log.error(
                    "sla.window_seconds: expected the same in all processes, got %g s in the one that takes requests "
                    "and %g s here; set it in the environment of all pods",
                    SLOTS * report.slot_seconds,
                    self.settings.window_seconds,
                )
            self._is_warned = True
            return self._steering.factor
        now = self._now()
        is_new = report.process not in self._processes
        known = self._processes.pop(report.process, None) or Process(now - report.now)
        self._processes[report.process] = known
        for its_number, slot in report.slots.items():
            number = its_number + known.shift
            if number > now - SLOTS and known.slots.get(number) != slot:
                before = known.slots.get(number, Counter())
                if not is_new:  # the first report of a process has its past, too
                    self._recent.add(slot - before, self.clock())
                self._replace(number, before, slot)
                known.slots[number] = slot
        self._newest = time.time()
        self._fold()
        self.level()  # records since when a target has been missed, even if no one reads it
        if self.settings.act:
            self._steer()
        return self._steering.factor

    def level(self) -> ServiceLevel:
        """The service level now."""
        self._slide(self._now())
        known = sum(self._known_seconds(slot) for slot in self._slots.values()) / self.settings.window_seconds
        causes = dict(
            Counter({str(cause): number for cause, number in of_kind(self._total, Count.CAUSE)}).most_common()
        )
        objectives = tuple(self._violations.follow(one, causes, time.time()) for one in self._objectives(known))
        pushes, requests = (_outcomes(self._total, kind) for kind in (Count.PUSH, Count.REQUEST))
        worst = Counter({str(mesh): number for mesh, number in of_kind(self._total, Count.MESH)})
        return ServiceLevel(
            window_seconds=self.settings.window_seconds,
            known=min(1.0, known),
            reported_at=self._newest,
            objectives=objectives,
            pushes=pushes,
            requests=requests,
            meshes=dict(worst.most_common(MOST_MESHES)),
            causes=causes,
            violations=self._violations.newest_first(),
            actions=self._actions(),
        )

    def _steer(self) -> None:
        """Take the next step, if one is due, and log it."""
        before, now = self._steering, self.clock()
        self._steering = after = steer(before, self._recent.level(self.settings.p95_seconds, now), self.settings, now)
        if after.factor == before.factor:
            return
        if after.kind is not None and after.kind != before.kind:
            self._acting_since = time.time()
        reason = after.reason or before.reason
        log.warning(
            "service level: the limit of admission is multiplied by %g, no longer by %g%s",
            after.factor,
            before.factor,
            f"; it began because {reason.objective} was {reason.value:.3g}" if reason else "",
        )

    def _actions(self) -> tuple[Action, ...]:
        """The steps in force, as an action."""
        now, sla = self._steering, self.settings
        if now.kind is None or now.reason is None:
            return ()
        bound = sla.least_admission if now.factor < 1 else sla.most_admission
        return (Action(now.kind, now.reason.objective, now.reason.value, self._acting_since, now.factor, bound),)

    def _objectives(self, known: float) -> list[Objective]:
        """Each target with what the window says about it."""
        sla, total = self.settings, self._total
        bins = {int(number): count for number, count in of_kind(total, Count.DURATION)}
        measured = sum(bins.values())
        requests = _outcomes(total, Count.REQUEST)
        failed = requests.get(Outcome.FAILED, 0)
        ended = failed + requests.get(Outcome.SERVED, 0)
        up, down = (total[Count.MILLISECONDS, state] / 1000 for state in (UP, DOWN))
        shed, promised = self._shed_below_the_target()
        served = total[Count.PUSH, Outcome.SERVED]
        known_seconds = known * sla.window_seconds
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

    def _shed_below_the_target(self) -> tuple[int, int]:
        """Pushes that were shed while fewer than the target rate were served, and all pushes up to that rate. Of each
        slot, since a calm hour does not make up for a refusal."""
        most = round(self.settings.requests_per_second * self.slot_seconds)
        shed = promised = 0
        for slot in self._slots.values():
            served, refused = slot[Count.PUSH, Outcome.SERVED], slot[Count.PUSH, Outcome.SHED]
            shed += min(refused, max(0, most - served))
            promised += min(served + refused, most)
        return shed, promised

    def _known_seconds(self, slot: Counts) -> float:
        """How much of a slot is known. Several processes know the same time."""
        return min(self.slot_seconds, (slot[Count.MILLISECONDS, UP] + slot[Count.MILLISECONDS, DOWN]) / 1000)

    def _now(self) -> int:
        return int(self.clock() // self.slot_seconds)

    def _slide(self, now: int) -> None:
        """Forget the slots that left the window."""
        oldest = now - SLOTS + 1
        if self._oldest is not None and oldest <= self._oldest:
            return
        self._oldest = oldest
        for number in [number for number in self._slots if number < oldest]:
            self._replace(number, self._slots[number], Counter())
            del self._slots[number]
        for name, process in list(self._processes.items()):
            for number in [number for number in process.slots if number < oldest]:
                del process.slots[number]
            if not process.slots:
                del self._processes[name]

    def _replace(self, number: int, old: Counts, new: Counts) -> None:
        """Replace one process's part of a slot, in the slot and in the total."""
        before = Counter(old)  # `old` may be the slot itself
        for counts in (self._slots.setdefault(number, Counter()), self._total):
            counts.update(new)
            counts.subtract(before)
            for key in before:
                if not counts[key]:
                    del counts[key]

    def _fold(self) -> None:
        """Add up the processes that have been silent longest, if there are too many: they ended long ago."""
        while len(self._processes) > MOST_PROCESSES:
            former = self._processes.pop(FORMER, Process(0))
            ended = self._processes.pop(next(iter(self._processes)))
            for number, slot in ended.slots.items():
                former.slots.setdefault(number, Counter()).update(slot)
            self._processes = {FORMER: former, **self._processes}


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
    weight = known if known < LEAST_KNOWN else 1.0
    spent = weight * bad / total if total else 0.0
    if allowed >= 1 or target == float("inf"):
        status = ObjectiveStatus.NO_TARGET
    elif spent > allowed and bad >= LEAST_BAD:
        status = ObjectiveStatus.VIOLATED
    elif not total or spent > allowed or known < LEAST_KNOWN:
        status = ObjectiveStatus.UNKNOWN
    else:
        status = ObjectiveStatus.FULFILLED
    has_budget = total and 0 < allowed < 1 and status is not ObjectiveStatus.NO_TARGET
    return Objective(name, status, target, current, 1 - spent / allowed if has_budget else None)


def _outcomes(counts: Counts, kind: Count) -> dict[str, int]:
    return {outcome.value: counts[kind, outcome] for outcome in Outcome if counts[kind, outcome]}
