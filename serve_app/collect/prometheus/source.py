"""A mesh as one Prometheus knows it: a snapshot of any instant, and what was missing from it."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from model.errors import InvalidSnapshot
from model.snapshot import MeshSnapshot, ServicePolicy
from serve_app.collect.prometheus.client import Prometheus, QueryAnswer, Samples
from serve_app.collect.prometheus.dialects import KNOWN, Dialect, Query
from serve_app.collect.prometheus.frames import Buckets, Column, Keys, Names, column, quantiles
from serve_app.collect.prometheus.kubernetes import (
    ANNOTATIONS,
    CONTROLLERS,
    MORE,
    RESOURCES,
    WORKLOAD,
    Serving,
    annotated,
    controllers,
    cordoned,
    utilisation,
)
from serve_app.collect.prometheus.rules import recorded
from serve_app.collect.prometheus.snapshot import assemble
from serve_app.collect.prometheus.workloads import Served, WorkloadState
from serve_app.settings.roles import SHARES

SERVICES, CALLS, KUBERNETES = "services", "calls", "kubernetes"
MOST_NAMES = 500_000  # label sets that are kept; beyond, all are read anew

Role = tuple[str, str]  # of what, and what of it
DECISIONS = {(KUBERNETES, role) for role in (*CONTROLLERS, *MORE, "serves")}


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """How a mesh is asked.

    Attributes:
        interval_seconds: between two snapshots; also how far back the newest instant lies, so that all targets are in.
        window_seconds: over which rates are taken.
        within_seconds: for all queries of a snapshot together.
        keep_seconds: for which the last values stand in for a query that failed.
        recorded_from_calls: calls from which on recording rules are read, where there are any.
    """

    interval_seconds: float = 15.0
    window_seconds: float = 60.0
    within_seconds: float = 10.0
    keep_seconds: float = 45.0
    recorded_from_calls: float = 2000


@dataclass(frozen=True, slots=True)
class Poll:
    """What one instant brought.

    Attributes:
        at: the instant.
        snapshot: None: services or calls are not known, and no older ones can stand in.
        answers: by query.
        stale_seconds: by query, how old the values are that stood in for it.
        masked: queries without which the snapshot had to do.
        why: where there is no snapshot.
        unheeded: annotations that say what nobody here knows, in words.
        recorded: whether recording rules were read.
    """

    at: datetime
    snapshot: MeshSnapshot | None
    answers: Mapping[Role, QueryAnswer]
    stale_seconds: Mapping[Role, float] = field(default_factory=dict)
    masked: tuple[Role, ...] = ()
    why: str = ""
    unheeded: tuple[str, ...] = ()
    recorded: bool = False


@dataclass(frozen=True, slots=True)
class CachedColumns:
    """Columns of the last good answer to a query, and the instant they are of."""

    columns: Mapping[str, Column]
    at: datetime


Queries = Mapping[Role, Query]


class PrometheusSource:
    """Polls one mesh. Not for two threads at once.

    Where Prometheus evaluates the rules that ``rules.py`` writes, and they have as many calls as ``asking`` says, their
    series are read in place of counters and buckets.
    """

    def __init__(self, prometheus: Prometheus, dialect: Dialect, asking: QueryOptions | None = None) -> None:
        self._prometheus = prometheus
        self._dialect = dialect
        self.asking = asking or QueryOptions()
        self._queries = _queries(dialect)
        known = dialect.name in KNOWN  # nobody writes rules for another
        self._rules = recorded(dialect, self.asking.interval_seconds, self.asking.window_seconds) if known else None
        self._recorded = _queries(self._rules.dialect) if self._rules else {}
        self._reads_rules = False
        self._decided: WorkloadState | None = None  # not asked yet
        self._policies: list[ServicePolicy] = []
        self._unheeded: list[str] = []
        self._names = _Names()
        self._kept: dict[Role, CachedColumns] = {}

    @property
    def interval_seconds(self) -> float:
        """Expected time between two snapshots, s."""
        return self.asking.interval_seconds

    @property
    def serves(self) -> Served:
        """Services of each workload, as far as it is known."""
        return self._decided.serves if self._decided else {}

    def poll(self, at: datetime) -> Poll:
        """The snapshot of one instant."""
        until = time.monotonic() + self.asking.within_seconds
        if len(self._names) > MOST_NAMES:
            self._names, self._kept = _Names(), {}
        self._reads_rules = self._large_and_recorded(at)
        queries = self._recorded if self._reads_rules else self._queries
        texts = {"/".join(role): query.at(self.asking.window_seconds) for role, query in queries.items()}
        said = self._prometheus.ask(texts, at, max(until - time.monotonic(), 0.0))
        answers = {role: said["/".join(role)] for role in queries}
        found, stale, masked = self._columns(queries, answers, at)
        poll = Poll(at, None, answers, stale, masked, recorded=self._reads_rules)
        if self._decided is None:
            self._decided = self._decided_before(at)
        missing = [of for of in (SERVICES, CALLS) if "requests" not in found[of]]
        if missing:
            reasons = "; ".join(f"{'/'.join(r)}: {a.failed} ({a.detail})" for r, a in answers.items() if a.failed)
            return replace(poll, why=f"requests of {' and '.join(missing)} are not known: {reasons}")
        try:
            snapshot = self._assembled(found, at)
        except InvalidSnapshot as error:
            return replace(poll, why=str(error))
        return replace(poll, snapshot=snapshot, unheeded=tuple(self._unheeded))

    def _large_and_recorded(self, at: datetime) -> bool:
        """Whether rules are to be read; where nobody can be asked, as before."""
        if self._rules is None:
            return False
        answer = self._prometheus.ask({"calls": self._rules.calls}, at, self.asking.within_seconds)["calls"]
        if answer.failed:
            return self._reads_rules
        return bool((answer.samples.values >= self.asking.recorded_from_calls).any())

    def _assembled(self, found: Mapping[str, Mapping[str, Column]], at: datetime) -> MeshSnapshot:
        known, services = found[KUBERNETES], found[SERVICES]
        serving = self._serving(known.get("serves"))
        now = controllers(known) if CONTROLLERS.keys() <= known.keys() else {}
        changes, decided = (self._decided or WorkloadState()).after(now, serving.told(), cordoned(known))
        resources = {
            role: utilisation(known[f"{role}_usage"], known[f"{role}_capacity"], serving)
            for role in ("cpu", "memory")
            if {f"{role}_usage", f"{role}_capacity"} <= known.keys()
        }
        said = known.get("annotations")
        # Nothing said, and no controllers: kube-state-metrics is away, and what it said last holds.
        if said is not None and (len(said.numbers) or now):
            self._policies, self._unheeded = annotated(said, serving)
        snapshot = assemble(
            {**services, **resources},
            found[CALLS],
            at,
            external=self._dialect.external,
            changes=changes,
            policies=self._policies,
        )
        self._decided = decided  # told of once, and only with a snapshot
        return snapshot

    def _serving(self, pairs: Column | None) -> Serving:
        services = self._dialect.services["requests"].labels
        return Serving(self._names.keys(WORKLOAD), self._names.keys(services), pairs)

    def _decided_before(self, at: datetime) -> WorkloadState:
        """What was known an interval before the first instant that is asked for: what was decided in between is news,
        after a restart as in a past period."""
        queries = {role: query for role, query in self._queries.items() if role in DECISIONS}
        texts = {"/".join(role): query.at(self.asking.window_seconds) for role, query in queries.items()}
        before = at - timedelta(seconds=self.asking.interval_seconds)
        said = self._prometheus.ask(texts, before, self.asking.within_seconds)
        known: dict[str, Column] = {}
        for role, query in queries.items():
            if not (answer := said["/".join(role)]).failed:
                known |= self._names.read(role, query, answer.samples)
        if not CONTROLLERS.keys() <= known.keys():
            return WorkloadState()
        serving = self._serving(known.get("serves"))
        return WorkloadState().after(controllers(known), serving.told(), cordoned(known))[1]

    def between(self, first: datetime, last: datetime) -> Iterator[Poll]:
        """Every instant of a past period, an interval apart."""
        at = first
        while at <= last:
            yield self.poll(at)
            at += timedelta(seconds=self.asking.interval_seconds)

    def close(self) -> None:
        """Give up what still runs."""
        self._prometheus.close()

    def _columns(
        self, queries: Queries, answers: Mapping[Role, QueryAnswer], at: datetime
    ) -> tuple[dict[str, dict[str, Column]], dict[Role, float], tuple[Role, ...]]:
        """Columns of services and calls; those of failed queries as they were, while they are young enough."""
        found: dict[str, dict[str, Column]] = {SERVICES: {}, CALLS: {}, KUBERNETES: {}}
        stale: dict[Role, float] = {}
        masked: list[Role] = []
        for role, answer in answers.items():
            if not answer.failed:
                self._kept[role] = CachedColumns(self._names.read(role, queries[role], answer.samples), at)
            kept = self._kept.get(role)
            age = abs((at - kept.at).total_seconds()) if kept else float("inf")
            if kept is None or age > self.asking.keep_seconds:
                masked.append(role)
                continue
            if age:
                stale[role] = age
            found[role[0]].update(kept.columns)
        return found, stale, tuple(masked)


class _Names:
    """What label sets mean, kept from poll to poll. Queries by the same labels share their keys."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, ...], Names] = {}
        self._buckets: dict[tuple[str, ...], Buckets] = {}

    def __len__(self) -> int:
        return sum(len(names.known) for names in self._every())

    def read(self, role: Role, query: Query, samples: Samples) -> dict[str, Column]:
        """Columns of an answer, in our units."""
        names = self._of(query.labels)
        if role[1] != "buckets":
            return {role[1]: _in_our_unit(column(samples, names), query)}
        buckets = self._buckets.setdefault(query.labels, Buckets(query.labels, names.keys))
        columns = quantiles(samples, buckets, list(SHARES.values()))
        return {name: _in_our_unit(one, query) for name, one in zip(SHARES, columns, strict=True)}

    def keys(self, labels: tuple[str, ...]) -> Keys:
        """All keys by these labels."""
        return self._of(labels).keys

    def _of(self, labels: tuple[str, ...]) -> Names:
        return self._names.setdefault(labels, Names(labels))

    def _every(self) -> Iterator[Names]:
        yield from self._names.values()
        yield from (buckets.names for buckets in self._buckets.values())


def _queries(dialect: Dialect) -> Queries:
    """All that is asked."""
    kubernetes: dict[str, Query] = {**RESOURCES, **CONTROLLERS, **MORE, **ANNOTATIONS}
    if dialect.serves is not None:
        kubernetes["serves"] = dialect.serves
    asked: dict[str, Mapping[Any, Query]] = {SERVICES: dialect.services, CALLS: dialect.calls, KUBERNETES: kubernetes}
    return {(of, role): query for of, queries in asked.items() for role, query in queries.items()}


def _in_our_unit(found: Column, query: Query) -> Column:
    return found if query.unit == 1 else replace(found, values=found.values * query.unit)
