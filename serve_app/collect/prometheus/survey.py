"""An infrequent survey of a mesh's series: how they are scraped, how late they are, where they come from.

Its findings decide how the mesh is polled: rate window, matchers, age of the newest snapshot. It takes a handful of
queries every ten minutes, whose answers are as long as the list of services.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from serve_app.collect.prometheus import clusters as origins
from serve_app.collect.prometheus.client import Evaluator, QueryAnswer
from serve_app.collect.prometheus.clusters import DESTINATION_CLUSTER, SOURCE_CLUSTER, Split, fits, restrict
from serve_app.collect.prometheus.groups import (
    CLUSTER_LABELS,
    FACTS,
    JOB,
    REPLICA_LABELS,
    REQUESTS,
    Clock,
    Freshness,
    SeriesGroup,
    follow,
    group_query,
    label_values,
    measure,
    read_groups,
)
from serve_app.collect.prometheus.native import count_buckets, count_native
from serve_app.collect.prometheus.pods import USAGE_QUERIES
from serve_app.collect.prometheus.query import EVERYTHING, Dialect, Match, Query, range_selectors
from serve_app.collect.service_labels import LATE
from serve_app.settings import CollectorSettings, MeshSettings

AGAIN_SECONDS = 600.0  # time between two surveys
SOON_SECONDS = 60.0  # the same while something is unknown, or after the mesh has changed
LIVE_SECONDS = 900.0  # an older instant belongs to a past period, whose data have all arrived
STEADY_SECONDS = 30.0  # variation of a constant lag
BESIDE = ("container_cpu_usage_seconds_total", "kube_pod_owner")  # exist in nearly every cluster
MIN_LATE_SHARE = 0.5  # share of the services above which a lag counts at once
CONTAINERS = replace(USAGE_QUERIES["cpu_usage"], labels=("namespace",))  # have their own scrape job


@dataclass(frozen=True, slots=True)
class Survey:
    """A survey's findings about a mesh's series.

    Attributes:
        clusters: None if there is only one.
        replicas: servers that scrape the same targets; None if there are none, or their duplicates are removed.
        same_jobs: scrape jobs that see the same services with the same traffic; empty if there are none.
        container_clusters: label and number of the containers' clusters, if the mesh's series lack the label.
        exporter_match: matchers for series of Kubernetes and exporters.
        absent_labels: labels of the setting ``match`` that no series of the mesh has; they are not used.
        unmatched_values: existing values of the labels in ``match``, if no series has the setting's value.
        lag_seconds: by how much data are late, so that newer snapshots would be incomplete.
        is_native: whether histograms are native; None: unknown.
        is_certain: whether the next survey may wait.
    """

    at: datetime  # when the series were read
    mesh: Freshness = field(default_factory=Freshness)
    containers: Freshness = field(default_factory=Freshness)
    clusters: Split | None = None
    replicas: Split | None = None
    same_jobs: tuple[str, ...] = ()
    container_clusters: tuple[str, int] | None = None
    match: Match = EVERYTHING
    exporter_match: Match = EVERYTHING
    absent_labels: tuple[str, ...] = ()
    unmatched_values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lag_seconds: float = 0.0
    is_native: bool | None = None
    is_certain: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The windows, matchers and delay of a mesh's polls, from the settings and its series."""

    match: Match  # for the mesh's series
    exporter_match: Match  # for series of Kubernetes and exporters
    window_seconds: float  # of the mesh's rates
    container_window_seconds: float  # of containers' rates; they have their own scrape jobs
    behind_seconds: float = 0.0  # the newest snapshot's age if data arrive late; 0: as in the settings


def make_plan(collector: CollectorSettings, survey: Survey) -> Plan:
    """Return the plan that follows from a survey. Explicit settings take precedence."""
    configured_window = collector.window_seconds
    window, container_window = (
        configured_window if is_set(collector, "window_seconds") else follow(configured_window, freshness)
        for freshness in (survey.mesh, survey.containers)
    )
    is_later = survey.lag_seconds and not is_set(collector, "behind_seconds")
    behind = collector.behind_seconds + survey.lag_seconds if is_later else 0.0
    return Plan(survey.match, survey.exporter_match, window, container_window, behind)


def is_set(collector: CollectorSettings, name: str) -> bool:
    """Return whether the settings give a value; a default may be adapted to the mesh's series."""
    return name in collector.model_fields_set


class Surveyor:
    """Surveys one mesh's series every ten minutes, and sooner if they are uncertain or change.

    Attributes:
        survey: the newest result; None before the first.
    """

    def __init__(self, evaluator: Evaluator, mesh: MeshSettings, collector: CollectorSettings, clock: Clock) -> None:
        self._evaluator, self._collector, self._clock = evaluator, collector, clock
        self._match, self._cluster_label = Match(mesh.match), mesh.cluster_label
        self._looked_at: datetime | None = None  # the last attempt, even if it failed
        self._failures = 0  # in a row
        self.survey: Survey | None = None
        window = collector.window_seconds
        self.plan = Plan(self._match, replace(self._match, allows_none=True), window, window)

    def update(self, dialect: Dialect, classic: Dialect, at: datetime) -> bool:
        """Survey the series if it is time. Returns whether the plan has changed.

        Args:
            dialect: the mesh's dialect, in the form in use.
            classic: the same dialect with queries for buckets.
        """
        is_certain = self.survey is not None and self.survey.is_certain
        soon = min(SOON_SECONDS * 2**self._failures, AGAIN_SECONDS)  # a Prometheus under load is left alone
        is_changed = self.look(dialect, classic, at, AGAIN_SECONDS if is_certain else soon)
        return self._watch_servers(dialect, classic, at) or is_changed

    def look(self, dialect: Dialect, classic: Dialect, at: datetime, apart: float = SOON_SECONDS) -> bool:
        """Survey the series unless the last attempt was less than ``apart`` s ago. Returns whether the plan has
        changed.

        Args:
            at: the snapshot's instant. If it is recent, the survey reads the series as of now, because they show the
                lag.
        """
        if self._looked_at is not None and abs((at - self._looked_at).total_seconds()) < apart:
            return False
        self._looked_at = at
        now = self._clock()
        try:
            survey = self._survey(dialect, classic, _newest(at, now), is_live=_is_live(at, now))
        except _QueryFailed:
            self._failures += 1
            return False
        self._failures = 0
        before, self.survey = self.plan, survey
        self.plan = make_plan(self._collector, survey)
        return replace(before, behind_seconds=self.plan.behind_seconds) != self.plan

    def forget(self) -> None:
        """Start again because the queries have changed."""
        self.survey, self._looked_at = None, None

    def _watch_servers(self, dialect: Dialect, classic: Dialect, at: datetime) -> bool:
        """Switch to the other Prometheus of a pair as soon as the current one's data stop, before rates fall."""
        replicas = self.survey.replicas if self.survey else None
        if replicas is None or self._looked_at == at:
            return False
        newest = " or ".join(
            f"max by ({replicas.label}) (timestamp({self._match.apply(selector)}))"
            for selector in range_selectors(dialect.services["requests"].promql)
        )
        # Current data stop before the data of snapshots do.
        answers = self._evaluator.ask({"newest": newest}, _newest(at, self._clock()), self._within)
        samples = answers["newest"].samples
        servers = [labels.get(replicas.label, "") for labels in label_values(samples, (replicas.label,))]
        have_stopped = replicas.have_stopped(dict(zip(servers, samples.values.tolist(), strict=True)))
        return have_stopped and self.look(dialect, classic, at, 0.0)

    @property
    def _within(self) -> float:
        """Deadline for each round of queries, s."""
        return self._collector.deadline_seconds / 2

    def _survey(self, dialect: Dialect, classic: Dialect, at: datetime, *, is_live: bool) -> Survey:
        match, requests, before = self._match, dialect.services["requests"], self.survey
        groups = self._groups(requests, match, at)
        absent: tuple[str, ...] = ()
        unmatched_values: dict[str, tuple[str, ...]] = {}
        if match and not groups:
            absent, unmatched_values = self._why_unmatched(requests, at)
            if absent:
                match = Match({label: values for label, values in match.values.items() if label not in absent})
                groups = self._groups(requests, match, at)
        containers = self._groups(CONTAINERS, EVERYTHING, at)
        clusters, replicas = self._origins(dialect, match, groups, at, before)
        used_match = restrict(match, clusters, replicas)
        mesh_groups, container_groups = (
            [group for group in some_groups if fits(group, used_match)] for some_groups in (groups, containers)
        )
        mesh_freshness, container_freshness = (
            measure(some_groups, at.timestamp(), self._collector.behind_seconds)
            for some_groups in (mesh_groups, container_groups)
        )
        lag = _lag(mesh_freshness, before) if is_live else 0.0
        return Survey(
            at,
            mesh_freshness,
            container_freshness,
            clusters,
            replicas,
            () if JOB in match.values else origins.jobs_with_same_rates(mesh_groups),
            None if clusters or self._match else _clusters_of(containers),
            used_match,
            replace(restrict(self._match, clusters, replicas), allows_none=True),
            absent,
            unmatched_values,
            lag,
            self._find_form(classic, used_match, at, before),
            _is_certain(requests, mesh_freshness, lag, is_live=is_live),
        )

    def _ask(self, queries: Mapping[str, str], at: datetime) -> dict[str, QueryAnswer]:
        """Send queries.

        Raises:
            _QueryFailed: one of the queries failed.
        """
        answers = self._evaluator.ask(queries, at, self._within) if queries else {}
        if any(answer.failed for answer in answers.values()):
            raise _QueryFailed
        return answers

    def _groups(self, query: Query, match: Match, at: datetime) -> list[SeriesGroup]:
        """Group a query's series; containers have no requests."""
        facts = [fact for fact in FACTS if query is not CONTAINERS or fact != REQUESTS]
        texts = {fact: group_query(query, match, fact) for fact in facts}
        return read_groups(query, self._ask({fact: text for fact, text in texts.items() if text}, at))

    def _why_unmatched(self, query: Query, at: datetime) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
        """Return the setting's labels that only series beside the mesh have, and the existing values of its other
        labels. A label without values exists nowhere, and so is misspelled."""
        labels = tuple(self._match.values)
        selectors = [EVERYTHING.apply(selector) for selector in range_selectors(query.promql)]
        if not selectors:
            return (), {}
        text = " or ".join(f"count by ({', '.join(labels)}) ({selector})" for selector in selectors)
        rows = label_values(self._ask({"values": text}, at)["values"].samples, labels)
        if not rows:
            return (), {}
        values = {label: tuple(sorted({row[label] for row in rows if label in row})) for label in labels}
        elsewhere = {
            label: " or ".join(f'count({name}{{{label}!=""}})' for name in BESIDE)
            for label in labels
            if not values[label]
        }
        answers = self._ask(elsewhere, at)
        absent = tuple(label for label in elsewhere if len(answers[label].samples))
        return absent, {
            label: existing_values
            for label, existing_values in values.items()
            if label not in absent and not set(existing_values) & set(self._match.values[label])
        }

    def _origins(
        self, dialect: Dialect, match: Match, groups: Sequence[SeriesGroup], at: datetime, before: Survey | None
    ) -> tuple[Split | None, Split | None]:
        """Choose the clusters and servers whose series are read."""
        cluster_labels = [label for label in CLUSTER_LABELS if label not in match.values]
        servers = origins.varying_labels(groups, (label for label in REPLICA_LABELS if label not in match.values))
        questions = origins.doubled_queries(dialect.services["requests"], match, servers) if servers else {}
        if origins.varying_labels(groups, cluster_labels):
            questions["calls"] = origins.calls_between_query(dialect.calls["requests"], match)
        answers = self._ask(questions, at)
        replicas: Split | None = None
        if servers and _share(answers["doubled"], answers["distinct"]) >= origins.MIN_DOUBLED:
            label = servers[0]
            if origins.agree(groups, label):
                replicas = origins.find_replicas(groups, label, before.replicas if before else None)
            else:  # same names, different traffic: the label distinguishes clusters
                cluster_labels.append(label)
        once = [
            group
            for group in groups
            if fits(group, restrict(EVERYTHING, replicas)) and LATE not in group.origin.values()
        ]
        if self._cluster_label:
            parts = origins.parts_by(once, self._cluster_label)
            return Split(self._cluster_label, parts, tuple(part.value for part in parts), "named"), replicas
        has_calls_between = "calls" in answers and origins.are_connected(
            label_values(answers["calls"].samples, (SOURCE_CLUSTER, DESTINATION_CLUSTER))
        )
        clusters = origins.find_clusters(
            once, cluster_labels, has_calls_between=has_calls_between, before=before.clusters if before else None
        )
        return clusters, replicas

    def _find_form(self, classic: Dialect, match: Match, at: datetime, before: Survey | None) -> bool | None:
        """Return whether the mesh has native histograms and no buckets. If both exist, buckets are read."""
        previous, buckets = before.is_native if before else None, count_buckets(classic)
        if buckets is None:
            return None
        answer = self._evaluator.ask({"buckets": buckets.at(0, match=match)}, at, self._within)["buckets"]
        if len(answer.samples) or answer.failed:
            return previous if answer.failed else False
        text = count_native(classic).at(0, match=match)
        return True if len(self._evaluator.ask({"native": text}, at, self._within)["native"].samples) else previous


class _QueryFailed(Exception):
    """A survey's query failed."""


def _is_live(at: datetime, now: float) -> bool:
    return 0 <= now - at.timestamp() <= LIVE_SECONDS


def _newest(at: datetime, now: float) -> datetime:
    """Return the newest instant that a survey can read: now, unless the snapshot belongs to the past."""
    return datetime.fromtimestamp(now, UTC) if _is_live(at, now) else at


def _is_certain(requests: Query, mesh: Freshness, lag: float, *, is_live: bool) -> bool:
    """Return whether everything is known that can be known. A query that takes no rate of a selector shows nothing."""
    is_interval_known = mesh.interval_seconds is not None and (not is_live or bool(lag) == bool(mesh.late_seconds))
    return is_interval_known or not range_selectors(requests.promql)


def _share(part: QueryAnswer, whole: QueryAnswer) -> float:
    total = float(whole.samples.values.sum())
    return float(part.samples.values.sum()) / total if total else 0.0


def _clusters_of(groups: Sequence[SeriesGroup]) -> tuple[str, int] | None:
    label = next(iter(origins.varying_labels(groups, CLUSTER_LABELS)), None)
    return (label, len({group.origin.get(label, "") for group in groups})) if label else None


def _lag(mesh: Freshness, before: Survey | None) -> float:
    """Return the data's lag, s. If only a part of the mesh is late, its lag counts once the previous survey found the
    same, because at first a dead part looks the same."""
    late, interval = mesh.late_seconds, mesh.interval_seconds or 0.0
    if not late:
        return 0.0
    known_lag = before.lag_seconds if before else 0.0
    if known_lag - 2 * interval - STEADY_SECONDS <= late <= known_lag:
        return known_lag  # the age of the newest sample varies by an interval
    earlier = before.mesh.late_seconds if before else 0.0
    is_steady = bool(earlier) and abs(late - earlier) <= interval + STEADY_SECONDS
    if mesh.late_share < MIN_LATE_SHARE and not is_steady:
        return 0.0
    return math.ceil(late / STEADY_SECONDS) * STEADY_SECONDS
