"""Create the source of a configured mesh; detect the kind of mesh from its metrics if the settings do not name it."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import takewhile
from typing import NamedTuple

from serve_app.collect.base import Finding, Poll, Role
from serve_app.collect.prometheus.client import Evaluator, K, Prometheus, QueryAnswer
from serve_app.collect.prometheus.cluster_state import ClusterState
from serve_app.collect.prometheus.combine import combine
from serve_app.collect.prometheus.dialects.shipped import KNOWN
from serve_app.collect.prometheus.groups import Clock
from serve_app.collect.prometheus.kubernetes import CONTACT_LABELS, OwnerLabels
from serve_app.collect.prometheus.native import SUFFIX, native
from serve_app.collect.prometheus.query import EVERYTHING, Dialect, Gap, Match, Query, matched_metrics, range_selectors
from serve_app.collect.prometheus.reader import DialectReader
from serve_app.collect.prometheus.remarks import remark
from serve_app.collect.prometheus.signals import Queues
from serve_app.collect.prometheus.survey import AGAIN_SECONDS, SOON_SECONDS, Surveyor
from serve_app.collect.prometheus.unread import find_other_requests, find_other_spellings
from serve_app.collect.prometheus.workloads import WorkloadServices
from serve_app.net.google import GoogleTokens
from serve_app.net.tokens import OAuth2Client, OAuth2Tokens, TokenSource
from serve_app.settings import CollectorSettings, GenericSettings, MeshSettings
from serve_app.settings.roles import SHARES

DETECTION = ("detection", "metrics")
SUPERSETS = {"istio": "istio-ambient"}  # kinds that read everything another kind reads, and more
LATEST_SECONDS = 3600  # how far back to search for samples older than Prometheus' lookback
log = logging.getLogger(__name__)


class FoundGap(NamedTuple):
    """A gap in the telemetry of a mesh: the dialect's name, what is missing, and the number of series that lack it."""

    source: str
    gap: Gap
    series: int


class MeshSource:
    """Polls the snapshots of one configured mesh; not thread-safe. Another dialect, form of histograms or set of
    clusters begins a new reader.

    Args:
        evaluator: answers its queries; None: a client for live data, which this source closes.
    """

    def __init__(
        self,
        mesh: MeshSettings,
        collector: CollectorSettings,
        clock: Clock = time.time,
        evaluator: Evaluator | None = None,
    ) -> None:
        self._client: Prometheus | None = None
        if evaluator is None:
            evaluator = self._client = open_prometheus(mesh)
        self._evaluator = evaluator
        self._mesh, self._collector = mesh, collector
        self._origin, self._match = mesh.endpoint(mesh.prometheus_url).origin, Match(mesh.match)
        queues, owner_labels = Queues(mesh.queues, mesh.queue_query), OwnerLabels(mesh.team_labels, CONTACT_LABELS)
        self._cluster = ClusterState(queues, owner_labels)
        self._surveyor = Surveyor(evaluator, mesh, collector, clock)
        self._service_count = 0  # number of services in the newest snapshot
        self._clusters_read: tuple[str, ...] = ()
        self._detected_at = datetime.min.replace(tzinfo=UTC)
        self._open = partial(DialectReader, evaluator, self._cluster, collector, mesh.cluster_label)
        dialect = configured_dialect(mesh)
        self._reader = self._open(dialect, self._surveyor.plan) if dialect else None  # None: no dialect is known yet

    @property
    def dialect(self) -> Dialect | None:
        """The mesh's dialect; None if it is not known yet."""
        return self._reader.dialect if self._reader else None

    @property
    def workload_services(self) -> WorkloadServices:
        """Known services of each workload."""
        return self._cluster.workloads.services if self._cluster.workloads else {}

    def poll(self, at: datetime) -> Poll:
        if self._reader is None:
            reader, answers = self._detect(at)
            if reader is None:
                return Poll(at, None, answers, why=self._explain_undetected(answers, at))
            return self._poll(reader, at)
        poll = self._poll(self._reader, at)
        is_lost = poll.snapshot is None and not poll.failures
        reader = self._detect_again(self._reader, at, SOON_SECONDS if is_lost else AGAIN_SECONDS)
        return self._poll(reader, at) if reader and is_lost else poll

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def _poll(self, reader: DialectReader, at: datetime) -> Poll:
        """Survey the series, and poll an instant. If many services are missing, survey again."""
        reader = self._survey(self._surveyor.update, reader, at) or reader
        poll = reader.poll(at, self._arrival())
        services = poll.snapshot.num_nodes if poll.snapshot else 0
        if 2 * services < max(self._service_count, 1):
            other_reader = self._survey(self._surveyor.look, reader, at)
            if other_reader is not None:  # the survey has found out why, and what to read instead
                poll = other_reader.poll(at, self._arrival())
                services = poll.snapshot.num_nodes if poll.snapshot else 0
        self._service_count = services or self._service_count
        behind, survey = self._surveyor.plan.behind_seconds, self._surveyor.survey
        poll = replace(poll, survey=survey, arrival=self._arrival(), behind_seconds=behind)
        return replace(poll, why=poll.why or "; ".join(map(str, poll.remarks)))

    def _arrival(self) -> tuple[Finding, ...]:
        return remark(self._surveyor.survey, self._collector)

    def _survey(
        self, look: Callable[[Dialect, Dialect, datetime], bool], reader: DialectReader, at: datetime
    ) -> DialectReader | None:
        """Survey the series. Returns the reader that follows the new plan; None if nothing has changed."""
        surveyor, is_changed = self._surveyor, look(reader.dialect, reader.classic, at)
        if surveyor.survey is not None and surveyor.survey.is_native not in (None, reader.is_native):
            is_changed, is_native = True, bool(surveyor.survey.is_native)
            reader = self._open(reader.classic, surveyor.plan, is_native=is_native, before=reader)
            surveyor.look(reader.dialect, reader.classic, at, 0.0)
        if not is_changed:
            return None
        clusters = surveyor.survey.clusters if surveyor.survey else None
        read = clusters.read if clusters else ()
        if read != self._clusters_read:  # other clusters have other services
            self._clusters_read, self._cluster.workloads = read, None
            reader = self._open(reader.classic, surveyor.plan, is_native=reader.is_native)
        reader.follow(surveyor.plan)
        self._reader = reader
        return reader

    def _detect(self, at: datetime) -> tuple[DialectReader | None, Mapping[Role, QueryAnswer]]:
        """Detect the kind of a mesh that is not known yet. Returns its reader, or None, and the queries' results."""
        within = self._collector.deadline_seconds
        dialect, answers = detect_dialect(self._evaluator, at, within, self._match)
        if dialect is None and self._match:  # the survey says what is wrong with the matchers
            dialect, answers = detect_dialect(self._evaluator, at, within)
        if dialect is not None:
            self._detected_at, self._reader = at, self._open(dialect, self._surveyor.plan)
        return self._reader, answers

    def _explain_undetected(self, answers: Mapping[Role, QueryAnswer], at: datetime) -> str:
        within, match, hint = self._collector.deadline_seconds, self._match, ""
        if not any(answer.failed for answer in answers.values()):
            reason = find_other_spellings(self._evaluator, [*KNOWN.values()], at, within)
            if reason := reason or find_late(self._evaluator, at, within, match):
                return reason
            hint = find_other_requests(self._evaluator, [*KNOWN.values()], at, within)
        return _detection_problem(answers, self._origin, match, hint)

    def _detect_again(self, reader: DialectReader, at: datetime, apart: float) -> DialectReader | None:
        """Detect the kind of mesh again unless the settings name it, or the last time was less than ``apart`` s ago.
        Returns the reader of another kind; None if the kind is the same.

        A mesh keeps its kind while its series exist, so that a second kind of telemetry beside it changes nothing;
        except for a kind that reads everything the present one reads, and more. An ingress controller is added, but
        does not replace a mesh.
        """
        if self._mesh.source != "auto" or abs((at - self._detected_at).total_seconds()) < apart:
            return None
        current = reader.dialect
        dialect, answers = detect_dialect(self._evaluator, at, self._collector.deadline_seconds, self._match)
        if dialect is None or any(answer.failed for answer in answers.values()):
            return None
        self._detected_at = at
        has_series = self._has_requests(current, at)
        new_kinds, old_kinds = _kinds(dialect), _kinds(current)
        if new_kinds <= old_kinds or has_series is None:
            return None
        if has_series and not old_kinds < new_kinds and SUPERSETS.get(current.name) != dialect.name:
            return None
        log.warning(
            "the mesh at %s was %s and is %s now: its metrics %s",
            self._origin,
            ", ".join(sorted(old_kinds)),
            ", ".join(sorted(new_kinds)),
            "have more" if has_series else "have ended",
        )
        query, next_query = current.serves, dialect.serves
        keeps_names = query and next_query and query.labels == next_query.labels  # of workloads' services
        self._reader = self._open(dialect, self._surveyor.plan, before=reader if keeps_names else None)
        self._surveyor.forget()
        return self._reader

    def _has_requests(self, dialect: Dialect, at: datetime) -> bool | None:
        """Return whether series of a dialect's requests exist; None if the query failed."""
        selectors = range_selectors(dialect.services["requests"].promql)
        text = " or ".join(f"count({self._match.apply(selector)})" for selector in selectors)
        answer = self._evaluator.ask({"requests": text}, at, self._collector.deadline_seconds)["requests"]
        return None if answer.failed else len(answer.samples) > 0

    def ask(self, queries: Mapping[K, Query], at: datetime, *, beside: bool = False) -> dict[K, QueryAnswer]:
        """Evaluate further queries for the doctor, about the mesh or about exporters ``beside`` it."""
        match = self._surveyor.plan.exporter_match if beside else self._surveyor.plan.match
        texts = {name: query.at(0, match=match) for name, query in queries.items()}
        return self._evaluator.ask(texts, at, self._collector.deadline_seconds)

    def gaps(self, at: datetime) -> list[FoundGap]:
        """Return the configuration gaps of this mesh's sources, or of all sources if none is known. A failed query
        finds nothing."""
        gaps = {
            (part.name, gap.name): gap
            for dialect in ([self.dialect] if self.dialect else KNOWN.values())
            for parts in [(dialect, *dialect.beside)]
            for part in parts
            for gap in part.gaps
            if not (gap.of_calls and any(sibling is not part and not sibling.front_door for sibling in parts))
        }
        answers = self.ask({name: Query(gap.promql, ()) for name, gap in gaps.items()}, at)
        counts = {name: round(answer.samples.values.sum()) for name, answer in answers.items()}
        return [FoundGap(name[0], gaps[name], count) for name, count in counts.items() if count]


def open_prometheus(mesh: MeshSettings) -> Prometheus:
    return Prometheus(
        mesh.endpoint(mesh.prometheus_url), tokens=_token_source(mesh), harmless_warnings=mesh.harmless_warnings
    )


def configured_dialect(mesh: MeshSettings) -> Dialect | None:
    """Return the dialect that the settings name, or several combined; None if it must be detected."""
    if mesh.source == "auto":
        return None
    generic = {"generic": generic_dialect(mesh.generic)} if mesh.generic else {}
    return combine([generic.get(name) or KNOWN[name] for name in mesh.sources])


def generic_dialect(settings: GenericSettings) -> Dialect:
    services, calls = (
        {
            role: Query(
                promql,
                labels,
                settings.bucket_unit if role == "buckets" else 1.0,
                "max" if role in SHARES else "sum",
                is_verbatim=True,
            )
            for role, promql in queries.items()
        }
        for queries, labels in ((settings.services, settings.service_labels), (settings.calls, settings.call_labels))
    )
    return Dialect("generic", services, calls, (), in_flight_of_durations="long_requests" in services)


def detect_dialect(
    evaluator: Evaluator, at: datetime, within: float, match: Match = EVERYTHING
) -> tuple[Dialect | None, Mapping[Role, QueryAnswer]]:
    """Find the first known dialect whose metrics exist, with the ingress controllers that exist beside it.

    Returns:
        The dialect, or None; and the results of the queries.
    """
    answers = evaluator.ask({name: _signature_query(kind, match) for name, kind in KNOWN.items()}, at, within)
    present = [kind for name, kind in KNOWN.items() if len(answers[name].samples)]
    mesh = next((kind for kind in present if not kind.front_door), None)
    front_doors = [kind for kind in present if kind.front_door]
    dialect = combine([mesh, *front_doors] if mesh else front_doors) if present else None
    # The failed query may concern a dialect that comes first, or an ingress controller.
    earlier = list(takewhile(lambda kind: kind is not mesh, KNOWN.values()))
    if any(answers[kind.name].failed for kind in KNOWN.values() if kind.front_door or kind in earlier):
        dialect = None
    return dialect, {(DETECTION[0], name): answer for name, answer in answers.items()}


def find_late(evaluator: Evaluator, at: datetime, within: float, match: Match) -> str:
    """Explain why no dialect is found although there was one: its samples have stopped, or arrive later than
    Prometheus' lookback. Empty if there are none in the last hour, or if the query fails."""
    texts = {
        dialect.signature[0]: " or ".join(
            f"time() - max(max_over_time(timestamp({match.apply(series)})[{LATEST_SECONDS}s:1m]))"
            for series in dialect.signature
        )
        for dialect in KNOWN.values()
    }
    for series, answer in evaluator.ask(texts, at, within).items():
        if len(answer.samples):
            minutes = int(answer.samples.values.min() // 60)
            return (
                f"the newest sample of {match.apply(series)} is {minutes} minutes old; check what scrapes the mesh, or "
                f"set behind_seconds = {60 * (minutes + 2)} if data always arrive that late"
            )
    return ""


def _kinds(dialect: Dialect) -> set[str]:
    return {name.removesuffix(SUFFIX) for name in dialect.names}


def _signature_query(dialect: Dialect, match: Match) -> str:
    signature = dict.fromkeys((*dialect.signature, *native(dialect).signature))
    return Query(" or ".join(f"count({series})" for series in signature), ()).at(0, match=match)


def _detection_problem(answers: Mapping[Role, QueryAnswer], origin: str, match: Match, remark: str) -> str:
    failure = next((answer for answer in answers.values() if answer.failed), None)
    if failure:
        reach = "cannot reach Prometheus" if failure.failed == "unreachable" else f"{failure.failed}: Prometheus"
        return f"{reach} at {origin}: {failure.detail}"
    names = dict.fromkeys(
        name for dialect in KNOWN.values() for series in dialect.signature[:1] for name in matched_metrics(series)
    )
    unread = f", but {remark}" if remark else ""
    return (
        f"expected the metrics of a mesh, found none of {', '.join(names)}{unread}; check that this Prometheus scrapes "
        f"the mesh{', correct match' if match else ''}, or set source = generic with queries of your own"
    )


def _token_source(mesh: MeshSettings) -> TokenSource | None:
    if mesh.oauth2 is not None:
        return OAuth2Tokens(OAuth2Client(**dict(mesh.oauth2)))  # the same fields
    return GoogleTokens() if mesh.google else None
