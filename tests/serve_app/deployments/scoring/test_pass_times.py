"""How long the passes of a scorer take, and what a group of one costs."""

import pytest

from serve_app.deployments.scoring.pass_times import PassTimes

FIXED, EACH, WORK = 0.002, 0.0002, 240  # s, s, services and calls: one core and meshes of 60 services


def times_after(sizes: list[int], fixed: float = FIXED, each: float = EACH) -> PassTimes:
    """Times after passes over as many groups as ``sizes`` say."""
    times = PassTimes()
    for size in sizes:
        times = times.finish(size * WORK, fixed + size * each)
    return times


def test_the_time_of_a_pass_is_estimated_from_passes_of_different_sizes() -> None:
    times = times_after([1, 4, 2, 8, 3, 5] * 20)
    assert times.expect(0) == pytest.approx(FIXED, rel=0.02)
    assert times.expect(8 * WORK) == pytest.approx(FIXED + 8 * EACH, rel=0.02)
    assert PassTimes().expect(WORK) == 0.0


def test_without_different_sizes_no_fixed_cost_is_assumed() -> None:
    times = times_after([1] * 50)
    assert times.expect(0) == pytest.approx(0.0, abs=1e-9)
    assert times.expect(2 * WORK) == pytest.approx(2 * (FIXED + EACH))


def test_the_estimate_follows_a_change() -> None:
    times = times_after([1, 4, 2, 8] * 20, each=0.02)
    for size in [1, 4, 2, 8] * 40:  # a faster machine
        times = times.finish(size * WORK, FIXED + size * EACH)
    assert times.expect(8 * WORK) == pytest.approx(FIXED + 8 * EACH, rel=0.1)
