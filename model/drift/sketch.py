"""The data from which drift is measured: bounded histograms of one mesh, about 30 kB for a mesh of any size.

Every five minutes the values of a snapshot are counted. Every six hours the counts become a block, which is compared
with the same hours of the days before, and then becomes part of their average. So the daily curve is in both, and a new
level is old after a week. All of it follows from the snapshots and the weights, so a replay gives the same sketch.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from model.drift.call_sample import BLOCK_SECONDS, SLOTS, CallSample
from model.drift.measures import MEASURES, no_distances
from model.drift.populations import BINS, CHANNELS, POPULATIONS, ValueCounts, no_values
from model.features import Array
from model.snapshot import IntArray

P = len(POPULATIONS)
Half = NDArray[np.float16]


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftSketch:
    """The observed drift of one mesh. P populations, see ``populations.py``.

    Attributes:
        counts: values of the block in progress.
        block: its number, in ``BLOCK_SECONDS`` since 1970; -1 before the first snapshot.
        recent: float16 ``[SLOTS, P, BINS]`` shares of the last block in each slot of the day.
        recent_blocks: int64 ``[SLOTS]`` their numbers; -1: none.
        week: float16 ``[SLOTS, P, BINS]`` shares, averaged over the last days.
        week_missing: float32 ``[SLOTS, P]`` share of the values that were not measured in these days.
        week_tails: float32 ``[SLOTS, CHANNELS]`` decades, as in ``measures.py``, in these days.
        days: int32 ``[SLOTS]`` days in these averages.
        distances: float32 ``[MEASURES]`` of the last block, see ``measures.py``; not a number where unknown.
        ratios: float32 ``[MEASURES]`` the same, relative to their limits.
        moved: float32 ``[MEASURES]`` share of the values that moved since the reference, less what services that joined
            or left have moved; of populations only.
        since: float64 ``[MEASURES]`` Unix time since when the distance is above its limit; 0: it is not.
        judged: number of the last block; -1: none.
    """

    counts: ValueCounts = field(default_factory=no_values)
    samples: int = 0
    block: int = -1
    recent: Half = field(default_factory=lambda: np.zeros((SLOTS, P, BINS), np.float16))
    recent_blocks: NDArray[np.int64] = field(default_factory=lambda: np.full(SLOTS, -1, np.int64))
    week: Half = field(default_factory=lambda: np.zeros((SLOTS, P, BINS), np.float16))
    week_missing: Array = field(default_factory=lambda: np.zeros((SLOTS, P), np.float32))
    week_tails: Array = field(default_factory=lambda: np.zeros((SLOTS, CHANNELS), np.float32))
    days: NDArray[np.int32] = field(default_factory=lambda: np.zeros(SLOTS, np.int32))
    calls: CallSample = field(default_factory=CallSample)
    distances: Array = field(default_factory=no_distances)
    ratios: Array = field(default_factory=no_distances)
    moved: Array = field(default_factory=no_distances)
    since: NDArray[np.float64] = field(default_factory=lambda: np.zeros(len(MEASURES)))
    judged: int = -1


def drifting(sketch: DriftSketch) -> IntArray:
    """Return the rows of the measures that drift: above their limits for two blocks in a row, or more."""
    return np.flatnonzero((sketch.since > 0) & (sketch.judged * BLOCK_SECONDS - sketch.since >= BLOCK_SECONDS))
