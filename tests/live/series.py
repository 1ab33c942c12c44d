"""Series as lines of OpenMetrics text: the reads of each interval, counters from rates, and the lines."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]  # [R, S] by series and snapshot, or [R, T] by series and instant of reading

COARSE_MS = (
    0.5,
    1,
    5,
    10,
    25,
    50,
    100,
    250,
    500,
    1000,
    2500,
    5000,
    10000,
)  # Istio's buckets, as far as the latencies reach
FINE_MS = tuple(float(f"{bound:.3g}") for bound in np.geomspace(0.5, 30000, 70))


@dataclass(frozen=True, slots=True)
class Export:
    """Options of the export.

    Attributes:
        interval_seconds: between two snapshots.
        reads: of each series in an interval. A rate window shorter than the interval needs two.
        bounds_ms: of the buckets, without the infinite one.
    """

    interval_seconds: float = 15.0
    reads: int = 1
    bounds_ms: tuple[float, ...] = FINE_MS


def counter_values(rate: Numbers, export: Export) -> Numbers:
    """Return counters ``[R, T]`` that grow at these rates, read where an observed interval begins or ends; else NaN."""
    step = np.repeat(rate, export.reads, axis=1) * (export.interval_seconds / export.reads)
    known, edge = ~np.isnan(step), np.zeros((len(rate), 1), bool)
    total = np.cumsum(np.where(known, step, 0.0), axis=1)
    read = np.hstack([known, edge]) | np.hstack([edge, known])
    return np.where(read, np.hstack([np.zeros((len(rate), 1)), total]), np.nan)


def gauge_values(value: Numbers, export: Export) -> Numbers:
    """Return gauges ``[R, T]`` with these values during the interval that ends with each snapshot."""
    return np.hstack([np.full((len(value), 1), np.nan), np.repeat(value, export.reads, axis=1)])


def write_series(out: IO[str], names: Sequence[str], values: Numbers, times: Sequence[str]) -> int:
    """Write a line for each series and time with a value, with one format string for all lines of a series.

    Returns:
        Number of lines.
    """
    seen = ~np.isnan(values)
    count = seen.sum(axis=1)
    whole, some = count == seen.shape[1], count > 0
    ending = [f" %.6f {time}\n" for time in times]
    for name, row, all_there in zip(names, values.tolist(), whole.tolist(), strict=True):
        if all_there:
            out.write((name + name.join(ending)) % tuple(row))
    for i in np.flatnonzero(some & ~whole).tolist():
        out.writelines(_partly(names[i], values[i].tolist(), ending))
    return int(seen.sum())


def _partly(name: str, row: Sequence[float], ending: Sequence[str]) -> Iterator[str]:
    return (name + end % value for value, end in zip(row, ending, strict=True) if not math.isnan(value))
