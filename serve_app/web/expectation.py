"""The expected values of one service or call over the kept snapshots.

The detector keeps the filters of the newest snapshot only. So the filters of one row are updated again with the kept
snapshots, as the detector did it. They start from the slow baseline that the row has now.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.features import Array, Channel
from model.snapshot import BoolArray
from model.state.filters import (
    CENTRE,
    EXCEED_COUNT,
    FAST,
    LONG,
    SEEN,
    SHORT,
    SLOW_CENTRE,
    SLOW_VARIANCE,
    TAIL_START,
    VARIANCE,
    update_filters,
)

UNSEEN = 0.0  # of ``SEEN``


@dataclass(frozen=True, slots=True, eq=False)
class Measurements:
    """One service or call over T snapshots, in the transformed units of its C channels.

    Attributes:
        value: float32 ``[T, C]``, 0 where not measured.
        measured: bool ``[T, C]``.
        noise: ``[T, C]`` sampling variance.
        paused: bool ``[T]``: it was in an incident, so that its baselines did not learn from deviations.
    """

    value: Array
    measured: BoolArray
    noise: Array
    paused: BoolArray


@dataclass(frozen=True, slots=True, eq=False)
class Expectation:
    """Expected values ``[T, C]`` in the units of the metrics, and the bounds of the usual range; NaN: unknown."""

    value: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def expectation(row: Measurements, filters: Array | None, channels: Sequence[Channel]) -> Expectation:
    """Return the values that the row's own past predicts for each snapshot.

    Values within ``TAIL_START`` sigmas of the expected one are usual.

    Args:
        row: the measurements.
        filters: of the row in the newest state, ``[13, C]``; None: it has none.
        channels: C channels.
    """
    found = np.full((3, *row.value.shape), np.nan)
    if filters is None:
        return Expectation(*found)
    now, own = _start(filters), tuple(channels)
    for t in range(len(row.value)):
        at = slice(t, t + 1)
        deviation, now = update_filters(
            now, row.value[at], row.measured[at], row.noise[at], row.paused[at], row.paused[at], own
        )
        known = deviation.seen[0] > UNSEEN
        centre = np.where(known, deviation.expected[0], np.nan)
        reach = np.float32(TAIL_START) * deviation.spread[0]
        found[:, t] = centre, centre - reach, centre + reach
    for c, channel in enumerate(own):
        for column in found[:, :, c]:
            known_values = ~np.isnan(column)
            column[known_values] = [channel.inverse(float(value)) for value in column[known_values]]
    return Expectation(*found)


def _start(filters: Array) -> Array:
    """The filters of a row ``[13, 1, C]`` at rest at its slow baseline, before the first snapshot."""
    started = filters[:, None, :].copy()
    started[CENTRE], started[VARIANCE] = started[SLOW_CENTRE], started[SLOW_VARIANCE]
    started[[SHORT, LONG]] = 0
    started[EXCEED_COUNT.start :] = 0
    started[SEEN] = np.minimum(started[SEEN], 1 / FAST)
    return started
