"""Whether a notice, or a change of traffic, is confirmed.

A service or a scope is *above the level* while its score exceeds the level. It is *confirmed* if that holds now and in
k of the last n snapshots. Alerts about services have scores of their own: :mod:`model.incidents.threshold`.
"""

from collections.abc import Sequence
from datetime import datetime

import numpy as np

from model.features import Array
from model.incidents.policy import AlertPolicy
from model.snapshot import BoolArray

# By service: in which of the last snapshots it was above a level, as bits (1 = newest), and when the streak began.
Streaks = dict[str, tuple[int, datetime]]


def confirm_services(
    above: Streaks,
    names: Sequence[str],
    scores: Array,
    level: float,
    policy: AlertPolicy,
    at: datetime,
) -> tuple[Streaks, BoolArray]:
    """Update the services above their level.

    Args:
        above: as in :class:`IncidentMemory`.
        level: that the scores are compared with.

    Returns:
        Bits and start of the streak for each service above its level, and which candidates are confirmed, ``[M]``.
    """
    mask = (1 << policy.confirm_of) - 1
    bits = {name: ((b << 1) & mask, since) for name, (b, since) in above.items()}
    for name, score in zip(names, scores, strict=True):
        if score > level:
            before, since = bits.get(name, (0, at))
            bits[name] = (before | 1, since if before else at)
    bits = {name: value for name, value in bits.items() if value[0]}
    return bits, is_confirmed(bits, names, policy.confirm)


def is_confirmed(above: Streaks, names: Sequence[str], confirm: int) -> BoolArray:
    """Return which candidates ``[M]`` are above their level now and in at least ``confirm`` of the last snapshots."""
    found = (above[name][0] if name in above else 0 for name in names)
    return np.array([bool(bits & 1) and bits.bit_count() >= confirm for bits in found], bool)
