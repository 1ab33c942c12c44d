"""Chooses the series to read in a store that has several clusters, or a pair of Prometheus servers.

Clusters run the same services, so their series must not be added. Without a setting, only the cluster that was busiest
at first is read: if its traffic ends, that is a fault to report, not a reason to switch to another one. All clusters
are read if they are parts of one mesh: if no service is in two of them, or if they call each other.

Two Prometheus servers that scrape the same targets double every rate, unless their duplicates are removed. One server
is read, and the other one if the first one's data stop.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from serve_app.collect.prometheus.groups import CLUSTER_LABELS, REPLICA_LABELS, SeriesGroup, interval_of
from serve_app.collect.prometheus.query import Dialect, Match, Query, range_selectors

SOURCE_CLUSTER, DESTINATION_CLUSTER = "source_cluster", "destination_cluster"  # labels that Istio gives to calls
NO_CLUSTER = frozenset({"", "unknown"})
MIN_DOUBLED = 0.5  # if a larger share of series exists twice, the pair is not deduplicated
MIN_SERVER_RATIO = 0.7  # minimum ratio of rates, for two servers that scrape the same targets
MIN_JOB_RATIO = 0.95  # minimum ratio of rates, for two jobs that scrape the same targets
MIN_EQUAL_SHARE = 0.9  # share of two jobs' services whose rates must be the same
MISSED_SCRAPES = 1.1  # how far one server may be behind the other, in intervals
USUAL_SECONDS = 60.0  # interval if it is unknown

Choice = Literal["busiest", "apart", "connected", "named", "pair"]


@dataclass(frozen=True, slots=True)
class Part:
    """Series with one value of a label."""

    value: str  # empty for series without the label
    services: int  # number of them
    requests: float  # 1/s
    newest: float = 0.0  # Unix time of the newest sample; 0 if there is none


@dataclass(frozen=True, slots=True)
class Split:
    """One store's series from several clusters or Prometheus servers.

    Attributes:
        parts: the clusters or servers, busiest first.
        read: values whose series are read.
        choice: reason: the ``busiest``, because they have services with the same name; all, because none has
            (``apart``), because they call each other (``connected``), or because names contain the cluster (``named``);
            or one server of each ``pair`` that scrapes the same targets.
        apart_seconds: for servers: the maximum difference between the times of their newest samples.
    """

    label: str
    parts: tuple[Part, ...]
    read: tuple[str, ...]
    choice: Choice
    apart_seconds: float = 0.0

    @property
    def share(self) -> float:
        """Share of all requests that is read, 0 to 1."""
        total = sum(part.requests for part in self.parts)
        return sum(part.requests for part in self.parts if part.value in self.read) / total if total else 0.0

    def have_stopped(self, newest: Mapping[str, float]) -> bool:
        """Return whether the data of a server that is read have stopped while another one sends on; ``newest`` is the
        Unix time of the newest sample by server."""
        latest = max(newest.values(), default=0.0)
        return any(newest.get(server, 0.0) < latest - self.apart_seconds for server in self.read)


def parts_by(groups: Iterable[SeriesGroup], label: str) -> tuple[Part, ...]:
    """Return the series by value of a label, busiest first."""
    services: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    requests: dict[str, float] = defaultdict(float)
    newest: dict[str, float] = defaultdict(float)
    for group in groups:
        value = group.origin.get(label, "")
        services[value].add(group.service)
        requests[value] += group.requests
        newest[value] = max(newest[value], group.newest or 0.0)
    parts = [Part(value, len(names), requests[value], newest[value]) for value, names in services.items()]
    return tuple(sorted(parts, key=lambda part: (-part.requests, -part.services, part.value)))


def varying_labels(groups: Sequence[SeriesGroup], labels: Iterable[str]) -> list[str]:
    """Return the labels with more than one value, without which some series are included."""
    return [label for label in labels if len({group.origin.get(label, "") for group in groups}) > 1]


def calls_between_query(query: Query, match: Match) -> str:
    """Return PromQL for requests by caller's and callee's cluster, as Istio names them."""
    by_ends = f"by ({SOURCE_CLUSTER}, {DESTINATION_CLUSTER})"
    rates = (f"sum {by_ends} (rate({match.apply(selector)}[8m])) > 0" for selector in range_selectors(query.promql))
    return " or ".join(rates)


def are_connected(ends: Iterable[Mapping[str, str]]) -> bool:
    """Return whether a call leaves its cluster, from the labels of :func:`calls_between_query`."""
    return any(
        len(clusters := {labels.get(SOURCE_CLUSTER, ""), labels.get(DESTINATION_CLUSTER, "")}) > 1
        and not clusters & NO_CLUSTER
        for labels in ends
    )


def doubled_queries(query: Query, match: Match, labels: Sequence[str]) -> dict[str, str]:
    """Return PromQL for the number of series that exist several times when these labels are ignored, and the number of
    distinct ones."""
    counts = " or ".join(
        f"count without ({', '.join(labels)}) ({match.apply(selector)})" for selector in range_selectors(query.promql)
    )
    return {"doubled": f"count(({counts}) > 1)", "distinct": f"count({counts})"}


def find_clusters(
    groups: Sequence[SeriesGroup], labels: Iterable[str], *, has_calls_between: bool, before: Split | None
) -> Split | None:
    """Return the clusters of a store; None if there is only one.

    Args:
        labels: they may distinguish clusters; the most likely first.
    """
    separate: Split | None = None
    for label in varying_labels(groups, labels):
        parts = parts_by(groups, label)
        everything = tuple(part.value for part in parts)
        if has_calls_between:
            return Split(label, parts, everything, "connected")
        if _have_common_services(groups, label):
            return Split(label, parts, (_stay(parts, label, before),), "busiest")
        separate = separate or Split(label, parts, everything, "apart")
    return separate


def _have_common_services(groups: Iterable[SeriesGroup], label: str) -> bool:
    values: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for group in groups:
        values[group.service].add(group.origin.get(label, ""))
    return any(len(clusters) > 1 for clusters in values.values())


def _stay(parts: Sequence[Part], label: str, before: Split | None) -> str:
    """Return the cluster that was read before, if it still has series; else the busiest."""
    if before and before.choice == "busiest" and before.label == label:
        for part in parts:
            if part.value in before.read:
                return part.value
    return parts[0].value


def agree(groups: Iterable[SeriesGroup], label: str) -> bool:
    """Return whether a label's parts see about the same traffic: two servers that scrape the same targets do, two
    clusters do not."""
    rates: dict[tuple[object, ...], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for group in groups:
        cluster = tuple(group.origin.get(cluster_label, "") for cluster_label in CLUSTER_LABELS)
        rates[group.service, group.job, cluster][group.origin.get(label, "")] += group.requests
    rates_of_shared = [list(by_part.values()) for by_part in rates.values() if len(by_part) > 1]
    busy = [values for values in rates_of_shared if max(values) > 0 and min(values) > 0]
    alike = sum(min(values) >= MIN_SERVER_RATIO * max(values) for values in busy)
    return not busy or alike * 2 > len(busy)


def jobs_with_same_rates(groups: Iterable[SeriesGroup]) -> tuple[str, ...]:
    """Return the scrape jobs that see the same services with the same traffic, so that they may scrape the same
    targets; the one with most services first. Empty if there are none."""
    rates: dict[tuple[str, ...], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for group in groups:
        if group.requests > 0:
            rates[group.service][group.job] += group.requests
    candidates = [by_job for by_job in rates.values() if len(by_job) > 1]
    twins = [by_job for by_job in candidates if min(by_job.values()) >= MIN_JOB_RATIO * max(by_job.values())]
    if not twins or len(candidates) < MIN_DOUBLED * len(rates) or len(twins) < MIN_EQUAL_SHARE * len(candidates):
        return ()
    services = Counter(job for by_job in twins for job in by_job)
    return tuple(sorted(services, key=lambda job: (-services[job], job)))


def find_replicas(groups: Sequence[SeriesGroup], label: str, before: Split | None) -> Split:
    """Choose the servers to read: one for each cluster, the same one as before if it still has data."""
    by_cluster: dict[tuple[str, ...], list[SeriesGroup]] = defaultdict(list)
    for group in groups:
        by_cluster[tuple(group.origin.get(cluster_label, "") for cluster_label in CLUSTER_LABELS)].append(group)
    intervals = [interval for group in groups if (interval := interval_of(group)) is not None]
    apart = MISSED_SCRAPES * max(intervals, default=USUAL_SECONDS)
    read = [_server(parts_by(its_groups, label), apart, before) for its_groups in by_cluster.values()]
    return Split(label, parts_by(groups, label), tuple(sorted(set(read))), "pair", apart)


def _server(parts: Sequence[Part], apart: float, before: Split | None) -> str:
    newest, services = max(part.newest for part in parts), max(part.services for part in parts)
    alive = [part for part in parts if part.newest >= newest - apart and 2 * part.services > services]
    stays = [part for part in alive if before and part.value in before.read]
    return min(stays or alive, key=lambda part: (-part.services, part.value)).value


def restrict(match: Match, *splits: Split | None) -> Match:
    """Return the matchers without the series that are not read."""
    read_values = {split.label: split.read for split in splits if split and split.choice in ("busiest", "pair")}
    return replace(match, values={**match.values, **read_values})


def fits(group: SeriesGroup, match: Match) -> bool:
    """Return whether the matchers select a group."""
    return all(group.origin.get(label, "") in values for label, values in match.values.items() if label in _KNOWN)


_KNOWN = frozenset((*CLUSTER_LABELS, *REPLICA_LABELS))


_GROUPING = re.compile(r"\b(by|on)\s*\(\s*(?!\))")  # but `on ()`, which joins with a single value


def name_clusters(query: Query, clusters: Mapping[int, str]) -> Query:
    """Return a query for a mesh that spans clusters: each namespace begins with the cluster, ``prod.shop``.

    All groupings and joins keep clusters apart. A constant namespace becomes the cluster.

    Args:
        clusters: label with the cluster, by position of a namespace among the labels of the query.
    """
    names = ", ".join(dict.fromkeys(clusters.values()))
    promql, labels = _GROUPING.sub(rf"\1 ({names}, ", query.promql), list(query.labels)
    for place, cluster in clusters.items():
        namespace = labels[place].partition("|")[0]  # other labels are hosts, which name no cluster
        if namespace.startswith("="):
            labels[place] = cluster
        elif namespace not in labels[:place]:  # once, where both names are in one namespace
            promql = f'label_join({promql}, "{namespace}", ".", "{cluster}", "{namespace}")'
    return replace(query, promql=promql, labels=tuple(labels))


def name_clusters_of(dialect: Dialect, label: str) -> Dialect:
    """A dialect whose namespaces begin with the cluster.

    With Istio's ``destination_cluster``, the caller's cluster is in ``source_cluster``. With other labels, both ends of
    a call are in the same cluster.
    """
    caller = SOURCE_CLUSTER if label == DESTINATION_CLUSTER else label
    return replace(
        dialect,
        beside=tuple(name_clusters_of(part, label) for part in dialect.beside),
        services={role: name_clusters(query, {0: label}) for role, query in dialect.services.items()},
        calls={role: name_clusters(query, {0: caller, 2: label}) for role, query in dialect.calls.items()},
        serves=name_clusters(dialect.serves, {0: label, 2: label}) if dialect.serves else None,
        callers=name_clusters(dialect.callers, {0: caller, 2: caller}) if dialect.callers else None,
        relays=name_clusters(dialect.relays, {0: caller}) if dialect.relays else None,
    )
