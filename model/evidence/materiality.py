"""The materiality of a deviation: rare alone is not enough.

A deviation matters by the harm that it can do. Latency has to rise by a share of what is usual, and by an amount that a
user notices: the floor of the policy, for each request of the caller that waits, and a share of what a request takes
at the front door. It also has to rise by more than the width of a usual bucket of a histogram, because a quantile
inside a bucket is a guess.
"""

from typing import NamedTuple

import numpy as np

from model.features import CPU, ERROR, MEMORY, P50, P99, RATE, Array

SLOWER = 0.05  # logarithm of how much slower counts at all
IN_FULL, TAIL_IN_FULL = 0.3, 0.7  # in full: p50 and other times; p99
FROM = 0.5  # of the least amount that counts in full, from which it counts
SHARE, TAIL_SHARE = 0.1, 0.25  # of the front door's p50 and p99, that a rise has to reach
BUCKETS = np.array([1.0, 2.5, 5.0, 10.0], np.float32)  # bounds of the buckets in each decade


class Floors(NamedTuple):
    """Least rise of a service's or call's p50 and p99 that counts in full, s."""

    p50: float
    p99: float


def floors(min_rise: float, p50: float, p99: float) -> Floors:
    """Return the floors of a mesh.

    Args:
        min_rise: of the policy, s.
        p50, p99: usual latencies at the front door, s; 0: unknown.
    """
    return Floors(max(min_rise, SHARE * p50), max(min_rise, TAIL_SHARE * p99))


def material(value: Array, expected: Array, repeats: Array, floor: Floors) -> tuple[Array, Array, Array]:
    """Return how much p50, p99 and errors matter, 0 to 1 for each of N rows, because rare alone is not enough.

    The median latency counts in full from 35% above expectation, p99 from twice the expectation, both only if they rise
    by enough, see :func:`_late`. Errors count in full from two percentage points and 60% above it: where most
    requests fail anyway, the error rate varies more.

    Args:
        value, expected: ``[N, C]`` transformed units.
        repeats: ``[N]`` how often a caller waits for it for each of its own requests, at least 1.
    """
    now, usual = (np.float32(1) / (1 + np.exp(-v[:, ERROR])) for v in (value, expected))
    more, relative = np.clip((now - usual - 0.003) / 0.017, 0, 1), np.clip((now / usual - 1.1) / 0.5, 0, 1)
    errors: Array = (more * relative).astype(np.float32)
    p50, p99 = _late(value[:, [P50, P99]].T, expected[:, [P50, P99]].T, repeats, floor)
    return p50, p99, errors


def matters(value: Array, expected: Array, repeats: Array, floor: Floors) -> Array:
    """Return how much each deviation of a service's own series matters, ``[M, 9]``, 0 to 1.

    Latency and errors count as for alerts, counts and times like latency, and shares of a resource from one percentage
    point.
    """
    over = value - expected
    over[:, RATE] = np.abs(over[:, RATE])
    matters = _slower(over)
    matters[:, P50], matters[:, P99], matters[:, ERROR] = material(value, expected, repeats, floor)
    now, usual = (np.float32(1) / (1 + np.exp(-v[:, [CPU, MEMORY]])) for v in (value, expected))
    matters[:, [CPU, MEMORY]] = np.clip((now - usual - 0.01) / 0.05, 0, 1)
    return matters


def _slower(over: Array, in_full: Array | float = IN_FULL) -> Array:
    """Return how much times matter that exceed expectation by ``over``, in logarithms."""
    return np.clip((over - SLOWER) / np.float32(in_full - SLOWER), 0, 1)


def _late(value: Array, expected: Array, repeats: Array, floor: Floors) -> Array:
    """Return how much the rise of p50 and p99 matters, ``[2, N]`` from 0 to 1: by how many times they are slower, and
    by how much of the rise is noticed."""
    over = value - expected
    late = np.zeros_like(over)
    column, rows = np.nonzero(over > SLOWER)
    usual = np.exp(expected[column, rows])
    rise, min_rise = np.exp(value[column, rows]) - usual, np.array(floor, np.float32)[column] / repeats[rows]
    counts = rise > FROM * min_rise  # of a calm mesh, none
    column, rows = column[counts], rows[counts]
    noticeable = np.clip(
        (rise[counts] / np.maximum(min_rise[counts], _bucket_width(usual[counts])) - FROM) / (1 - FROM), 0, 1
    )
    late[column, rows] = noticeable * _slower(over[column, rows], np.array([IN_FULL, TAIL_IN_FULL])[column])
    return late


def _bucket_width(latency: Array) -> Array:
    """Return the width of the bucket that holds a latency, in histograms with three buckets a decade."""
    decade = np.float32(10) ** np.floor(np.log10(np.maximum(latency, 1e-6)))
    place = np.searchsorted(BUCKETS, latency / decade, side="right").clip(1, len(BUCKETS) - 1)
    return (BUCKETS[place] - BUCKETS[place - 1]) * decade
