"""Services that are unusual, but not for long enough or not by enough for an alert."""

from collections.abc import Callable

from model.incidents.confirmation import Streaks
from model.incidents.memory import IncidentMemory
from model.incidents.policy import LASTING_DECADES, AlertPolicy
from model.snapshot import BoolArray
from model.verdict import Reason, Watched

MOST_WATCHED = 5
LEAST_SEEN = 2  # snapshots of a moderate deviation, from which it is worth watching


def watch(
    page: dict[str, float],
    is_clear: dict[str, bool],
    memory: IncidentMemory,
    level: float,
    policy: AlertPolicy,
    reasons: Callable[[str], tuple[Reason, ...]],
) -> tuple[Watched, ...]:
    """Return the services to watch, the most unusual first.

    Args:
        page: page scores of the candidates, without the decades for their duration.
        is_clear: whether each needs no further snapshot for a doubtful score.
        memory: after this snapshot.
        level: page level.
        policy: how many snapshots raise an alert.
        reasons: of a candidate.
    """
    involved = {name for one in memory.open if not one.scope for name in one.members}
    found: dict[str, Watched] = {}
    for streaks, at, needed, least in (
        (memory.above_lasting, level - LASTING_DECADES, policy.lasting, LEAST_SEEN),
        (memory.above_level, level, policy.confirm, 1),
    ):
        for name in _newly_above(streaks) & page.keys() - involved:
            bits, since = streaks[name]
            needs = needed + (policy.doubtful if at == level and not is_clear[name] else 0)
            seen = min(bits.bit_count(), needs - 1)
            if seen >= least:
                found[name] = Watched(name, page[name], at, since, seen, needs)
    muted: BoolArray = memory.active_mutes.is_muted(tuple(found))
    listed = [one for one, hidden in zip(found.values(), muted.tolist(), strict=True) if not hidden]
    listed.sort(key=lambda one: (-one.score, one.service))
    return tuple(
        Watched(one.service, one.score, one.level, one.since, one.seen, one.needed, reasons(one.service))
        for one in listed[:MOST_WATCHED]
    )


def _newly_above(streaks: Streaks) -> set[str]:
    """Return the services that are above their level in the newest snapshot."""
    return {name for name, (bits, _) in streaks.items() if bits & 1}
