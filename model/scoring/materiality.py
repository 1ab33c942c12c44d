"""How much a deviation matters: rare alone is not enough."""

import numpy as np

from model.features import CPU, ERROR, MEMORY, P50, P99, RATE, Array

IN_FULL, TAIL_IN_FULL = 0.3, 0.7  # logarithms of how much slower counts in full: p50 and other times; p99


def material(value: Array, expected: Array) -> tuple[Array, Array, Array]:
    """Return how much p50, p99 and errors matter, 0 to 1, because rare alone is not enough.

    The median latency counts in full from 35% above expectation, p99 from twice the expectation. Errors count in full
    from two percentage points and 60% above it: where most requests fail anyway, the error rate varies more.
    """
    now, usual = (np.float32(1) / (1 + np.exp(-v[:, ERROR])) for v in (value, expected))
    more, relative = np.clip((now - usual - 0.003) / 0.017, 0, 1), np.clip((now / usual - 1.1) / 0.5, 0, 1)
    p50, p99 = _slower(value[:, P50] - expected[:, P50]), _slower(value[:, P99] - expected[:, P99], TAIL_IN_FULL)
    errors: Array = (more * relative).astype(np.float32)
    return p50, p99, errors


def matters(value: Array, expected: Array) -> Array:
    """Return how much each deviation of a service's own series matters, ``[M, 9]``, 0 to 1.

    Latency and errors count as for alerts, counts and times like latency, and shares of a resource from one percentage
    point.
    """
    over = value - expected
    over[:, RATE] = np.abs(over[:, RATE])
    matters = _slower(over)
    matters[:, P50], matters[:, P99], matters[:, ERROR] = material(value, expected)
    now, usual = (np.float32(1) / (1 + np.exp(-v[:, [CPU, MEMORY]])) for v in (value, expected))
    matters[:, [CPU, MEMORY]] = np.clip((now - usual - 0.01) / 0.05, 0, 1)
    return matters


def _slower(over: Array, in_full: float = IN_FULL) -> Array:
    """Return how much times matter that exceed expectation by ``over``, in logarithms."""
    share: Array = np.clip((over - 0.05) / np.float32(in_full - 0.05), 0, 1)
    return share
