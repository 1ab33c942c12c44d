"""Confirmation of notices and traffic changes by counting.

What has a level of its own is *confirmed* if it is above this level now and in k of the last n snapshots. Services that
could raise an alert have scores instead, see :mod:`model.incidents.threshold`.
"""

from collections.abc import Iterable
from datetime import datetime

from model.incidents.policy import AlertPolicy

# By name: in which of the last snapshots it was above its level, as bits (1 = newest), and when the streak began.
Streaks = dict[str, tuple[int, datetime]]


def follow_streaks(streaks: Streaks, above: Iterable[str], snapshots: int, at: datetime) -> Streaks:
    """Add a snapshot, and forget the names that were not above their level in any of the last ``snapshots``."""
    mask = (1 << snapshots) - 1
    streaks_now = {name: ((bits << 1) & mask, since) for name, (bits, since) in streaks.items()}
    for name in above:
        bits, since = streaks_now.get(name, (0, at))
        streaks_now[name] = (bits | 1, since if bits else at)
    return {name: streak for name, streak in streaks_now.items() if streak[0]}


def is_confirmed(streaks: Streaks, name: str, policy: AlertPolicy) -> bool:
    """Return whether a name is above its level now, and was in k of the last n snapshots (``policy.confirm_of``)."""
    bits = streaks[name][0] & ((1 << policy.confirm_of) - 1) if name in streaks else 0
    return bool(bits & 1) and bits.bit_count() >= policy.confirm
