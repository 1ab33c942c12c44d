"""The history of a mesh: what a minute of it is, and which chunks are written with a snapshot.

The stored window has every snapshot of the last minutes. So nothing is accumulated: when a snapshot begins a new block
of ten minutes, the minutes of the block before it are computed from the window, and written in the transaction of that
snapshot. A process that is killed in between loses nothing, and no minute is counted twice. When an hour is over, its
minutes are joined to rows of ten minutes, which are kept for longer.

A minute has the mean of each metric, since minutes of it add up to hours; errors and latencies are weighted by
requests. A spike of one snapshot shows in the score: of scores, the highest counts.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self

import numpy as np

from model.snapshot import EDGE_METRICS, NODE_METRICS, FloatArray, IntArray, MeshSnapshot
from model.verdict import Status
from serve_app.stores.base import ChunkKey, HistoryChunk
from serve_app.stores.history_chunks import (
    MINUTE,
    NOT_SCORED,
    ROWS,
    TEN_MINUTES,
    MeshPart,
    MeshRow,
    PackedPart,
    Scores,
    ServicesPart,
    StoredChange,
    Table,
    call_key,
    decode_values,
    encode_values,
    group_by_part,
    parts_for,
)
from serve_app.stores.record import Record

EPOCH, ONE_SECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(seconds=1)
WEIGHTED = slice(1, 4)  # error rate and latencies, of services as of calls; the weight is the first metric
SEVERITY = [Status.NORMAL, Status.WARMING_UP, Status.PARTIAL, Status.ANOMALOUS]  # the worst last


@dataclass(frozen=True, slots=True)
class HistoryLimit:
    """How long and how much the history keeps of each mesh.

    Attributes:
        minutes: time for which minutes are kept.
        ten_minutes: time for which rows of ten minutes are kept.
        max_bytes: of all chunks of one mesh; beyond, the oldest are deleted.
    """

    minutes: timedelta
    ten_minutes: timedelta
    max_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class HistoryRows:
    """Rows of a mesh, one for each of T steps.

    Attributes:
        start: Unix time of the first row, s.
        step: seconds of a row.
        rows: of the mesh, by place; without those that have no snapshot.
        services, calls: the tables, with T rows.
        changes: planned changes.
    """

    start: int
    step: int
    rows: Mapping[int, MeshRow]
    services: Table
    calls: Table
    changes: tuple[StoredChange, ...]

    @property
    def length(self) -> int:
        """Number of rows."""
        return int(self.services.scores.shape[1])


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """A snapshot with the part of its verdict that the history keeps."""

    snapshot: MeshSnapshot
    score: float
    threshold: float | None
    status: str
    deviations: bytes

    @property
    def row(self) -> MeshRow:
        """The row of the mesh for this snapshot alone."""
        return MeshRow(1, self.score, self.score, self.threshold, self.status)

    @property
    def changes(self) -> list[StoredChange]:
        """Its planned changes."""
        at = self.snapshot.observed_at.timestamp()
        return [StoredChange(at, one.kind, one.service, one.reason) for one in self.snapshot.changes]

    @classmethod
    def match(cls, window: Iterable[MeshSnapshot], records: Iterable[Record]) -> list[Self]:
        """The records of snapshots of the window, with their snapshots, in order."""
        snapshots = {snapshot.observed_at: snapshot for snapshot in window}
        read = ((record, json.loads(record.document)) for record in records)
        return [
            cls(snapshot, one["mesh_score"], one["threshold"], one["status"], record.deviations)
            for record, one in read
            if (snapshot := snapshots.get(datetime.fromisoformat(one["observed_at"]))) is not None
        ]


def block_seconds(window_size: int, interval_seconds: float) -> int:
    """Return how many seconds are written at once: ten minutes, if the window surely has them when they are over."""
    return TEN_MINUTES if window_size * interval_seconds >= 2 * TEN_MINUTES else MINUTE


def unix(at: datetime) -> int:
    """Return whole seconds since 1970."""
    return (at - EPOCH) // ONE_SECOND


def summarize(scored: Sequence[ScoredRow], start: int, length: int, step: int = MINUTE) -> HistoryRows:
    """Return the rows of these snapshots.

    Args:
        scored: of ``length`` steps from ``start`` on.
        start: Unix time, s.
        length: number of rows.
        step: seconds of a row.
    """
    places = np.array([(unix(one.snapshot.observed_at) - start) // step for one in scored], np.int64)
    groups: dict[int, list[MeshRow]] = {}
    for place, one in zip(places.tolist(), scored, strict=True):
        groups.setdefault(place, []).append(one.row)
    rows = {place: join_rows(group) for place, group in groups.items()}
    stacked = _Stack.of(scored)
    changes = tuple(change for one in scored for change in one.changes)
    return HistoryRows(
        start,
        step,
        rows,
        _join(stacked.services, stacked.node_values, stacked.node_scores, places, length),
        _join(stacked.calls, stacked.edge_values, stacked.edge_scores, places, length),
        changes,
    )


def coarsen(part: ServicesPart, factor: int) -> ServicesPart:
    """Return a part in which ``factor`` rows are one."""
    return ServicesPart(_coarsen(part.services, factor), _coarsen(part.calls, factor))


def coarsen_rows(rows: Mapping[int, MeshRow], factor: int) -> dict[int, MeshRow]:
    """Return rows of a mesh, of which ``factor`` are one."""
    groups: dict[int, list[MeshRow]] = {}
    for place, row in sorted(rows.items()):
        groups.setdefault(place // factor, []).append(row)
    return {place: join_rows(group) for place, group in groups.items()}


def join_rows(rows: Sequence[MeshRow]) -> MeshRow:
    """Return the row of several rows, oldest first."""
    snapshots = sum(row.snapshots for row in rows)
    return MeshRow(
        snapshots,
        sum(row.score * row.snapshots for row in rows) / snapshots,
        max(row.highest_score for row in rows),
        next((row.threshold for row in reversed(rows) if row.threshold is not None), None),
        worst_status(row.status for row in rows),
    )


def worst_status(statuses: Iterable[str]) -> str:
    """Return the worst of some statuses; one that is not known, of a later version, is the worst."""
    return max(statuses, key=lambda one: SEVERITY.index(Status(one)) if one in list(Status) else len(SEVERITY))


def mean(values: FloatArray) -> FloatArray:
    """Return the mean over the first axis of ``[T, ..., M]``, NaN where nothing was observed. Errors and latencies are
    weighted by requests, if there were any."""
    known = ~np.isnan(values)
    filled = np.where(known, values, np.float32(0))
    weights = known.astype(np.float32)
    weights[..., WEIGHTED] *= filled[..., :1]
    total, count = weights.sum(axis=0), known.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.where(total > 0, (filled * weights).sum(axis=0) / total, filled.sum(axis=0) / count)
    return np.where(count > 0, found, np.nan).astype(np.float32)


def highest(scores: Scores, axis: int) -> Scores:
    """Return the highest scores along an axis; what was never scored is not scored."""
    shifted = scores + np.uint8(1)  # what is not scored becomes 0
    found: Scores = shifted.max(axis=axis) - np.uint8(1)
    return found


class HistoryWriter:
    """Computes the chunks that are written with a snapshot.

    Args:
        limit: of each mesh.
        read: returns the stored chunks of some keys.
        sizes: of the stored chunks.
    """

    def __init__(
        self,
        limit: HistoryLimit,
        sizes: Mapping[ChunkKey, int],
        read: Callable[[Collection[ChunkKey]], Mapping[ChunkKey, bytes]],
    ) -> None:
        self._limit, self._sizes, self._read = limit, sizes, read

    def update(
        self, scored: Sequence[ScoredRow], now: datetime, block: int
    ) -> tuple[tuple[HistoryChunk, ...], tuple[ChunkKey, ...]]:
        """Return the chunks to write and those to delete.

        Args:
            scored: snapshots of whole blocks that are over, oldest first, at least one.
            now: time of the newest snapshot, which is not among them.
            block: seconds of a block.
        """
        written: dict[ChunkKey, bytes] = {}
        hours: dict[int, list[ScoredRow]] = {}
        for one in scored:
            hours.setdefault(start_of(unix(one.snapshot.observed_at), MINUTE), []).append(one)
        for hour, snapshots in hours.items():
            first = unix(snapshots[0].snapshot.observed_at) // block * block
            length = (unix(snapshots[-1].snapshot.observed_at) // block * block + block - first) // MINUTE
            self._add(written, summarize(snapshots, first, length))
            if start_of(unix(now), MINUTE) > hour:
                self._condense(written, hour)
        dropped = self._excess(written, unix(now))
        chunks = (HistoryChunk(key, content) for key, content in written.items() if key not in dropped)
        return tuple(chunks), tuple(key for key in dropped if key in self._sizes)

    def _add(self, written: dict[ChunkKey, bytes], period: HistoryRows) -> None:
        """Add rows to their chunk."""
        start = start_of(period.start, period.step)
        first = (period.start - start) // period.step
        key = ChunkKey(period.step, start, 0)
        stored = self._find(written, key)
        known = MeshPart.unpack(stored) if stored else MeshPart(parts_for(len(period.services.keys)))
        rows = {place + first: row for place, row in period.rows.items()}
        changes = sorted({*known.changes, *period.changes}, key=lambda one: one.at)
        written[key] = MeshPart(known.parts, {**known.rows, **rows}, tuple(changes)).pack()
        services = group_by_part(period.services.keys, known.parts)
        calls = group_by_part(period.calls.keys, known.parts)
        for part in sorted({*services, *calls}):
            new = ServicesPart(period.services.take(services.get(part, [])), period.calls.take(calls.get(part, [])))
            of_part = ChunkKey(period.step, start, part)
            stored = self._find(written, of_part)
            old = PackedPart(stored).unpack() if stored else ServicesPart.empty(ROWS[period.step])
            written[of_part] = old.merge(new, list(period.rows), first).pack()

    def _condense(self, written: dict[ChunkKey, bytes], hour: int) -> None:
        """Add an hour to the chunk of ten minutes."""
        stored = self._find(written, ChunkKey(MINUTE, hour, 0))
        assert stored is not None  # just written
        mesh = MeshPart.unpack(stored)
        keys = [ChunkKey(MINUTE, hour, part) for part in range(1, mesh.parts + 1)]
        packed = [one for key in keys if (one := self._find(written, key))]
        parts = [coarsen(PackedPart(one).unpack(), TEN_MINUTES // MINUTE) for one in packed]
        length = ROWS[MINUTE] * MINUTE // TEN_MINUTES
        rows = coarsen_rows(mesh.rows, TEN_MINUTES // MINUTE)
        services = concatenate([part.services for part in parts], len(NODE_METRICS), length)
        calls = concatenate([part.calls for part in parts], len(EDGE_METRICS), length)
        self._add(written, HistoryRows(hour, TEN_MINUTES, rows, services, calls, mesh.changes))

    def _find(self, written: Mapping[ChunkKey, bytes], key: ChunkKey) -> bytes | None:
        if key in written:
            return written[key]
        return self._read([key]).get(key) if key in self._sizes else None

    def _excess(self, written: Mapping[ChunkKey, bytes], now: int) -> set[ChunkKey]:
        """The chunks that are too old, or the oldest ones beyond the limit of bytes."""
        sizes = {**self._sizes, **{key: len(content) for key, content in written.items()}}
        keep = {MINUTE: self._limit.minutes, TEN_MINUTES: self._limit.ten_minutes}
        dropped = {
            key for key in sizes if key.start + key.step * ROWS[key.step] <= now - keep[key.step].total_seconds()
        }
        excess = sum(size for key, size in sizes.items() if key not in dropped) - self._limit.max_bytes
        chunks: dict[tuple[int, int], list[ChunkKey]] = {}
        for key in sizes:
            if key not in dropped:
                chunks.setdefault((key.start, key.step), []).append(key)
        for _, keys in sorted(chunks.items()):
            if excess <= 0:
                break
            dropped.update(keys)
            excess -= sum(sizes[key] for key in keys)
        return dropped


def start_of(at: int, step: int) -> int:
    """Return the start of the chunk that has a time; both are Unix time, s."""
    return at // (step * ROWS[step]) * (step * ROWS[step])


def concatenate(tables: Sequence[Table], metrics: int, rows: int) -> Table:
    """Return the tables as one; they have different keys and the same rows."""
    if not tables:
        return Table.empty((), metrics, rows)
    keys = tuple(key for table in tables for key in table.keys)
    codes, scores = [table.codes for table in tables], [table.scores for table in tables]
    return Table(keys, np.concatenate(codes, axis=1), np.concatenate(scores))


@dataclass(frozen=True, slots=True, eq=False)
class _Stack:
    """Snapshots as arrays: metrics ``[T, K, M]``, NaN if not observed, and scores ``[T, K]``."""

    services: tuple[str, ...]
    calls: tuple[str, ...]
    node_values: FloatArray
    node_scores: Scores
    edge_values: FloatArray
    edge_scores: Scores

    @classmethod
    def of(cls, scored: Sequence[ScoredRow]) -> Self:
        keys = _Keys()
        at = [keys.find(one.snapshot) for one in scored]
        count, services, calls = len(scored), len(keys.services), len(keys.calls)
        nodes = np.full((count, services, len(NODE_METRICS)), np.nan, np.float32)
        edges = np.full((count, calls, len(EDGE_METRICS)), np.nan, np.float32)
        of_nodes = np.full((count, services), NOT_SCORED, np.uint8)
        of_edges = np.full((count, calls), NOT_SCORED, np.uint8)
        for t, (one, (node, edge)) in enumerate(zip(scored, at, strict=True)):
            snapshot = one.snapshot
            nodes[t, node] = np.where(snapshot.node_observed, snapshot.node_features, np.float32(np.nan))
            edges[t, edge] = np.where(snapshot.edge_observed, snapshot.edge_features, np.float32(np.nan))
            scores = np.frombuffer(one.deviations, np.uint8)
            if len(scores) == snapshot.num_nodes + snapshot.num_edges:  # otherwise unknown
                of_nodes[t, node], of_edges[t, edge] = scores[: snapshot.num_nodes], scores[snapshot.num_nodes :]
        return cls(tuple(keys.services), tuple(keys.calls), nodes, of_nodes, edges, of_edges)


class _Keys:
    """Numbers the services and calls of snapshots. Most snapshots share their names and topology."""

    def __init__(self) -> None:
        self.services: dict[str, int] = {}
        self.calls: dict[str, int] = {}
        self._last: tuple[MeshSnapshot, IntArray, IntArray] | None = None

    def find(self, snapshot: MeshSnapshot) -> tuple[IntArray, IntArray]:
        """The numbers of the services and of the calls of a snapshot."""
        if self._last is not None:
            last, nodes, edges = self._last
            if last.node_ids is snapshot.node_ids and last.edge_index is snapshot.edge_index:
                return nodes, edges
        names = snapshot.node_ids
        calls = (call_key(names[source], names[end]) for source, end in snapshot.edge_index.T.tolist())
        self._last = snapshot, _number(self.services, names), _number(self.calls, calls)
        return self._last[1:]


def _number(known: dict[str, int], keys: Iterable[str]) -> IntArray:
    return np.array([known.setdefault(key, len(known)) for key in keys], np.int64)


def _join(keys: tuple[str, ...], values: FloatArray, scores: Scores, places: IntArray, length: int) -> Table:
    """The table of snapshots at these places."""
    table = Table.empty(keys, values.shape[2], length)
    for place in np.unique(places).tolist():
        rows = places == place
        table.codes[:, :, place] = encode_values(mean(values[rows])).T
        table.scores[:, place] = highest(scores[rows], 0)
    return table


def _coarsen(table: Table, factor: int) -> Table:
    metrics, keys, rows = table.codes.shape
    grouped = decode_values(table.codes).reshape(metrics, keys, rows // factor, factor)
    values = mean(np.moveaxis(grouped, (3, 0), (0, 3)))  # [K, rows, M]
    scores = highest(table.scores.reshape(keys, rows // factor, factor), 2)
    return Table(table.keys, np.ascontiguousarray(np.moveaxis(encode_values(values), 2, 0)), scores)
