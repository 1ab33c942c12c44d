"""The decision: one score, one threshold, both in decades of improbability.

Every service that could raise an alert has a *page score* in each snapshot: how improbable its symptoms are, after what
its neighbours explain, and after how much they matter. Chance gives a high page score now and then, but not again and
again. So the *decisive score* of a service is the page score that it has now and had in most of the last snapshots:

    s = max(min(now, 5th of the last 6), min(now / 1.5, 3rd of the last 4), min(now, 12th of the last 16) + 2.5)

in descending order, with the numbers of :class:`~model.incidents.policy.AlertPolicy`. A score far above the threshold
needs two snapshots less, and a moderate one that lasts for minutes counts more. The score of the mesh is the largest
one of its services and traffic.

An alert opens if and only if the score of the mesh reaches the *threshold*. That is the higher one of what the promised
number of false alerts asks for (``AlertPolicy.page_level`` and the offset of the weights), and ``MARGIN`` decades above
a percentile of the mesh's own scores without alerts. It ends when none of its services is above ``CLOSES`` times the
threshold any more, see :mod:`model.incidents.open_incident`.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.features import Array
from model.incidents.policy import AlertPolicy
from model.snapshot import BoolArray

SEVERE = 1.5  # times the threshold, from which an alert needs fewer snapshots
LASTING_DECADES = 2.5  # that a page score gains when the deviation lasts
CLOSES = 0.5  # of the threshold, below which a service is back to normal
MARGIN = 2.0  # decades between the percentile of the mesh's own scores and its threshold
MAX_ABOVE = 1.0  # decades by which the mesh's own scores can raise the threshold
SETTLES_SECONDS = 3600.0  # of scores, after which the threshold moves slowly
MOVES_PER_HOUR = 0.2  # of the threshold
REMEMBERED = 2.0  # page score from which a service is remembered


def watch_level(threshold: float) -> float:
    """Return the score from which a service is unusual: an alert opens there if it lasts."""
    return threshold - LASTING_DECADES


class Track(NamedTuple):
    """The page scores of a service in the last snapshots.

    Attributes:
        scores: newest first.
        unusual_since: first snapshot of the present streak above :func:`watch_level`.
        above_since: first snapshot of the present streak above the threshold; None: there is none.
    """

    scores: tuple[float, ...]
    unusual_since: datetime
    above_since: datetime | None = None

    def times_above(self, level: float, snapshots: int) -> int:
        """Return in how many of the last snapshots the score was at or above a level."""
        return len([score for score in self.scores[:snapshots] if score >= level])

    def lasts(self, threshold: float, policy: AlertPolicy) -> bool:
        """Return whether the deviation lasts, so that its score counts more."""
        return self.times_above(watch_level(threshold), policy.lasting_of) >= policy.lasting


Tracks = dict[str, Track]  # by service


def follow_scores(
    tracks: Tracks, names: Sequence[str], scores: Array, threshold: float, policy: AlertPolicy, at: datetime
) -> Tracks:
    """Add a snapshot to the tracks, and forget the services whose scores were low for long.

    Args:
        names, scores: of M candidates; all other services score 0.
    """
    now = dict(zip(names, np.round(scores.astype(np.float64), 2).tolist(), strict=True))
    min_score = watch_level(threshold)
    lately = policy.confirm_of + policy.doubtful
    tracks_now = {}
    for name in tracks.keys() | {name for name, score in now.items() if score >= REMEMBERED}:
        before, score = tracks.get(name), now.get(name, 0.0)
        earlier = before.scores if before else ()
        recent = (score, *earlier)[: policy.lasting_of]
        if max(recent) < REMEMBERED:
            continue
        unusual, above = at, None
        if before and (score < min_score or max(earlier[:lately]) >= min_score):
            unusual = before.unusual_since
        if before and before.above_since and max(recent[:lately]) >= threshold:
            above = before.above_since
        elif score >= threshold:
            above = at
        tracks_now[name] = Track(recent, unusual, above)
    return tracks_now


def decisive_scores(tracks: Tracks, names: Sequence[str], policy: AlertPolicy, may_last: BoolArray) -> Array:
    """Return the decisive score ``[M]`` of each candidate.

    Args:
        may_last: ``[M]`` whether the duration of its deviation counts.
    """
    table = np.zeros((len(names), policy.lasting_of), np.float32)
    for row, name in enumerate(names):
        if name in tracks:
            scores = tracks[name].scores
            table[row, : len(scores)] = scores
    now = table[:, 0]
    usual = np.minimum(now, _nth(table, policy.confirm + policy.doubtful, policy.confirm_of + policy.doubtful))
    severe = np.minimum(now / np.float32(SEVERE), _nth(table, policy.confirm, policy.confirm_of))
    lasts = np.minimum(now, _nth(table, policy.lasting, policy.lasting_of))
    lasts = (lasts + np.float32(LASTING_DECADES)) * (may_last & (lasts > 0))
    return np.maximum.reduce([usual, severe, lasts])


def began(tracks: Tracks, name: str, threshold: float, policy: AlertPolicy, now: datetime, interval: float) -> datetime:
    """Return when the present deviation of a service began: with the first snapshot above the threshold, or with the
    first of those that count as lasting."""
    track = tracks.get(name)
    if track is None:
        return now
    first = track.above_since or now
    if not track.lasts(threshold, policy):
        return first
    oldest = max(age for age, score in enumerate(track.scores) if score >= watch_level(threshold))
    return min(first, now - timedelta(seconds=oldest * interval))


def next_threshold(
    base: float, scores: NDArray[np.float64], before: tuple[float, float] | None, policy: AlertPolicy, now: float
) -> float:
    """Return the threshold of a snapshot.

    Args:
        base: decades that the promised number of false alerts asks for.
        scores: decisive scores of the mesh without alerts.
        before: threshold of the snapshot before, and its time; None while the mesh is younger than
            ``SETTLES_SECONDS``.
    """
    threshold = base
    if len(scores):
        threshold = float(np.percentile(scores, policy.percentile)) + MARGIN
    if before is not None:
        level, at = before
        max_step = MOVES_PER_HOUR * max(now - at, 0.0) / 3600
        threshold = min(max(threshold, level * (1 - max_step)), level * (1 + max_step))
    return float(min(max(threshold, base), base + MAX_ABOVE))


def forget(tracks: Tracks, names: Iterable[str]) -> Tracks:
    gone = set(names)
    return tracks if gone.isdisjoint(tracks) else {name: track for name, track in tracks.items() if name not in gone}


def _nth(table: Array, n: int, of: int) -> Array:
    return np.sort(table[:, :of], axis=1)[:, of - n]
