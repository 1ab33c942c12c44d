"""Steering of admission: steps, trials, bounds, and no flapping."""

import itertools
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.deployments.sla.recent import RECENT_SECONDS, RecentLevel
from serve_app.deployments.sla.steering import (
    PATIENCE_SECONDS,
    REST_SECONDS,
    SETTLE_SECONDS,
    TIGHTEN,
    WIDEN,
    Steering,
    Wish,
    steer,
)
from serve_app.settings.sla import SlaSettings

SLA = SlaSettings(least_admission=0.25)  # 1 and 2 s; a quarter to four times
REPORT_SECONDS = 5.0
FINE = RecentLevel(p95=0.1, p99=0.2, served=4.0, on_time=4.0, shed=0, pushes=60)
HOLD_SECONDS = PATIENCE_SECONDS[Wish.UNDO]
Service = Callable[[float, float], RecentLevel]  # from the factor and the time to the level


def run(
    service: Service, seconds: float, begin: Steering | None = None, sla: SlaSettings = SLA, clock: float = 1000.0
) -> list[Steering]:
    """The steps of a service, one for each report."""
    steps, now = [], begin or Steering()
    for i in range(round(seconds / REPORT_SECONDS)):
        at = clock + i * REPORT_SECONDS
        now = steer(now, service(now.factor, at), sla, at)
        steps.append(now)
    return steps


def changes(steps: list[Steering]) -> int:
    return sum(a.factor != b.factor for a, b in itertools.pairwise(steps))


def queue(capacity: float, demand: float, usual: float = 4.0) -> Service:
    """A service that works on one push at a time, with pushes waiting for it."""

    def level(factor: float, _: float) -> RecentLevel:
        served = min(capacity, demand)
        under_way = usual * factor if demand > capacity else 1.0
        seconds = under_way / capacity
        shed = max(0.0, demand - served) * RECENT_SECONDS
        pushes = round(served * RECENT_SECONDS + shed)
        on_time = served if seconds <= SLA.p95_seconds else 0.0
        return RecentLevel(seconds, 1.2 * seconds, served, on_time, round(shed), max(pushes, 20))

    return level


def parallel(seconds: float, demand: float = 4.0, usual: float = 4.0) -> Service:
    """A service in which no push waits for another: each takes as long."""

    def level(factor: float, _: float) -> RecentLevel:
        served = min(demand, usual * factor / seconds)
        on_time = served if seconds <= SLA.p95_seconds else 0.0
        shed = round((demand - served) * RECENT_SECONDS)
        return RecentLevel(seconds, seconds, served, on_time, shed, round(demand * RECENT_SECONDS))

    return level


def test_a_service_within_its_targets_is_left_alone() -> None:
    assert {one.factor for one in run(lambda _, __: FINE, 600)} == {1.0}


def test_a_queue_is_shortened_until_the_target_holds_and_stays_short_while_there_is_too_much_work() -> None:
    steps = run(queue(capacity=2.5, demand=4.0), 900)
    assert steps[-1].factor == 0.5, "4 under way take 1.6 s, 2 take 0.8"
    assert changes(steps) == 1
    assert steps[-1].kind == TIGHTEN
    assert steps[-1].reason is not None
    assert (steps[-1].reason.objective, steps[-1].reason.value) == ("p95", 1.6)


def test_times_that_are_four_times_too_long_take_one_step() -> None:
    steps = run(queue(capacity=1.0, demand=4.0, usual=3.5), 300)
    assert next(one.factor for one in steps if one.factor < 1) == 0.25
    assert changes(steps) == 1


def test_steps_to_other_bounds_are_undone_without_passing_one() -> None:
    sla = SlaSettings(least_admission=0.3, most_admission=3.0)
    tight = run(queue(capacity=1.0, demand=4.0, usual=3.3), 60, sla=sla)[-1]
    assert tight.factor == 0.3
    calm = run(lambda _, __: FINE, 600, tight, sla=sla, clock=2000.0)
    assert sorted({one.factor for one in calm}) == [0.3, 0.6, 1.0]


def test_a_deep_queue_is_shortened_step_by_step_to_the_bound() -> None:
    def service(factor: float, _: float) -> RecentLevel:  # each step has more verdicts on time; never enough
        return RecentLevel(3.0, 4.0, served=2.0, on_time=0.5 / factor, shed=30, pushes=60)

    steps = run(service, 600)
    assert [one.factor for one in steps if one.changed_at == steps[-1].changed_at][-1] == SLA.least_admission
    assert min(one.factor for one in steps) == SLA.least_admission


def test_each_step_waits_until_the_one_before_can_be_seen() -> None:
    steps = run(queue(capacity=0.9, demand=4.0), 300)
    times = [b.changed_at for a, b in itertools.pairwise(steps) if a.factor != b.factor]
    assert all(b - a >= SETTLE_SECONDS for a, b in itertools.pairwise(times))


def test_a_step_that_does_not_help_is_taken_back_and_rests() -> None:
    steps = run(parallel(seconds=1.2), REST_SECONDS)
    tight = [one for one in steps if one.factor < 1]
    assert {one.factor for one in tight} == {0.5}
    assert len(tight) * REPORT_SECONDS <= SETTLE_SECONDS + REPORT_SECONDS
    assert steps[-1].factor == 1.0
    again = run(parallel(seconds=1.2), 2 * SETTLE_SECONDS, steps[-1], clock=1000.0 + REST_SECONDS + SETTLE_SECONDS)
    assert any(one.factor < 1 for one in again), "after the rest it is tried again"


def test_steps_that_never_help_are_tried_ever_more_rarely() -> None:
    steps = run(parallel(seconds=1.2), 6 * 3600)
    tight = sum(one.factor < 1 for one in steps)
    trials = changes(steps) // 2
    assert 6 <= trials <= 10
    assert tight < 0.02 * len(steps)


def test_it_is_undone_step_by_step_when_the_service_could_do_with_more() -> None:
    begin = replace(Steering(0.25, run(queue(2.5, 4.0), 5)[0].reason), changed_at=900.0)
    steps = run(lambda _, __: FINE, 4 * (HOLD_SECONDS + SETTLE_SECONDS), begin)
    assert [b.factor for a, b in zip([begin, *steps], steps, strict=False) if a.factor != b.factor] == [0.5, 1.0]
    assert steps[-1].reason is None
    first = next(i for i, one in enumerate(steps) if one.factor == 0.5)
    assert first * REPORT_SECONDS >= HOLD_SECONDS


def test_it_is_undone_if_nothing_is_refused_even_while_times_are_near_the_target() -> None:
    near = replace(FINE, p95=0.9, p99=1.5)
    begin = Steering(0.5, run(queue(2.5, 4.0), 5)[0].reason, changed_at=900.0)
    assert run(lambda _, __: near, 300, begin)[-1].factor == 1.0
    assert run(lambda _, __: replace(near, shed=10), 300, begin)[-1].factor == 0.5


def test_a_burst_gets_room_while_times_are_short_and_loses_it_when_they_are_not() -> None:
    def service(factor: float, _: float) -> RecentLevel:
        served = min(20.0, 4.0 * factor)
        return RecentLevel(0.1 * factor, 0.1 * factor, served, served, round(15 * (20 - served)), 300)

    steps = run(service, 120)
    assert steps[-1].factor == 4.0
    assert steps[-1].kind == WIDEN
    late = run(lambda _, __: replace(FINE, p95=1.1), 60, steps[-1], clock=1200.0)
    assert any(one.factor == 2.0 for one in late)
    calm = run(lambda _, __: FINE, 4 * (HOLD_SECONDS + SETTLE_SECONDS), steps[-1], clock=1200.0)
    assert calm[-1].factor == 1.0


def test_room_that_brings_no_more_verdicts_is_taken_back() -> None:
    steps = run(lambda _, __: replace(FINE, shed=30), 100)
    assert {one.factor for one in steps} == {1.0, 2.0}
    assert steps[-1].factor == 1.0


def test_bounds_of_one_leave_admission_alone() -> None:
    sla = SlaSettings(most_admission=1.0)
    assert {one.factor for one in run(queue(2.5, 4.0), 300, sla=sla)} == {1.0}
    assert {one.factor for one in run(lambda _, __: replace(FINE, shed=30), 300, sla=sla)} == {1.0}


def test_too_few_pushes_are_no_reason() -> None:
    assert {one.factor for one in run(lambda _, __: RecentLevel(3.0, 3.0, 0.2, 0.0, 0, 3), 300)} == {1.0}


@pytest.mark.parametrize("seed", range(5))
def test_noise_around_the_target_does_not_make_it_flap(seed: int) -> None:
    rng = random.Random(seed)

    def noisy(factor: float, at: float) -> RecentLevel:
        level = queue(capacity=2.5, demand=4.0)(factor, at)
        scale = rng.uniform(0.7, 1.3)  # 0.56 to 1.04 s with half the requests
        p95 = level.p95 * scale if level.p95 else None
        on_time = level.served * rng.uniform(0.9, 1.0) if p95 is not None and p95 <= 1.1 else 0.3
        return replace(level, p95=p95, p99=p95, on_time=on_time)

    steps = run(noisy, 3600)
    assert changes(steps) <= 3600 / REST_SECONDS, "at most one change in five minutes"
    assert all(one.factor < 1 for one in steps[60:])


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000))
def test_no_series_leaves_the_bounds_or_changes_faster_than_it_can_be_seen(seed: int) -> None:
    rng = random.Random(seed)

    def anything(_: float, __: float) -> RecentLevel:
        served = rng.uniform(0, 10)
        return RecentLevel(
            rng.choice([None, 0.1, 0.9, 3.0]), 2.5, served, served * rng.random(), rng.randrange(20), rng.randrange(90)
        )

    steps = run(anything, 1200)
    assert all(SLA.least_admission <= one.factor <= SLA.most_admission for one in steps)
    assert all((one.reason is None) == (one.factor == 1) for one in steps)
    times = sorted({one.changed_at for one in steps})
    assert all(b - a >= SETTLE_SECONDS for a, b in itertools.pairwise(times))
