"""Times of calls on a GPU, from the call to the end of its work there."""

import statistics
import time
from collections.abc import Callable

import torch

WARM_UP = 3


def wait() -> None:
    """Wait for the work that was given to the GPU; does nothing without one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def milliseconds(call: Callable[[], object], repeat: int, seconds: float) -> list[float]:
    """Durations of at most ``repeat`` calls, ms. At least three are timed, and none begins after ``seconds``."""
    for _ in range(WARM_UP):
        call()
    wait()
    taken: list[float] = []
    ends = time.perf_counter() + seconds
    while len(taken) < min(repeat, 3) or (len(taken) < repeat and time.perf_counter() < ends):
        begin = time.perf_counter()
        call()
        wait()
        taken.append(1e3 * (time.perf_counter() - begin))
    return taken


def summary(taken: list[float], name: str = "") -> dict[str, float]:
    """Median and 99th percentile, ms, under ``<name>p50_ms`` and ``<name>p99_ms``."""
    ordered = sorted(taken)
    last = ordered[min(len(ordered) - 1, round(0.99 * (len(ordered) - 1)))]
    return {f"{name}p50_ms": round(statistics.median(ordered), 3), f"{name}p99_ms": round(last, 3)}
