"""The mesh's own series, grouped by service, scrape job, cluster and Prometheus replica.

One infrequent query for each fact shows how a mesh's series are scraped and where they come from. A group is all series
that share these labels, so answers are as long as the list of services, however many calls there are. Counting samples
costs Prometheus as much as computing rates over the same time.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from serve_app.collect.prometheus.client import QueryAnswer, Samples
from serve_app.collect.prometheus.frames import read_labels
from serve_app.collect.prometheus.query import Match, Query, range_selectors

JOB = "job"
# Labels that name the cluster, as external labels and relabelling write them. Istio's own come last, because by default
# all of its clusters have the same name.
CLUSTER_LABELS = (
    "cluster",
    "k8s_cluster_name",
    "k8s_cluster",
    "kubernetes_cluster",
    "cluster_name",
    "destination_cluster",
)
# Labels that name one of two Prometheus replicas, if nothing removes their duplicates.
REPLICA_LABELS = (
    "prometheus_replica",
    "replica",
    "__replica__",
    "receive_replica",
    "rule_replica",
    "prometheus_server",
    "monitor",
    "prometheus",
)
ORIGIN_LABELS = (*CLUSTER_LABELS, *REPLICA_LABELS)

LONG_SECONDS, SHORT_SECONDS = 480.0, 120.0  # over which samples are counted
FACTS = LONG, SHORT, EARLIER, NEWEST, REQUESTS = ("long", "short", "earlier", "newest", "requests")
# The time over which samples are counted, and how long ago it ended, s. If scrapes fail for up to four minutes, at
# least one of the short times has all of its scrapes.
COUNTS = {
    LONG: (LONG_SECONDS, 0.0),
    SHORT: (SHORT_SECONDS, 0.0),
    EARLIER: (SHORT_SECONDS, LONG_SECONDS - SHORT_SECONDS),
}
_GROUPING = re.compile(r"\bby\s*\(([^()]*)\)")


@dataclass(slots=True)
class SeriesGroup:
    """Series that share a service, a job and an origin.

    Attributes:
        service: values of the labels that name the service or the caller.
        job: scrape job; empty if the series have none.
        origin: their cluster and replica labels.
        counts: the largest number of samples in a series, by fact. Only series that existed all the time count. The
            fraction is half the share of the time that ends with the newest sample.
        newest: time of the newest sample, Unix; None if unknown.
        requests: 1/s.
    """

    service: tuple[str, ...]
    job: str
    origin: Mapping[str, str]
    counts: dict[str, float] = field(default_factory=dict)
    newest: float | None = None
    requests: float = 0.0


def group_query(query: Query, match: Match, fact: str) -> str:
    """Return PromQL for one of the :data:`FACTS` about the series behind a requests query, from its rate selectors and
    service labels; empty if the query takes no rate of a selector."""
    selectors = [match.apply(selector) for selector in range_selectors(query.promql)]
    labels = ", ".join(dict.fromkeys((*_service_labels(query), JOB, *ORIGIN_LABELS)))
    by_group = f"by ({labels})"
    texts = {
        **{count: _count_text(by_group, *span) for count, span in COUNTS.items()},
        NEWEST: f"max {by_group} (timestamp(SERIES))",
        REQUESTS: f"sum {by_group} (rate(SERIES[{LONG_SECONDS:g}s])) or 0 * count {by_group} (SERIES)",
    }
    return " or ".join(texts[fact].replace("SERIES", selector) for selector in selectors)


def _count_text(by_group: str, seconds: float, before: float) -> str:
    """Return the largest number of samples in a group's series, among series that existed all the time. The fraction is
    half the part of this time that they cover: a series that has ended stays for minutes without samples."""
    back = f" offset {before:g}s" if before else ""
    age = f"time() - {before:g} - timestamp(SERIES{back})"
    count = f"count_over_time(SERIES[{seconds:g}s]{back}) + 0.5 - ({age}) / {2 * seconds:g}"
    return f"max {by_group} ({count} and SERIES offset {before + seconds:g}s and SERIES{back})"


def _service_labels(query: Query) -> tuple[str, ...]:
    """Return the series labels that name the service. If a query derives names from other labels, the labels of its
    innermost grouping."""
    name_labels = [label for label in query.labels[:2] if not label.startswith("=") for label in label.split("|")]
    groupings = _GROUPING.findall(query.promql.partition("[$window]")[0])
    if not groupings:
        return tuple(name_labels)
    group_labels = [label.strip() for label in groupings[-1].split(",")]
    return tuple([label for label in name_labels if label in group_labels] or group_labels)


def read_groups(query: Query, answers: Mapping[str, QueryAnswer]) -> list[SeriesGroup]:
    """Return the groups from the answers to :func:`group_query`, by fact. Samples without any of the labels are left
    out."""
    groups: dict[tuple[tuple[str, ...], ...], SeriesGroup] = {}
    labels = _service_labels(query)
    for part, answer in answers.items():
        for values, value in _rows(answer.samples):
            service = tuple(values.get(label, "") for label in labels)
            origin = {label: values[label] for label in ORIGIN_LABELS if values.get(label)}
            if not (any(service) or values.get(JOB) or origin):
                continue
            key = (service, (values.get(JOB, ""),), tuple(origin), tuple(origin.values()))
            group = groups.setdefault(key, SeriesGroup(service, values.get(JOB, ""), origin))
            if not math.isfinite(value):
                continue
            if part in COUNTS:
                group.counts[part] = value
            elif part == NEWEST:
                group.newest = value
            elif value > 0:
                group.requests += value
    return list(groups.values())


def _rows(samples: Samples) -> Iterator[tuple[dict[str, str], float]]:
    for label_set, value in zip(samples.label_sets, samples.values.tolist(), strict=True):
        yield read_labels(label_set), value


def label_values(samples: Samples, labels: Sequence[str]) -> list[dict[str, str]]:
    """Return these labels of each sample, if it has them."""
    return [{label: values[label] for label in labels if values.get(label)} for values, _ in _rows(samples)]


SCRAPES_PER_WINDOW = 4.0
MIN_SCRAPES = 3.5  # enough to keep a window: missed scrapes make intervals look longer than they are
MAX_LATE_SECONDS = 3600.0  # older samples are not late: the series have ended, or their times are wrong
MIN_SHARE = 0.02  # share of the services; smaller parts of the mesh do not set the window
MAX_WINDOW_SECONDS = 600.0  # maximum for slower parts, s; half of the mesh may need more
SLOWER = 1.25  # remarks name a part above this multiple of the usual interval
ROUND_SECONDS = (60, 30, 15, 10, 5, 1)
ROUNDING = 0.005  # share of an interval by which scrapes are early or late


@dataclass(frozen=True, slots=True)
class ScrapedPart:
    """Services of a mesh that share a job and a scrape interval."""

    job: str  # empty if they have none
    services: int  # number of them
    interval_seconds: float
    example: str  # name of one service, from its labels


@dataclass(frozen=True, slots=True)
class Freshness:
    """Intervals and lag of a mesh's series.

    Attributes:
        interval_seconds: usual time between two samples; None if not known yet.
        window_seconds: rate window in which each relevant part has enough samples; None if not known yet.
        newest_seconds: age of the newest sample; None without any sample.
        late_seconds: newest sample's age in the latest part of the mesh, if scrapes do not explain it; otherwise 0.
        late_share: share of services that are this late.
        slow: parts that are scraped less often than usual, slowest first.
    """

    interval_seconds: float | None = None
    window_seconds: float | None = None
    newest_seconds: float | None = None
    late_seconds: float = 0.0
    late_share: float = 0.0
    slow: tuple[ScrapedPart, ...] = ()


def measure(groups: Sequence[SeriesGroup], at: float, usual_age: float) -> Freshness:
    """Return the intervals and lag of these series.

    Args:
        usual_age: the newest snapshot's age in the settings, s; data may be as late.
    """
    intervals_by_group = [(group, interval) for group in groups if (interval := interval_of(group)) is not None]
    newest = [at - group.newest for group in groups if group.newest is not None]
    if not newest:
        return Freshness()
    intervals = sorted(interval for _, interval in intervals_by_group)
    usual, slowest = (_quantile(intervals, share) for share in (0.5, 1 - MIN_SHARE))
    late, share = _lateness(groups, at, usual_age, usual)
    if usual is None or slowest is None:
        return Freshness(newest_seconds=min(newest), late_seconds=late, late_share=share)
    window = max(SCRAPES_PER_WINDOW * usual, min(SCRAPES_PER_WINDOW * slowest, MAX_WINDOW_SECONDS))
    return Freshness(usual, window, min(newest), late, share, _slow_parts(intervals_by_group, usual))


def _quantile(intervals: Sequence[float], share: float) -> float | None:
    """Return the interval that this share of the groups does not exceed; None without any."""
    return intervals[max(math.ceil(share * len(intervals) - 1e-6) - 1, 0)] if intervals else None


def follow(window_seconds: float, freshness: Freshness) -> float:
    """Return the rate window: ``window_seconds``, or a longer one if scrapes are too rare for it."""
    min_window = freshness.window_seconds
    if min_window is None or window_seconds >= min_window / SCRAPES_PER_WINDOW * MIN_SCRAPES:
        return window_seconds
    return min_window


def interval_of(group: SeriesGroup) -> float | None:
    """Return the time between a group's samples, s; None if its series are too young to tell.

    ``n`` samples in a span that ends with the newest are ``span / n`` to ``span / (n - 1)`` apart, and less if scrapes
    were missed. So the smallest upper bound holds, and lower bounds above it do not. Configured intervals are round
    numbers, so the roundest number in between is the interval.
    """
    bounds = []
    for fact, value in group.counts.items():
        coverage, samples = math.modf(value)
        span = 2 * coverage * COUNTS[fact][0]
        if samples > 0 and span > 0:
            bounds.append((span / samples, span / (samples - 1) if samples > 1 else math.inf))
    if not bounds:
        return None
    high = min(high for _, high in bounds)
    return _roundest(max(low for low, _ in bounds if low <= high), high)


def _roundest(low: float, high: float) -> float:
    for step in ROUND_SECONDS:
        value = math.ceil(low * (1 - ROUNDING) / step) * step
        if 0 < value <= high * (1 + ROUNDING):
            return float(value)
    return (low + high) / 2


def _slow_parts(intervals_by_group: Iterable[tuple[SeriesGroup, float]], usual: float) -> tuple[ScrapedPart, ...]:
    services: dict[tuple[str, float], set[tuple[str, ...]]] = defaultdict(set)
    for group, interval in intervals_by_group:
        if interval > SLOWER * usual:
            services[group.job, interval].add(group.service)
    parts = [
        ScrapedPart(job, len(names), interval, "/".join(filter(None, min(names))))
        for (job, interval), names in services.items()
    ]
    return tuple(sorted(parts, key=lambda part: (-part.interval_seconds, -part.services, part.job)))


def _lateness(
    groups: Sequence[SeriesGroup], at: float, usual_age: float, usual_interval: float | None
) -> tuple[float, float]:
    """Return the latest relevant part's age, s, and its share of the services; zeros if no part is late. The newest of
    many samples shows only the lag, because targets are scraped at different moments.
    """
    parts: dict[tuple[str, ...], list[SeriesGroup]] = defaultdict(list)
    for group in groups:
        if group.newest is not None:
            parts[(group.job, *group.origin.values())].append(group)
    count = sum(map(len, parts.values()))
    late: list[tuple[float, int]] = []
    for part in parts.values():
        age = min(at - (group.newest or 0.0) for group in part)
        intervals = [interval for group in part if (interval := interval_of(group)) is not None]
        interval = max(intervals, default=usual_interval or usual_age)
        if interval + usual_age < age <= MAX_LATE_SECONDS and len(part) >= MIN_SHARE * count:
            late.append((age, len(part)))
    if not late:
        return 0.0, 0.0
    return max(age for age, _ in late), sum(services for _, services in late) / count


Clock = Callable[[], float]  # Unix time, s
