"""Quantiles of durations from a histogram with a logarithmic scale.

The bins are fixed, so histograms of different processes and times are merged by adding their counts. A quantile is
reported as the upper end of its bin: it is never too low, and at most ``ERROR`` too high (for durations from
``MIN_SECONDS`` to ``MAX_SECONDS``). This is DDSketch without its growing range (Masson et al., "DDSketch: a fast and
fully-mergeable quantile sketch with relative-error guarantees", PVLDB 12, 2019).
"""

import math
from collections.abc import Mapping

BINS_PER_DOUBLING = 16
ERROR = 2 ** (1 / BINS_PER_DOUBLING) - 1  # 4.4%
MIN_SECONDS = 0.001
DOUBLINGS = 19
MAX_SECONDS = MIN_SECONDS * 2**DOUBLINGS  # 524 s, beyond every deadline


def bin_of(seconds: float) -> int:
    """The bin of a duration, from 0 to ``BINS_PER_DOUBLING * DOUBLINGS``."""
    position = BINS_PER_DOUBLING * math.log2(max(seconds, MIN_SECONDS) / MIN_SECONDS)
    return min(math.ceil(position - 1e-9), BINS_PER_DOUBLING * DOUBLINGS)


def upper_end(number: int) -> float:
    """The longest duration of a bin, s."""
    return float(MIN_SECONDS * 2 ** (number / BINS_PER_DOUBLING))


def quantile(bins: Mapping[int, int], share: float) -> float | None:
    """The smallest duration that at least this share of all durations does not exceed, s; None without durations.

    Args:
        bins: number of durations by bin.
        share: above 0, at most 1.
    """
    rank, seen = math.ceil(share * sum(bins.values()) - 1e-9), 0
    for number in sorted(bins):
        seen += bins[number]
        if seen >= rank and bins[number]:
            return upper_end(number)
    return None


def count_longer(bins: Mapping[int, int], seconds: float) -> int:
    """How many durations the histogram shows as longer than this. It agrees with :func:`quantile`: the quantile of a
    share is longer exactly if more than the remaining share is."""
    return sum(count for number, count in bins.items() if upper_end(number) > seconds)
