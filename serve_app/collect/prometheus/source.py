"""Poll the snapshot of a mesh at any instant from one Prometheus."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from model.errors import InvalidSnapshot
from model.snapshot import MeshSnapshot, Owner, ServicePolicy, Signal
from serve_app.collect.prometheus.client import Prometheus, QueryAnswer, Samples
from serve_app.collect.prometheus.clusters import name_clusters, name_clusters_of
from serve_app.collect.prometheus.combine import Combination, join_role, of_part, queries_beside, split_role
from serve_app.collect.prometheus.dialects.known import KNOWN
from serve_app.collect.prometheus.frames import (
    BucketReader,
    Column,
    DroppedSeries,
    Key,
    KeyIndex,
    LabelReader,
    read_column,
    read_quantiles,
)
from serve_app.collect.prometheus.groups import Clock
from serve_app.collect.prometheus.known_calls import KNOWN_SECONDS, KnownCalls
from serve_app.collect.prometheus.kubernetes import (
    ANNOTATIONS,
    AUTOSCALERS,
    CONTROLLERS,
    OWNERS_OF_SERVICES,
    WORKLOAD,
    OwnerLabels,
    ServiceMapping,
    read_annotations,
    read_controllers,
    read_owners,
    with_owners,
)
from serve_app.collect.prometheus.long_requests import Border
from serve_app.collect.prometheus.native import SUFFIX, count_buckets, count_native, native
from serve_app.collect.prometheus.pods import OWNERS, POD_QUERIES, RESOURCES, USAGE_QUERIES, PodCoverage, Pods
from serve_app.collect.prometheus.query import Dialect, Query, QueryOptions
from serve_app.collect.prometheus.remarks import Remark, explain_empty, remark
from serve_app.collect.prometheus.reporters import RowJoiner, without_relayed
from serve_app.collect.prometheus.rules import RecordingRules, recording_rules
from serve_app.collect.prometheus.service_names import ServiceNames
from serve_app.collect.prometheus.signals import (
    LONGEST_SINCE,
    PODS,
    Queues,
    by_workload,
    read_cancellations,
    read_signals,
    search_query,
    signal_queries,
)
from serve_app.collect.prometheus.snapshot import assemble
from serve_app.collect.prometheus.survey import Plan, Survey, SurveyedQueries, Surveyor
from serve_app.collect.prometheus.unread import find_other_spellings, find_unfit_series
from serve_app.collect.prometheus.workloads import WorkloadServices, WorkloadState
from serve_app.collect.service_labels import Folded, ServiceLabels
from serve_app.settings.roles import SHARES

SERVICES, CALLS, KUBERNETES = "services", "calls", "kubernetes"
MAX_LABEL_SETS = 500_000  # cached; beyond that, the cache starts again

Role = tuple[str, str]  # services, calls or kubernetes; and the role of the query there
FRESH_ONLY = {(KUBERNETES, PODS)}  # old values cannot stand in: events would count twice
NAMESPACE = ("namespace",)
ENDS = {SERVICES: 1, CALLS: 2}  # services that a series names
CHANGE_ROLES = {
    (KUBERNETES, role) for role in (*CONTROLLERS, *AUTOSCALERS, *POD_QUERIES, "serves")
}  # for planned changes


@dataclass(frozen=True, slots=True)
class Poll:
    """The result of polling one instant.

    Attributes:
        at: the instant.
        snapshot: None if services or calls are unknown and no recent values can stand in.
        answers: result of each query.
        stale_seconds: age of the values that stand in for a failed query, by query.
        masked: failed queries without recent values; their metrics are not observed in the snapshot.
        why: why there is no snapshot; beside a snapshot, the remarks.
        ignored_annotations: descriptions of invalid annotations.
        recorded: whether recording rules were read.
        signal_sources: sources of signals that exist; None: unknown.
        unmapped_queues: queues that belong to no service of the mesh.
        survey: how the series arrive, and from where; None: unknown.
        remarks: what is unusual about that, for people.
        behind_seconds: how old the newest snapshot should be, because data arrive late; 0: as in the settings.
        pods: which pods belong to which services; None: unknown.
        dropped: series that name no service, by query.
        folded: names in the labels that are no services.
    """

    at: datetime
    snapshot: MeshSnapshot | None
    answers: Mapping[Role, QueryAnswer]
    stale_seconds: Mapping[Role, float] = field(default_factory=dict)
    masked: tuple[Role, ...] = ()
    why: str = ""
    ignored_annotations: tuple[str, ...] = ()
    recorded: bool = False
    signal_sources: frozenset[str] | None = None
    unmapped_queues: tuple[str, ...] = ()
    survey: Survey | None = None
    remarks: tuple[Remark, ...] = ()
    behind_seconds: float = 0.0
    pods: PodCoverage | None = None
    dropped: Mapping[Role, DroppedSeries] = field(default_factory=dict)
    folded: tuple[Folded, ...] = ()


@dataclass(frozen=True, slots=True)
class CachedColumns:
    """Columns of the last successful query, and their instant."""

    columns: Mapping[str, Column]
    at: datetime


Queries = Mapping[Role, Query]
Columns = Mapping[str, Mapping[str, Column]]  # by level and role


class PrometheusSource:
    """Polls one mesh; not thread-safe.

    If Prometheus evaluates the recording rules and they cover ``options.recorded_from_calls`` calls or more, the
    recorded series are read instead of counters and buckets.

    Args:
        owner_labels: name the owners of services; None: no owners are read.
    """

    def __init__(
        self,
        prometheus: Prometheus,
        dialect: Dialect,
        options: QueryOptions | None = None,
        queues: Queues | None = None,
        clock: Clock = time.time,
        owner_labels: OwnerLabels | None = None,
    ) -> None:
        self._prometheus = prometheus
        self.options = options or QueryOptions()
        self._queues = queues or Queues()
        self._owner_labels = owner_labels or OwnerLabels()
        self._unmapped: list[str] = []
        self._surveyor = Surveyor(prometheus, self.options, clock)
        self._seen = 0  # services of the newest snapshot
        self._clusters_read: tuple[str, ...] = ()
        self._rules: list[RecordingRules] = []
        self._read_rules: RecordingRules | None = None
        self._is_native = False
        self._open(dialect)
        self._coverage: PodCoverage | None = None
        self._workloads: WorkloadState | None = None  # None before the first poll
        self._policies: list[ServicePolicy] = []
        self._owners: dict[str, Owner] = {}
        self._ignored: list[str] = []
        self._names = ServiceNames(dialect.external)
        self._labels = _LabelCache()
        self._rows = self._row_joiners()
        self._callers_known = 0  # keys of calls whose callers' names are known
        self._known_calls: KnownCalls | None = None  # None before the first poll
        self._cached: dict[Role, CachedColumns] = {}

    @property
    def interval_seconds(self) -> float:
        """Expected time between two snapshots, s."""
        return self.options.interval_seconds

    @property
    def workload_services(self) -> WorkloadServices:
        """Known services of each workload."""
        return self._workloads.services if self._workloads else {}

    @property
    def _plan(self) -> Plan:
        return self._surveyor.plan

    def _remarks(self) -> tuple[Remark, ...]:
        return remark(self._surveyor.survey, self.options)

    @property
    def dialect(self) -> Dialect:
        """The queries of the mesh, without clusters in their names."""
        return self._given

    def switch(self, dialect: Dialect) -> None:
        """Continue with another dialect of the same mesh. What is known about its workloads stays."""
        before, now = self._given.serves, dialect.serves
        self._is_native = False
        self._open(dialect)
        if before and now and before.labels == now.labels:
            self._forget_labels()  # the same workloads, whose services keep their names
        else:
            self._forget_names()
        self._surveyor.forget()

    def poll(self, at: datetime) -> Poll:
        """Poll the snapshot of one instant."""
        self._survey(self._surveyor.update, at)
        poll = self._poll(at)
        services = poll.snapshot.num_nodes if poll.snapshot else 0
        if 2 * services < max(self._seen, 1) and self._survey(self._surveyor.look, at):
            poll = self._poll(at)  # the look has found out why, and what to read instead
            services = poll.snapshot.num_nodes if poll.snapshot else 0
        self._seen = services or self._seen
        remarks = self._remarks()
        return replace(
            poll,
            why=poll.why or "; ".join(map(str, remarks)),
            survey=self._surveyor.survey,
            remarks=remarks,
            behind_seconds=self._plan.behind_seconds,
        )

    def _survey(self, look: Callable[[SurveyedQueries, datetime], bool], at: datetime) -> bool:
        """Look at the series, and poll what they need from now on. Returns whether that has changed."""
        changed = look(self._surveyed, at)
        survey = self._surveyor.survey
        if survey is not None and survey.is_native not in (None, self._is_native):
            self._is_native, changed = bool(survey.is_native), True
            self._open(self._classic)
            self._forget_labels()  # the workloads are the same, and their services keep their names
            self._surveyor.look(self._surveyed, at, 0.0)
        if changed:
            self._follow_plan()
        return changed

    def _poll(self, at: datetime) -> Poll:
        until = time.monotonic() + self.options.within_seconds
        if len(self._labels) > MAX_LABEL_SETS:
            self._forget_labels()
        self._read_rules = self._find_rules(at)
        survey = self._surveyor.survey
        sources = survey.signal_sources if survey else None
        signals = signal_queries(sources or (), self._queues)
        queries = {
            **self._queries_to_read(),
            **{(KUBERNETES, role): self._name_clusters(query) for role, query in signals.items()},
        }
        since = self._since(at)
        texts = {"/".join(role): self._text(role, query, since) for role, query in queries.items()}
        results = self._prometheus.ask(texts, at, max(until - time.monotonic(), 0.0))
        answers = {role: results["/".join(role)] for role in queries}
        found, stale, masked = self._columns(queries, answers, at)
        poll = Poll(
            at,
            None,
            answers,
            stale,
            masked,
            recorded=bool(self._read_rules),
            signal_sources=sources,
            dropped=self._labels.dropped_series(answers),
            folded=self._labels.folded(),
        )
        if self._workloads is None:
            self._workloads = self._read_workloads_before(at)
        missing = [role for role in queries if split_role(role[1])[0] == "requests" and role[1] not in found[role[0]]]
        if missing:
            failed = (answers[role] for role in missing)
            reasons = dict.fromkeys(f"{answer.failed} ({answer.detail})" for answer in failed)
            levels = " and ".join(dict.fromkeys(role[0] for role in missing))
            return replace(poll, why=f"no request rates of {levels}: {'; '.join(reasons)}")
        self._learn_names(found, at, until)
        if self._known_calls is None:
            self._known_calls = self._calls_before(found, at)
        try:
            snapshot = self._assemble(found, at)
        except InvalidSnapshot as error:
            seen = found[SERVICES]["requests"].numbers.size or found[CALLS]["requests"].numbers.size
            why = str(error) if seen else f"no service has a request rate over the last {self._plan.window_seconds:g} s"
            if not seen:
                within = max(until - time.monotonic(), 0.0)
                unread = find_other_spellings(self._prometheus, (self._given,), at, within)
                unread = unread or find_unfit_series(self._prometheus, self._given, at, within, self._plan.match)
                why = "; ".join(filter(None, (why, unread)))
            return replace(poll, why=explain_empty(why, self._remarks()))
        return replace(
            poll,
            snapshot=snapshot,
            ignored_annotations=tuple(self._ignored),
            unmapped_queues=tuple(self._unmapped),
            pods=self._coverage,
        )

    def _open(self, dialect: Dialect) -> None:
        """Prepare the queries of a dialect, for the histograms that the mesh has."""
        self._classic = dialect
        self._given = self._dialect = dialect = native(dialect) if self._is_native else dialect
        if self.options.cluster_label:
            self._dialect = name_clusters_of(dialect, self.options.cluster_label)
        self._combination = Combination(self._dialect) if dialect.beside else None
        self._queries = {
            role: self._name_clusters(query) if role[0] == KUBERNETES and role[1] not in ("serves", "relays") else query
            for role, query in _queries(self._dialect, self._owner_labels).items()
        }
        self._surveyed = SurveyedQueries(
            dialect.services["requests"],
            dialect.calls["requests"],
            replace(USAGE_QUERIES["cpu_usage"], labels=NAMESPACE),
            [query for role, query in self._queries.items() if role[0] == KUBERNETES],
            search_query(),
            count_buckets(self._classic),
            count_native(self._classic),
        )
        self._prepare_rules()

    def _prepare_rules(self) -> None:
        """Recording rules for the window in use; else for the one of the settings, while it is better than nothing."""
        self._rules, self._read_rules = [], None
        if self._dialect.name.removesuffix(SUFFIX) in KNOWN:  # `tagae rules` writes rules for these only
            given, window, survey = self.options.window_seconds, self._plan.window_seconds, self._surveyor.survey
            interval = survey.mesh.interval_seconds if survey else None
            has_two_samples = interval is not None and given >= 2 * interval
            windows = [window, given] if given != window and has_two_samples else [window]
            self._rules = [recording_rules(self._dialect, self.options.interval_seconds, one) for one in windows]

    def _follow_plan(self) -> None:
        """Poll other series, or with other windows."""
        self._prepare_rules()
        clusters = self._surveyor.survey.clusters if self._surveyor.survey else None
        read = clusters.read if clusters else ()
        if read != self._clusters_read:  # services of other ones are not the same
            self._clusters_read = read
            self._forget_names()
            self._workloads = None

    def _forget_names(self) -> None:
        """Learn the names of services again."""
        self._forget_labels()
        self._names, self._known_calls = ServiceNames(self._given.external), None

    def _forget_labels(self) -> None:
        """Drop the caches of label sets, and what refers to them."""
        self._labels, self._cached = _LabelCache(), {}
        self._rows = self._row_joiners()
        self._callers_known = 0

    def _name_clusters(self, query: Query) -> Query:
        """A query about Kubernetes whose namespaces and nodes begin with the cluster, if the settings want that."""
        label = self.options.cluster_label
        places = {place: label for place, name in enumerate(query.labels) if name in ("namespace", "node")}
        return name_clusters(query, places) if label and places else query

    def _text(self, role: Role, query: Query, since_seconds: float = 0.0) -> str:
        """PromQL of a query."""
        plan = self._plan
        window = plan.container_window_seconds if role[0] == KUBERNETES else plan.window_seconds
        # To divide each bucket would cost Prometheus more than to divide the few values that are made of them here.
        return query.at(window, since_seconds, plan.match, per_second=split_role(role[1])[0] != "buckets")

    def _since(self, at: datetime) -> float:
        """Seconds since the last successful query of events, so that each event is counted once."""
        cached = self._cached.get((KUBERNETES, PODS))
        passed = (at - cached.at).total_seconds() if cached else 0.0
        return passed if 0 < passed <= LONGEST_SINCE else self.options.interval_seconds

    def _find_rules(self, at: datetime) -> RecordingRules | None:
        """Recording rules that exist for a mesh large enough; if the query fails, as in the previous poll."""
        texts = {str(place): one.calls.at(0, match=self._plan.match) for place, one in enumerate(self._rules)}
        if not texts:
            return None
        answers = self._prometheus.ask(texts, at, self.options.within_seconds)
        for rules, answer in zip(self._rules, answers.values(), strict=True):
            if answer.failed:
                return self._read_rules
            if (answer.samples.values >= self.options.recorded_from_calls).any():
                return rules
        return None

    def _queries_to_read(self) -> Queries:
        """All queries except for signals; of recorded series if there are rules."""
        if self._read_rules is None:
            return self._queries
        kubernetes = {role: query for role, query in self._queries.items() if role[0] == KUBERNETES}
        return {**kubernetes, **_queries_of_mesh(self._read_rules.dialect)}

    def _rows_of_mesh(self, found: Columns) -> tuple[dict[str, Column], dict[str, Column]]:
        """Columns of services and calls by role, with one row for each."""
        names = self._names
        own, callee = (names.of, names.of_callee) if self._dialect.names_workloads else (_same, _same)

        def name_service(key: Key) -> Key:
            return own(names.settle_key(key))

        def name_call(key: Key) -> Key:
            ends = names.settle_key(key)
            return (*names.of(ends[:2]), *callee(ends[2:]))

        for rows in self._rows.values():
            names.see(rows.new_services())
        services = self._rows[SERVICES].join(of_part(found[SERVICES]), name_service, names.version)
        calls = self._rows[CALLS].join(of_part(found[CALLS]), name_call, names.version)
        if self._combination is not None:
            services, calls = self._combination.unite(services, calls, found[SERVICES], found[CALLS], names)
        return services, calls

    def _list_known(self, services: Mapping[str, Column], calls: dict[str, Column], at: datetime) -> dict[str, Column]:
        """The calls, with those that are known and not made now."""
        requests, of_services, now = calls["requests"], services["requests"], at.timestamp()
        known = (self._known_calls or KnownCalls()).see_calls(requests, now).forget(self._rows[CALLS].is_renamed)
        if self._combination is not None and (renamed := self._combination.renamed):
            ends = [requests.index.part(begin, begin + 2, of_services.index) for begin in (0, 2)]
            others = np.array([key in renamed for key in of_services.index.keys], bool)
            known = known.forget(others[ends[0]] | others[ends[1]])
        self._known_calls, listed = known.list_all(requests, of_services, now)
        return {**calls, "requests": listed}

    def _calls_before(self, found: Columns, at: datetime) -> KnownCalls:
        """The calls that were made before the first poll."""
        if self._read_rules is not None:  # whose window is fixed
            return KnownCalls()
        roles = [role for role in self._queries if role[0] == CALLS and split_role(role[1])[0] == "requests"]
        before = at - timedelta(seconds=self.options.interval_seconds)
        texts = {"/".join(role): self._queries[role].at(KNOWN_SECONDS, match=self._plan.match) for role in roles}
        answers = self._prometheus.ask(texts, before, self.options.within_seconds)
        made: dict[str, Column] = {}
        for role in roles:
            if (answer := answers["/".join(role)]).failed:
                return KnownCalls()
            made |= self._labels.read(role, self._queries[role], answer.samples)
        calls = self._rows_of_mesh({**found, CALLS: made})[1]
        return KnownCalls().see_calls(calls["requests"], before.timestamp())

    def _assemble(self, found: Columns, at: datetime) -> MeshSnapshot:
        known = found[KUBERNETES]
        services, calls = self._rows_of_mesh(found)
        relays = {self._names.of(key) for key in known["relays"].keys} if "relays" in known else set()
        calls["requests"] = without_relayed(calls["requests"], services["requests"], relays)
        calls = self._list_known(services, calls, at)
        if self._dialect.in_flight_of_durations:
            services = _mask_in_flight(services)
        serving = self._match_workloads(known.get("serves"))
        pods = self._read_pods(known)
        now = read_controllers(known) if CONTROLLERS.keys() <= known.keys() else {}
        changes, workloads = (self._workloads or WorkloadState()).update(
            now, serving.to_mapping(), pods.cordoned_workloads() if pods else None
        )
        shares = {resource: pods.utilisation(resource, serving) for resource in RESOURCES} if pods else {}
        resources = {resource: column for resource, column in shares.items() if column is not None}
        annotations = known.get("annotations")
        # Without annotations and controllers, kube-state-metrics is down: keep the last policies.
        if annotations is not None and (len(annotations.numbers) or now):
            on_pods = known.get("pod_annotations")
            of_pods = pods.by_workload(on_pods, np.maximum) if pods and on_pods is not None else None
            self._policies, self._ignored = read_annotations((annotations, of_pods), serving)
        if (owned := known.get(OWNERS_OF_SERVICES)) is not None and (len(owned.numbers) or now):
            self._owners = read_owners(owned, self._owner_labels, serving)
        workload_services = serving.to_mapping()

        def signals(keys: Sequence[Key]) -> list[Signal]:
            self._coverage = pods.coverage(keys, serving) if pods else None
            found, self._unmapped = read_signals(by_workload(known, pods), workload_services, keys, self._queues)
            window = self._plan.window_seconds
            return [*found, *read_cancellations(services.get("cancelled"), services["requests"], keys, window)]

        snapshot = assemble(
            {**services, **resources},
            calls,
            at,
            external=self._dialect.external,
            changes=changes,
            policies=with_owners(self._policies, self._owners),
            signals=signals,
        )
        self._workloads = workloads  # only now, so that changes are reported once, and only with a snapshot
        return snapshot

    def _read_pods(self, known: Mapping[str, Column]) -> Pods | None:
        """The pods of the cluster; None if their owners are unknown."""
        return Pods(known, self._labels.index, self._plan.container_window_seconds) if OWNERS in known else None

    def _match_workloads(self, pairs: Column | None) -> ServiceMapping:
        return ServiceMapping(self._labels.index(WORKLOAD), self._rows[SERVICES].index, pairs)

    def _row_joiners(self) -> dict[str, RowJoiner]:
        reporters = self._dialect.reporters
        return {
            of: RowJoiner(self._labels.index(queries["requests"].labels, of), parts, preferred)
            for of, queries, parts, preferred in (
                (SERVICES, self._dialect.services, 2, reporters.services if reporters else ()),
                (CALLS, self._dialect.calls, 4, reporters.calls if reporters else ()),
            )
        }

    def _learn_names(self, found: Mapping[str, Mapping[str, Column]], at: datetime, until: float) -> None:
        """Learn which caller belongs to which service. Workloads of callers are asked for when new callers appear."""
        if (serves := found[KUBERNETES].get("serves")) is not None:
            self._names.add_served(serves)
        query = self._dialect.callers
        if query is None:
            return
        requests, rows = found[CALLS]["requests"], self._rows[CALLS]
        if len(requests.index) == self._callers_known:
            return
        names = rows.names(requests)
        callers = {rows.index.keys[number][:2] for number in np.unique(names).tolist()}
        new = [caller for caller in callers if not self._names.is_known(caller)]
        if not new:
            self._callers_known = len(requests.index)
            return
        text = self._text((CALLS, "callers"), query)
        answer = self._prometheus.ask({"callers": text}, at, max(until - time.monotonic(), 0.0))["callers"]
        if not answer.failed:  # otherwise the next poll asks again
            column = self._labels.read((KUBERNETES, "callers"), query, answer.samples)["callers"]
            self._names.add_callers(column.keys, new)
            self._callers_known = len(requests.index)

    def _read_workloads_before(self, at: datetime) -> WorkloadState:
        """The workloads one interval before the first poll, so that this poll can already report planned changes."""
        queries = {role: query for role, query in self._queries.items() if role in CHANGE_ROLES}
        texts = {"/".join(role): self._text(role, query) for role, query in queries.items()}
        before = at - timedelta(seconds=self.options.interval_seconds)
        answers = self._prometheus.ask(texts, before, self.options.within_seconds)
        known: dict[str, Column] = {}
        for role, query in queries.items():
            if not (answer := answers["/".join(role)]).failed:
                known |= self._labels.read(role, query, answer.samples)
        if not CONTROLLERS.keys() <= known.keys():
            return WorkloadState()
        serving = self._match_workloads(known.get("serves"))
        pods = self._read_pods(known)
        cordoned = pods.cordoned_workloads() if pods else None
        return WorkloadState().update(read_controllers(known), serving.to_mapping(), cordoned)[1]

    def close(self) -> None:
        """Cancel running queries and close the connections."""
        self._prometheus.close()

    def _columns(
        self, queries: Queries, answers: Mapping[Role, QueryAnswer], at: datetime
    ) -> tuple[dict[str, dict[str, Column]], dict[Role, float], tuple[Role, ...]]:
        """Columns by role; for failed queries the cached columns while they are recent.

        Returns:
            The columns; the age of cached columns by query, s; the queries without columns.
        """
        found: dict[str, dict[str, Column]] = {SERVICES: {}, CALLS: {}, KUBERNETES: {}}
        stale: dict[Role, float] = {}
        masked: list[Role] = []
        for role, answer in answers.items():
            if not answer.failed:
                window = self._plan.window_seconds
                self._cached[role] = CachedColumns(self._labels.read(role, queries[role], answer.samples, window), at)
            cached = self._cached.get(role)
            age = abs((at - cached.at).total_seconds()) if cached else float("inf")
            keep = 0.0 if role in FRESH_ONLY else self.options.keep_seconds
            if cached is None or age > keep:
                masked.append(role)
                continue
            if age:
                stale[role] = age
            found[role[0]].update(cached.columns)
        return found, stale, tuple(masked)


class _LabelCache:
    """Label readers that are kept between polls. Queries with the same labels share their keys."""

    def __init__(self) -> None:
        self._services = ServiceLabels()
        self._readers: dict[tuple[int, tuple[str, ...]], LabelReader] = {}
        self._buckets: dict[LabelReader, BucketReader] = {}
        self._dropped: dict[Role, DroppedSeries | None] = {}

    def __len__(self) -> int:
        readers = (*self._readers.values(), *(bucket.labels for bucket in self._buckets.values()))
        return sum(len(reader.known) for reader in readers)

    def read(self, role: Role, query: Query, samples: Samples, window_seconds: float = 0.0) -> dict[str, Column]:
        """Convert a result to columns, in our units. Latencies need the rate window."""
        reader = self._reader(query.labels, role[0])
        name, part = split_role(role[1])
        if name != "buckets":
            column = read_column(samples, reader, query.joined_by)
            self._dropped[role] = reader.dropped
            return {role[1]: _convert_unit(column, query)}
        if not query.is_verbatim:
            samples = Samples(samples.label_sets, samples.values / window_seconds)
        buckets = self._buckets.setdefault(reader, BucketReader(query.labels, reader))
        border = Border.of(window_seconds, query.unit)
        *columns, long = read_quantiles(samples, buckets, list(SHARES.values()), border)
        self._dropped[role] = buckets.labels.dropped
        found: dict[str, Column] = {join_role("long_requests", part): long}
        names = (join_role(share, part) for share in SHARES)
        return found | {share: _convert_unit(one, query) for share, one in zip(names, columns, strict=True)}

    def dropped_series(self, roles: Collection[Role]) -> dict[Role, DroppedSeries]:
        """Series of the last result of each query that name no service."""
        return {role: found for role in roles if (found := self._dropped.get(role)) is not None}

    def folded(self) -> tuple[Folded, ...]:
        """Names that are no services."""
        return self._services.folded()

    def index(self, labels: tuple[str, ...], of: str = KUBERNETES) -> KeyIndex:
        """All keys with these labels."""
        return self._reader(labels, of).index

    def _reader(self, labels: tuple[str, ...], of: str) -> LabelReader:
        ends = ENDS.get(of, 0)
        return self._readers.setdefault((ends, labels), LabelReader(labels, self._services, ends))


def _queries_of_mesh(dialect: Dialect) -> Queries:
    """The queries of a dialect, and of those beside it, about services and calls."""
    groups: dict[str, Mapping[Any, Query]] = {SERVICES: dialect.services, CALLS: dialect.calls}
    own = {(of, role): query for of, queries in groups.items() for role, query in queries.items()}
    return own | queries_beside(dialect)


def _queries(dialect: Dialect, owner_labels: OwnerLabels) -> Queries:
    """All queries of a dialect, with those about Kubernetes."""
    kubernetes: dict[str, Query] = {
        **USAGE_QUERIES,
        **POD_QUERIES,
        **CONTROLLERS,
        **AUTOSCALERS,
        **ANNOTATIONS,
    }
    if owner_labels.exported_labels():
        kubernetes[OWNERS_OF_SERVICES] = owner_labels.query()
    of_mesh = {"serves": dialect.serves, "relays": dialect.relays}
    kubernetes |= {role: query for role, query in of_mesh.items() if query is not None}
    return {**_queries_of_mesh(dialect), **{(KUBERNETES, role): query for role, query in kubernetes.items()}}


def _convert_unit(found: Column, query: Query) -> Column:
    return found if query.unit == 1 else replace(found, values=found.values * query.unit)


def _mask_in_flight(services: dict[str, Column]) -> dict[str, Column]:
    """Leave out the requests in flight of services whose long requests end: each one would count with all the seconds
    that it lasted, in the window in which it is no longer in flight."""
    if not {"in_flight", "long_requests"} <= services.keys():
        return services
    in_flight, long = services["in_flight"], services["long_requests"]
    ended = np.nan_to_num(long.align(in_flight.index, in_flight.numbers)) > 0
    return {**services, "in_flight": replace(in_flight, values=np.where(ended, np.nan, in_flight.values))}


def _same(key: Key) -> Key:
    return key
