"""Is the detector of the seventh day as good as the detector of the first?

    python -m benchmarks.bench_week [--seed 5] [--days 7] [--json FILE]

A mesh with a known truth (``benchmarks/calm_again/mesh.py``), whose traffic swings with the day. Every three quarters
of an hour, a service is slow, fails or has no free CPU for three minutes, and afterwards another service keeps a small
shift. Twice a day, a service becomes a fifth slower or faster and stays so, as after a deploy. It prints a line a
day, and OK or FAULT for each line that compares the last day with the first; the exit code is 1 if there is a FAULT.
Alerts that last longer than their harm and five minutes are listed. It takes ten minutes on a free core.
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from rich.progress import track

from benchmarks.calm_again.cases import NightFault, harm
from benchmarks.calm_again.judge import Mark
from benchmarks.calm_again.mesh import FRONT, NAMES, STEP_SECONDS, USUAL_RATES, World
from benchmarks.calm_again.score import mark, verdicts

DAY = round(86_400 / STEP_SECONDS)  # snapshots
FIRST, SPACING, LASTS = 240, 180, 12  # snapshots: before the first fault, between two, and of each
GRACE = 20  # snapshots after a fault in which its alert may still be open
FOUND_WITHIN = LASTS + 2  # snapshots after the begin of a fault
SWING = 0.35  # of the traffic, from its mean, within a day
BUSY = 8.0  # requests/s, from which a fault of a service is expected to show
MOST_CHANGE = 0.02  # between the first and the last day, of each share


@dataclass(frozen=True)
class Week:
    """Faults, shifts and deploys of some days, by a seed."""

    seed: int
    days: int

    @cached_property
    def faults(self) -> tuple[NightFault, ...]:
        """The faults, by time."""
        rng = np.random.default_rng([7, self.seed])
        names = [name for name in NAMES if USUAL_RATES[name] >= BUSY and name != FRONT]
        times = range(FIRST, self.days * DAY - SPACING, SPACING)
        return tuple(NightFault(at, str(rng.choice(names)), str(rng.choice(["slow", "fail", "cpu"]))) for at in times)

    @cached_property
    def _shifts(self) -> tuple[tuple[int, str, float], ...]:
        """First snapshot, service and factor on its own latency of each shift."""
        rng = np.random.default_rng([8, self.seed])
        small = [(one.at, str(rng.choice(NAMES)), float(rng.uniform(0.97, 1.06))) for one in self.faults]
        deploys = [
            (half * DAY // 2 + SPACING // 2, str(rng.choice(NAMES)), float(rng.choice([0.8, 1.2])))
            for half in range(1, 2 * self.days)
        ]
        return (*small, *deploys)

    def __call__(self, position: int, world: World) -> None:
        """Change the world at a position."""
        world.entry *= 1 + SWING * math.sin(2 * math.pi * position / DAY)
        for at, name, factor in self._shifts:
            if position >= at:
                world.own_ms[name] *= factor
        for fault in self.faults:
            if fault.at <= position < fault.at + LASTS:
                harm(fault, world)


@dataclass(frozen=True, slots=True)
class Day:
    """The figures of a day.

    Attributes:
        day: 1 is the first.
        alarm: share of the quiet time in alarm.
        found: share of the faults with a new alert, or with one that returned.
        first: share of the faults whose service is the first suspect of that alert.
        threshold: mean of the day.
    """

    day: int
    alarm: float
    found: float
    first: float
    threshold: float


def judge_day(week: Week, day: int, marks: Sequence[Mark]) -> Day:
    """Return the figures of a day, 0 is the first."""
    begin, end = day * DAY, min((day + 1) * DAY, len(marks))
    faults = [one for one in week.faults if begin <= one.at < end - FOUND_WITHIN]
    busy = {k for one in week.faults for k in range(one.at, one.at + LASTS + GRACE)}
    quiet = [k for k in range(max(begin, FIRST // 2), end) if k not in busy]
    found, first = 0, 0
    for fault in faults:
        before = {alert.id for alert in marks[fault.at - 1].alerts}
        during = [a for k in range(fault.at, fault.at + FOUND_WITHIN) for a in marks[k].alerts if a.id not in before]
        found += bool(during)
        first += any(alert.suspect == fault.service for alert in during)
    count = max(len(faults), 1)
    return Day(
        day + 1,
        sum(bool(marks[k].alerts) for k in quiet) / max(len(quiet), 1),
        found / count,
        first / count,
        float(np.mean([marks[k].threshold for k in range(begin, end)])),
    )


def too_long(week: Week, marks: Sequence[Mark]) -> list[str]:
    """Return the alerts that are open later than ``GRACE`` after a fault, each with its snapshots and its text."""
    busy = {k for one in week.faults for k in range(one.at, one.at + LASTS + GRACE)}
    late: dict[str, list[int]] = {}
    texts: dict[str, str] = {}
    for k, one in enumerate(marks):
        if k not in busy:
            for alert in one.alerts:
                late.setdefault(alert.id, []).append(k)
                texts[alert.id] = alert.headline
    return [f"{len(times)} snapshots from {times[0]}: {texts[id]}" for id, times in late.items()]


def score_days(week: Week) -> list[Mark]:
    """Score the days from an empty state with the default settings."""
    torch.set_num_threads(1)
    count = week.days * DAY
    scored = track(verdicts(week, count, week.seed), "scoring", total=count, update_period=1)
    return [mark(verdict) for verdict in scored]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    week = Week(arguments.seed, arguments.days)
    marks = score_days(week)
    days = [judge_day(week, day, marks) for day in range(week.days)]
    for one in days:
        print(
            f"day {one.day}: {one.alarm:.1%} of the quiet time in alarm; found {one.found:.0%}, first {one.first:.0%}; "
            f"threshold {one.threshold:.2f}"
        )
    late = too_long(week, marks)
    print(f"{len(late)} of {len(week.faults)} alerts last longer than their harm and five minutes", *late, sep="\n  ")
    lines = compare(days[0], days[-1])
    print(*(f"{'OK   ' if holds else 'FAULT'} {text}" for holds, text in lines), sep="\n")
    if arguments.json:
        arguments.json.write_text("".join(json.dumps({"benchmark": "week", **asdict(one)}) + "\n" for one in days))
    return 0 if all(holds for holds, _ in lines) else 1


def compare(first: Day, last: Day) -> list[tuple[bool, str]]:
    """Return whether the last day is as good as the first, figure by figure, and the text of each."""
    lines = [
        (last.alarm <= first.alarm + MOST_CHANGE, f"quiet time in alarm: {first.alarm:.1%}, {last.alarm:.1%}"),
        (last.found >= first.found - MOST_CHANGE, f"faults found: {first.found:.0%}, {last.found:.0%}"),
        (last.first >= first.first - MOST_CHANGE, f"service named first: {first.first:.0%}, {last.first:.0%}"),
    ]
    moved = last.threshold / first.threshold - 1
    return [*lines, (abs(moved) <= MOST_CHANGE, f"threshold: {first.threshold:.2f}, {last.threshold:.2f}")]


if __name__ == "__main__":
    sys.exit(main())
