"""Requests from outside: what each entry point of the mesh usually gets, and what it gets now.

The usual level of an entry point follows the day, which changes slowly, and not a sudden fall or rise. It moves by at
most ``SLEW`` in a minute. It holds still while traffic is further away
than ``HELD``, so a loss does not become normal by itself; a surge becomes normal after ``SURGE_SECONDS``. The end of a
surge is not a loss: the level before it is remembered for a day. Neither is the end of a shorter one: a second level,
``low``, follows a fall at once and a rise by ``RISE`` an hour, and traffic is lost only if it is below that one too.

Where the history is long enough, the time of day and week counts: a level that is usual at this time is normal,
however suddenly it comes, even if it raised alerts before. That takes the same half hour on three earlier days, or on
the same day of an earlier week.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.features import EDGE_CHANNELS, NODE_CHANNELS, RATE, Array, ChannelValues
from model.front_door import measure_entries
from model.snapshot import BoolArray, IntArray
from model.state.presence import Presence

SLEW = 0.02  # logarithm by which the usual level moves in a minute; a day with a ratio of 8 needs 0.005
HELD = 0.4  # logarithm of the distance from which the usual level holds still: a third less, or half as much again
RISE = 0.2  # logarithm by which ``low`` can rise in an hour
SURGE_SECONDS = 1800.0  # after which a higher level is usual
LOSS_SECONDS = 86_400.0  # after which a lower level is
UNSEEN_SECONDS = 3600.0  # without a snapshot, after which the present level is usual, unless it was not before
FORGOTTEN_SECONDS = 86_400.0  # without a snapshot, after which levels are learned again
REMEMBERED_SECONDS = 86_400.0  # for which the level before a surge is
KNOWN_SECONDS, KNOWN_SNAPSHOTS = 600.0, 20.0  # of measurements, before a level is known
LATELY = 0.4  # forgetting per snapshot, of the present traffic
NOISE = 0.02  # forgetting per snapshot, of its variance
CLIP, MIN_SPREAD = 3.0, 0.1  # sigmas from which a deviation counts less in it, but at least this logarithm
SLOT_SECONDS = 1800.0
SLOTS_OF_DAY, SLOTS = 48, 336  # half hours in a day and in a week
NEAR_SLOTS = 2  # half hours by which a day may be late or early
DAYS = 3  # earlier days with a value at this time of day, from which it counts
MAX_WEEKS = 4.0  # in the average of a half hour
MAX_PROFILES = 64  # entry points with a profile of the week, those with most traffic
OFFSET = np.float32(NODE_CHANNELS[RATE].offset)
Profile = NDArray[np.float16]


def _numbers() -> Array:
    return np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryTraffic:
    """Requests from outside at S entry points. Levels are logarithms of requests/s plus the channel's offset.

    Attributes:
        names: node ids, in the order in which they were first seen.
        level: ``[S]`` usual level; not a number before the first measurement.
        low: ``[S]`` the lowest usual level lately.
        variance: ``[S]`` of the present traffic around it.
        seen: ``[S]`` snapshots with a measurement.
        seconds: ``[S]`` of measurements.
        lately: ``[S]`` requests/s, averaged over about 4 snapshots; not a number where none was measured now.
        away: ``[S]`` seconds for which traffic has been further than ``HELD`` above the level, or below it if negative.
        before: ``[S]`` level before the last surge; not a number if there was none.
        before_age: ``[S]`` seconds since that surge became usual.
        slot: half hour of the week to which the sums belong.
        slot_sum, slot_count: ``[S]`` of the levels in the present half hour.
        profile: float16 ``[SLOTS, P]`` mean level in each half hour of the week, of the first P entry points.
        weeks: float16 ``[SLOTS, P]`` weeks in that mean.
    """

    names: tuple[str, ...] = ()
    level: Array = field(default_factory=_numbers)
    low: Array = field(default_factory=_numbers)
    variance: Array = field(default_factory=_numbers)
    seen: Array = field(default_factory=_numbers)
    seconds: Array = field(default_factory=_numbers)
    lately: Array = field(default_factory=_numbers)
    away: Array = field(default_factory=_numbers)
    before: Array = field(default_factory=_numbers)
    before_age: Array = field(default_factory=_numbers)
    slot: int = -1
    slot_sum: Array = field(default_factory=_numbers)
    slot_count: Array = field(default_factory=_numbers)
    profile: Profile = field(default_factory=lambda: np.zeros((SLOTS, 0), np.float16))
    weeks: Profile = field(default_factory=lambda: np.zeros((SLOTS, 0), np.float16))

    @property
    def is_known(self) -> BoolArray:
        """``[S]``: measured now, and for long enough before."""
        return np.isfinite(self.lately) & (self.seconds >= KNOWN_SECONDS) & (self.seen >= KNOWN_SNAPSHOTS)


# The arrays with a number for each entry point.
ROWS = tuple(column.name for column in fields(EntryTraffic) if column.default_factory is _numbers)
_FIRST = dict.fromkeys(("level", "low", "lately", "before"), np.nan)  # of new entry points; 0 in other arrays


def measure_requests(
    rows: IntArray, values: ChannelValues, presence: Presence, edge_present: BoolArray, edge_index: IntArray
) -> Array:
    """Return the requests ``[n]``, 1/s, of the entry points ``rows``; not a number where they are not known."""
    observed, measured = values.node_observed[rows, RATE], np.exp(values.node[rows, RATE]) - OFFSET
    own = np.where(observed, np.maximum(measured, 0), np.nan)

    def of_calls(calls: IntArray) -> NDArray[np.float64]:
        call_rate = np.exp(values.edge[calls, RATE]) - np.float32(EDGE_CHANNELS[RATE].offset)
        unmade = np.where(presence.stopped[calls], 0, np.nan)
        return np.where(edge_present[calls], np.maximum(call_rate, 0), unmade)[:, None]

    return measure_entries(rows, own[:, None], edge_index, of_calls)[:, 0].astype(np.float32)


def observe_traffic(
    traffic: EntryTraffic, names: Sequence[str], requests: Array, now: datetime, elapsed: float, interval_seconds: float
) -> EntryTraffic:
    """Return the traffic after a snapshot.

    Args:
        requests: ``[n]`` 1/s; not a number where unknown.
    """
    traffic = _align(traffic, names)
    if elapsed > FORGOTTEN_SECONDS:
        blank: dict[str, Any] = {key: np.full_like(getattr(traffic, key), _FIRST.get(key, 0)) for key in ROWS}
        traffic = replace(traffic, **blank)
    measured_seconds = min(elapsed, 2 * interval_seconds)
    value = requests.copy()
    if traffic.names != tuple(names):
        row = {name: i for i, name in enumerate(names)}
        value = requests[[row[name] for name in traffic.names]]
    is_known = np.isfinite(value)
    x = np.log(np.where(is_known, value, 1) + OFFSET)
    first = is_known & ~np.isfinite(traffic.level)
    level = np.where(first, x, traffic.level)
    lately = np.where(np.isfinite(traffic.lately), traffic.lately, value)
    share = np.float32(1 - (1 - LATELY) ** max(elapsed / interval_seconds, 1.0))  # after a gap, the present counts more
    lately = np.where(is_known, lately + share * (value - lately), np.nan).astype(np.float32)
    smooth = np.where(is_known, np.log(np.where(is_known, lately, 1) + OFFSET), level)
    distance = np.where(is_known, smooth - level, 0)
    unseen = (elapsed > UNSEEN_SECONDS) & (traffic.away == 0)  # the time of day may have changed meanwhile
    far = (np.abs(distance) > HELD) & ~unseen
    away = np.where(far, np.where(np.sign(traffic.away) == np.sign(distance), traffic.away, 0), 0)
    away = np.where(far, away + np.sign(distance) * elapsed, 0)
    usual = far
    if far.any():  # on its way to another level, the average passes levels that are usual
        usual = far & is_known & _is_usual(traffic, x, now)
    has_surged = (away > SURGE_SECONDS) & ~usual
    has_lost = (away < -LOSS_SECONDS) & ~usual
    is_accepted = usual | has_surged | has_lost | (unseen & is_known)
    young = traffic.seen < KNOWN_SNAPSHOTS
    step = np.clip(distance, -SLEW * elapsed / 60, SLEW * elapsed / 60)
    step = np.where(young, distance / np.maximum(traffic.seen + 1, 1), step)
    new_level = np.where(is_accepted, smooth, level + np.where(far & ~young, 0, step))
    risen = np.where(np.isfinite(traffic.low) & ~young, traffic.low + RISE * elapsed / 3600, np.inf)
    before_age = np.where(has_surged, 0, traffic.before_age + elapsed)
    before = np.where(has_surged, level, np.where(before_age > REMEMBERED_SECONDS, np.nan, traffic.before))
    near = is_known & (np.abs(x - level) <= HELD)
    max_square = np.maximum(CLIP**2 * traffic.variance, MIN_SPREAD**2)
    deviation = np.where(near, np.minimum((x - level) ** 2, max_square) - traffic.variance, 0)
    variance = traffic.variance + np.maximum(NOISE, 1 / (traffic.seen + 2)) * deviation
    traffic = replace(
        traffic,
        level=new_level.astype(np.float32),
        low=np.minimum(new_level, risen).astype(np.float32),
        variance=variance.astype(np.float32),
        seen=(traffic.seen + is_known).astype(np.float32),
        seconds=(traffic.seconds + np.where(is_known & (traffic.seen > 0), measured_seconds, 0)).astype(np.float32),
        lately=lately,
        away=np.where(is_accepted, 0, away).astype(np.float32),
        before=before.astype(np.float32),
        before_age=before_age.astype(np.float32),
    )
    return _learn_profile(traffic, smooth, is_known, now)


def accept_traffic(traffic: EntryTraffic, names: Sequence[str]) -> EntryTraffic:
    """Return the traffic to which the present level of some entry points is usual."""
    is_chosen = np.isin(np.array(traffic.names, object), list(names)) & np.isfinite(traffic.lately)
    level = np.where(is_chosen, np.log(np.where(is_chosen, traffic.lately, 1) + OFFSET), traffic.level)
    low = np.where(is_chosen, level, traffic.low)
    traffic = replace(traffic, low=low.astype(np.float32))
    return replace(
        traffic, level=level.astype(np.float32), away=np.where(is_chosen, 0, traffic.away).astype(np.float32)
    )


def _align(traffic: EntryTraffic, names: Sequence[str]) -> EntryTraffic:
    """Add new entry points, and remove those that no longer are entry points."""
    if traffic.names == tuple(names):
        return traffic
    known_names, present = set(traffic.names), set(names)
    kept_rows = [i for i, name in enumerate(traffic.names) if name in present]
    new = [name for name in names if name not in known_names]
    arrays: dict[str, Any] = {
        key: np.concatenate([getattr(traffic, key)[kept_rows], np.full(len(new), _FIRST.get(key, 0), np.float32)])
        for key in ROWS
    }
    width = traffic.profile.shape[1]
    columns = [i for i in kept_rows if i < width]
    free = max(0, min(MAX_PROFILES - len(columns), len(new))) if len(columns) == len(kept_rows) else 0
    blank = np.zeros((SLOTS, free), np.float16)
    profile, weeks = (np.concatenate([of[:, columns], blank], axis=1) for of in (traffic.profile, traffic.weeks))
    names = (*(traffic.names[i] for i in kept_rows), *new)
    return replace(traffic, names=names, profile=profile, weeks=weeks, **arrays)


def slot_of(now: datetime) -> int:
    """Return the half hour of the week, 0 on Monday at midnight UTC."""
    return int(now.timestamp() // SLOT_SECONDS + 3 * SLOTS_OF_DAY) % SLOTS


def _is_usual(traffic: EntryTraffic, x: NDArray[np.float64], now: datetime) -> BoolArray:
    """Return which entry points ``[S]`` have a level that they had before a surge, or at this time of earlier days."""
    usual: BoolArray = np.abs(x - np.nan_to_num(traffic.before, nan=np.inf)) < HELD
    width = traffic.profile.shape[1]
    if not width:
        return usual
    slot = slot_of(now)
    for near in range(slot - NEAR_SLOTS, slot + NEAR_SLOTS + 1):
        of_week = near % SLOTS
        weeks = 2 if near < slot else 1  # one of them is this week
        same_week = (traffic.weeks[of_week] >= weeks) & (np.abs(x[:width] - traffic.profile[of_week]) < HELD)
        days = [day for day in range(near % SLOTS_OF_DAY, SLOTS, SLOTS_OF_DAY) if day != of_week]
        is_there = traffic.weeks[days] >= 1
        agree = (is_there & (np.abs(x[:width] - traffic.profile[days]) < HELD)).sum(axis=0)
        usual[:width] |= same_week | ((agree >= DAYS) & (2 * agree > is_there.sum(axis=0)))
    return usual


def _learn_profile(traffic: EntryTraffic, x: NDArray[np.float64], learns: BoolArray, now: datetime) -> EntryTraffic:
    """Add the present level to the sums of this half hour, and a finished half hour to the profile of the week."""
    slot, width = slot_of(now), traffic.profile.shape[1]
    total, count = traffic.slot_sum, traffic.slot_count
    profile, weeks = traffic.profile, traffic.weeks
    if slot != traffic.slot:
        rows = np.flatnonzero(count[:width] > 0)
        if traffic.slot >= 0 and len(rows):
            profile, weeks = profile.copy(), weeks.copy()
            mean = total[rows] / count[rows]
            before = weeks[traffic.slot, rows].astype(np.float32)
            share = 1 / np.minimum(before + 1, MAX_WEEKS)
            old = profile[traffic.slot, rows].astype(np.float32)
            profile[traffic.slot, rows] = old + share * (mean - old)
            weeks[traffic.slot, rows] = np.minimum(before + 1, MAX_WEEKS)
        total, count = np.zeros_like(total), np.zeros_like(count)
    total = (total + np.where(learns, x, 0)).astype(np.float32)
    return replace(
        traffic,
        slot=slot,
        slot_sum=total,
        slot_count=(count + learns).astype(np.float32),
        profile=profile,
        weeks=weeks,
    )
