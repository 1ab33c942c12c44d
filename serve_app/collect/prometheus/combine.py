"""A mesh's rows from all its sources: one for each service and each call.

A mesh may have several sources: an ingress controller in front of it, spans beside a service graph. The first dialect
of a combination is the mesh itself, and the others are ``beside`` it. Their services and calls are united by name.
If two dialects measure the same thing, one of them is read: rates are never added. Latencies that it lacks come
from the other.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from serve_app.collect.prometheus.keys import Column, Columns, Key, KeyMap
from serve_app.collect.prometheus.known_calls import KnownCalls
from serve_app.collect.prometheus.query import Dialect
from serve_app.collect.prometheus.reporters import join_rows, without_relayed
from serve_app.collect.prometheus.service_names import ServiceNames

SERVICES, CALLS, KUBERNETES = "services", "calls", "kubernetes"  # levels of queries
ENDS = {SERVICES: 1, CALLS: 2}  # number of services that a series names
BESIDE = "@"  # separates a level from the name of a dialect beside the first one
LATENCIES = frozenset({"p50", "p99"})

Levels = Mapping[str, Columns]


def combine(dialects: Sequence[Dialect]) -> Dialect:
    """Combine dialects into one. The first dialect that measures something counts, but ingress controllers come last,
    because a mesh measures its services where they run. A dialect that learns workload names is first, so that all use
    its names."""
    first, *others = sorted(dialects, key=lambda one: (one.front_door, not one.names_workloads))
    return replace(first, beside=(*first.beside, *others)) if others else first


def level_of(level: str, dialect: Dialect, part: Dialect) -> str:
    """The level of a part's queries: ``calls`` for the first part, ``calls@NAME`` for one beside it."""
    return level if part is dialect else f"{level}{BESIDE}{part.name}"


def split_level(level: str) -> tuple[str, str]:
    """The level, and the part's name, which is empty for the first part."""
    level, _, part = level.partition(BESIDE)
    return level, part


class MeshRows:
    """A mesh's services and calls. Between polls, it remembers service names and known calls.

    Attributes:
        names: service names in the first dialect.
        known: calls that are listed; None before the first poll.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._others = [(part, _Names(part)) for part in dialect.beside]
        self._shown: dict[str, KeyMap] = {}  # names to show, by level
        self._names_version = 0  # version of the service names at that time
        self.names = ServiceNames(dialect.external)
        self.known: KnownCalls | None = None

    def follow(self, before: "MeshRows") -> None:
        """Take over what another form of the same dialect knows."""
        self.names, self.known = before.names, before.known
        if self._dialect.beside == before._dialect.beside:
            self._others = before._others

    def read(self, found: Levels) -> tuple[dict[str, Column], dict[str, Column]]:
        """Service and call columns with one row for each, under the first dialect's names.

        Args:
            found: requests are required.
        """
        services, calls = self._read_part(self._dialect, found, self._name_service, self._name_call)
        if not self._others:
            return services, calls
        measured = [_Measured(self._dialect, services, calls)]
        for part, names in self._others:
            settle = self.names.settle_key
            own = _Measured(part, *self._read_part(part, found, settle, settle)).at_its_place()
            names.learn(measured, own)
            measured.append(_Measured(part, names.rename(own.services), names.rename(own.calls)))
        return _first_of([one.services for one in measured]), _first_of([one.calls for one in measured])

    def list_known(self, services: Columns, calls: Columns, relays: Collection[Key], now: float) -> dict[str, Column]:
        """The calls, including known calls that are not made now, and without calls that relays pass on."""
        of_services, made = services["requests"], calls["requests"]
        keys = made.table
        requests = without_relayed(made, of_services, keys.numbers(map(self.names.of, relays)))
        renamed = keys.numbers(key for _, names in self._others for key in names.renamed)
        known = (self.known or KnownCalls()).see_calls(requests, now)
        known = known.forget(keys, np.append(renamed, np.setdiff1d(made.numbers, requests.numbers)))
        self.known, listed = known.list_all(requests, of_services, now)
        return {**calls, "requests": listed}

    def _read_part(
        self, part: Dialect, found: Levels, name_service: Callable[[Key], Key], name_call: Callable[[Key], Key]
    ) -> tuple[dict[str, Column], dict[str, Column]]:
        """Columns of a dialect with one row for each key, even where several proxies report a request."""
        levels = [level_of(level, self._dialect, part) for level in ENDS]
        names: dict[str, Callable[[Key], Key]] = dict(zip(levels, (name_service, name_call), strict=True))
        for level in levels:
            shown = self._show(level, found[level], names[level])
            for column in found[level].values():
                new = column.table.name(shown.missing(column.numbers))
                ends = range(0, 2 * ENDS[split_level(level)[0]], 2)
                self.names.see({key[begin : begin + 2] for key in new for begin in ends})
        if self.names.version != self._names_version:
            before, self._shown, self._names_version = self._shown, {}, self.names.version
            if CALLS in before and self.known is not None:
                raw, now = before[CALLS].known, self._show(CALLS, found[CALLS], self._name_call)
                keys, gone = found[CALLS]["requests"].table, np.setdiff1d(before[CALLS](raw), now(raw))
                self.known = self.known.forget(keys, gone)  # nothing has these names any more
        rows = []
        for level, reporters in zip(levels, part.reporters, strict=True):
            shown = self._show(level, found[level], names[level])
            rows.append(join_rows(found[level], reporters, shown, 2 * ENDS[split_level(level)[0]]))
        services, calls = rows
        return services, calls

    def _show(self, level: str, columns: Columns, name: Callable[[Key], Key]) -> KeyMap:
        if level not in self._shown:
            parts = 2 * ENDS[split_level(level)[0]]
            self._shown[level] = KeyMap(columns["requests"].table, lambda key: name(key[:parts]))
        return self._shown[level]

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
        """The measurements without callers that are not services; for an ingress controller, also without the services
        behind it."""
        external, keys = self.dialect.external, self.calls["requests"].table
        callers = keys.numbers(key for key in self.callers if key[1] not in external)
        calls = {role: one.only(keys.among(one.part(0, 2), callers)) for role, one in self.calls.items()}
        services = self.services
        if self.dialect.front_door:
            services = {role: one.among(callers) for role, one in services.items()}
        return _Measured(self.dialect, services, calls)

    @property
    def callers(self) -> set[Key]:
        """Services that make calls."""
        requests = self.calls["requests"]
        return set(requests.table.name(requests.table.distinct(requests.part(0, 2))))

    @property
    def names(self) -> set[Key]:
        """All services."""
        requests = self.calls["requests"]
        called = requests.table.name(requests.table.distinct(requests.part(2)))
        return {*self.services["requests"], *called, *self.callers}


class _Names:
    """Maps one dialect's service names to the names of earlier dialects.

    Dialects that see the same service may name it differently: without its namespace, or an ingress controller by its
    workload instead of its canonical name. A service keeps its name unless exactly one known service fits, and no other
    service of this dialect fits that one. Names are remembered, so that a service is not renamed while another is
    silent.
    """

    def __init__(self, part: Dialect) -> None:
        self._part = part
        self._other: dict[Key, Key] = {}
        self._known: dict[Key, str] = {}  # names in earlier dialects, with their default namespaces
        self._known_callers: set[Key] = set()
        self._own: set[Key] = set()
        self._own_callers: set[Key] = set()

    @property
    def renamed(self) -> set[Key]:
        """Names that are replaced."""
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

    def rename(self, columns: Columns) -> dict[str, Column]:
        """The columns under the earlier dialects' names."""
        if not self._other:
            return dict(columns)
        name = KeyMap(columns["requests"].table, self._name)
        return {role: Column.join(one.table, name(one.numbers), one.array) for role, one in columns.items()}

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


def _first_of(parts: Sequence[Columns]) -> dict[str, Column]:
    """Unite the parts' columns. Each key comes from the first part with requests, else from the first that knows the
    key."""
    requests = [columns["requests"] for columns in parts]
    candidates = [*(one.only(one.array > 0) for one in requests), *requests]
    owner = Column.first_of(
        [Column(one.table, one.numbers, np.full(len(one), i % len(parts))) for i, one in enumerate(candidates)]
    )

    def unite(role: str) -> Column:
        every = [(i, columns[role]) for i, columns in enumerate(parts) if role in columns]
        owned = [one.only(owner.at(one.numbers) == i) for i, one in every]
        if role not in LATENCIES:
            return Column.first_of(owned)
        known = [one.only(~np.isnan(one.array)) for one in (*owned, *(one for _, one in every))]
        return Column.first_of([*known, *owned])

    return {role: unite(role) for role in dict.fromkeys(role for columns in parts for role in columns)}
