"""A mesh as one Prometheus knows it: a snapshot of any instant, and what was missing from it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from model.errors import InvalidSnapshot
from model.snapshot import MeshSnapshot
from serve_app.sources.prometheus.assembly import assemble
from serve_app.sources.prometheus.client import Answer, Prometheus
from serve_app.sources.prometheus.decisions import Decided, Served
from serve_app.sources.prometheus.dialects import Dialect, Query
from serve_app.sources.prometheus.kubernetes import CONTROLLERS, MORE, RESOURCES, controllers, cordoned, utilisation
from serve_app.sources.prometheus.table import BUCKET, Column, Key, Names, column, quantiles

SHARES = {"p50": 0.5, "p99": 0.99}

SERVICES, CALLS, KUBERNETES = "services", "calls", "kubernetes"

Role = tuple[str, str]  # of what, and what of it


@dataclass(frozen=True, slots=True)
class Asking:
    """How a mesh is asked.

    Attributes:
        interval_seconds: between two snapshots; also how far back the newest instant lies, so that all targets are in.
        window_seconds: over which rates are taken.
        within_seconds: for all queries of a snapshot together.
        keep_seconds: for which the last values stand in for a query that failed.
    """

    interval_seconds: float = 15.0
    window_seconds: float = 60.0
    within_seconds: float = 10.0
    keep_seconds: float = 45.0


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
    """

    at: datetime
    snapshot: MeshSnapshot | None
    answers: Mapping[Role, Answer]
    stale_seconds: Mapping[Role, float] = field(default_factory=dict)
    masked: tuple[Role, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class Kept:
    """Columns of the last good answer to a query, and the instant they are of."""

    columns: Mapping[str, Column]
    at: datetime


class PrometheusSource:
    """Polls one mesh. Not for two threads at once."""

    def __init__(self, prometheus: Prometheus, dialect: Dialect, asking: Asking | None = None) -> None:
        self._prometheus = prometheus
        self._dialect = dialect
        self.asking = asking or Asking()
        kubernetes: dict[str, Query] = {**RESOURCES, **CONTROLLERS, **MORE}
        if dialect.serves is not None:
            kubernetes["serves"] = dialect.serves
        asked: dict[str, Mapping[Any, Query]] = {
            SERVICES: dialect.services,
            CALLS: dialect.calls,
            KUBERNETES: kubernetes,
        }
        self._queries: dict[Role, Query] = {
            (of, role): query for of, queries in asked.items() for role, query in queries.items()
        }
        self._decided: Decided | None = None  # not asked yet
        self._names = {
            role: Names((*query.labels, BUCKET) if role[1] == "buckets" else query.labels)
            for role, query in self._queries.items()
        }
        self._kept: dict[Role, Kept] = {}

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
        texts = {"/".join(role): query.at(self.asking.window_seconds) for role, query in self._queries.items()}
        said = self._prometheus.ask(texts, at, self.asking.within_seconds)
        answers = {role: said["/".join(role)] for role in self._queries}
        found, stale, masked = self._columns(answers, at)
        if self._decided is None:
            self._decided = self._decided_before(at)
        missing = [of for of in (SERVICES, CALLS) if "requests" not in found[of]]
        if missing:
            reasons = "; ".join(f"{'/'.join(r)}: {a.failed} ({a.detail})" for r, a in answers.items() if a.failed)
            why = f"requests of {' and '.join(missing)} are not known: {reasons}"
            return Poll(at, None, answers, stale, masked, why)
        try:
            snapshot = self._assembled(found, at)
        except InvalidSnapshot as error:
            return Poll(at, None, answers, stale, masked, str(error))
        return Poll(at, snapshot, answers, stale, masked)

    def _assembled(self, found: Mapping[str, Mapping[str, Column]], at: datetime) -> MeshSnapshot:
        known = found[KUBERNETES]
        serves = _serves(known.get("serves"))
        now = controllers(known) if CONTROLLERS.keys() <= known.keys() else {}
        changes, decided = (self._decided or Decided()).after(now, serves, cordoned(known))
        resources = {
            role: utilisation(known.get(f"{role}_usage"), known.get(f"{role}_capacity"), serves)
            for role in ("cpu", "memory")
        }
        snapshot = assemble(
            {**found[SERVICES], **resources},
            found[CALLS],
            at,
            external=self._dialect.external,
            changes=changes,
        )
        self._decided = decided  # told of once, and only with a snapshot
        return snapshot

    def _decided_before(self, at: datetime) -> Decided:
        """What was known an interval before the first instant that is asked for: what was decided in between is news,
        after a restart as in a past period."""
        roles = [(KUBERNETES, role) for role in (*CONTROLLERS, *MORE, "serves") if (KUBERNETES, role) in self._queries]
        texts = {"/".join(role): self._queries[role].at(self.asking.window_seconds) for role in roles}
        before = at - timedelta(seconds=self.asking.interval_seconds)
        said = self._prometheus.ask(texts, before, self.asking.within_seconds)
        answers = {role: said["/".join(role)] for role in roles}
        known = {
            role[1]: column(answer.samples, self._names[role]) for role, answer in answers.items() if not answer.failed
        }
        if not CONTROLLERS.keys() <= known.keys():
            return Decided()
        return Decided().after(controllers(known), _serves(known.get("serves")), cordoned(known))[1]

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
        self, answers: Mapping[Role, Answer], at: datetime
    ) -> tuple[dict[str, dict[str, Column]], dict[Role, float], tuple[Role, ...]]:
        """Columns of services and calls; those of failed queries as they were, while they are young enough."""
        found: dict[str, dict[str, Column]] = {SERVICES: {}, CALLS: {}, KUBERNETES: {}}
        stale: dict[Role, float] = {}
        masked: list[Role] = []
        for role, answer in answers.items():
            if not answer.failed:
                self._kept[role] = Kept(self._read(role, answer), at)
            kept = self._kept.get(role)
            age = abs((at - kept.at).total_seconds()) if kept else float("inf")
            if kept is None or age > self.asking.keep_seconds:
                masked.append(role)
                continue
            if age:
                stale[role] = age
            found[role[0]].update(kept.columns)
        return found, stale, tuple(masked)

    def _read(self, role: Role, answer: Answer) -> dict[str, Column]:
        query = self._queries[role]
        if role[1] == "buckets":
            columns = quantiles(answer.samples, self._names[role], list(SHARES.values()))
            return {name: _in_our_unit(one, query) for name, one in zip(SHARES, columns, strict=True)}
        return {role[1]: _in_our_unit(column(answer.samples, self._names[role]), query)}


def _serves(pairs: Column | None) -> dict[Key, list[Key]]:
    """Services of each workload."""
    found: dict[Key, list[Key]] = {}
    for key in pairs.keys if pairs else ():
        found.setdefault(key[:2], []).append(key[2:])
    return found


def _in_our_unit(found: Column, query: Query) -> Column:
    return found if query.unit == 1 else replace(found, values=found.values * query.unit)
