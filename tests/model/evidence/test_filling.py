"""Memory that is about to be full: a notice comes before, in a young mesh too."""

import numpy as np
import pytest

from model.evidence.resources import NEAR_LIMIT, SOON, _fill
from model.state.history import BLOCKS

BLOCK = 120.0  # s
RNG = np.random.default_rng(0)


def first_notice(memory: np.ndarray, per_block: int = 8) -> float | None:
    """Return the memory at the first notice about snapshots with this memory utilization, None without a notice."""
    for i in range(per_block, len(memory)):
        blocks = memory[: i // per_block * per_block].reshape(-1, per_block).mean(axis=1)[-BLOCKS:]
        now = float(memory[i])
        if now > NEAR_LIMIT and _fill(0, now, blocks.astype(np.float32), BLOCK) is not None:
            return now
    return None


def noisy(memory: np.ndarray) -> np.ndarray:
    return np.clip(memory + 0.008 * RNG.standard_normal(len(memory)), 0, 1)


def leak(start: int, per_snapshot: float, usual: float = 0.5, length: int = 600) -> np.ndarray:
    return noisy(np.minimum(usual + per_snapshot * np.arange(-start, length - start).clip(0), 1.0))


@pytest.mark.parametrize("start", [70, 100, 200])
@pytest.mark.parametrize("per_snapshot", [0.002, 0.004, 0.0067, 0.02])
def test_a_leak_is_noticed_before_memory_is_full(start: int, per_snapshot: float) -> None:
    at = first_notice(leak(start, per_snapshot))
    assert at is not None
    assert at < 0.98


def test_memory_that_stands_at_its_limit_is_noticed_whatever_its_course() -> None:
    risen = noisy(0.96 - 0.46 * np.exp(-np.arange(300) / 60.0))
    assert first_notice(risen) is not None


@pytest.mark.parametrize(
    ("what", "memory"),
    [
        ("a cache that fills after a start", 0.9 - 0.5 * np.exp(-np.arange(400) / 60.0)),
        ("a cache that fills quickly", 0.88 - 0.5 * np.exp(-np.arange(400) / 12.0)),
        ("a garbage collector", 0.5 + 0.45 * (np.arange(400) % 40) / 40),
        ("a quick garbage collector", 0.5 + 0.45 * (np.arange(400) % 7) / 7),
        ("memory that is always nearly full", np.full(400, 0.95)),
        ("memory that varies near the limit", 0.9 + 0.05 * np.sin(np.arange(400) / 30)),
        ("memory with half of the room left", leak(100, 0.001, length=400)),
        ("batches that come and go", np.where(np.arange(400) % 100 < 20, 0.84, 0.4)),
    ],
)
def test_memory_that_is_not_about_to_be_full_gives_no_notice(what: str, memory: np.ndarray) -> None:
    assert first_notice(noisy(memory)) is None, what


def test_the_forecast_of_a_leak_is_about_right() -> None:
    memory = 0.5 + 0.05 * np.arange(-10, 9).clip(0).astype(np.float32)
    trend = _fill(0, 0.91, memory, BLOCK)
    assert trend is not None
    assert trend.forecast is not None
    assert trend.forecast.seconds == pytest.approx(1.5 * BLOCK, rel=0.1), "0.9 was the middle of the newest block"
    assert trend.forecast.seconds < SOON
    assert trend.usual == pytest.approx(0.5)
