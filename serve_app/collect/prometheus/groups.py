"""The mesh's own series in groups: by service, scrape job, cluster, and Prometheus of a pair.

One infrequent query for each fact shows how the series of a mesh are scraped and where they come from. A group is all
series that share these labels, so the answers are as long as the list of services, however many calls a mesh has.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from serve_app.collect.prometheus.client import QueryAnswer, Samples
from serve_app.collect.prometheus.frames import read_labels
from serve_app.collect.prometheus.match import Match, range_selectors
from serve_app.collect.prometheus.query import Query

JOB = "job"
# Labels that tell clusters apart, as external labels and relabelling write them; Istio's own come last, because by
# default all of its clusters have the same name.
CLUSTER_LABELS = (
    "cluster",
    "k8s_cluster_name",
    "k8s_cluster",
    "kubernetes_cluster",
    "cluster_name",
    "destination_cluster",
)
# Labels that tell the Prometheus servers of a pair apart, where nothing removes their duplicates.
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

LONG_SECONDS, SHORT_SECONDS = 480.0, 180.0  # over which samples are counted; the short one is for young series
LONG, SHORT, NEWEST, REQUESTS = "long", "short", "newest", "requests"
_GROUPING = re.compile(r"\bby\s*\(([^()]*)\)")
MOST_COUNTED = 60  # services whose samples are counted; counting is the expensive part


@dataclass(slots=True)
class SeriesGroup:
    """Series that share a service, a job and where they come from.

    Attributes:
        service: values of the labels that name the service or the caller.
        job: scrape job; empty if the series have none.
        origin: cluster and replica labels that they have.
        counts: samples of the series with the most samples, by time over which they were counted, s. Only series that
            existed for all of that time.
        newest: time of the newest sample, Unix; None if unknown.
        requests: 1/s.
        weight: number of groups that its interval stands for, 1 or more; samples of some are counted only.
    """

    service: tuple[str, ...]
    job: str
    origin: Mapping[str, str]
    counts: dict[float, float] = field(default_factory=dict)
    newest: float | None = None
    requests: float = 0.0
    weight: float = 1.0

    @property
    def part(self) -> tuple[str, ...]:
        """The part of the mesh: groups that are probably scraped alike."""
        return (self.job, *self.origin.values(), *self.service[:-1])


def group_query(query: Query, match: Match, fact: str) -> str:
    """PromQL for one fact about the series behind a query of requests; empty if the query has no rate of a selector.

    Args:
        query: its selectors of rates and the labels of its services are used.
        match: matchers of the series.
        fact: ``long``, ``short``, ``newest`` or ``requests``.
    """
    selectors = [match.apply(one) for one in range_selectors(query.promql)]
    labels = ", ".join(dict.fromkeys((*_service_labels(query), JOB, *ORIGIN_LABELS)))
    by_group = f"by ({labels})"
    texts = {
        LONG: _counted(by_group, LONG_SECONDS),
        SHORT: _counted(by_group, SHORT_SECONDS),
        NEWEST: f"max {by_group} (timestamp(SERIES))",
        REQUESTS: f"sum {by_group} (rate(SERIES[{LONG_SECONDS:g}s])) or 0 * count {by_group} (SERIES)",
    }
    return " or ".join(texts[fact].replace("SERIES", one) for one in selectors)


def _counted(by_group: str, seconds: float) -> str:
    """The most samples of a series of a group, among series that are as old and still there."""
    return f"max {by_group} (count_over_time(SERIES[{seconds:g}s]) and SERIES offset {seconds:g}s and SERIES)"


def _service_labels(query: Query) -> tuple[str, ...]:
    """Labels of the series that name the service. Where a query makes names from other labels, the labels of its
    innermost grouping."""
    named = [label for one in query.labels[:2] if not one.startswith("=") for label in one.split("|")]
    groupings = _GROUPING.findall(query.promql.partition("[$window]")[0])
    if not groupings:
        return tuple(named)
    grouped = [label.strip() for label in groupings[-1].split(",")]
    return tuple([label for label in named if label in grouped] or grouped)


def read_groups(query: Query, answers: Mapping[str, QueryAnswer]) -> list[SeriesGroup]:
    """The groups of the answers to :func:`group_query`, by fact. Samples without any of the labels are left out."""
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
            if part == LONG:
                group.counts[LONG_SECONDS] = value
            elif part == SHORT:
                group.counts[SHORT_SECONDS] = value
            elif part == NEWEST:
                group.newest = value
            elif value > 0:
                group.requests += value
    return list(groups.values())


def _rows(samples: Samples) -> Iterator[tuple[dict[str, str], float]]:
    for label_set, value in zip(samples.label_sets, samples.values.tolist(), strict=True):
        yield read_labels(label_set), value


def label_values(samples: Samples, labels: Sequence[str]) -> list[dict[str, str]]:
    """These labels of each sample, as far as it has them."""
    return [{label: values[label] for label in labels if values.get(label)} for values, _ in _rows(samples)]


def some_of_each_part(query: Query, groups: Iterable[SeriesGroup], match: Match) -> Match:
    """Matchers of a few services of each part of the mesh.

    Args:
        query: of the groups.
        groups: all groups.
        match: matchers of all of them.
    """
    labels = _service_labels(query)
    if not labels:
        return match
    names: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for group in groups:
        names[group.part].append(group.service[-1])
    each = max(MOST_COUNTED // max(len(names), 1), 1)
    chosen = {name for of_part in names.values() for name in sorted(of_part)[:each]}
    return replace(match, values={**match.values, labels[-1]: tuple(sorted(chosen))}) if chosen else match


def weigh(groups: Sequence[SeriesGroup]) -> None:
    """Let the counted groups of each part stand for the others."""
    sizes: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0, 0])  # groups, counted ones
    for group in groups:
        sizes[group.part][0] += 1
        sizes[group.part][1] += bool(group.counts)
    for group in groups:
        every, counted = sizes[group.part]
        group.weight = every / counted if counted else 1.0
