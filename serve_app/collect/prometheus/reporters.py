"""One row for each service and for each call, although several proxies report a request, and names differ.

A gateway or a sidecar reports a request as its source, a waypoint on the way reports it again, and the sidecar of the
destination a third time. Each sees all requests of a call or, while a mesh moves from sidecars to waypoints, some of
them. So the reporters of a call are never added: the one with most requests counts. Latencies come from the preferred
reporter that sees nearly all requests, and never from several, because each one measures another way.

The sidecar of a destination behind a waypoint may take the waypoint for the caller. A caller that nothing else knows,
of a destination whose requests a waypoint reports, is this waypoint, and its calls are left out. A gateway that passes
requests on to an external service is left out like this, too.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from model.snapshot import BoolArray, IntArray
from serve_app.collect.prometheus.client import Numbers
from serve_app.collect.prometheus.frames import Column, Key, KeyIndex
from serve_app.collect.prometheus.service_names import NO_SERVICE

NEARLY_ALL = 0.8  # of the requests; scrapes at different times make smaller differences
MIN_SHARE = 0.01  # of the requests of a row, from which a part of it can move the p99
LARGEST = ("requests", "failures", "cancelled", "long_requests")  # counts, of the reporter that sees most
QUANTILES = ("p50", "p99")
WAYPOINT, DESTINATION = "waypoint", "destination"  # reporters

Columns = Mapping[str, Column]  # by role


@dataclass(slots=True)
class RowJoiner:
    """Joins the rows of services, or of calls, between polls.

    Args:
        raw: keys of the columns: names, and behind them the reporter if ``reporters`` are given.
        parts: number of names in a key.
        reporters: the preferred one first. Others count after these.
    """

    raw: KeyIndex
    parts: int
    reporters: tuple[str, ...] = ()
    index: KeyIndex = field(default_factory=KeyIndex)  # names without the reporter, before and after renaming
    _reporter_index: KeyIndex = field(default_factory=KeyIndex)
    _renamed: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    _version: int = -1
    _seen: int = 0  # keys whose services were named

    def __post_init__(self) -> None:
        if not self.reporters:
            self.index = self.raw
        for reporter in self.reporters:
            self._reporter_index.number_of((reporter,))

    def new_services(self) -> Iterator[Key]:
        """The services of the keys that are new since the last time."""
        self._names()  # adds them
        for key in self.index.keys[self._seen :]:
            yield from (key[begin : begin + 2] for begin in range(0, self.parts, 2))
        self._seen = len(self.index)

    @property
    def is_renamed(self) -> BoolArray:
        """``[K]`` which keys of ``index`` have another name now, and are the name of no other key."""
        found: BoolArray = self._renamed != np.arange(len(self._renamed))
        found[self._renamed] = False
        return found

    def names(self, column: Column) -> IntArray:
        """``[R]`` number of each row's names in ``index``, before renaming."""
        return self._names()[column.numbers]

    def join(self, columns: Columns, rename: Callable[[Key], Key], version: int) -> dict[str, Column]:
        """Columns with one row for each key of ``index``.

        Args:
            columns: by role; ``requests`` is required.
            rename: returns the names to show for the names of a key.
            version: changes whenever ``rename`` does.
        """
        renamed = self._rename(rename, version)
        is_renamed = bool((renamed != np.arange(len(renamed))).any())
        if not (self.reporters or is_renamed):
            return dict(columns)
        numbers = self._names()
        reporter = self._reporters()
        rows = {role: (reporter[one.numbers], renamed[numbers[one.numbers]]) for role, one in columns.items()}
        shape = max(len(self._reporter_index), 1), len(self.index)
        requests = _sums(columns["requests"].values, rows["requests"], shape)
        most = np.fmax.reduce(requests, axis=0)
        with np.errstate(invalid="ignore"):
            first = (requests >= NEARLY_ALL * most).argmax(axis=0)  # not a number compares as False

        left_out = self._calls_of_waypoints(requests)
        if (no_service := self.index.numbers.get(self._no_service)) is not None:
            left_out.append(no_service)

        def join_rows(role: str, column: Column) -> Column:
            if role in LARGEST:
                values = np.fmax.reduce(_sums(column.values, rows[role], shape), axis=0)
            elif role in QUANTILES:
                weight = columns["requests"].align(column.index, column.numbers)
                values = _quantiles(role, column.values, rows[role], weight, requests)[first, np.arange(shape[1])]
            else:
                values = _sums(column.values, rows[role], shape)[first, np.arange(shape[1])]
            present = np.zeros(shape[1], bool)
            present[rows[role][1]] = True
            present[left_out] = False
            found = np.flatnonzero(present)
            return Column(self.index, found, values[found])

        return {role: join_rows(role, column) for role, column in columns.items()}

    def _calls_of_waypoints(self, requests: Numbers) -> list[int]:
        """Numbers of the keys whose caller is a waypoint; ``requests`` are ``[reporters, keys]``."""
        if self.parts != 4 or not {WAYPOINT, DESTINATION} <= set(self.reporters):
            return []
        with np.errstate(invalid="ignore"):
            seen = requests > 0
        at_the_end = self.reporters.index(DESTINATION)
        others = np.delete(seen, at_the_end, axis=0).any(axis=0)
        behind = seen[self.reporters.index(WAYPOINT)]
        alone = seen[at_the_end] & ~others
        if not (behind.any() and alone.any()):
            return []
        keys = self.index.keys
        passed = {keys[i][2:] for i in np.flatnonzero(behind).tolist()}
        known = {keys[i][2:] for i in np.flatnonzero(seen.any(axis=0)).tolist()}
        known |= {keys[i][:2] for i in np.flatnonzero(others).tolist()}
        return [i for i in np.flatnonzero(alone).tolist() if keys[i][2:] in passed and keys[i][:2] not in known]

    def _names(self) -> IntArray:
        if not self.reporters:
            return np.arange(len(self.raw))
        return self.raw.part(0, self.parts, self.index)

    def _reporters(self) -> IntArray:
        if not self.reporters:
            return np.zeros(len(self.raw), np.int64)
        return self.raw.part(self.parts, self.parts + 1, self._reporter_index)

    def _rename(self, rename: Callable[[Key], Key], version: int) -> IntArray:
        """``[len(index)]`` number of the names to show."""
        self._names()  # adds the keys that are new
        if version != self._version:
            self._renamed, self._version = np.empty(0, np.int64), version
        while len(self._renamed) < len(self.index):  # new names are added behind
            names = map(rename, self.index.keys[len(self._renamed) :])
            new = [
                self.index.number_of(self._no_service if NO_SERVICE in (name[:2], name[2:]) else name) for name in names
            ]
            self._renamed = np.append(self._renamed, np.array(new, np.int64))
        return self._renamed

    @property
    def _no_service(self) -> Key:
        """The key of rows that belong to no service."""
        return NO_SERVICE * (self.parts // 2)


def without_relayed(requests: Column, services: Column, relays: Collection[Key]) -> Column:
    """The requests of calls, without those that a relay passes on to a service that is not measured itself and that
    others call.

    Args:
        services: requests of the services that are measured themselves.
    """
    if not relays:
        return requests
    source, destination = (requests.index.part(begin, begin + 2, services.index) for begin in (0, 2))
    source, destination = source[requests.numbers], destination[requests.numbers]
    is_relay = np.fromiter((key in relays for key in services.index.keys), bool, len(services.index))
    is_passed = np.zeros(len(services.index), bool)
    is_passed[destination[~is_relay[source]]] = True
    is_passed[services.numbers] = False
    kept = ~(is_relay[source] & is_passed[destination])
    return Column(requests.index, requests.numbers[kept], requests.values[kept])


def _sums(values: Numbers, rows: tuple[IntArray, IntArray], shape: tuple[int, int]) -> Numbers:
    """``[reporters, keys]`` sums of rows; NaN where there is none."""
    known = np.isfinite(values)
    place = (rows[0] * shape[1] + rows[1])[known]
    size = shape[0] * shape[1]
    sums = np.bincount(place, values[known], size).astype(np.float64)
    sums[np.bincount(place, minlength=size) == 0] = np.nan
    return sums.reshape(shape)


def _quantiles(
    role: str, values: Numbers, rows: tuple[IntArray, IntArray], weight: Numbers, requests: Numbers
) -> Numbers:
    """``[reporters, keys]`` quantiles. Where several rows become one, the row with most requests gives the p50, and the
    slowest row with a notable share of the requests the p99."""
    table = np.full(requests.shape, np.nan)
    weight = np.where(np.isfinite(weight), weight, -1.0)
    known = np.isfinite(values)
    if role != "p50":
        with np.errstate(invalid="ignore"):
            known &= ~(weight < MIN_SHARE * requests[rows])
    order = np.flatnonzero(known)
    order = order[np.argsort((weight if role == "p50" else values)[order], kind="stable")]
    table[rows[0][order], rows[1][order]] = values[order]  # the last one stays
    return table
