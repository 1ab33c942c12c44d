"""The limits of a scorer's batches: they follow the load, and keep to the target."""

import numpy as np
import pytest

from serve_app.deployments.scoring.batching import Load, batch_limits

FIXED, EACH, WORK = 0.002, 0.0002, 240  # s, s, services and calls: one core and meshes of 60 services
TARGET, LONGEST, LARGEST = 0.035, 0.01, 8


def load_after(gap: float, sizes: list[int], fixed: float = FIXED, each: float = EACH) -> Load:
    """Load after groups at equal gaps, and passes over as many of them as ``sizes`` say."""
    load = Load()
    for i in range(200):
        load = load.arrive(i * gap, WORK)
    for size in sizes:
        load = load.finish(size * WORK, fixed + size * each)
    return load


def test_before_any_measurement_nothing_waits() -> None:
    assert batch_limits(Load(), TARGET, LONGEST, LARGEST) == (0.0, LARGEST)


def test_the_cost_of_a_pass_is_estimated_from_passes_of_different_sizes() -> None:
    fixed, each = load_after(0.001, [1, 4, 2, 8, 3, 5] * 20).pass_costs()
    assert fixed == pytest.approx(FIXED, rel=0.02)
    assert each == pytest.approx(EACH, rel=0.02)


def test_without_different_sizes_no_fixed_cost_is_assumed() -> None:
    fixed, each = load_after(0.001, [1] * 50).pass_costs()
    assert fixed == pytest.approx(0.0, abs=1e-9)
    assert each == pytest.approx(FIXED + EACH)


def test_the_cost_of_a_group_does_not_depend_on_the_others_of_its_pass() -> None:
    load = load_after(0.001, [1, 4, 2, 8, 3, 5] * 20)
    for size in (1, 2, 8):
        cost = load.cost(WORK, size * WORK, FIXED + size * EACH)
        assert cost == pytest.approx(FIXED + EACH, rel=0.05)


def test_without_a_fixed_part_the_cost_is_the_share_of_the_work() -> None:
    assert Load().cost(60, 240, 0.02) == pytest.approx(0.005)
    assert Load().cost(240, 240, 0.02) == 0.02


@pytest.mark.parametrize(("gap", "waits"), [(1.0, False), (0.0021, False), (0.0015, True), (0.0001, True)])
def test_a_pass_waits_only_if_a_group_is_likely_to_come_sooner_than_its_own_pass_would_cost(
    gap: float, waits: bool
) -> None:
    wait, _ = batch_limits(load_after(gap, [1, 4, 2, 8] * 20), TARGET, LONGEST, LARGEST)
    assert (wait > 0) == waits
    assert wait <= FIXED * 1.02


def test_the_limit_of_the_wait_holds_and_zero_turns_it_off() -> None:
    load = load_after(0.0001, [1, 4, 2, 8] * 20)
    assert batch_limits(load, TARGET, 0.0005, LARGEST)[0] == 0.0005
    assert batch_limits(load, TARGET, 0.0, LARGEST)[0] == 0.0


@pytest.mark.parametrize(("each", "size"), [(0.0002, 8), (0.006, 5), (0.02, 1), (0.2, 1)])
def test_a_batch_is_no_larger_than_the_target_permits(each: float, size: int) -> None:
    load = load_after(0.001, [1, 4, 2, 8] * 20, each=each)
    wait, found = batch_limits(load, TARGET, LONGEST, LARGEST)
    assert found == size
    if size == 1:
        assert wait == 0.0


def test_the_limits_follow_a_change() -> None:
    load = load_after(0.001, [1, 4, 2, 8] * 20, each=0.02)
    assert batch_limits(load, TARGET, LONGEST, LARGEST)[1] == 1
    for size in [1, 4, 2, 8] * 40:  # smaller meshes, or a faster machine
        load = load.finish(size * WORK, FIXED + size * EACH)
    assert batch_limits(load, TARGET, LONGEST, LARGEST)[1] == LARGEST


@pytest.mark.parametrize("rate", [20, 200, 600, 2000])
def test_a_replica_keeps_to_the_target_with_fewer_passes(rate: int) -> None:
    """One server, random arrivals, and passes with the costs above, against the same server that never waits."""
    arrivals = np.cumsum(np.random.default_rng(rate).exponential(1 / rate, 4000))
    passes, latency = simulate(arrivals, LONGEST)
    never, never_latency = simulate(arrivals, 0.0)
    assert passes <= never
    assert np.quantile(latency, 0.99) <= TARGET
    assert latency.mean() <= never_latency.mean() + FIXED
    if rate == 600:
        assert passes < 0.8 * never


def simulate(arrivals: np.ndarray, longest: float) -> tuple[int, np.ndarray]:
    """Return the number of passes, and the time of each group from its arrival to its scores, s."""
    load, now, passes, latency = Load(), 0.0, 0, []
    first = counted = 0
    while first < len(arrivals):
        now = max(now, arrivals[first])
        while counted < len(arrivals) and arrivals[counted] <= now:
            load = load.arrive(arrivals[counted], WORK)
            counted += 1
        wait, size = batch_limits(load, TARGET, longest, LARGEST)
        full = first + size - 1
        begins = min(now + wait, max(now, arrivals[full])) if full < len(arrivals) else now + wait
        last = min(first + size, int(np.searchsorted(arrivals, begins, "right")))
        now = begins + FIXED + EACH * (last - first)
        load = load.finish(WORK * (last - first), now - begins)
        latency += [now - arrived for arrived in arrivals[first:last]]
        passes, first = passes + 1, last
    return passes, np.array(latency)
