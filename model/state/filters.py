"""Filters: the memory of one channel in one service or call, and the deviation from it.

A filter is thirteen numbers with O(1) work per snapshot: a fast and a slow pair of robust centre and variance, the
deviation averaged over 4 and 16 snapshots (its trajectory), how often the channel was seen, and how often and how far
it went into the tail at each of three time scales. The filters of N rows and C channels are one array ``[13, N, C]``,
so a slot is contiguous.
"""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from kernels import passes
from model.features import COUNTED, MANY, QUANTILES, Array, Channel
from model.snapshot import BoolArray, IntArray

# Slots of a filter. Variances are in transformed units squared.
CENTRE, VARIANCE, SLOW_CENTRE, SLOW_VARIANCE, SHORT, LONG, SEEN = range(7)
SCALES = 3  # time scales of a level: 1, 4 and 16 snapshots
EXCEED_COUNT, EXCEED_SUM = slice(7, 7 + SCALES), slice(7 + SCALES, 7 + 2 * SCALES)
SLOTS = 7 + 2 * SCALES

FAST = 1 / 20  # forgetting per snapshot: half-life 14 snapshots
SLOW = 1 / 130  # half-life 90 snapshots
SHORT_RATE, LONG_RATE = 1 / 4, 1 / 16  # trajectories over 4 and 16 snapshots
PRIOR_WEIGHT = 8  # weight of the starting variance, snapshots
CLIP = 2.0  # Huber's k: an outlier moves centre and variance like a deviation of two sigmas
CLIP_CONSISTENCY = 1.086  # 1 / E[min(z², 4)] for a normal z
BOUND = 4.0  # deviations are clipped to this in the averages, which separate lasting deviations from gross, short ones
MEMORABLE = 0.5  # average over 4 snapshots, sigmas, from which the present must confirm it
SUPPORT = 0.4  # share of the average over 4 snapshots that the present must reach to confirm it
SHORT_SCALE, LONG_SCALE = np.float32(7**0.5), np.float32(31**0.5)  # to unit variance of white noise
LIMIT = 30.0  # largest deviation, sigmas
TAIL_START = 2.5  # deviations above it are the tail that calibration models
# Below these values an average (over 4, 4 and 16 snapshots) is at rest, so that the next exceedance at a time scale
# starts a new spell. One gross deviation leaves 1 in the average over 4.
RESTED = np.array([1.0, TAIL_START / SHORT_SCALE, TAIL_START / LONG_SCALE], np.float32)
TAIL_MEMORY = 1000  # snapshots after which old tail counts fade
EXCESS_LIMIT = 5.0  # largest exceedance counted, sigmas
FADE = np.float32(1 - 1 / TAIL_MEMORY)
YOUNG = 60.0  # measurements, up to which the error of a centre matters
ENOUGH = 20.0  # requests in a snapshot, from which it alone can deny what the snapshots before it showed
_CONSTANTS = np.array(  # of the compiled pass, in the order of FilterConstants in kernels/csrc/passes.h
    [
        *(FAST, SLOW, SHORT_RATE, LONG_RATE, PRIOR_WEIGHT, CLIP, CLIP_CONSISTENCY, BOUND, MEMORABLE, SUPPORT),
        *(SHORT_SCALE, LONG_SCALE, LIMIT, TAIL_START, *RESTED, FADE, EXCESS_LIMIT, ENOUGH),
    ],
    np.float32,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """Deviation of N rows from their own past in C channels.

    Attributes:
        now: float32 ``[N, C]`` sigmas, in this snapshot.
        past_short, past_long: ``[N, C]`` the same, clipped and averaged over 4 and 16 snapshots before this one.
        level: ``[SCALES, N, C]`` sigmas on the side that counts, see :func:`_levels`.
        observed: bool ``[N, C]``: measured now and known before.
        value, expected, spread: ``[N, C]`` transformed units: measured value, centre of the past, one sigma.
        seen: ``[N, C]`` measurements before this snapshot.
        exceed_count, exceed_sum: ``[SCALES, N, C]`` tail counts before this snapshot. Calibration uses them, so that a
            deviation does not make itself look normal.
    """

    now: Array
    past_short: Array
    past_long: Array
    level: Array
    observed: BoolArray
    value: Array
    expected: Array
    spread: Array
    seen: Array
    exceed_count: Array
    exceed_sum: Array

    @property
    def above(self) -> BoolArray:
        """Whether the level is in the tail, ``[SCALES, N, C]``."""
        return (self.level > np.float32(TAIL_START)) & self.observed

    def starts_spell(self, scale: IntArray, row: IntArray, channel: IntArray) -> BoolArray:
        """Return which of F levels in the tail start a new spell, ``[F]``."""
        lasting = scale == SCALES - 1
        past = np.where(lasting, self.past_long[row, channel], self.past_short[row, channel])
        return np.abs(past) < RESTED[scale]


def new_filters(count: int, mesh_filters: Array, channels: tuple[Channel, ...]) -> Array:
    """Return filters of new rows: with the mesh's median variance, or the channel's prior in a new mesh."""
    filters = np.zeros((SLOTS, count, len(channels)), np.float32)
    for c, channel in enumerate(channels):
        variances = mesh_filters[SLOW_VARIANCE, mesh_filters[SEEN, :, c] >= PRIOR_WEIGHT, c]
        filters[[VARIANCE, SLOW_VARIANCE], :, c] = np.median(variances) if len(variances) >= 5 else channel.prior**2
    return filters


def update_filters(
    filters: Array,
    value: Array,
    measured: BoolArray,
    noise: Array,
    muted: BoolArray,
    is_paused: BoolArray,
    channels: tuple[Channel, ...],
    requests: Array | None = None,
) -> tuple[Deviation, Array]:
    """Return the deviation of each value from its filters, and the updated filters.

    Centre and variance are exponentially forgetting means of Huber-clipped innovations (Huber 1964), a fast and a slow
    pair. The deviation is the smaller of the two, so that a level known to either baseline is normal.

    A quantile of few requests that a single request can set is not evidence by itself: its deviation ends below the
    tail. Several such snapshots are evidence, through the averages. A snapshot of a few requests hardly denies the
    averages, because a service that fails a third of its requests often answers two in a row.

    Args:
        filters: ``[13, N, C]``; not changed.
        value, measured, noise: ``[N, C]`` transformed values, which of them were measured, and their sampling variance.
        muted: ``[N]`` rows whose tails do not learn.
        is_paused: ``[N]`` rows whose centres and variances do not learn from deviations either.
        requests: ``[N]`` in the snapshot; None: many.
    """
    floor, two_sided, alone, weight = _settings(channels)
    if requests is None:
        requests = np.full(filters.shape[1], MANY, np.float32)
    if passes.are_compiled():
        filters_after, now, level, expected, spread, is_known = passes.update_filters(
            _CONSTANTS, floor, two_sided, alone, weight, filters, value, noise, measured, muted, is_paused, requests
        )
        return _deviation(filters, value, now, level, expected, spread, is_known), filters_after
    before, filters = filters, filters.copy()
    measurements = before[SEEN]
    first = measured & (measurements == 0)
    if first.any():
        for slot in (CENTRE, SLOW_CENTRE):
            filters[slot] = np.where(first, value, filters[slot])
    is_known = measured & (measurements > 0)
    uncertainty = 1 + 1 / np.maximum(measurements, 1)  # the centre itself is uncertain while it is young
    fast, spread = _score(value, filters, CENTRE, noise, floor, uncertainty)
    slow, slow_spread = _score(value, filters, SLOW_CENTRE, noise, floor, uncertainty)
    nearer = np.abs(slow) < np.abs(fast)
    limit = np.where(requests[:, None] < alone, np.float32(CLIP), np.float32(LIMIT))
    now = np.where(is_known & (fast * slow > 0), np.where(nearer, slow, fast), 0).clip(-limit, limit)
    past_short, past_long = before[SHORT], before[LONG]
    expected = np.where(nearer, filters[SLOW_CENTRE], filters[CENTRE])
    learns = measured & ~(is_paused[:, None] & (np.abs(now) >= CLIP))
    _learn(filters, CENTRE, value, spread, FAST, learns)
    _learn(filters, SLOW_CENTRE, value, slow_spread, SLOW, learns)
    contribution = now.clip(-BOUND, BOUND)
    filters[SHORT] += np.where(measured, contribution - past_short, 0) * np.float32(SHORT_RATE)
    filters[LONG] += np.where(measured, contribution - past_long, 0) * np.float32(LONG_RATE)
    filters[SEEN] += measured
    sure = np.minimum(requests[:, None] * weight, np.float32(1))
    level = _levels(now, filters[SHORT], filters[LONG], sure, channels)
    spread = np.where(nearer, slow_spread, spread)
    deviation = _deviation(before, value, now.astype(np.float32), level, expected, spread, is_known)
    _count_tail(filters, deviation, muted)
    return deviation, filters


@cache
def _settings(channels: tuple[Channel, ...]) -> tuple[Array, BoolArray, Array, Array]:
    """Return, of each channel, the floor as a variance, whether it is two-sided, the requests from which a single one
    cannot set it, and how far each request confirms or denies the averages.

    One request sets a quantile if no more than one is above it: the median of two, the 99th percentile of a hundred.
    """
    shares = [QUANTILES.get(channel.name, 0.0) for channel in channels]
    return (
        np.array([c.floor**2 for c in channels], np.float32),
        np.array([c.two_sided for c in channels], bool),
        np.array([min(1 / (1 - share) + 0.5, ENOUGH) if share else 0 for share in shares], np.float32),
        np.array([1 / ENOUGH if c.name in COUNTED else MANY for c in channels], np.float32),
    )


def _deviation(
    before: Array, value: Array, now: Array, level: Array, expected: Array, spread: Array, observed: BoolArray
) -> Deviation:
    return Deviation(
        now=now,
        past_short=before[SHORT],
        past_long=before[LONG],
        level=level,
        observed=observed,
        value=value,
        expected=expected,
        spread=spread,
        seen=before[SEEN],
        exceed_count=before[EXCEED_COUNT],
        exceed_sum=before[EXCEED_SUM],
    )


def temper_young(deviation: Deviation, channels: tuple[Channel, ...]) -> Deviation:
    """Return the deviation with lower levels over 4 and 16 snapshots where the past is short.

    An average is less uncertain than a single deviation, but all of its deviations are from the same centre. If that is
    the mean of few values, its error is in all of them, and does not average out. A snapshot that deviates by
    :data:`BOUND` or more counts in full: no error of a centre is that large. Errors are not part of this, because no
    service has to fail when it is young.
    """
    measurements = deviation.seen
    young = measurements < YOUNG
    if not young.any():
        return deviation
    is_tempered = np.array([channel.name != "error_rate" for channel in channels])
    young &= deviation.observed & is_tempered & (np.abs(deviation.now) < BOUND)
    level = deviation.level.copy()
    for scale, of_noise in ((1, SHORT_SCALE), (2, LONG_SCALE)):
        level[scale] *= np.where(young, np.sqrt((measurements + 1) / (measurements + of_noise**2)), np.float32(1))
    return replace(deviation, level=level)


def accept_level(filters: Array, deviation: Deviation, accepts: BoolArray, moderate: float) -> Array:
    """Return filters to which the present level of some series is normal.

    A deviation up to ``moderate`` becomes normal at once. Beyond that, the fast centre moves by the average deviation
    over 4 snapshots, in which each is clipped to ``BOUND``, so gross deviations remain.

    Args:
        filters: ``[13, N, C]`` after this snapshot; not changed.
        accepts: ``[N, C]`` series whose level is accepted, if they were measured.
        moderate: transformed units.
    """
    accepts = deviation.observed & accepts
    if not accepts.any():
        return filters
    filters = filters.copy()
    over = deviation.value - deviation.expected
    level = deviation.expected + np.where(np.abs(over) <= moderate, over, filters[SHORT] * deviation.spread)
    filters[CENTRE] = np.where(accepts, level, filters[CENTRE])
    filters[SHORT : LONG + 1] = np.where(accepts, 0, filters[SHORT : LONG + 1])
    return filters


def _score(
    value: Array, filters: Array, centre: int, noise: Array, floor: Array, uncertainty: Array
) -> tuple[Array, Array]:
    """Return the deviation in sigmas, and the sigma: learned variance or sampling noise, whichever is larger, plus the
    floor."""
    variance = np.maximum(filters[centre + 1], noise) + floor
    variance *= uncertainty
    spread: Array = np.sqrt(variance)
    deviation: Array = (value - filters[centre]) / spread
    return deviation, spread


def _learn(filters: Array, centre: int, value: Array, spread: Array, forget: float, measured: BoolArray) -> None:
    """Move one pair of centre and variance, in place. Young filters move faster, like a plain mean."""
    measurements = filters[SEEN]
    reach = np.float32(CLIP) * spread
    innovation = np.where(measured, np.clip(value - filters[centre], -reach, reach), 0)
    change = np.float32(CLIP_CONSISTENCY) * innovation**2 - filters[centre + 1]
    filters[centre + 1] += np.where(measured, np.maximum(forget, 1 / (measurements + PRIOR_WEIGHT)) * change, 0)
    filters[centre] += np.maximum(forget, 1 / (measurements + 1)) * innovation


def _levels(now: Array, short: Array, long: Array, sure: Array, channels: tuple[Channel, ...]) -> Array:
    """Return ``[SCALES, N, C]``: the deviation now, over 4 and over 16 snapshots, each scaled to unit variance of white
    noise.

    Traffic counts on both sides, other channels only when they get worse. An average that the present does not confirm
    belongs to the past and is no longer an anomaly. The average over 4 snapshots also confirms the one over 16, which
    would otherwise come back when the shorter one has faded. Of a snapshot of few requests, only the share ``sure``
    ``[N, C]`` confirms or denies; the rest is left to the average.
    """
    recent = sure * now + (1 - sure) * short
    lately = np.minimum(sure / np.float32(SHORT_RATE), 1)  # of the average over 4 snapshots
    present, going_on = _confirmed(short, recent), _confirmed(long, lately * short + (1 - lately) * long)
    level = np.empty((SCALES, *now.shape), np.float32)
    for of_scale, (deviation, scale) in zip(level, ((now, 1), (short, SHORT_SCALE), (long, LONG_SCALE)), strict=True):
        np.multiply(deviation, present, out=of_scale, casting="same_kind")
        if deviation is long:
            of_scale *= going_on
        of_scale *= scale
    for c, channel in enumerate(channels):
        if channel.two_sided:
            np.abs(level[..., c], out=level[..., c])
    return level


def _confirmed(average: Array, recent: Array) -> Array:
    """Return the share of an average, 0 to 1, that more recent deviations confirm."""
    is_memorable = np.abs(average) > MEMORABLE
    share = recent / np.where(is_memorable, np.float32(SUPPORT) * average, 1)
    return np.where(is_memorable, share.clip(0, 1), np.float32(1))


def _count_tail(filters: Array, deviation: Deviation, muted: BoolArray) -> None:
    """Count how often and how far deviations went above ``TAIL_START``, in place.

    Exceedances are declustered (only the first of a spell counts) and clipped, so that one long or gross spell does not
    make the next one normal. Rows in an open incident or near a planned change do not count.
    """
    teaches = deviation.observed & ~muted[:, None]
    filters[EXCEED_COUNT.start :] *= np.where(teaches, FADE, np.float32(1))
    in_tail = deviation.above & teaches
    above = np.unravel_index(np.flatnonzero(in_tail), in_tail.shape)  # as np.nonzero, which is slow beyond one axis
    begins = deviation.starts_spell(*above)
    first = tuple(axis[begins] for axis in above)
    filters[EXCEED_COUNT][first] += 1
    filters[EXCEED_SUM][first] += np.minimum(deviation.level[first] - np.float32(TAIL_START), EXCESS_LIMIT)
