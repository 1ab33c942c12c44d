"""How often the series of a mesh are scraped, and how late they arrive.

A rate needs two samples within its window, and four to survive a late scrape. With fewer, services come and go. The
newest sample is at most one interval old, unless data arrive late: over remote write, federation or an object store.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from serve_app.collect.prometheus.groups import SeriesGroup

SCRAPES_PER_WINDOW = 4.0
ENOUGH_SCRAPES = 3.5  # a window with as many is kept: missed scrapes make intervals look longer than they are
MOST_LATE_SECONDS = 3600.0  # older samples are not late: the series have ended, or their times are wrong
LEAST_SHARE = 0.02  # of the services; parts of the mesh with fewer do not set the window
LONGEST_WINDOW = 600.0  # s that slower parts may ask for; half of the mesh may ask for more
SLOWER = 1.25  # times the usual interval, above which a part is named
ROUND_SECONDS = (60, 30, 15, 10, 5, 1)
ROUNDING = 0.005  # share by which scrapes are early or late


@dataclass(frozen=True, slots=True)
class ScrapedPart:
    """Services of a mesh that are scraped alike.

    Attributes:
        job: their scrape job; empty if they have none.
        services: how many.
        interval_seconds: time between two samples.
        example: name of one of them, as in its labels.
    """

    job: str
    services: int
    interval_seconds: float
    example: str


@dataclass(frozen=True, slots=True)
class Freshness:
    """How the series of a mesh arrive.

    Attributes:
        interval_seconds: usual time between two samples; None if not known yet.
        window_seconds: rate window in which each relevant part has enough samples; None if not known yet.
        newest_seconds: age of the newest sample; None without any sample.
        late_seconds: age of the newest sample of the latest part of the mesh, if it is older than scrapes explain;
            otherwise 0.
        late_share: share of the services that are so late.
        slow: parts that are scraped less often than usual, slowest first.
    """

    interval_seconds: float | None = None
    window_seconds: float | None = None
    newest_seconds: float | None = None
    late_seconds: float = 0.0
    late_share: float = 0.0
    slow: tuple[ScrapedPart, ...] = ()


def measure(groups: Sequence[SeriesGroup], at: float, usual_age: float) -> Freshness:
    """Intervals and lag of these series.

    Args:
        groups: of the mesh.
        at: instant of the queries, Unix time.
        usual_age: how old the newest snapshot is by the settings, s; data may be as late.
    """
    timed = [(group, interval) for group in groups if (interval := interval_of(group, at)) is not None]
    newest = [at - group.newest for group in groups if group.newest is not None]
    if not newest:
        return Freshness()
    usual = _quantile(timed, 0.5) if timed else None
    late, share = _lateness(groups, at, usual_age, usual)
    if usual is None:
        return Freshness(newest_seconds=min(newest), late_seconds=late, late_share=share)
    slowest = _quantile(timed, 1 - LEAST_SHARE)
    window = max(SCRAPES_PER_WINDOW * usual, min(SCRAPES_PER_WINDOW * slowest, LONGEST_WINDOW))
    return Freshness(usual, window, min(newest), late, share, _slow_parts(timed, usual))


def _quantile(timed: Sequence[tuple[SeriesGroup, float]], share: float) -> float:
    """The interval that this share of the groups does not exceed."""
    left = share * sum(group.weight for group, _ in timed) - 1e-6
    for group, interval in sorted(timed, key=lambda one: one[1]):
        left -= group.weight
        if left <= 0:
            return interval
    return max(interval for _, interval in timed)


def follow(window_seconds: float, freshness: Freshness) -> float:
    """The rate window: ``window_seconds``, or a longer one if scrapes are too rare for it."""
    needed = freshness.window_seconds
    if needed is None or window_seconds >= needed / SCRAPES_PER_WINDOW * ENOUGH_SCRAPES:
        return window_seconds
    return needed


def interval_of(group: SeriesGroup, at: float) -> float | None:
    """Time between two samples of a group, s; None if its series are too young to tell.

    ``n`` samples in a span that ends with the newest are ``span / n`` to ``span / (n - 1)`` apart. Configured intervals
    are round numbers, so the roundest number in between is the interval.
    """
    if group.newest is None or not group.counts:
        return None
    counted = max(group.counts)
    count, span = group.counts[counted], group.newest - at + counted
    if count < 2:
        return counted if span > 0 else None
    return _roundest(span / count, span / (count - 1))


def _roundest(low: float, high: float) -> float:
    for step in ROUND_SECONDS:
        value = math.ceil(low * (1 - ROUNDING) / step) * step
        if 0 < value <= high * (1 + ROUNDING):
            return float(value)
    return (low + high) / 2


def _slow_parts(timed: Iterable[tuple[SeriesGroup, float]], usual: float) -> tuple[ScrapedPart, ...]:
    services: dict[tuple[str, float], dict[tuple[str, ...], float]] = defaultdict(dict)
    for group, interval in timed:
        if interval > SLOWER * usual:
            services[group.job, interval][group.service] = group.weight
    parts = [
        ScrapedPart(job, round(sum(weights.values())), interval, "/".join(filter(None, min(weights))))
        for (job, interval), weights in services.items()
    ]
    return tuple(sorted(parts, key=lambda part: (-part.interval_seconds, -part.services, part.job)))


def _lateness(
    groups: Sequence[SeriesGroup], at: float, usual_age: float, usual_interval: float | None
) -> tuple[float, float]:
    """Age of the newest sample of the latest relevant part, s, and its share of the services; zeros if none is late.

    The newest of many samples shows the lag alone, because targets are scraped at different moments.
    """
    parts: dict[tuple[str, ...], list[SeriesGroup]] = defaultdict(list)
    for group in groups:
        if group.newest is not None:
            parts[(group.job, *group.origin.values())].append(group)
    count = sum(map(len, parts.values()))
    late: list[tuple[float, int]] = []
    for part in parts.values():
        age = min(at - (group.newest or 0.0) for group in part)
        known = [interval for group in part if (interval := interval_of(group, at)) is not None]
        interval = max(known, default=usual_interval or usual_age)
        if interval + usual_age < age <= MOST_LATE_SECONDS and len(part) >= LEAST_SHARE * count:
            late.append((age, len(part)))
    if not late:
        return 0.0, 0.0
    return max(age for age, _ in late), sum(services for _, services in late) / count


Clock = Callable[[], float]  # Unix time, s
