"""Regular work: bursts of resource use on a schedule, such as a backup or a job every hour.

A burst is a time in which a service uses far more of a resource than usual. Each one is unusual, but a burst that comes
at the same interval as the two before it is what this service does. Such a burst is *regular*: it is not a reason for a
notice while it is no longer and no stronger than the earlier ones. Regular work that does not run is a reason for one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

import numpy as np

from model.features import Array
from model.snapshot import BoolArray, find_rows

MIN_EVIDENCE = 2.0  # surprise of a shortage from which a burst begins; a notice needs more
MORE_CPU, TIMES_CPU = 0.15, 1.3  # of the CPU utilization above expected, and times expected, which is a burst, too
SAME_CPU = 0.5  # of earlier bursts' CPU, from which known work runs
SHORTEST, LONGEST = 1200.0, 90_000.0  # s, of the interval between two bursts; quicker ones are worth a look each time
TOLERANCE, CLOSE = 0.05, 0.02  # of the interval; the second one if other bursts come in between
MIN_TOLERANCE = 2.0  # snapshots
MAX_MISSED = 3  # bursts in a row that may have been too weak to be seen
LONGER, MIN_LONGER = 1.5, 2.0  # times the earlier length that a regular burst may last; snapshots at least
STRONGER, STRONGER_CPU = 3.0, 0.15  # decades, and of the CPU utilization, by which it may exceed the earlier ones
PAUSE_SECONDS, PAUSE = 60.0, 3.0  # without use after which a burst is over, whichever is longer; snapshots
PROVEN = 3  # regular bursts after which the next one is missed
NOTICEABLE = 5.0  # surprise that one of its bursts must have had
MIN_CPU = 0.1  # of the CPU utilization above expected, without which it is unknown whether work came
GAP = 3.0  # snapshots; what happened in a longer gap is unknown
KEPT_SECONDS = 3.5 * LONGEST  # for which a burst is remembered
MAX_BURSTS, MAX_SERVICES = 12, 200


class Burst(NamedTuple):
    """A time in which a service uses far more of a resource than usual.

    Attributes:
        start: Unix time, s.
        seconds: from the first snapshot to the last one with such use; 0: it was seen once.
        evidence: the strongest surprise, decades.
        cpu: the highest CPU utilization above expected, 0 to 1; 0: unknown.
    """

    start: float
    seconds: float = 0.0
    evidence: float = 0.0
    cpu: float = 0.0


class Work(NamedTuple):
    """The bursts of one service.

    Attributes:
        bursts: oldest first; the last one may go on.
        period: s between regular bursts; 0: none are known.
        came: when the last regular burst began or should have begun, Unix time, s.
        until: Unix time up to which the last burst is regular, s; 0: it is not.
    """

    bursts: tuple[Burst, ...] = ()
    period: float = 0.0
    came: float = 0.0
    regular: int = 0
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """The bursts of a mesh's services.

    Attributes:
        seen: time of the last snapshot, Unix, s; 0: none.
    """

    works: dict[str, Work] = field(default_factory=dict)
    seen: float = 0.0


@dataclass(frozen=True, slots=True)
class Use:
    """The resources that N services use in a snapshot.

    Attributes:
        notice: ``[N]`` surprise of resources that are running out.
        cpu, usual_cpu: ``[N]`` CPU utilization now and expected, 0 to 1.
        measured: bool ``[N]``: whether the CPU utilization is known.
    """

    notice: Array
    cpu: Array
    usual_cpu: Array
    measured: BoolArray


@dataclass(frozen=True, slots=True)
class RegularWork:
    """The result of the schedule for a snapshot.

    Attributes:
        regular: bool ``[N]`` services whose burst is regular now.
        overdue: bool ``[N]`` services whose regular work did not run.
    """

    schedule: Schedule
    regular: BoolArray
    overdue: BoolArray


def follow_work(
    schedule: Schedule, names: Sequence[str], use: Use, now: datetime, interval_seconds: float
) -> RegularWork:
    """Add a snapshot to the schedule."""
    at = now.timestamp()
    above = np.where(use.measured, use.cpu - use.usual_cpu, 0.0)
    bursting = use.notice >= MIN_EVIDENCE
    bursting |= (above >= MORE_CPU) & (use.cpu >= TIMES_CPU * use.usual_cpu)
    row = find_rows(names, schedule.works.keys()) if schedule.works else {}
    row |= {names[i]: i for i in np.flatnonzero(bursting).tolist()}
    is_gap = at - schedule.seen > GAP * interval_seconds
    regular, overdue = np.zeros((2, len(names)), bool)
    works = {}
    for name in schedule.works.keys() | row.keys():
        work, i = schedule.works.get(name, Work()), row.get(name, -1)
        if i < 0 or is_gap or not use.measured[i]:
            work = _assume_that_it_came(work, at, interval_seconds)
        if i >= 0:
            now_used = Burst(at, 0.0, round(float(use.notice[i]), 2), round(max(float(above[i]), 0.0), 3))
            if bursting[i] or _is_known_work(work, now_used.cpu):
                work = _with_use(work, now_used, interval_seconds)
                regular[i] = _is_regular(work, now_used)
            overdue[i] = is_overdue(work, at, interval_seconds)
        works[name] = _forget(work, at, interval_seconds)
    return RegularWork(Schedule(_bounded(works), at), regular, overdue)


def is_overdue(work: Work, at: float, interval_seconds: float) -> bool:
    """Return whether regular work should have begun and did not; for one period at most, since then it is over."""
    if work.regular < PROVEN or not work.period:
        return False
    late = at - work.came - work.period
    strongest = max((burst.evidence for burst in work.bursts), default=0.0)
    is_late = _tolerance(work.period, interval_seconds) < late <= work.period
    return is_late and strongest >= NOTICEABLE and _cpu(work) > 0


def _cpu(work: Work) -> float:
    """Return the CPU utilization above expected that all earlier bursts had; 0 if it is not enough to recognise it."""
    lowest = min((burst.cpu for burst in work.bursts if burst.seconds), default=0.0)
    return lowest if lowest >= MIN_CPU else 0.0


def _is_known_work(work: Work, cpu: float) -> bool:
    """Return whether work with a schedule uses this CPU, although baselines may be used to it by now."""
    usual = _cpu(work) if work.period else 0.0
    return usual > 0 and cpu >= SAME_CPU * usual


def _with_use(work: Work, now: Burst, interval_seconds: float) -> Work:
    """Return the work with a snapshot of use, which continues the last burst or begins one."""
    if work.bursts:
        last = work.bursts[-1]
        if now.start - last.start - last.seconds <= max(PAUSE_SECONDS, PAUSE * interval_seconds):
            longer = Burst(last.start, now.start - last.start, max(last.evidence, now.evidence), max(last.cpu, now.cpu))
            return work._replace(bursts=(*work.bursts[:-1], longer))
    earlier = work.bursts[-1:] if work.bursts and work.bursts[-1].seconds else ()
    work = work._replace(bursts=(*work.bursts[:-1], *earlier), until=0.0)  # what was seen once was not a burst
    due = _find_due(work, now.start, interval_seconds)
    if due is not None:
        work = due
    return work._replace(bursts=(*work.bursts, now)[-MAX_BURSTS:])


def _find_due(work: Work, at: float, interval_seconds: float) -> Work | None:
    """Return the work with its next regular burst if one is due; None if none is."""
    if work.period:
        wait, tolerance = at - work.came, _tolerance(work.period, interval_seconds)
        steps = round(wait / work.period)
        if steps <= MAX_MISSED and abs(wait - steps * work.period) <= tolerance:
            period = 0.5 * (work.period + wait / steps) if steps else work.period
            came = at if steps else work.came
            until = at + _allowed(work.bursts[-2:], interval_seconds)
            return work._replace(period=period, came=came, regular=work.regular + min(steps, 1), until=until)
        if tolerance < wait - work.period <= work.period and work.regular >= PROVEN:  # it came late
            until = at + _allowed(work.bursts[-2:], interval_seconds)
            return work._replace(came=work.came + work.period, until=until)
    earlier = _find_earlier(work.bursts, at, interval_seconds)
    if not earlier:
        return None
    until = at + _allowed(earlier, interval_seconds)
    return work._replace(period=at - earlier[-1].start, came=at, regular=1, until=until)


def _find_earlier(bursts: Sequence[Burst], at: float, interval_seconds: float) -> tuple[Burst, ...]:
    """Return the earlier bursts whose interval a burst continues that begins ``at`` a time; empty if there are none.

    The last two are enough. If others come in between, as with two jobs of a service, it takes three and a closer
    match, because chance finds an interval among many bursts.
    """
    if len(bursts) >= 2 and _continues(bursts[-2:], at, TOLERANCE, interval_seconds):
        return tuple(bursts[-2:])
    for newest in reversed(bursts):
        chain = [newest]
        for burst in reversed(bursts):
            if _continues((burst, chain[0]), at if len(chain) == 1 else chain[1].start, CLOSE, interval_seconds):
                chain.insert(0, burst)
        if len(chain) >= 3:
            return tuple(chain)
    return ()


def _continues(pair: Sequence[Burst], at: float, tolerance: float, interval_seconds: float) -> bool:
    """Return whether a time follows the second burst as the second follows the first."""
    period, before = at - pair[1].start, pair[1].start - pair[0].start
    if not SHORTEST <= period <= LONGEST:
        return False
    return abs(before - period) <= max(MIN_TOLERANCE * interval_seconds, tolerance * period)


def _tolerance(period: float, interval_seconds: float) -> float:
    return max(MIN_TOLERANCE * interval_seconds, TOLERANCE * period)


def _allowed(earlier: Sequence[Burst], interval_seconds: float) -> float:
    length = max((burst.seconds for burst in earlier), default=0.0) + interval_seconds
    return max(LONGER * length, length + MIN_LONGER * interval_seconds)


def _is_regular(work: Work, now: Burst) -> bool:
    """Return whether the last burst is regular, and not much stronger now than the ones before it."""
    earlier = work.bursts[:-1]
    if now.start > work.until or not earlier:
        return False
    evidence, cpu = max(burst.evidence for burst in earlier), max(burst.cpu for burst in earlier)
    return now.evidence <= evidence + STRONGER and now.cpu <= cpu + STRONGER_CPU


def _assume_that_it_came(work: Work, at: float, interval_seconds: float) -> Work:
    """Return the work as if it had come when it was due: whether it did is unknown."""
    if not work.period:
        return work
    missed_periods = (at - work.came + _tolerance(work.period, interval_seconds)) // work.period
    return work._replace(came=work.came + max(missed_periods, 0) * work.period)


def _forget(work: Work, at: float, interval_seconds: float) -> Work:
    """Return the work without old bursts, and without its schedule if it no longer runs."""
    recent = tuple(burst for burst in work.bursts if at - burst.start - burst.seconds <= KEPT_SECONDS)
    late = at - work.came - MAX_MISSED * work.period
    if work.period and late > _tolerance(work.period, interval_seconds):
        return Work(recent, until=work.until)
    return work if len(recent) == len(work.bursts) else work._replace(bursts=recent)


def _bounded(works: Mapping[str, Work]) -> dict[str, Work]:
    """Return the services with bursts, those with a schedule or the newest ones if there are too many."""
    busy = {name: work for name, work in works.items() if work.bursts}
    if len(busy) > MAX_SERVICES:
        order = sorted(busy, key=lambda name: (busy[name].period > 0, busy[name].bursts[-1].start), reverse=True)
        busy = {name: busy[name] for name in order[:MAX_SERVICES]}
    return dict(sorted(busy.items()))
