"""One instant of a mesh as arrays."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from functools import cached_property, lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from model.errors import InvalidSnapshot
from model.names import are_plain, as_service_id, find_bad_name, is_service_name

DELETIONS = frozenset({"delete", "deletion", "retire", "retirement"})
SCALINGS = frozenset({"scale_out", "scale_in"})


if TYPE_CHECKING:
    import networkx as nx
    from torch_geometric.data import Data


class NodeMetric(IntEnum):
    """Metrics of a service: columns of ``node_features``. A recording and the API name them in lower case."""

    REQUEST_RATE = 0  # 1/s
    ERROR_RATE = 1  # 0..1
    P50_LATENCY = 2  # s
    P99_LATENCY = 3  # s
    CPU_UTILIZATION = 4  # 0..1
    MEMORY_UTILIZATION = 5  # 0..1
    ACTIVE_CONNECTIONS = 6


class EdgeMetric(IntEnum):
    """Metrics of a call: columns of ``edge_features``. Names as in :class:`NodeMetric`."""

    REQUESTS_PER_SECOND = 0  # 1/s
    ERROR_RATE = 1  # 0..1
    P50_LATENCY = 2  # s
    P99_LATENCY = 3  # s


NODE_METRICS = tuple(metric.name.lower() for metric in NodeMetric)
EDGE_METRICS = tuple(metric.name.lower() for metric in EdgeMetric)
RATIOS = frozenset({"error_rate", "cpu_utilization", "memory_utilization"})

FEW_NAMES = 8  # that are found faster one by one than in one pass over all names
LARGEST_VALUE = 1e15  # of any metric; larger values are measurement errors: 1e15 requests/s, or 30 million years

FloatArray = NDArray[np.float32]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A planned change: a deploy, a scaling, a retirement. ``service`` is a node id."""

    kind: str
    service: str
    reason: str = ""


class SignalKind(StrEnum):
    """The kind of a :class:`Signal`. All but ``CANCELLED`` are measured outside the mesh: by the kernel, Kubernetes, or
    a broker."""

    CPU_THROTTLING = "cpu_throttling"  # share of the CPU periods in which it was throttled, 0..1
    OOM_KILLS = "oom_kills"  # containers that were killed for memory since the previous snapshot
    RESTARTS = "restarts"  # containers that were restarted since the previous snapshot, kills for memory included
    DISK_PRESSURE = "disk_pressure"  # share of its fullest volume in use, or 1 if its node reports disk pressure, 0..1
    PENDING_PODS = "pending_pods"  # pods that cannot be scheduled or started
    QUEUE_DEPTH = "queue_depth"  # messages waiting for it: consumer lag, or the depth of the queue that it reads
    CANCELLED = "cancelled"  # share of its requests on which callers gave up before the response was complete, 0..1


# Kinds from 0 to 1.
SHARES_OF_ONE = frozenset({SignalKind.CPU_THROTTLING, SignalKind.DISK_PRESSURE, SignalKind.CANCELLED})
# Kinds that are near 0 for nearly all services, and then left out: a missing one is 0 if another service has it.
MOSTLY_ZERO = frozenset({SignalKind.CPU_THROTTLING, SignalKind.CANCELLED})
# Kinds that count. Sources leave out their zeros, which nearly all services have: one that is missing is 0.
COUNTS = frozenset({SignalKind.OOM_KILLS, SignalKind.RESTARTS, SignalKind.PENDING_PODS})


@dataclass(frozen=True, slots=True)
class Signal:
    """A measurement that only some services have. ``service`` is a node id; ``value`` is finite and not negative."""

    kind: SignalKind
    service: str
    value: float


class Sensitivity(StrEnum):
    """The sensitivity of a service's alerts; ``mutes.LEVELS`` has the decades."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"


@dataclass(frozen=True, slots=True)
class Owner:
    """The team responsible for a service, and its contact. At least one of the texts is not empty."""

    team: str
    contact: str = ""


@dataclass(frozen=True, slots=True)
class ServicePolicy:
    """A policy for the alerts of a service, for as long as its origin has it.

    Attributes:
        service: node id, or ``namespace/*`` for a whole namespace.
        mute: reason for muting it; empty: not muted.
        owner: None: not known. It is no part of :attr:`MeshSnapshot.digest`, since no score depends on it.
    """

    service: str
    sensitivity: Sensitivity | None = None
    mute: str = ""
    owner: Owner | None = field(default=None, repr=False)  # the digest reads the repr


@dataclass(frozen=True, kw_only=True)
class MeshSnapshot:
    """One instant of a mesh: N services, E calls.

    Build it with :meth:`create`, which checks it. The arrays are read-only from then on.

    Attributes:
        node_ids: N unique ids ``namespace/service`` (the namespace ends at the first slash).
        edge_index: int64 ``[2, E]``, source and destination of each call; no call twice.
        node_observed, node_features: bool and float32 ``[N, 7]``, by :class:`NodeMetric`; 0 if not observed.
        edge_features: float32 ``[E, 4]`` by :class:`EdgeMetric`; 0 if not observed.
        edge_observed: bool ``[E, 4]``; the request rate of a call is always observed.
        signals: measurements that only some services have, at most one of each kind for a service, in the order of
            the services and of ``SignalKind``. A kind that is missing for a service was not measured. Two exceptions
            keep snapshots small: of ``COUNTS``, and of ``MOSTLY_ZERO`` if another service has it, a missing one is 0.
    """

    node_ids: tuple[str, ...]
    edge_index: IntArray
    node_features: FloatArray
    node_observed: BoolArray
    edge_features: FloatArray
    edge_observed: BoolArray
    observed_at: datetime
    changes: tuple[PlannedChange, ...] = ()
    policies: tuple[ServicePolicy, ...] = ()
    signals: tuple[Signal, ...] = ()

    @classmethod
    def create(
        cls,
        *,
        node_ids: Sequence[str],
        edge_index: ArrayLike,
        node_features: ArrayLike,
        edge_features: ArrayLike,
        observed_at: datetime,
        changes: Sequence[PlannedChange] = (),
        policies: Sequence[ServicePolicy] = (),
        signals: Sequence[Signal] = (),
    ) -> "MeshSnapshot":
        """Check and freeze a snapshot. NaN in a feature means "not observed".

        Args:
            edge_index: ``[2, E]`` positions in ``node_ids``.
            node_features: ``[N, 7]``, NaN if not observed.
            edge_features: ``[E, 4]``, NaN if not observed.

        Raises:
            InvalidSnapshot: with the place of the first error.
        """
        index = np.array(edge_index, dtype=np.int64)
        if index.size == 0:
            index = index.reshape(2, 0)
        if index.ndim != 2 or len(index) != 2:
            raise InvalidSnapshot(f"edge_index: expected the shape [2, E], got {list(index.shape)}", place=())
        ids = tuple(node_ids)
        _check_ids(ids)
        _check_edges(ids, index)
        index.setflags(write=False)
        return cls._of(ids, index, observed_at, node_features, edge_features, changes, policies, signals)

    def with_values(
        self,
        observed_at: datetime,
        node_features: ArrayLike,
        edge_features: ArrayLike,
        changes: Sequence[PlannedChange] = (),
        policies: Sequence[ServicePolicy] = (),
        signals: Sequence[Signal] = (),
    ) -> "MeshSnapshot":
        """Check and freeze a snapshot of the same services and calls at another time. They are shared, and not checked
        again, which is most of the work in :meth:`create`. Arguments and errors as there."""
        values = observed_at, node_features, edge_features, changes, policies, signals
        return self._of(self.node_ids, self.edge_index, *values)

    @classmethod
    def _of(
        cls,
        ids: tuple[str, ...],
        index: IntArray,
        observed_at: datetime,
        node_features: ArrayLike,
        edge_features: ArrayLike,
        changes: Sequence[PlannedChange],
        policies: Sequence[ServicePolicy],
        signals: Sequence[Signal],
    ) -> "MeshSnapshot":
        """Build a snapshot from checked services and calls."""
        nodes = _table("node_features", node_features, NODE_METRICS, "services", len(ids))
        edges = _table("edge_features", edge_features, EDGE_METRICS, "calls", index.shape[1])
        if observed_at.tzinfo is None:
            raise InvalidSnapshot(
                f"observed_at: expected a time with a zone, got {observed_at.isoformat()}; add Z or an offset",
                place=("observed_at",),
            )
        node_observed = _check_values("nodes", nodes, NODE_METRICS)
        edge_observed = _check_values("edges", edges, EDGE_METRICS)
        missing = np.flatnonzero(~edge_observed[:, EdgeMetric.REQUESTS_PER_SECOND])
        if len(missing):
            raise InvalidSnapshot(
                f"edge {missing[0]}: requests_per_second is missing; a call that was not measured is left out",
                place=("edges", int(missing[0]), EDGE_METRICS[EdgeMetric.REQUESTS_PER_SECOND]),
            )
        for array in (nodes, edges, node_observed, edge_observed):
            array.setflags(write=False)
        return cls(
            node_ids=ids,
            edge_index=index,
            node_features=nodes,
            node_observed=node_observed,
            edge_features=edges,
            edge_observed=edge_observed,
            observed_at=_in_utc(observed_at),
            changes=tuple(changes),
            policies=tuple(policies),
            signals=_check_signals(ids, signals),
        )

    @property
    def num_nodes(self) -> int:
        return len(self.node_ids)

    @property
    def num_edges(self) -> int:
        return int(self.edge_index.shape[1])

    @cached_property
    def digest(self) -> str:
        """Hex digest of the content without the time: equal content has an equal digest."""
        h = hashlib.blake2b(digest_size=16)
        h.update("\n".join(self.node_ids).encode())
        nodes, edges = (self.node_features, self.node_observed), (self.edge_features, self.edge_observed)
        for array in (self.edge_index, *nodes, *edges):
            h.update(array.tobytes())
        h.update(repr(self.changes).encode())
        if self.policies:
            h.update(repr(self.policies).encode())
        if self.signals:
            h.update(repr(self.signals).encode())
        return h.hexdigest()

    @cached_property
    def signal_places(self) -> tuple[IntArray, FloatArray]:
        """Places of the signals, ascending, and their values, ``[S]`` each.

        A place is the position of the service times the number of kinds, plus the position of the kind.
        """
        row = {name: i for i, name in enumerate(self.node_ids)} if self.signals else {}
        places = [row[signal.service] * len(_KIND_ORDER) + _KIND_ORDER[signal.kind] for signal in self.signals]
        return np.array(places, np.int64), np.array([signal.value for signal in self.signals], np.float32)

    def take(self, nodes: ArrayLike, edges: ArrayLike) -> "MeshSnapshot":
        """Return the sub-mesh of ``nodes`` (positions, in this order) and ``edges`` (both ends must be among them).

        The signals of the other services are left out.

        Raises:
            InvalidSnapshot: an edge has an end outside ``nodes``.
        """
        node_rows = np.asarray(nodes, dtype=np.int64)
        edge_rows = np.asarray(edges, dtype=np.int64)
        position = np.full(self.num_nodes, -1, dtype=np.int64)
        position[node_rows] = np.arange(len(node_rows))
        index = position[self.edge_index[:, edge_rows]]
        if (index < 0).any():
            edge = int(edge_rows[np.flatnonzero((index < 0).any(axis=0))[0]])
            raise InvalidSnapshot(
                f"take: edge {edge} has an end outside the {len(node_rows)} chosen nodes; choose both ends or leave it",
                place=("edges", edge),
            )
        ids = tuple(self.node_ids[i] for i in node_rows)
        row = {name: i for i, name in enumerate(ids)} if self.signals else {}
        return MeshSnapshot(
            node_ids=ids,
            edge_index=index,
            node_features=self.node_features[node_rows],
            node_observed=self.node_observed[node_rows],
            edge_features=self.edge_features[edge_rows],
            edge_observed=self.edge_observed[edge_rows],
            observed_at=self.observed_at,
            changes=self.changes,
            policies=self.policies,
            signals=tuple(
                sorted(
                    (signal for signal in self.signals if signal.service in row), key=lambda signal: row[signal.service]
                )
            ),
        )

    def to_pyg(self) -> "Data":
        """Return a ``torch_geometric.data.Data`` with ``x [N, 7]``, ``edge_attr [E, 4]``, their masks and
        ``node_ids``."""
        import torch
        from torch_geometric.data import Data

        def tensor(array: NDArray[Any]) -> torch.Tensor:
            return torch.from_numpy(array.copy())

        return Data(
            x=tensor(self.node_features),
            edge_index=tensor(self.edge_index),
            edge_attr=tensor(self.edge_features),
            x_observed=tensor(self.node_observed),
            edge_attr_observed=tensor(self.edge_observed),
            node_ids=list(self.node_ids),
        )

    def to_networkx(self) -> "nx.DiGraph":
        """Return a ``networkx.DiGraph`` keyed by node id. Observed metrics are attributes of nodes and edges."""
        import networkx as nx

        graph = nx.DiGraph(observed_at=self.observed_at)
        for i, name in enumerate(self.node_ids):
            graph.add_node(name, **_observed(NODE_METRICS, self.node_features[i], self.node_observed[i]))
        for e, (source, destination) in enumerate(self.edge_index.T):
            graph.add_edge(
                self.node_ids[source],
                self.node_ids[destination],
                **_observed(EDGE_METRICS, self.edge_features[e], self.edge_observed[e]),
            )
        return graph


def find_rows(
    node_ids: Sequence[str], services: Collection[str], near: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Return the positions of some services in a snapshot. Services that it does not have are left out.

    Args:
        near: positions in another snapshot. They are still true of most, and then no other name is read.
    """
    row = {
        name: i for name, i in (near or {}).items() if i < len(node_ids) and node_ids[i] == name and name in services
    }
    if len(row) < len(services):
        missing = (set(services) - row.keys()).intersection(node_ids)
        if len(missing) <= FEW_NAMES:
            row |= {name: node_ids.index(name) for name in missing}
        else:
            row |= {name: i for i, name in enumerate(node_ids) if name in missing}
    return row


def find_calls(snapshot: MeshSnapshot, names: Sequence[tuple[str, str]], row: Mapping[str, int]) -> IntArray:
    """Return where calls between these services stand in the snapshot, ``[k]``; -1 where they do not. ``row`` is where
    the services stand."""
    calls_them = np.zeros(len(snapshot.node_ids), bool)
    calls_them[[row[source] for source, _ in names if source in row]] = True
    near = np.flatnonzero(calls_them[snapshot.edge_index[0]])
    row_of_call = dict(zip(zip(*snapshot.edge_index[:, near].tolist(), strict=True), near.tolist(), strict=True))
    return np.array([row_of_call.get((row.get(a, -1), row.get(b, -1)), -1) for a, b in names], np.int64)


def mark_services(node_ids: Sequence[str], services: Collection[str]) -> BoolArray:
    """Return the mask ``[N]`` of some services in a snapshot."""
    mask = np.zeros(len(node_ids), bool)
    mask[list(find_rows(node_ids, services).values())] = True
    return mask


def namespace_of(node_id: str) -> str:
    """Return ``shop`` for ``shop/cart``."""
    return node_id.split("/", 1)[0]


@lru_cache(maxsize=64)
def number_namespaces(node_ids: tuple[str, ...]) -> IntArray:
    """Return the number of each service's namespace, ``[N]`` from 0, in order of their first services. Read-only.

    The ids of a mesh rarely change, and it takes as long as a pass through the network to find this again.
    """
    number: dict[str, int] = {}
    spaces = (number.setdefault(space, len(number)) for space in map(namespace_of, node_ids))
    numbers = np.fromiter(spaces, np.int64, len(node_ids))
    numbers.flags.writeable = False
    return numbers


def with_good_names(snapshot: MeshSnapshot) -> MeshSnapshot:
    """Escape names that break :data:`model.names.NAME_RULE`. Returns ``snapshot`` itself if there are none.

    A name whose escaped form is the id of another service gets a number.
    """
    if find_bad_name(snapshot.node_ids) is None:
        return snapshot
    new_ids: dict[str, str] = {}
    ids_in_use = {name for name in snapshot.node_ids if is_service_name(name)}
    for node_id in snapshot.node_ids:
        if is_service_name(node_id):
            new_ids[node_id] = node_id
            continue
        new_id = as_service_id(node_id)
        candidates = (new_id if number == 1 else f"{new_id}_{number}" for number in count(1))
        new_ids[node_id] = next(candidate for candidate in candidates if candidate not in ids_in_use)
        ids_in_use.add(new_ids[node_id])
    return replace(
        snapshot,
        node_ids=tuple(new_ids.values()),
        changes=tuple(
            replace(change, service=new_ids.get(change.service, change.service)) for change in snapshot.changes
        ),
        policies=tuple(
            replace(policy, service=new_ids.get(policy.service, policy.service)) for policy in snapshot.policies
        ),
        signals=tuple(replace(signal, service=new_ids[signal.service]) for signal in snapshot.signals),
    )


def _in_utc(observed_at: datetime) -> datetime:
    try:
        return observed_at.astimezone(UTC)
    except OverflowError:
        raise InvalidSnapshot(
            f"observed_at: expected a time between the years 1 and 9999 in UTC, got {observed_at.isoformat()}",
            place=("observed_at",),
        ) from None


def _observed(names: Sequence[str], values: FloatArray, observed: BoolArray) -> dict[str, float]:
    return {n: float(v) for n, v, o in zip(names, values, observed, strict=True) if o}


def _table(name: str, values: ArrayLike, metrics: Sequence[str], kind: str, rows: int) -> FloatArray:
    """Return the metrics of all services or calls as a table of its own, ``[rows, metrics]``."""
    columns = len(metrics)
    with np.errstate(over="ignore"):  # values beyond float32 become infinite, and are refused as such
        table = np.array(values, dtype=np.float32, order="C")
    if table.size == 0:
        table = table.reshape(0, columns)
    if table.ndim != 2 or table.shape[1] != columns:
        raise InvalidSnapshot(f"{name}: expected the shape [rows, {columns}], got {list(table.shape)}", place=())
    if len(table) != rows:
        raise InvalidSnapshot(f"expected one row of features for each of {rows} {kind}, got {len(table)}", place=())
    return table


def _check_ids(ids: tuple[str, ...]) -> None:
    if not ids:
        raise InvalidSnapshot("expected at least one service, got none; an empty mesh has no verdict", place=("nodes",))
    if are_plain(ids) and len(set(ids)) == len(ids):
        return
    first_row: dict[str, int] = {}
    for i, name in enumerate(ids):
        namespace, slash, service = name.partition("/")
        if not (namespace and slash and service):
            raise InvalidSnapshot(
                f"node {i}: expected an id 'namespace/service' with both parts filled, got {name[:80]!r}",
                place=("nodes", i),
            )
        if first_row.setdefault(name, i) != i:
            raise InvalidSnapshot(
                f"node {i}: {name[:80]!r} was already given as node {first_row[name]}; send each service once",
                place=("nodes", i),
            )


def _check_edges(ids: tuple[str, ...], index: IntArray) -> None:
    if not index.size:
        return
    if index.min() < 0 or index.max() >= len(ids):
        e = int(np.flatnonzero(((index < 0) | (index >= len(ids))).any(axis=0))[0])
        raise InvalidSnapshot(
            f"edge {e}: ends {index[:, e].tolist()} are not both positions of the {len(ids)} services",
            place=("edges", e),
        )
    key = index[0] * len(ids) + index[1]
    if len(ids) ** 2 <= np.iinfo(np.int32).max:
        key = key.astype(np.int32)  # sorts twice as fast
    sorted_keys = np.sort(key)
    if (sorted_keys[1:] > sorted_keys[:-1]).all():
        return
    order = np.argsort(key, kind="stable")  # several times slower than a plain sort, but finds the position
    repeat = int(np.flatnonzero(np.diff(key[order]) == 0)[0])
    first, again = order[repeat : repeat + 2].tolist()
    raise InvalidSnapshot(
        f"edge {again}: the call {ids[index[0, again]][:80]!r} to {ids[index[1, again]][:80]!r} was already given "
        f"as edge {first}; send each call once",
        place=("edges", again),
    )


def _check_values(kind: str, values: FloatArray, names: Sequence[str]) -> BoolArray:
    """Refuse impossible values, set NaN to 0 in place, and return the mask of observed values."""
    observed: BoolArray = values == values
    bits = values.view(np.int32)  # all ones keep a value, none make it 0: four times faster than by mask
    bits &= -observed.astype(np.int32)
    ratios = [i for i, n in enumerate(names) if n in RATIOS]
    largest = np.finfo(np.float32).max
    if len(values) and not (
        values.min() >= 0 and values.max() <= largest and all(values[:, i].max() <= 1 for i in ratios)
    ):
        upper = np.array([1.0 if n in RATIOS else largest for n in names], dtype=np.float32)
        wrong = (values < 0) | (values > upper)
        row, column = (int(x) for x in np.argwhere(wrong)[0])
        expected = "a ratio from 0 to 1" if names[column] in RATIOS else "a finite number, 0 or more"
        raise InvalidSnapshot(
            f"{kind[:-1]} {row}: {names[column]}: expected {expected}, got {values[row, column]:g}; "
            "leave out what was not observed",
            place=(kind, row, names[column]),
        )
    return observed


def _check_signals(ids: tuple[str, ...], signals: Sequence[Signal]) -> tuple[Signal, ...]:
    """Refuse impossible signals, and return the others in the order of the services and kinds.

    A value gets the fewest digits that are the same float32: snapshots in all formats then have equal signals.
    """
    if not signals:
        return ()
    row = find_rows(ids, {signal.service for signal in signals})
    by_place: dict[tuple[int, int], Signal] = {}
    for i, signal in enumerate(signals):
        if signal.service not in row:
            raise InvalidSnapshot(
                f"signal {i}: {signal.service[:80]!r} is not among the {len(ids)} services; add it or "
                "remove the signal",
                place=("signals", i),
            )
        at, kind = row[signal.service], SignalKind(signal.kind)
        value = _short_decimal(signal.value) if 0 <= signal.value <= LARGEST_VALUE else float("nan")
        if not value <= (1.0 if kind in SHARES_OF_ONE else LARGEST_VALUE):
            expected = "a ratio from 0 to 1" if kind in SHARES_OF_ONE else f"a number from 0 to {LARGEST_VALUE:g}"
            raise InvalidSnapshot(
                f"node {at}: {kind}: expected {expected}, got {signal.value:g}; leave out what was not observed",
                place=("nodes", at, "signals", kind.value),
            )
        key = at, _KIND_ORDER[kind]
        if key in by_place:
            raise InvalidSnapshot(
                f"signal {i}: {kind} of {signal.service[:80]!r} was already given; send each kind once for a service",
                place=("signals", i),
            )
        by_place[key] = signal if value == signal.value and kind is signal.kind else Signal(kind, signal.service, value)
    return tuple(by_place[key] for key in sorted(by_place))


_KIND_ORDER = {kind: i for i, kind in enumerate(SignalKind)}


def _short_decimal(value: float) -> float:
    """Return the number with the fewest digits that is the same float32."""
    return float(value) if float(value).is_integer() and value < 2**24 else float(str(np.float32(value)))
