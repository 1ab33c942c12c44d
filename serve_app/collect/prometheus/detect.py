"""Create the source of a configured mesh; detect the kind of mesh from its metrics if the settings do not name it."""

import logging
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import takewhile
from typing import NamedTuple, TypeVar

from serve_app.collect.base import Poll, Role
from serve_app.collect.prometheus.client import K, Prometheus, QueryAnswer
from serve_app.collect.prometheus.combine import combine
from serve_app.collect.prometheus.dialects.shipped import KNOWN
from serve_app.collect.prometheus.groups import Clock
from serve_app.collect.prometheus.native import SUFFIX, native
from serve_app.collect.prometheus.query import EVERYTHING, Dialect, Gap, Match, Query, matched_metrics, range_selectors
from serve_app.collect.prometheus.source import PrometheusSource
from serve_app.collect.prometheus.survey import AGAIN_SECONDS, SOON_SECONDS
from serve_app.collect.prometheus.unread import find_other_requests, find_other_spellings
from serve_app.net.google import GoogleTokens
from serve_app.net.tokens import OAuth2Client, OAuth2Tokens, TokenSource
from serve_app.settings import CollectorSettings, GenericSettings, MeshSettings
from serve_app.settings.roles import SHARES

P = TypeVar("P", bound=Prometheus)
DETECTION = ("detection", "metrics")
SUPERSETS = {"istio": "istio-ambient"}  # kinds that read everything another kind reads, and more
LATEST_SECONDS = 3600  # how far back to search for samples older than Prometheus' lookback
log = logging.getLogger(__name__)


class FoundGap(NamedTuple):
    """A gap in the telemetry of a mesh: the dialect's name, what is missing, and the number of series that lack it."""

    source: str
    gap: Gap
    series: int


class MeshSource(PrometheusSource):
    """Polls the snapshots of one configured mesh.

    Args:
        prometheus: client of its Prometheus; None: a client for live data.
    """

    def __init__(
        self,
        mesh: MeshSettings,
        collector: CollectorSettings,
        clock: Clock = time.time,
        prometheus: Prometheus | None = None,
    ) -> None:
        self._origin = mesh.endpoint(mesh.prometheus_url).origin
        self._match = Match(mesh.match)
        self._detects, self._detected_at = mesh.source == "auto", datetime.min.replace(tzinfo=UTC)
        super().__init__(
            prometheus or open_prometheus(Prometheus, mesh), configured_dialect(mesh), mesh, collector, clock
        )

    def poll(self, at: datetime) -> Poll:
        if self.dialect is None:
            return self._detect(at)
        poll = super().poll(at)
        is_lost = poll.snapshot is None and not poll.failures
        if self._detects and self._look_again(at, SOON_SECONDS if is_lost else AGAIN_SECONDS) and is_lost:
            return super().poll(at)
        return poll

    def _detect(self, at: datetime) -> Poll:
        """Poll a mesh whose kind is not known yet."""
        within = self._collector.deadline_seconds
        dialect, answers = detect_dialect(self._prometheus, at, within, self._match)
        if dialect is None and self._match:  # the source says what is wrong with the matchers
            dialect, answers = detect_dialect(self._prometheus, at, within)
        if dialect is None:
            has_failed = any(answer.failed for answer in answers.values())
            match = self._match
            unread = "" if has_failed else find_other_spellings(self._prometheus, [*KNOWN.values()], at, within)
            late = "" if has_failed or unread else find_late(self._prometheus, at, within, match)
            remark = ""
            if not (has_failed or unread or late):
                remark = find_other_requests(self._prometheus, [*KNOWN.values()], at, within)
            reason = unread or late or _detection_problem(answers, self._origin, match, remark)
            return Poll(at, None, answers, why=reason)
        self._detected_at = at
        self.switch(dialect)
        return super().poll(at)

    def _look_again(self, at: datetime, apart: float) -> bool:
        """Detect the kind of mesh again unless the last time was less than ``apart`` s ago. Returns whether the kind
        changed.

        A mesh keeps its kind while its series exist, so that a second kind of telemetry beside it changes nothing;
        except for a kind that reads everything the present one reads, and more. An ingress controller is added, but
        does not replace a mesh.
        """
        current = self.dialect
        if current is None or abs((at - self._detected_at).total_seconds()) < apart:
            return False
        dialect, answers = detect_dialect(self._prometheus, at, self._collector.deadline_seconds, self._match)
        if dialect is None or any(answer.failed for answer in answers.values()):
            return False
        self._detected_at = at
        has_series = self._has_requests(current, at)
        new_kinds, old_kinds = _kinds(dialect), _kinds(current)
        if new_kinds <= old_kinds or has_series is None:
            return False
        if has_series and not old_kinds < new_kinds and SUPERSETS.get(current.name) != dialect.name:
            return False
        log.warning(
            "the mesh at %s was %s and is %s now: its metrics %s",
            self._origin,
            ", ".join(sorted(old_kinds)),
            ", ".join(sorted(new_kinds)),
            "have more" if has_series else "have ended",
        )
        self.switch(dialect)
        return True

    def _has_requests(self, dialect: Dialect, at: datetime) -> bool | None:
        """Return whether series of a dialect's requests exist; None if the query failed."""
        selectors = range_selectors(dialect.services["requests"].promql)
        text = " or ".join(f"count({self._match.apply(selector)})" for selector in selectors)
        answer = self._prometheus.ask({"requests": text}, at, self._collector.deadline_seconds)["requests"]
        return None if answer.failed else len(answer.samples) > 0

    def ask(self, queries: Mapping[K, Query], at: datetime, *, beside: bool = False) -> dict[K, QueryAnswer]:
        """Evaluate further queries for the doctor, about the mesh or about exporters ``beside`` it."""
        match = self.plan.exporter_match if beside else self.plan.match
        texts = {name: query.at(0, match=match) for name, query in queries.items()}
        return self._prometheus.ask(texts, at, self._collector.deadline_seconds)

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


def open_prometheus(kind: type[P], mesh: MeshSettings) -> P:
    return kind(
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
    prometheus: Prometheus, at: datetime, within: float, match: Match = EVERYTHING
) -> tuple[Dialect | None, Mapping[Role, QueryAnswer]]:
    """Find the first known dialect whose metrics exist, with the ingress controllers that exist beside it.

    Returns:
        The dialect, or None; and the results of the queries.
    """
    answers = prometheus.ask({name: _signature_query(kind, match) for name, kind in KNOWN.items()}, at, within)
    present = [kind for name, kind in KNOWN.items() if len(answers[name].samples)]
    mesh = next((kind for kind in present if not kind.front_door), None)
    front_doors = [kind for kind in present if kind.front_door]
    dialect = combine([mesh, *front_doors] if mesh else front_doors) if present else None
    # The failed query may concern a dialect that comes first, or an ingress controller.
    earlier = list(takewhile(lambda kind: kind is not mesh, KNOWN.values()))
    if any(answers[kind.name].failed for kind in KNOWN.values() if kind.front_door or kind in earlier):
        dialect = None
    return dialect, {(DETECTION[0], name): answer for name, answer in answers.items()}


def find_late(prometheus: Prometheus, at: datetime, within: float, match: Match) -> str:
    """Explain why no dialect is found although there was one: its samples have stopped, or arrive later than
    Prometheus' lookback. Empty if there are none in the last hour, or if the query fails."""
    texts = {
        dialect.signature[0]: " or ".join(
            f"time() - max(max_over_time(timestamp({match.apply(series)})[{LATEST_SECONDS}s:1m]))"
            for series in dialect.signature
        )
        for dialect in KNOWN.values()
    }
    for series, answer in prometheus.ask(texts, at, within).items():
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
