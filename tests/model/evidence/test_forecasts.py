"""The interval of a forecast holds the truth, for leaks that rise in different ways."""

import numpy as np
import pytest

from model.evidence.resources import forecast_limit
from model.verdict import LimitForecast

BLOCK, SNAPSHOTS, BLOCKS, LEAKS = 120.0, 8, 10, 200  # s, of a block, of the window, drawn for each way
LEAST_TRUE = 0.7  # share of the intervals of each way; nominal are four of five over all ways


def drawn(way: str, rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """Return the memory of each snapshot, and the first one in which it is full."""
    length = int(rng.uniform(12, 40) * SNAPSHOTS)
    share = np.arange(length + 1) / length
    if way == "accelerating":
        share = 0.7 * share + 0.3 * share**2
    elif way == "with traffic":
        share = np.cumsum(1 + 0.25 * np.sin(np.arange(length + 1) / rng.uniform(30, 150) + rng.uniform(0, 6)))
        share /= share[-1]
    usual = rng.uniform(0.3, 0.5)
    memory = usual + (1 - usual) * share
    if way == "collected":
        period = int(rng.integers(4, 20))
        memory -= 0.03 * (1 - np.arange(length + 1) % period / period)
    return np.minimum(memory, 1.0), int(np.argmax(memory >= 0.9999)) if (memory >= 0.9999).any() else length


def forecasts(way: str) -> list[tuple[float, LimitForecast]]:
    """Return the true time to the limit and the forecast of each leak."""
    rng = np.random.default_rng([91, len(way)])
    found = []
    for _ in range(LEAKS):
        memory, full = drawn(way, rng)
        at = int(rng.integers(BLOCKS * SNAPSHOTS, full))
        seen = memory[: at + 1] * (1 + 0.01 * rng.standard_normal(at + 1))
        blocks = seen[: len(seen) // SNAPSHOTS * SNAPSHOTS].reshape(-1, SNAPSHOTS).mean(axis=1)[-BLOCKS:]
        forecast = forecast_limit(blocks.astype(np.float32), BLOCK, len(seen) % SNAPSHOTS * 15.0)
        assert forecast is not None
        found.append(((full - at) * 15.0, forecast))
    return found


@pytest.mark.parametrize("way", ["linear", "accelerating", "with traffic", "collected"])
def test_the_interval_of_a_forecast_holds_the_truth(way: str) -> None:
    found = forecasts(way)
    holds = [one.soonest - 15 <= truth <= one.latest + 15 for truth, one in found]
    assert np.mean(holds) >= LEAST_TRUE
    assert np.mean([truth < one.soonest - 15 for truth, one in found]) <= 1 - LEAST_TRUE, "not late as a rule"


def test_the_forecast_of_a_steady_leak_is_neither_early_nor_late() -> None:
    ratio = [one.seconds / truth for truth, one in forecasts("linear") if truth > BLOCK]
    assert np.median(ratio) == pytest.approx(1.0, abs=0.05)


def test_an_interval_is_narrow_enough_to_plan_with() -> None:
    wide = [one.latest / one.soonest for truth, one in forecasts("linear") if truth > 2 * BLOCK]
    assert np.median(wide) < 2.5


def test_memory_that_does_not_rise_has_no_forecast_and_full_memory_is_full() -> None:
    assert forecast_limit(np.linspace(0.9, 0.8, BLOCKS).astype(np.float32), BLOCK, 0.0) is None
    assert forecast_limit(np.linspace(0.8, 0.999, BLOCKS).astype(np.float32), BLOCK, 0.0) == LimitForecast(0, 0, 0)
