"""Services that are unusual, but not for long enough or not by enough for an alert."""

from collections.abc import Callable, Sequence

from model.incidents.memory import IncidentMemory
from model.incidents.policy import AlertPolicy
from model.incidents.threshold import LASTING_DECADES, SEVERE
from model.snapshot import BoolArray
from model.verdict import Reason, Watched

MAX_WATCHED = 5
MIN_SEEN = 2  # snapshots of a moderate deviation, from which it is worth watching


def watch(
    names: Sequence[str],
    memory: IncidentMemory,
    threshold: float,
    policy: AlertPolicy,
    reasons: Callable[[str], tuple[Reason, ...]],
) -> tuple[Watched, ...]:
    """Return the services to watch, the most unusual first."""
    involved = {name for one in memory.open if not one.scope for name in one.members}
    found: dict[str, Watched] = {}
    for name in memory.tracks.keys() & set(names) - involved:
        track = memory.tracks[name]
        now, watched = track.scores[0], threshold - LASTING_DECADES
        if now >= threshold:
            doubtful = 0 if now >= SEVERE * threshold else policy.doubtful
            needed, since = policy.confirm + doubtful, track.above_since or track.unusual_since
            seen = min(track.times_above(threshold, policy.confirm_of + doubtful), needed - 1)
            found[name] = Watched(name, now, threshold, since, seen, needed)
        elif (
            now >= watched
            and (seen := min(track.times_above(watched, policy.lasting_of), policy.lasting - 1)) >= MIN_SEEN
        ):
            found[name] = Watched(name, now, watched, track.unusual_since, seen, policy.lasting)
    muted: BoolArray = memory.active_mutes.is_muted(tuple(found))
    listed = [one for one, hidden in zip(found.values(), muted.tolist(), strict=True) if not hidden]
    listed.sort(key=lambda one: (-one.score, one.service))
    return tuple(
        Watched(one.service, one.score, one.level, one.since, one.seen, one.needed, reasons(one.service))
        for one in listed[:MAX_WATCHED]
    )
