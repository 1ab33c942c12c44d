"""The rows of a mesh: one for each service and each call, from all of its sources.

A mesh may have several sources: an ingress controller in front of it, spans beside a service graph. The first dialect
of a combination is the mesh itself, with the others ``beside`` it. Their services and calls are united by name. What
two of them measure is read from one of them: rates are never added up. Latencies that this one lacks come from the
other.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from model.snapshot import IntArray
from serve_app.collect.prometheus.frames import Column, Key, KeyIndex
from serve_app.collect.prometheus.known_calls import KnownCalls
from serve_app.collect.prometheus.query import Dialect
from serve_app.collect.prometheus.reporters import RowJoiner, without_relayed
from serve_app.collect.prometheus.service_names import ServiceNames

SERVICES, CALLS, KUBERNETES = "services", "calls", "kubernetes"  # levels of queries
ENDS = {SERVICES: 1, CALLS: 2}  # services that a series names
BESIDE = "@"  # between a level and the dialect that is beside the first one
LATENCIES = frozenset({"p50", "p99"})

Columns = Mapping[str, Column]  # by role
Levels = Mapping[str, Columns]


def combine(dialects: Sequence[Dialect]) -> Dialect:
    """One dialect for all. The order says whose measurement counts, but ingress controllers come last: a mesh measures
    its services where they are. A dialect that learns the names of workloads is first, so that all use its names."""
    first, *others = sorted(dialects, key=lambda one: (one.front_door, not one.names_workloads))
    return replace(first, beside=(*first.beside, *others)) if others else first


def level_of(level: str, dialect: Dialect, part: Dialect) -> str:
    """The level of the queries of a part of a dialect: ``calls``, or ``calls@NAME`` of a part beside the first."""
    return level if part is dialect else f"{level}{BESIDE}{part.name}"


def split_level(level: str) -> tuple[str, str]:
    """Level without its part, and the name of the part; empty for the first."""
    level, _, part = level.partition(BESIDE)
    return level, part


class MeshRows:
    """The services and calls of a mesh. What it learns stays between polls: names of services, and known calls.

    Attributes:
        names: of the services of the first dialect.
        known: calls that are listed; None before the first poll.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._others = [(part, _Names(part)) for part in dialect.beside]
        self._joiners: dict[str, RowJoiner] = {}
        self.names = ServiceNames(dialect.external)
        self.known: KnownCalls | None = None

    def follow(self, before: "MeshRows") -> None:
        """Continue with what is known in another form of the same dialect."""
        self.names, self.known = before.names, before.known

    def joiner(self, level: str, part: Dialect, requests: Column) -> RowJoiner:
        """Joins the rows of several proxies. Another one for columns whose keys have other numbers."""
        name, length = level_of(level, self._dialect, part), 2 * ENDS[level]
        found = self._joiners.get(name)
        if found is None or found.raw is not requests.index:
            reporters = (
                (part.reporters.services if level == SERVICES else part.reporters.calls) if part.reporters else ()
            )
            found = self._joiners[name] = RowJoiner(requests.index, length, reporters)
        return found

    def read(self, found: Levels) -> tuple[dict[str, Column], dict[str, Column]]:
        """Columns of services and of calls with one row for each, under the names of the first dialect.

        Args:
            found: requests are required.
        """
        services, calls = self._read_part(self._dialect, found, self._name_service, self._name_call)
        if not self._others:
            return services, calls
        measured = [_Measured(self._dialect, services, calls)]
        index, call_index = services["requests"].index, calls["requests"].index
        for part, names in self._others:
            settle = self.names.settle_key
            own = _Measured(part, *self._read_part(part, found, settle, settle)).at_its_place()
            names.learn(measured, own)
            renamed = (
                {role: names.rename(column, index_of_all) for role, column in columns.items()}
                for columns, index_of_all in ((own.services, index), (own.calls, call_index))
            )
            measured.append(_Measured(part, *renamed))
        return (
            _first_of([one.services for one in measured], index),
            _first_of([one.calls for one in measured], call_index),
        )

    def list_known(self, services: Columns, calls: Columns, relays: Collection[Key], now: float) -> dict[str, Column]:
        """The calls, with those that are known and not made now, and without those that relays pass on."""
        of_services = services["requests"]
        requests = without_relayed(calls["requests"], of_services, {self.names.of(key) for key in relays})
        own = self._joiners[CALLS]
        known = (self.known or KnownCalls()).see_calls(requests, now).forget(own.is_renamed)
        if renamed := {key for _, names in self._others for key in names.renamed}:
            ends = [requests.index.part(begin, begin + 2, of_services.index) for begin in (0, 2)]
            others = np.array([key in renamed for key in of_services.index.keys], bool)
            known = known.forget(others[ends[0]] | others[ends[1]])
        self.known, listed = known.list_all(requests, of_services, now)
        return {**calls, "requests": listed}

    def _read_part(
        self, part: Dialect, found: Levels, name_service: Callable[[Key], Key], name_call: Callable[[Key], Key]
    ) -> tuple[dict[str, Column], dict[str, Column]]:
        """Columns of a dialect with one row for each key, even where several proxies report a request."""
        services, calls = (found[level_of(level, self._dialect, part)] for level in ENDS)
        joiners = [
            self.joiner(level, part, own["requests"]) for level, own in zip(ENDS, (services, calls), strict=True)
        ]
        for joiner in joiners:
            self.names.see(joiner.new_services())
        version = self.names.version
        return joiners[0].join(services, name_service, version), joiners[1].join(calls, name_call, version)

    def _name_service(self, key: Key) -> Key:
        settled = self.names.settle_key(key)
        return self.names.of(settled) if self._dialect.names_workloads else settled

    def _name_call(self, key: Key) -> Key:
        ends = self.names.settle_key(key)
        callee = self.names.of_callee(ends[2:]) if self._dialect.names_workloads else ends[2:]
        return (*self.names.of(ends[:2]), *callee)


@dataclass(frozen=True, slots=True)
class _Measured:
    """The measurements of one dialect in one poll: columns by role."""

    dialect: Dialect
    services: Columns
    calls: Columns

    def at_its_place(self) -> "_Measured":
        """Without callers that are not services; for an ingress controller, also without the services behind it."""
        external = self.dialect.external
        calls = _only(self.calls, {key for key in self.calls["requests"].keys if key[1] not in external})
        services = self.services
        if self.dialect.front_door:
            services = _only(services, {key[:2] for key in calls["requests"].keys})
        return _Measured(self.dialect, services, calls)

    @property
    def callers(self) -> set[Key]:
        """Services that make calls."""
        return {key[:2] for key in self.calls["requests"].keys}

    @property
    def names(self) -> set[Key]:
        """All services."""
        called = {key[2:] for key in self.calls["requests"].keys}
        return {*self.services["requests"].keys, *called, *self.callers}


class _Names:
    """Other names of the services of one dialect.

    Dialects that see the same service may name it differently: without its namespace, or an ingress controller by its
    workload instead of its canonical name. A service keeps its own name unless exactly one known service fits and no
    other service of this dialect fits that one. Names stay known, so that a service is not renamed when another is
    silent for a while.
    """

    def __init__(self, part: Dialect) -> None:
        self._part = part
        self._other: dict[Key, Key] = {}
        self._known: dict[Key, str] = {}  # names in earlier dialects, and what their dialect writes for no namespace
        self._known_callers: set[Key] = set()
        self._own: set[Key] = set()
        self._own_callers: set[Key] = set()

    @property
    def renamed(self) -> set[Key]:
        """Names that another one stands for."""
        return set(self._other)

    def learn(self, earlier: Sequence[_Measured], own: _Measured) -> None:
        """Find the names that the earlier dialects use."""
        before = self._size()
        for one in earlier:
            self._known |= dict.fromkeys(one.names - self._known.keys(), _default_namespace(one.dialect))
            self._known_callers |= one.callers
        self._own |= own.names
        self._own_callers |= own.callers
        if self._size() == before:
            return
        by_name: dict[str, list[Key]] = {}
        by_text: dict[str, list[Key]] = {}
        for key in self._known:
            by_name.setdefault(key[1], []).append(key)
            by_text.setdefault("-".join(key), []).append(key)
        fitting = {key: self._find(key, by_name, by_text) for key in self._own - self._known.keys()}
        times = Counter(fitting.values())
        self._other = {
            key: other
            for key, other in fitting.items()
            if other is not None and times[other] == 1 and other not in self._own
        }

    def rename(self, column: Column, index: KeyIndex) -> Column:
        """The column with keys of ``index``."""
        numbers = np.fromiter((index.number_of(self._name(key)) for key in column.keys), np.int64, len(column.numbers))
        order = np.argsort(numbers, kind="stable")
        return Column(index, numbers[order], column.values[order])

    def _size(self) -> tuple[int, ...]:
        return tuple(len(names) for names in (self._known, self._known_callers, self._own, self._own_callers))

    def _name(self, key: Key) -> Key:
        ends = (key[begin : begin + 2] for begin in range(0, len(key), 2))
        return tuple(text for end in ends for text in self._other.get(end, end))

    def _find(self, key: Key, by_name: Mapping[str, list[Key]], by_text: Mapping[str, list[Key]]) -> Key | None:
        no_namespace = key[0] == _default_namespace(self._part)
        fitting = [one for one in by_name.get(key[1], ()) if no_namespace or one[0] == self._known[one]]
        if self._part.joined_names:
            fitting += by_text.get("-".join(key), ())
        if not fitting and self._part.front_door and key in self._own_callers:
            fitting = [one for one in self._known_callers if one[0] == key[0] and _same_workload(one[1], key[1])]
        return fitting[0] if len(fitting) == 1 else None


def _default_namespace(dialect: Dialect) -> str:
    constant = next((one.labels[0] for one in dialect.services.values() if one.labels[0].startswith("=")), "")
    return dialect.default_namespace or constant.removeprefix("=")


def _same_workload(one: str, other: str) -> bool:
    """Whether one name continues the other, as ``ingress-nginx-controller`` continues ``ingress-nginx``."""
    short, long = sorted((one, other), key=len)
    return long == short or long.startswith(f"{short}-")


def _only(columns: Columns, wanted: set[Key]) -> dict[str, Column]:
    kept = {}
    for role, column in columns.items():
        rows = np.fromiter((key in wanted for key in column.keys), bool, len(column.numbers))
        kept[role] = Column(column.index, column.numbers[rows], column.values[rows])
    return kept


def _first_of(parts: Sequence[Columns], index: KeyIndex) -> dict[str, Column]:
    """The columns of the parts, each key from the first part with requests, else from the first that knows the key."""
    owner = np.full(len(index), -1)
    for positive in (True, False):
        for number, columns in enumerate(parts):
            if (requests := columns.get("requests")) is not None:
                rows = requests.values > 0 if positive else np.ones(len(requests.numbers), bool)
                mine = requests.numbers[rows]
                owner[mine[owner[mine] < 0]] = number
    return {role: _united(role, parts, owner, index) for role in dict.fromkeys(role for one in parts for role in one)}


def _united(role: str, parts: Sequence[Columns], owner: IntArray, index: KeyIndex) -> Column:
    values = np.full(len(index), np.nan)
    present = np.zeros(len(index), bool)
    owned = [
        (columns[role], owner[columns[role].numbers] == number)
        for number, columns in enumerate(parts)
        if role in columns
    ]
    for column, mine in owned:
        values[column.numbers[mine]] = column.values[mine]
        present[column.numbers[mine]] = True
    if role in LATENCIES:
        for column, _ in owned:
            lacking = np.isnan(values[column.numbers])
            values[column.numbers[lacking]] = column.values[lacking]
            present[column.numbers[lacking]] = True
    numbers = np.flatnonzero(present)
    return Column(index, numbers, values[numbers])
