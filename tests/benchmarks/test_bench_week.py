"""The week: its plan, and the figures of its days."""

from dataclasses import replace
from itertools import pairwise

import pytest

from benchmarks import bench_week
from benchmarks.bench_week import DAY, FIRST, GRACE, LASTS, SPACING, Day, Week, compare, judge_day, too_long
from benchmarks.calm_again.judge import Alert, Mark
from benchmarks.calm_again.mesh import FRONT, World

WEEK = Week(seed=5, days=2)
CALM = Mark((), 0.0, 5.5, True)


def test_a_week_has_a_fault_every_three_quarters_of_an_hour_and_the_same_seed_gives_the_same_plan() -> None:
    times = [one.at for one in WEEK.faults]
    assert times[0] == FIRST
    assert {b - a for a, b in pairwise(times)} == {SPACING}
    assert FRONT not in {one.service for one in WEEK.faults}
    assert Week(5, 2).faults == WEEK.faults != Week(6, 2).faults


def test_a_fault_harms_for_three_minutes_and_a_deploy_changes_a_service_for_good() -> None:
    fault = WEEK.faults[0]
    before, during, after = (world_at(at) for at in (fault.at - 1, fault.at, fault.at + LASTS))
    assert (during.own_ms, during.fail) != (before.own_ms, before.fail)
    assert after.fail == before.fail
    last, name = world_at(2 * DAY - 1), max(World(1.0).own_ms, key=lambda one: abs(factor(one) - 1))
    assert abs(last.own_ms[name] / World(1.0).own_ms[name] - 1) > 0.1


def factor(name: str) -> float:
    return world_at(2 * DAY - 1).own_ms[name] / World(1.0).own_ms[name]


def world_at(position: int) -> World:
    world = World(100.0)
    WEEK(position, world)
    return world


def test_a_day_counts_alerts_in_quiet_time_and_faults_with_a_new_alert() -> None:
    marks = [CALM] * (2 * DAY)
    fault, other = WEEK.faults[0], WEEK.faults[1]
    found = replace(CALM, alerts=(Alert("a", f"{fault.service} is slow", fault.service),))
    marks[fault.at + 3] = found
    wrong = replace(CALM, alerts=(Alert("b", "gw is slow", "gw"),))
    marks[other.at + 3] = wrong
    quiet = other.at + LASTS + GRACE + 5
    marks[quiet] = wrong
    day = judge_day(WEEK, 0, marks)
    count = sum(one.at < DAY - LASTS - 2 for one in WEEK.faults)
    assert (day.found, day.first) == (pytest.approx(2 / count), pytest.approx(1 / count))
    assert 0 < day.alarm < 0.001
    assert day.threshold == pytest.approx(5.5)
    assert too_long(WEEK, marks) == [f"1 snapshots from {quiet}: gw is slow"]


@pytest.mark.parametrize(
    ("last", "faults"),
    [
        (Day(7, 0.01, 0.99, 0.9, 5.5), 0),
        (Day(7, 0.03, 0.99, 0.9, 5.5), 1),
        (Day(7, 0.0, 0.9, 0.8, 6.0), 3),
    ],
)
def test_the_last_day_is_compared_with_the_first(last: Day, faults: int) -> None:
    lines = compare(Day(1, 0.0, 1.0, 0.9, 5.5), last)
    assert sum(not holds for holds, _ in lines) == faults


@pytest.mark.slow
def test_the_second_day_is_as_good_as_the_first() -> None:
    days = [judge_day(WEEK, day, marks) for marks in [bench_week.score_days(WEEK)] for day in range(2)]
    assert all(holds for holds, _ in compare(*days)), days
    assert days[0].found > 0.9
