"""Several sources of one mesh: an ingress controller in front of it, spans beside a service graph.

The first dialect of a combination is the mesh itself, with the others ``beside`` it. Their services and calls are
united by name. What two of them measure is read from one of them: rates are never added up. Latencies that this one
lacks come from the other.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from model.snapshot import IntArray
from serve_app.collect.prometheus.frames import Column, Key, KeyIndex
from serve_app.collect.prometheus.query import Dialect, Query
from serve_app.collect.prometheus.reporters import RowJoiner
from serve_app.collect.prometheus.service_names import ServiceNames

BESIDE = "@"  # between the role of a query and the dialect that is beside the first one
LATENCIES = frozenset({"p50", "p99"})

Columns = Mapping[str, Column]  # by role


def combine(dialects: Sequence[Dialect]) -> Dialect:
    """One dialect for all. The order says whose measurement counts, but ingress controllers come last: a mesh measures
    its services where they are. A dialect that learns the names of workloads is first, so that all use its names."""
    first, *others = sorted(dialects, key=lambda one: (one.front_door, not one.names_workloads))
    return replace(first, beside=(*first.beside, *others)) if others else first


def queries_beside(dialect: Dialect) -> dict[tuple[str, str], Query]:
    """The queries of the dialects that are beside the first one, by level and role."""
    return {
        (level, join_role(role, part.name)): query
        for part in dialect.beside
        for level, queries in (("services", part.services), ("calls", part.calls))
        for role, query in queries.items()
    }


def join_role(role: str, part: str) -> str:
    """The role of a query of the dialect ``part``; of the first one if ``part`` is empty."""
    return f"{role}{BESIDE}{part}" if part else role


def split_role(role: str) -> tuple[str, str]:
    """The inverse of :func:`join_role`."""
    role, _, part = role.partition(BESIDE)
    return role, part


def of_part(columns: Columns, part: str = "") -> dict[str, Column]:
    """The columns of one dialect, by their roles there."""
    split = ((split_role(role), column) for role, column in columns.items())
    return {role: column for (role, dialect), column in split if dialect == part}


class Combination:
    """Unites the columns of a dialect and of those beside it; keeps names between polls."""

    def __init__(self, dialect: Dialect) -> None:
        self._first = dialect
        self._others = [(part, _Names(part)) for part in dialect.beside]
        self._joiners: dict[tuple[str, int], RowJoiner] = {}

    def unite(
        self,
        services: Columns,
        calls: Columns,
        all_services: Columns,
        all_calls: Columns,
        service_names: ServiceNames,
    ) -> tuple[dict[str, Column], dict[str, Column]]:
        """Columns with keys of the first dialect.

        Args:
            services, calls: of the first dialect, by role; requests are required.
            all_services, all_calls: by role of a query, which names its dialect.
            service_names: know the services of the first dialect.
        """
        measured = [_Measured(self._first, services, calls)]
        index, call_index = services["requests"].index, calls["requests"].index
        for part, names in self._others:
            rows = (
                self._one_row(part, of_part(columns, part.name), length, service_names)
                for columns, length in ((all_services, 2), (all_calls, 4))
            )
            own = _Measured(part, *rows).at_its_place()
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

    @property
    def renamed(self) -> set[Key]:
        """Services that have another name now."""
        return {key for _, names in self._others for key in names.renamed}

    def _one_row(self, part: Dialect, columns: Columns, length: int, service_names: ServiceNames) -> Columns:
        """Columns with one row for each key, even where several proxies report a request."""
        if "requests" not in columns:
            return columns
        joiner, index = self._joiners.get((part.name, length)), columns["requests"].index
        if joiner is None or joiner.raw is not index:
            reporters = (part.reporters.services if length == 2 else part.reporters.calls) if part.reporters else ()
            joiner = self._joiners[part.name, length] = RowJoiner(index, length, reporters)
        service_names.see(joiner.new_services())
        return joiner.join(columns, service_names.settle_key, service_names.version)


@dataclass(frozen=True, slots=True)
class _Measured:
    """The measurements of one dialect in one poll: columns by role."""

    dialect: Dialect
    services: Columns
    calls: Columns

    def at_its_place(self) -> "_Measured":
        """Without callers that are not services; for an ingress controller, also without the services behind it."""
        if "requests" not in self.calls:
            return self
        external = self.dialect.external
        calls = _only(self.calls, {key for key in self.calls["requests"].keys if key[1] not in external})
        services = self.services
        if self.dialect.front_door:
            services = _only(services, {key[:2] for key in calls["requests"].keys})
        return _Measured(self.dialect, services, calls)

    @property
    def callers(self) -> set[Key]:
        """Services that make calls."""
        return {key[:2] for key in self.calls["requests"].keys} if "requests" in self.calls else set()

    @property
    def names(self) -> set[Key]:
        """All services."""
        called = {key[2:] for key in self.calls["requests"].keys} if "requests" in self.calls else set()
        reporting = set(self.services["requests"].keys) if "requests" in self.services else set()
        return reporting | called | self.callers


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
