"""Reads a mesh's snapshot at any instant from one Prometheus, in a dialect that is known."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from model.errors import InvalidSnapshot
from model.snapshot import MeshSnapshot, Signal
from serve_app.collect.base import Finding, Poll, Role
from serve_app.collect.prometheus.client import Evaluator
from serve_app.collect.prometheus.cluster_state import ClusterState
from serve_app.collect.prometheus.clusters import name_clusters, name_clusters_of
from serve_app.collect.prometheus.columns import ColumnCache
from serve_app.collect.prometheus.combine import CALLS, KUBERNETES, SERVICES, Levels, MeshRows, level_of, split_level
from serve_app.collect.prometheus.dialects.shipped import KNOWN
from serve_app.collect.prometheus.keys import Column, Key
from serve_app.collect.prometheus.known_calls import KNOWN_SECONDS, KnownCalls
from serve_app.collect.prometheus.kubernetes import AUTOSCALERS, CONTROLLERS
from serve_app.collect.prometheus.native import SUFFIX, native
from serve_app.collect.prometheus.pods import POD_QUERIES
from serve_app.collect.prometheus.query import RECORDED_FROM_CALLS, Dialect, Query
from serve_app.collect.prometheus.rules import RecordingRules, recording_rules
from serve_app.collect.prometheus.signals import MAX_SINCE_SECONDS, PODS, read_cancellations
from serve_app.collect.prometheus.snapshot import assemble
from serve_app.collect.prometheus.survey import Plan
from serve_app.collect.prometheus.unread import describe_nameless, find_other_spellings, find_unfit_series
from serve_app.settings import CollectorSettings

MAX_LABEL_SETS = 500_000  # cached; beyond that, the cache starts again
CHANGE_ROLES = {
    (KUBERNETES, role) for role in (*CONTROLLERS, *AUTOSCALERS, *POD_QUERIES, "serves")
}  # for planned changes

Queries = Mapping[Role, Query]


class DialectReader:
    """Reads one mesh in one dialect; not thread-safe.

    If Prometheus evaluates the recording rules and they cover :data:`RECORDED_FROM_CALLS` calls or more, the recorded
    series are read instead of counters and buckets.

    Args:
        cluster: its state outlives the reader.
        before: the reader of the same services in another form or dialect; their names are kept.

    Attributes:
        dialect: in the form that is read, with names without clusters.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        cluster: ClusterState,
        collector: CollectorSettings,
        cluster_label: str,
        dialect: Dialect,
        plan: Plan,
        *,
        is_native: bool = False,
        before: "DialectReader | None" = None,
    ) -> None:
        self._evaluator, self._cluster, self._collector = evaluator, cluster, collector
        self.classic, self.is_native = dialect, is_native
        self.dialect = native(dialect) if is_native else dialect
        self._dialect = name_clusters_of(self.dialect, cluster_label) if cluster_label else self.dialect
        of_mesh = {"serves": self._dialect.serves, "relays": self._dialect.relays}
        self._queries = {
            **_queries_of_mesh(self._dialect),
            **{(KUBERNETES, role): _name_clusters(query, cluster_label) for role, query in cluster.queries.items()},
            **{(KUBERNETES, role): query for role, query in of_mesh.items() if query is not None},
        }
        self._texts: tuple[object, Mapping[Role, str]] = None, {}  # the last poll's texts, and their parameters
        self._begin_rows(before)
        self.follow(plan)

    def follow(self, plan: Plan) -> None:
        """Read other series, or with other windows. The recording rules are prepared for the windows."""
        self._plan = plan
        self._rules: RecordingRules | None = None
        self._read_rules: RecordingRules | None = None
        if self._dialect.name.removesuffix(SUFFIX) in KNOWN:  # `tagae rules` writes rules for these only
            self._rules = recording_rules(self._dialect, self._collector.interval_seconds, plan.window_seconds)

    def poll(self, at: datetime, arrival: tuple[Finding, ...]) -> Poll:
        """Poll an instant; ``arrival``: the findings of the newest survey."""
        until = time.monotonic() + self._collector.deadline_seconds
        if len(self._columns) > MAX_LABEL_SETS:
            self._begin_rows(self)
        self._read_rules = self._find_rules(at)
        queries = self._queries_to_read()
        texts = self._texts_of(queries, self._since(at))
        answers = self._evaluator.ask(texts, at, max(until - time.monotonic(), 0.0))
        levels, stale, masked_roles = self._columns.poll(queries, answers, at, self._plan.window_seconds)
        poll = Poll(
            at,
            None,
            answers,
            stale,
            masked_roles,
            recorded=bool(self._read_rules),
            arrival=arrival,
            dropped=self._columns.dropped_series(answers),
            folded=self._columns.folded_names(),
        )
        if self._cluster.workloads is None:
            self._read_workloads_before(at)
        if missing := [role for role in queries if role[1] == "requests" and "requests" not in levels[role[0]]]:
            reasons = dict.fromkeys(f"{answers[role].failed} ({answers[role].detail})" for role in missing)
            subjects = " and ".join(dict.fromkeys(split_level(level)[0] for level, _ in missing))
            return replace(poll, why=f"no request rates of {subjects}: {'; '.join(reasons)}")
        self._learn_names(levels, at, until)
        if self._rows.known_calls is None:
            self._rows.known_calls = self._calls_before(levels, at)
        try:
            snapshot = self._assemble(levels, at)
        except InvalidSnapshot as error:
            return replace(poll, why=self._explain_empty(error, levels, poll, until))
        return replace(
            poll,
            snapshot=snapshot,
            ignored_annotations=tuple(self._cluster.ignored_annotations),
            unmapped_queues=tuple(self._cluster.unmapped_queues),
            pods=self._cluster.coverage,
        )

    def _explain_empty(self, error: InvalidSnapshot, levels: Levels, poll: Poll, until: float) -> str:
        """Explain why a snapshot has no services."""
        reason = str(error)
        if not any(levels[level]["requests"] for level in (SERVICES, CALLS)):
            within = max(until - time.monotonic(), 0.0)
            unread = find_other_spellings(self._evaluator, (self.dialect,), poll.at, within)
            unread = unread or find_unfit_series(self._evaluator, self.dialect, poll.at, within, self._plan.match)
            nameless = self._columns.dropped_series([requests := (SERVICES, "requests")]).get(requests)
            unread = unread or ("; ".join(describe_nameless(nameless)) if nameless else "")
            reason = f"no service has a request rate over the last {self._plan.window_seconds:g} s"
            reason = "; ".join(filter(None, (reason, unread)))
        causes = (str(finding) for finding in poll.remarks if finding.subject in ("scrapes", "lag", "match"))
        return "; ".join([reason, *causes])

    def _begin_rows(self, before: "DialectReader | None") -> None:
        rows = MeshRows(self._dialect)
        if before is not None:
            rows.follow(before._rows)
        self._rows: MeshRows = rows
        self._columns = ColumnCache()

    def _texts_of(self, queries: Queries, since_seconds: float) -> Mapping[Role, str]:
        """Return each query's text. It is built again only if it may have changed."""
        made_for = self._plan, queries, since_seconds
        if self._texts[0] != made_for:
            self._texts = made_for, {role: self._text(role, query, since_seconds) for role, query in queries.items()}
        return self._texts[1]

    def _text(self, role: Role, query: Query, since_seconds: float = 0.0) -> str:
        plan = self._plan
        window = plan.container_window_seconds if role[0] == KUBERNETES else plan.window_seconds
        match = plan.exporter_match if role[0] == KUBERNETES and role[1] in self._cluster.queries else plan.match
        # Dividing each bucket would cost Prometheus more than dividing the few values that result here.
        return query.at(window, since_seconds, match, per_second=role[1] != "buckets")

    def _since(self, at: datetime) -> float:
        """Return the seconds since the last successful event query, so that each event counts once."""
        seconds = self._columns.seconds_since((KUBERNETES, PODS), at) or 0.0
        return seconds if 0 < seconds <= MAX_SINCE_SECONDS else self._collector.interval_seconds

    def _find_rules(self, at: datetime) -> RecordingRules | None:
        """Return the recording rules if they exist and the mesh is large enough; if the query fails, the previous
        poll's."""
        if self._rules is None:
            return None
        text = self._rules.calls.at(0, match=self._plan.match)
        answer = self._evaluator.ask({"calls": text}, at, self._collector.deadline_seconds)["calls"]
        if answer.failed:
            return self._read_rules
        return self._rules if (answer.samples.values >= RECORDED_FROM_CALLS).any() else None

    def _queries_to_read(self) -> Queries:
        """Return all queries; for recorded series if there are rules."""
        if self._read_rules is None:
            return self._queries
        kubernetes = {role: query for role, query in self._queries.items() if role[0] == KUBERNETES}
        return {**kubernetes, **_queries_of_mesh(self._read_rules.dialect)}

    def _calls_before(self, levels: Levels, at: datetime) -> KnownCalls:
        """Return the calls that were made before the first poll."""
        if self._read_rules is not None:  # their window is fixed
            return KnownCalls()
        queries = {
            (level, role): query
            for (level, role), query in self._queries.items()
            if split_level(level)[0] == CALLS and role == "requests"
        }
        before = at - timedelta(seconds=self._collector.interval_seconds)
        texts = {role: query.at(KNOWN_SECONDS, match=self._plan.match) for role, query in queries.items()}
        answers = self._evaluator.ask(texts, before, self._collector.deadline_seconds)
        if any(answer.failed for answer in answers.values()):
            return KnownCalls()
        past = {role[0]: self._columns.read(role, queries[role], answer.samples) for role, answer in answers.items()}
        calls = self._rows.read({**levels, **past})[1]
        return KnownCalls().see_calls(calls["requests"], before.timestamp())

    def _assemble(self, levels: Levels, at: datetime) -> MeshSnapshot:
        columns, rows = levels[KUBERNETES], self._rows
        services, calls = rows.read(levels)
        calls = rows.list_known(services, calls, columns.get("relays", ()), at.timestamp())
        if self._dialect.in_flight_of_durations:
            services = _mask_in_flight(services)
        cluster = self._cluster.read(columns, self._plan.container_window_seconds)

        def signals(keys: Sequence[Key]) -> list[Signal]:
            window = self._plan.window_seconds
            cancellations = read_cancellations(services.get("cancelled"), services["requests"], keys, window)
            return [*self._cluster.read_signals(cluster, keys), *cancellations]

        snapshot = assemble(
            {**services, **cluster.resources},
            calls,
            at,
            external=self._dialect.external,
            changes=cluster.changes,
            policies=cluster.policies,
            signals=signals,
        )
        self._cluster.workloads = cluster.workloads  # last: changes are reported once, with a snapshot
        return snapshot

    def _learn_names(self, levels: Levels, at: datetime, until: float) -> None:
        """Learn which caller belongs to which service. Callers' workloads are queried when new callers appear."""
        names, query = self._rows.names, self._dialect.callers
        if (serves := levels[KUBERNETES].get("serves")) is not None:
            names.add_served(serves)
        if query is None:
            return
        calls = levels[CALLS]["requests"]
        callers = calls.table.name(calls.table.distinct(calls.part(0, 2)))
        if new_callers := [caller for caller in callers if not names.is_known(caller)]:
            text = self._text((CALLS, "callers"), query)
            answer = self._evaluator.ask({"callers": text}, at, max(until - time.monotonic(), 0.0))["callers"]
            if not answer.failed:  # else the next poll asks again
                columns = self._columns.read((KUBERNETES, "callers"), query, answer.samples)
                names.add_callers(columns["callers"], new_callers)

    def _read_workloads_before(self, at: datetime) -> None:
        """Read the workloads one interval before the first poll, so that this poll can already report planned
        changes."""
        queries = {role: query for role, query in self._queries.items() if role in CHANGE_ROLES}
        texts = {role: self._text(role, query) for role, query in queries.items()}
        before = at - timedelta(seconds=self._collector.interval_seconds)
        columns: dict[str, Column] = {}
        for role, answer in self._evaluator.ask(texts, before, self._collector.deadline_seconds).items():
            if not answer.failed:
                columns |= self._columns.read(role, queries[role], answer.samples)
        self._cluster.begin(columns, self._plan.container_window_seconds)


def _queries_of_mesh(dialect: Dialect) -> Queries:
    """Return the queries about services and calls, for a dialect and the dialects beside it."""
    return {
        (level_of(level, dialect, part), role): query
        for part in (dialect, *dialect.beside)
        for level, queries in ((SERVICES, part.services), (CALLS, part.calls))
        for role, query in queries.items()
    }


def _name_clusters(query: Query, label: str) -> Query:
    """Return a Kubernetes query whose namespaces and nodes begin with the cluster, if the settings ask for that."""
    places = {place: label for place, name in enumerate(query.labels) if name in ("namespace", "node")}
    return name_clusters(query, places) if label and places else query


def _mask_in_flight(services: dict[str, Column]) -> dict[str, Column]:
    """Leave out requests in flight for services whose long requests end: each one would count with its whole duration,
    in a window in which it is no longer in flight."""
    if not {"in_flight", "long_requests"} <= services.keys():
        return services
    in_flight, long = services["in_flight"], services["long_requests"]
    return {**services, "in_flight": in_flight.only(~(long.at(in_flight.numbers) > 0))}
