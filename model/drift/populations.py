"""The populations that drift is measured on: one channel over all services or calls of a mesh.

They are the 14 channels of the network's inputs, and the callers and callees of each service. Each has a histogram with
fixed bins in transformed units, so that the histograms of any mesh, week or training can be compared.

Load moves with the hour, the weekday and the season, and a detector that learns baselines need not care. So channels
that follow it are taken relative to the median service or call of the same snapshot: their histogram shows the *mix* of
traffic and of resources, not their level. The level of a service's CPU is seen in ``cpu_per_request``. Idle services
and calls, whose value is not above the smallest one that matters, have no part in a mix: a retired service, and the
services that only it called, are no drift.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from model.features import EDGE_CHANNELS, NODE_CHANNELS, RATE, Array, Channel
from model.snapshot import BoolArray, IntArray

BINS = 32
Measured = tuple[Array, BoolArray]


@dataclass(frozen=True, slots=True)
class Population:
    """One channel of all services or calls.

    Attributes:
        name: ``service.`` or ``call.`` and the name of the channel.
        low, high: ends of the histogram, transformed units; values beyond are in the last bin.
        relative: whether values are relative to the median of the snapshot.
        idle: transformed units; values up to it are left out.
    """

    name: str
    low: float
    high: float
    relative: bool = False
    idle: float = -np.inf


def _of(prefix: str, channels: tuple[Channel, ...]) -> tuple[Population, ...]:
    populations = []
    for channel in channels:
        low, high, relative = _RANGES[channel.name]
        idle = float(np.log(2 * channel.offset)) if relative else -np.inf  # the transform of ``offset``
        populations.append(Population(f"{prefix}.{channel.name}", low, high, relative, idle))
    return tuple(populations)


_RANGES: dict[str, tuple[float, float, bool]] = {
    "request_rate": (-8.0, 8.0, True),
    "requests_per_second": (-8.0, 8.0, True),
    "error_rate": (-5.4, 5.4, False),
    "p50_latency": (-8.6, 4.2, False),
    "p99_latency": (-8.6, 4.2, False),
    "own_time": (-8.6, 4.2, False),
    "cpu_utilization": (-4.0, 4.0, True),
    "memory_utilization": (-4.0, 0.1, False),
    "active_connections": (-6.0, 6.0, True),
    "cpu_per_request": (-9.3, 2.3, False),
    "weight": (-4.7, 0.1, False),
}
DEGREES = (Population("service.callers", 0.0, 6.4), Population("service.callees", 0.0, 6.4))  # log(1 + number)
OF_SERVICES = _of("service", NODE_CHANNELS)
OF_CALLS = _of("call", EDGE_CHANNELS)
POPULATIONS = (*OF_SERVICES, *OF_CALLS, *DEGREES)
ARE_CALLS = np.array([population in OF_CALLS for population in POPULATIONS])
CHANNELS = len(OF_SERVICES) + len(OF_CALLS)  # the populations that have tails, too


@dataclass(frozen=True, slots=True)
class ValueCounts:
    """The values of one snapshot, or of several.

    Attributes:
        values: float32 ``[P, BINS]`` histograms.
        missing: float32 ``[P]`` values that were not measured. A service or call without requests misses none, and
            neither does a silent one, which a verdict reports.
        possible: float32 ``[P]`` the same, and those that were.
    """

    values: Array
    missing: Array
    possible: Array

    def __add__(self, other: ValueCounts) -> ValueCounts:
        return ValueCounts(self.values + other.values, self.missing + other.missing, self.possible + other.possible)


def no_values() -> ValueCounts:
    count = len(POPULATIONS)
    return ValueCounts(np.zeros((count, BINS), np.float32), np.zeros(count, np.float32), np.zeros(count, np.float32))


def count_values(services: Measured, calls: Measured, degrees: IntArray) -> ValueCounts:
    """Count the values of a snapshot.

    Args:
        services, calls: transformed values and whether they were observed, ``[N, C]`` and ``[E, C]``.
        degrees: ``[N, 2]`` numbers of callers and callees.
    """
    parts = (
        _count(*services, OF_SERVICES),
        _count(*calls, OF_CALLS),
        _count(np.log1p(degrees).astype(np.float32), degrees > 0, DEGREES),
    )
    return ValueCounts(
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.missing for part in parts]),
        np.concatenate([part.possible for part in parts]),
    )


def _count(value: Array, observed: BoolArray, populations: tuple[Population, ...]) -> ValueCounts:
    """Count the values of N rows, ``[N, C]``. The first column is the request rate."""
    above = value > np.array([p.idle for p in populations], np.float32)
    busy = (above[:, RATE] | ~observed[:, RATE]) & observed.any(axis=1)
    possible = np.full(len(populations), np.count_nonzero(busy), np.float32)
    missing = np.count_nonzero(~observed & busy[:, None], axis=0).astype(np.float32)
    return ValueCounts(_histograms(value, observed & above, populations), missing, possible)


def _histograms(value: Array, observed: BoolArray, populations: tuple[Population, ...]) -> Array:
    """Return the histograms ``[C, BINS]`` of each column's observed values.

    A value counts for the two bins whose centres are next to it, by its distance, so that a small change of a value at
    a boundary is a small change of the histogram.
    """
    low = np.array([p.low for p in populations], np.float32)
    width = np.array([(p.high - p.low) / BINS for p in populations], np.float32)
    centre = np.zeros(len(populations), np.float32)
    for column, population in enumerate(populations):
        measured = value[observed[:, column], column]
        if population.relative and len(measured):
            centre[column] = np.median(measured)
    position = ((value - centre - low) / width - np.float32(0.5)).clip(0, BINS - 1)
    lower = np.minimum(position.astype(np.int64), BINS - 2)
    share = (position - lower)[observed]
    at = (lower + np.arange(len(populations)) * BINS)[observed]
    length = len(populations) * BINS
    counts = np.bincount(at, 1 - share, length) + np.bincount(at + 1, share, length)
    return counts.reshape(-1, BINS).astype(np.float32)
