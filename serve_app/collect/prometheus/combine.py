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
    first, *further = sorted(dialects, key=lambda dialect: (dialect.front_door, not dialect.names_workloads))
    return replace(first, beside=(*first.beside, *further)) if further else first


def level_of(level: str, dialect: Dialect, part: Dialect) -> str:
    """Return the level of a part's queries: ``calls`` for the first part, ``calls@NAME`` for one beside it."""
    return level if part is dialect else f"{level}{BESIDE}{part.name}"


def split_level(level: str) -> tuple[str, str]:
    """Return the level, and the part's name, which is empty for the first part."""
    level, _, part = level.partition(BESIDE)
    return level, part


def _key_length(level: str) -> int:
    """Return the number of names in a key: namespace and name of each service."""
    return 2 * ENDS[split_level(level)[0]]


class MeshRows:
    """A mesh's services and calls. Between polls, it remembers service names and known calls.

    Attributes:
        names: service names in the first dialect.
        known_calls: calls that are listed; None before the first poll.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._side_parts = [(part, _Names(part)) for part in dialect.beside]
        self._key_maps: dict[str, KeyMap] = {}  # names to show, by level
        self._names_version = 0  # version of the service names at that time
        self.names = ServiceNames(dialect.external)
        self.known_calls: KnownCalls | None = None

    def follow(self, previous: "MeshRows") -> None:
        """Take over what another form of the same dialect knows."""
        self.names, self.known_calls = previous.names, previous.known_calls
        if self._dialect.beside == previous._dialect.beside:
            self._side_parts = previous._side_parts

    def read(self, levels: Levels) -> tuple[dict[str, Column], dict[str, Column]]:
        """Return service and call columns with one row for each, under the first dialect's names. Each level needs
        requests."""
        services, calls = self._read_part(self._dialect, levels, self._name_service, self._name_call)
        if not self._side_parts:
            return services, calls
        measurements = [_Measurements(self._dialect, services, calls)]
        for part, names in self._side_parts:
            settle = self.names.settle_key
            own = _Measurements(part, *self._read_part(part, levels, settle, settle)).without_outsiders()
            names.learn(measurements, own)
            measurements.append(_Measurements(part, names.rename(own.services), names.rename(own.calls)))
        return _first_of([part.services for part in measurements]), _first_of([part.calls for part in measurements])

    def list_known(self, services: Columns, calls: Columns, relays: Collection[Key], now: float) -> dict[str, Column]:
        """Return the calls, including known calls that are not made now, and without calls that relays pass on."""
        of_services, made_calls = services["requests"], calls["requests"]
        keys = made_calls.table
        requests = without_relayed(made_calls, of_services, keys.numbers(map(self.names.of, relays)))
        renamed_keys = keys.numbers(key for _, names in self._side_parts for key in names.renamed)
        known_calls = (self.known_calls or KnownCalls()).see_calls(requests, now)
        relayed = np.setdiff1d(made_calls.numbers, requests.numbers)
        known_calls = known_calls.forget(keys, np.append(renamed_keys, relayed))
        self.known_calls, listed_requests = known_calls.list_all(requests, of_services, now)
        return {**calls, "requests": listed_requests}

    def _read_part(
        self, part: Dialect, columns: Levels, name_service: Callable[[Key], Key], name_call: Callable[[Key], Key]
    ) -> tuple[dict[str, Column], dict[str, Column]]:
        """Return the columns of a dialect with one row for each key, even where several proxies report a request."""
        levels = [level_of(level, self._dialect, part) for level in ENDS]
        names: dict[str, Callable[[Key], Key]] = dict(zip(levels, (name_service, name_call), strict=True))
        for level in levels:
            key_map = self._key_map(level, columns[level], names[level])
            for column in columns[level].values():
                new_keys = column.table.name(key_map.missing(column.numbers))
                ends = range(0, _key_length(level), 2)
                self.names.see({key[begin : begin + 2] for key in new_keys for begin in ends})
        if self.names.version != self._names_version:
            self._follow_new_names(columns[CALLS])
        rows = []
        for level, reporters in zip(levels, part.reporters, strict=True):
            key_map = self._key_map(level, columns[level], names[level])
            rows.append(join_rows(columns[level], reporters, key_map, _key_length(level)))
        services, calls = rows
        return services, calls

    def _follow_new_names(self, calls: Columns) -> None:
        """Map keys to the present names, and forget known calls whose names have changed."""
        before, self._key_maps, self._names_version = self._key_maps, {}, self.names.version
        if CALLS in before and self.known_calls is not None:
            numbers, now = before[CALLS].known_numbers, self._key_map(CALLS, calls, self._name_call)
            obsolete = np.setdiff1d(before[CALLS](numbers), now(numbers))
            self.known_calls = self.known_calls.forget(calls["requests"].table, obsolete)

    def _key_map(self, level: str, columns: Columns, name: Callable[[Key], Key]) -> KeyMap:
        if level not in self._key_maps:
            length = _key_length(level)
            self._key_maps[level] = KeyMap(columns["requests"].table, lambda key: name(key[:length]))
        return self._key_maps[level]

    def _name_service(self, key: Key) -> Key:
        settled_key = self.names.settle_key(key)
        return self.names.of(settled_key) if self._dialect.names_workloads else settled_key

    def _name_call(self, key: Key) -> Key:
        ends = self.names.settle_key(key)
        callee = self.names.of_callee(ends[2:]) if self._dialect.names_workloads else ends[2:]
        return (*self.names.of(ends[:2]), *callee)


@dataclass(frozen=True, slots=True)
class _Measurements:
    """The measurements of one dialect in one poll: columns by role."""

    dialect: Dialect
    services: Columns
    calls: Columns

    def without_outsiders(self) -> "_Measurements":
        """Return the measurements without callers that are not services; for an ingress controller, also without the
        services behind it."""
        external, keys = self.dialect.external, self.calls["requests"].table
        callers = keys.numbers(key for key in self.callers if key[1] not in external)
        calls = {role: column.only(keys.among(column.part(0, 2), callers)) for role, column in self.calls.items()}
        services = self.services
        if self.dialect.front_door:
            services = {role: column.among(callers) for role, column in services.items()}
        return _Measurements(self.dialect, services, calls)

    @property
    def callers(self) -> set[Key]:
        """Services that make calls."""
        requests = self.calls["requests"]
        return set(requests.table.name(requests.table.distinct(requests.part(0, 2))))

    @property
    def names(self) -> set[Key]:
        """All services."""
        requests = self.calls["requests"]
        callees = requests.table.name(requests.table.distinct(requests.part(2)))
        return {*self.services["requests"], *callees, *self.callers}


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

    def learn(self, earlier: Sequence[_Measurements], own: _Measurements) -> None:
        """Find the names that the earlier dialects use."""
        before = self._size()
        for measurements in earlier:
            new_names = measurements.names - self._known.keys()
            self._known |= dict.fromkeys(new_names, _default_namespace(measurements.dialect))
            self._known_callers |= measurements.callers
        self._own |= own.names
        self._own_callers |= own.callers
        if self._size() == before:
            return
        by_name: dict[str, list[Key]] = {}
        by_text: dict[str, list[Key]] = {}
        for key in self._known:
            by_name.setdefault(key[1], []).append(key)
            by_text.setdefault("-".join(key), []).append(key)
        matches = {key: self._find(key, by_name, by_text) for key in self._own - self._known.keys()}
        match_counts = Counter(matches.values())
        self._other = {
            key: earlier_key
            for key, earlier_key in matches.items()
            if earlier_key is not None and match_counts[earlier_key] == 1 and earlier_key not in self._own
        }

    def rename(self, columns: Columns) -> dict[str, Column]:
        """Return the columns under the earlier dialects' names."""
        if not self._other:
            return dict(columns)
        name = KeyMap(columns["requests"].table, self._name)
        return {role: Column.join(column.table, name(column.numbers), column.array) for role, column in columns.items()}

    def _size(self) -> tuple[int, ...]:
        return tuple(len(names) for names in (self._known, self._known_callers, self._own, self._own_callers))

    def _name(self, key: Key) -> Key:
        ends = (key[begin : begin + 2] for begin in range(0, len(key), 2))
        return tuple(text for end in ends for text in self._other.get(end, end))

    def _find(self, key: Key, by_name: Mapping[str, list[Key]], by_text: Mapping[str, list[Key]]) -> Key | None:
        no_namespace = key[0] == _default_namespace(self._part)
        candidates = [
            service for service in by_name.get(key[1], ()) if no_namespace or service[0] == self._known[service]
        ]
        if self._part.joined_names:
            candidates += by_text.get("-".join(key), ())
        if not candidates and self._part.front_door and key in self._own_callers:
            candidates = [
                service
                for service in self._known_callers
                if service[0] == key[0] and _same_workload(service[1], key[1])
            ]
        return candidates[0] if len(candidates) == 1 else None


def _default_namespace(dialect: Dialect) -> str:
    constant = next((query.labels[0] for query in dialect.services.values() if query.labels[0].startswith("=")), "")
    return dialect.default_namespace or constant.removeprefix("=")


def _same_workload(first: str, second: str) -> bool:
    """Return whether one name continues the other, as ``ingress-nginx-controller`` continues ``ingress-nginx``."""
    short, long = sorted((first, second), key=len)
    return long == short or long.startswith(f"{short}-")


def _first_of(parts: Sequence[Columns]) -> dict[str, Column]:
    """Unite the parts' columns. Each key comes from the first part with requests, else from the first that knows the
    key."""
    requests = [columns["requests"] for columns in parts]
    candidates = [*(column.only(column.array > 0) for column in requests), *requests]
    by_rank = [Column(c.table, c.numbers, np.full(len(c), i % len(parts))) for i, c in enumerate(candidates)]
    owner = Column.first_of(by_rank)

    def unite(role: str) -> Column:
        columns = {i: part[role] for i, part in enumerate(parts) if role in part}
        from_owners = [column.only(owner.at(column.numbers) == i) for i, column in columns.items()]
        if role not in LATENCIES:
            return Column.first_of(from_owners)
        with_values = [column.only(~np.isnan(column.array)) for column in (*from_owners, *columns.values())]
        return Column.first_of([*with_values, *from_owners])

    return {role: unite(role) for role in dict.fromkeys(role for part in parts for role in part)}
