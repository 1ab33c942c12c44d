"""Polls a mesh's snapshot at any instant from one Prometheus."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from model.errors import InvalidSnapshot
from model.snapshot import MeshSnapshot, Signal
from serve_app.collect.base import Poll, Role
from serve_app.collect.prometheus.client import Prometheus
from serve_app.collect.prometheus.cluster_state import ClusterState
from serve_app.collect.prometheus.clusters import name_clusters, name_clusters_of
from serve_app.collect.prometheus.columns import ColumnCache
from serve_app.collect.prometheus.combine import CALLS, KUBERNETES, SERVICES, Levels, MeshRows, level_of, split_level
from serve_app.collect.prometheus.dialects.shipped import KNOWN
from serve_app.collect.prometheus.groups import Clock
from serve_app.collect.prometheus.keys import Column, Key
from serve_app.collect.prometheus.known_calls import KNOWN_SECONDS, KnownCalls
from serve_app.collect.prometheus.kubernetes import (
    ANNOTATIONS,
    AUTOSCALERS,
    CONTACT_LABELS,
    CONTROLLERS,
    OWNERS_OF_SERVICES,
    OwnerLabels,
)
from serve_app.collect.prometheus.native import SUFFIX, native
from serve_app.collect.prometheus.pods import POD_QUERIES, USAGE_QUERIES
from serve_app.collect.prometheus.query import RECORDED_FROM_CALLS, Dialect, Query
from serve_app.collect.prometheus.remarks import remark
from serve_app.collect.prometheus.rules import RecordingRules, recording_rules
from serve_app.collect.prometheus.signals import MAX_SINCE_SECONDS, PODS, Queues, read_cancellations, signal_queries
from serve_app.collect.prometheus.snapshot import assemble
from serve_app.collect.prometheus.survey import Plan, Surveyor
from serve_app.collect.prometheus.unread import describe_nameless, find_other_spellings, find_unfit_series
from serve_app.collect.prometheus.workloads import WorkloadServices
from serve_app.settings import CollectorSettings, MeshSettings

MAX_LABEL_SETS = 500_000  # cached; beyond that, the cache starts again
CHANGE_ROLES = {
    (KUBERNETES, role) for role in (*CONTROLLERS, *AUTOSCALERS, *POD_QUERIES, "serves")
}  # for planned changes

Queries = Mapping[Role, Query]


class PrometheusSource:
    """Polls one mesh; not thread-safe.

    If Prometheus evaluates the recording rules and they cover :data:`RECORDED_FROM_CALLS` calls or more, the recorded
    series are read instead of counters and buckets.

    Args:
        dialect: None: none is known yet; see :meth:`switch`.
    """

    def __init__(
        self,
        prometheus: Prometheus,
        dialect: Dialect | None,
        mesh: MeshSettings,
        collector: CollectorSettings,
        clock: Clock = time.time,
    ) -> None:
        self._prometheus, self._collector, self._cluster_label = prometheus, collector, mesh.cluster_label
        queues, owner_labels = Queues(mesh.queues, mesh.queue_query), OwnerLabels(mesh.team_labels, CONTACT_LABELS)
        self._about_cluster = _queries_of_cluster(queues, owner_labels)
        self._cluster = ClusterState(queues, owner_labels)
        self._surveyor = Surveyor(prometheus, mesh, collector, clock)
        self._service_count = 0  # number of services in the newest snapshot
        self._clusters_read: tuple[str, ...] = ()
        self._rules: RecordingRules | None = None
        self._read_rules: RecordingRules | None = None
        self._is_native = False
        self._columns = ColumnCache()
        self._texts: tuple[object, Mapping[Role, str]] = None, {}  # the last poll's texts, and their parameters
        self.dialect: Dialect | None = None  # names without clusters
        self._dialect: Dialect  # names with clusters
        self._rows: MeshRows
        if dialect is not None:
            self.switch(dialect)

    @property
    def workload_services(self) -> WorkloadServices:
        """Known services of each workload."""
        return self._cluster.workloads.services if self._cluster.workloads else {}

    @property
    def plan(self) -> Plan:
        return self._surveyor.plan

    def switch(self, dialect: Dialect) -> None:
        """Continue with this dialect of the same mesh. Known workloads are kept."""
        old, new = self.dialect.serves if self.dialect else None, dialect.serves
        self._is_native = False
        self._open(dialect)
        is_same = bool(old and new and old.labels == new.labels)  # so workloads' services keep their names
        self._begin_rows(keeps_names=is_same)
        self._surveyor.forget()

    def poll(self, at: datetime) -> Poll:
        self._survey(self._surveyor.update, at)
        poll = self._poll(at)
        services = poll.snapshot.num_nodes if poll.snapshot else 0
        if 2 * services < max(self._service_count, 1) and self._survey(self._surveyor.look, at):
            poll = self._poll(at)  # the survey has found out why, and what to read instead
            services = poll.snapshot.num_nodes if poll.snapshot else 0
        self._service_count = services or self._service_count
        poll = replace(
            poll,
            survey=self._surveyor.survey,
            arrival=remark(self._surveyor.survey, self._collector),
            behind_seconds=self.plan.behind_seconds,
        )
        return replace(poll, why=poll.why or "; ".join(map(str, poll.remarks)))

    def close(self) -> None:
        self._prometheus.close()

    def _survey(self, look: Callable[[Dialect, Dialect, datetime], bool], at: datetime) -> bool:
        """Survey the series, and follow the plan from now on. Returns whether it has changed."""
        assert self.dialect is not None
        is_changed = look(self.dialect, self._classic, at)
        survey = self._surveyor.survey
        if survey is not None and survey.is_native not in (None, self._is_native):
            self._is_native, is_changed = bool(survey.is_native), True
            self._open(self._classic)
            self._begin_rows(keeps_names=True)
            self._surveyor.look(self.dialect, self._classic, at, 0.0)
        if is_changed:
            self._follow_plan()
        return is_changed

    def _poll(self, at: datetime) -> Poll:
        until = time.monotonic() + self._collector.deadline_seconds
        if len(self._columns) > MAX_LABEL_SETS:
            self._begin_rows(keeps_names=True)
        self._read_rules = self._find_rules(at)
        queries = self._queries_to_read()
        texts = self._texts_of(queries, self._since(at))
        answers = self._prometheus.ask(texts, at, max(until - time.monotonic(), 0.0))
        levels, stale, masked_roles = self._columns.poll(queries, answers, at, self.plan.window_seconds)
        poll = Poll(
            at,
            None,
            answers,
            stale,
            masked_roles,
            recorded=bool(self._read_rules),
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
            return replace(poll, why=self._explain_empty(error, levels, at, until))
        return replace(
            poll,
            snapshot=snapshot,
            ignored_annotations=tuple(self._cluster.ignored_annotations),
            unmapped_queues=tuple(self._cluster.unmapped_queues),
            pods=self._cluster.coverage,
        )

    def _explain_empty(self, error: InvalidSnapshot, levels: Levels, at: datetime, until: float) -> str:
        """Explain why a snapshot has no services."""
        reason = str(error)
        if not any(levels[level]["requests"] for level in (SERVICES, CALLS)):
            within = max(until - time.monotonic(), 0.0)
            dialect = self.dialect or self._dialect
            unread = find_other_spellings(self._prometheus, (dialect,), at, within)
            unread = unread or find_unfit_series(self._prometheus, dialect, at, within, self.plan.match)
            nameless = self._columns.dropped_series([requests := (SERVICES, "requests")]).get(requests)
            unread = unread or ("; ".join(describe_nameless(nameless)) if nameless else "")
            reason = f"no service has a request rate over the last {self.plan.window_seconds:g} s"
            reason = "; ".join(filter(None, (reason, unread)))
        findings = remark(self._surveyor.survey, self._collector)
        unusual = (finding for finding in findings if finding.outcome != "ok")
        causes = (str(finding) for finding in unusual if finding.subject in ("scrapes", "lag", "match"))
        return "; ".join([reason, *causes])

    def _open(self, dialect: Dialect) -> None:
        """Prepare a dialect's queries for the mesh's kind of histograms."""
        self._classic = dialect
        self.dialect = self._dialect = dialect = native(dialect) if self._is_native else dialect
        if self._cluster_label:
            self._dialect = name_clusters_of(dialect, self._cluster_label)
        of_mesh = {"serves": self._dialect.serves, "relays": self._dialect.relays}
        self._queries = {
            **_queries_of_mesh(self._dialect),
            **{(KUBERNETES, role): self._name_clusters(query) for role, query in self._about_cluster.items()},
            **{(KUBERNETES, role): query for role, query in of_mesh.items() if query is not None},
        }
        self._prepare_rules()

    def _prepare_rules(self) -> None:
        """Prepare recording rules for the window in use."""
        self._rules = self._read_rules = None
        if self._dialect.name.removesuffix(SUFFIX) in KNOWN:  # `tagae rules` writes rules for these only
            self._rules = recording_rules(self._dialect, self._collector.interval_seconds, self.plan.window_seconds)

    def _follow_plan(self) -> None:
        """Poll other series, or with other windows."""
        self._prepare_rules()
        clusters = self._surveyor.survey.clusters if self._surveyor.survey else None
        read = clusters.read if clusters else ()
        if read != self._clusters_read:  # other clusters have other services
            self._clusters_read = read
            self._begin_rows(keeps_names=False)
            self._cluster.workloads = None

    def _begin_rows(self, *, keeps_names: bool) -> None:
        """Begin to read another dialect's or other clusters' rows."""
        rows = MeshRows(self._dialect)
        if keeps_names:
            rows.follow(self._rows)
        self._rows, self._columns = rows, ColumnCache()

    def _name_clusters(self, query: Query) -> Query:
        """Return a Kubernetes query whose namespaces and nodes begin with the cluster, if the settings ask for that."""
        label = self._cluster_label
        places = {place: label for place, name in enumerate(query.labels) if name in ("namespace", "node")}
        return name_clusters(query, places) if label and places else query

    def _texts_of(self, queries: Queries, since_seconds: float) -> Mapping[Role, str]:
        """Return each query's text. It is built again only if it may have changed."""
        made_for = self.plan, queries, since_seconds
        if self._texts[0] != made_for:
            self._texts = made_for, {role: self._text(role, query, since_seconds) for role, query in queries.items()}
        return self._texts[1]

    def _text(self, role: Role, query: Query, since_seconds: float = 0.0) -> str:
        plan = self.plan
        window = plan.container_window_seconds if role[0] == KUBERNETES else plan.window_seconds
        match = plan.exporter_match if role[0] == KUBERNETES and role[1] in self._about_cluster else plan.match
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
        text = self._rules.calls.at(0, match=self.plan.match)
        answer = self._prometheus.ask({"calls": text}, at, self._collector.deadline_seconds)["calls"]
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
        texts = {role: query.at(KNOWN_SECONDS, match=self.plan.match) for role, query in queries.items()}
        answers = self._prometheus.ask(texts, before, self._collector.deadline_seconds)
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
        cluster = self._cluster.read(columns, self.plan.container_window_seconds)

        def signals(keys: Sequence[Key]) -> list[Signal]:
            window = self.plan.window_seconds
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
            answer = self._prometheus.ask({"callers": text}, at, max(until - time.monotonic(), 0.0))["callers"]
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
        for role, answer in self._prometheus.ask(texts, before, self._collector.deadline_seconds).items():
            if not answer.failed:
                columns |= self._columns.read(role, queries[role], answer.samples)
        self._cluster.begin(columns, self.plan.container_window_seconds)


def _queries_of_mesh(dialect: Dialect) -> Queries:
    """Return the queries about services and calls, for a dialect and the dialects beside it."""
    return {
        (level_of(level, dialect, part), role): query
        for part in (dialect, *dialect.beside)
        for level, queries in ((SERVICES, part.services), (CALLS, part.calls))
        for role, query in queries.items()
    }


def _queries_of_cluster(queues: Queues, owner_labels: OwnerLabels) -> dict[str, Query]:
    """Return the queries about Kubernetes and signals, by role."""
    owners = {OWNERS_OF_SERVICES: owner_labels.query()} if owner_labels.exported_labels() else {}
    resources = USAGE_QUERIES | POD_QUERIES | CONTROLLERS | AUTOSCALERS | ANNOTATIONS
    return resources | owners | signal_queries(queues)


def _mask_in_flight(services: dict[str, Column]) -> dict[str, Column]:
    """Leave out requests in flight for services whose long requests end: each one would count with its whole duration,
    in a window in which it is no longer in flight."""
    if not {"in_flight", "long_requests"} <= services.keys():
        return services
    in_flight, long = services["in_flight"], services["long_requests"]
    return {**services, "in_flight": in_flight.only(~(long.at(in_flight.numbers) > 0))}
