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
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import numpy as np

from model.snapshot import EDGE_METRICS, NODE_METRICS, BoolArray, FloatArray, IntArray, MeshSnapshot
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
        length: T.
        rows: of the mesh, by place; without those that have no snapshot.
        services: table of T rows.
        calls: table of rows of ten minutes.
        changes: planned changes.
    """

    start: int
    step: int
    length: int
    rows: Mapping[int, MeshRow]
    services: Table
    calls: Table
    changes: tuple[StoredChange, ...]

    def places_of_calls(self) -> list[int]:
        """The rows of calls in whose ten minutes there is a row."""
        first = self.start // TEN_MINUTES
        return sorted({(self.start + place * self.step) // TEN_MINUTES - first for place in self.rows})


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
    def of(cls, snapshot: MeshSnapshot, record: Record) -> Self:
        """The row of a snapshot and the record of its verdict."""
        head = _read_head(record.document)
        return cls(snapshot, head["mesh_score"], head["threshold"], head["status"], record.deviations)

    @classmethod
    def match(cls, window: Iterable[MeshSnapshot], records: Iterable[Record]) -> list[Self]:
        """The records of snapshots of the window, with their snapshots, in order."""
        snapshots = {snapshot.observed_at: snapshot for snapshot in window}
        times = ((record, datetime.fromisoformat(_read_head(record.document)["observed_at"])) for record in records)
        return [cls.of(snapshots[at], record) for record, at in times if at in snapshots]


def _read_head(document: bytes) -> dict[str, Any]:
    """The first fields of a verdict, which are short: the others are hundreds of times as long."""
    head: dict[str, Any] = json.loads(document.partition(b',"suspects":')[0] + b"}")
    return head


def block_seconds(window_size: int, interval_seconds: float) -> int:
    """Return how many seconds are written at once: ten minutes, if the window surely has them when they are over."""
    return TEN_MINUTES if window_size * interval_seconds >= 2 * TEN_MINUTES else MINUTE


def unix(at: datetime) -> int:
    """Return whole seconds since 1970."""
    return (at - EPOCH) // ONE_SECOND


def summarize(scored: Sequence[ScoredRow], start: int, length: int) -> HistoryRows:
    """Return the minutes of these snapshots.

    Args:
        scored: of ``length`` minutes from ``start`` on.
        start: Unix time, s.
        length: number of rows.
    """
    times = np.array([unix(one.snapshot.observed_at) for one in scored])
    places = (times - start) // MINUTE
    groups: dict[int, list[MeshRow]] = {}
    for place, one in zip(places.tolist(), scored, strict=True):
        groups.setdefault(place, []).append(one.row)
    stacked = _Stack.of(scored)
    of_calls = times // TEN_MINUTES - start // TEN_MINUTES
    return HistoryRows(
        start,
        MINUTE,
        length,
        {place: join_rows(group) for place, group in groups.items()},
        _join(stacked.services, stacked.node_values, stacked.node_observed, stacked.node_scores, places, length),
        _join(
            stacked.calls,
            stacked.edge_values,
            stacked.edge_observed,
            stacked.edge_scores,
            of_calls,
            call_rows(start, MINUTE, length),
        ),
        tuple(change for one in scored for change in one.changes),
    )


def call_rows(start: int, step: int, length: int) -> int:
    """Return how many rows of ten minutes the calls of a chunk have."""
    return (start + step * length - 1) // TEN_MINUTES - start // TEN_MINUTES + 1


def coarsen(rows: HistoryRows) -> HistoryRows:
    """Return minutes as rows of ten minutes."""
    factor = TEN_MINUTES // MINUTE
    return replace(
        rows,
        step=TEN_MINUTES,
        length=rows.length // factor,
        rows=coarsen_rows(rows.rows, factor),
        services=_coarsen(rows.services, factor),
    )


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
    return mean_of_observed(np.where(known, values, np.float32(0)), known)


def mean_of_observed(values: FloatArray, known: BoolArray) -> FloatArray:
    """Return the same of values that are 0 where they were not observed."""
    count = known.sum(axis=0)
    weights = known[..., WEIGHTED] * values[..., :1]
    total = weights.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = values.sum(axis=0) / count  # NaN where nothing was observed
        weighted = (weights * values[..., WEIGHTED]).sum(axis=0) / total
    found[..., WEIGHTED] = np.where(total > 0, weighted, found[..., WEIGHTED])
    return np.asarray(found, np.float32)


def highest(scores: Scores, axis: int) -> Scores:
    """Return the highest scores along an axis; what was never scored is not scored."""
    shifted = scores + np.uint8(1)  # what is not scored becomes 0
    found: Scores = shifted.max(axis=axis) - np.uint8(1)
    return found


class HistoryWriter:
    """Computes the chunks that are written with a snapshot. With most blocks, that is one small piece; when an hour or
    half a day is over, its pieces become one chunk.

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
        merged: set[ChunkKey] = set()
        hours: dict[int, list[ScoredRow]] = {}
        for one in scored:
            hours.setdefault(start_of(unix(one.snapshot.observed_at), MINUTE), []).append(one)
        for hour, snapshots in hours.items():
            first = unix(snapshots[0].snapshot.observed_at) // block * block
            length = (unix(snapshots[-1].snapshot.observed_at) // block * block + block - first) // MINUTE
            self._write(written, summarize(snapshots, first, length))
            if start_of(unix(now), MINUTE) > hour:
                self._write(written, coarsen(self._merge(written, merged, hour, MINUTE)))
            if start_of(unix(now), TEN_MINUTES) > (half_day := start_of(hour, TEN_MINUTES)):
                self._merge(written, merged, half_day, TEN_MINUTES)
        replaced = {(key.step, key.start) for key in written}
        merged |= {key for key in self._sizes if (key.step, key.start) in replaced and key not in written}
        dropped = self._excess(written, merged, unix(now))
        chunks = (HistoryChunk(key, content) for key, content in written.items() if key not in dropped)
        return tuple(chunks), tuple(key for key in dropped if key in self._sizes)

    def _write(self, written: dict[ChunkKey, bytes], rows: HistoryRows) -> None:
        """Write rows as a piece; with the rows that it has already, if their mesh was set aside in between."""
        key = ChunkKey(rows.step, rows.start, 0)
        if key in self._sizes:
            pieces = [*self._load(written, [key]), rows]
            rows = overlay(pieces, rows.start, rows.step, max(piece.length for piece in pieces))
        self._put(written, rows, 1)  # dividing it would take longer than all else

    def _merge(self, written: dict[ChunkKey, bytes], merged: set[ChunkKey], start: int, step: int) -> HistoryRows:
        """Replace the pieces of a time that is over with one chunk. Returns its rows."""
        end = start + step * ROWS[step]
        own = {key for key in (*self._sizes, *written) if key.step == step and start <= key.start < end}
        keys = sorted(key for key in own if not key.part)
        whole = overlay(self._load(written, keys), start, step, ROWS[step])
        for key in own:
            written.pop(key, None)
        self._put(written, whole, parts_for(len(whole.services.keys)))
        merged |= own - written.keys()
        return whole

    def _load(self, written: Mapping[ChunkKey, bytes], keys: Sequence[ChunkKey]) -> list[HistoryRows]:
        """The rows of these chunks, given by their parts 0."""
        found = self._find(written, keys)
        return [self._load_one(written, key, MeshPart.unpack(found[key])) for key in keys if key in found]

    def _load_one(self, written: Mapping[ChunkKey, bytes], key: ChunkKey, mesh: MeshPart) -> HistoryRows:
        keys = [ChunkKey(key.step, key.start, part) for part in range(1, mesh.parts + 1)]
        parts = [PackedPart(content) for content in self._find(written, keys).values()]
        calls = call_rows(key.start, key.step, mesh.length)
        return HistoryRows(
            key.start,
            key.step,
            mesh.length,
            mesh.rows,
            concatenate([part.service_table() for part in parts], len(NODE_METRICS), mesh.length),
            concatenate([part.call_table() for part in parts], len(EDGE_METRICS), calls),
            mesh.changes,
        )

    def _find(self, written: Mapping[ChunkKey, bytes], keys: Sequence[ChunkKey]) -> dict[ChunkKey, bytes]:
        """The content of these chunks: what was just written, else what is stored."""
        stored = self._read([key for key in keys if key in self._sizes and key not in written])
        return {**stored, **{key: written[key] for key in keys if key in written}}

    def _put(self, written: dict[ChunkKey, bytes], rows: HistoryRows, parts: int) -> None:
        """Encode rows as a chunk with so many parts beside part 0."""
        mesh = MeshPart(parts, rows.length, dict(rows.rows), rows.changes)
        written[ChunkKey(rows.step, rows.start, 0)] = mesh.pack()
        if parts == 1:
            written[ChunkKey(rows.step, rows.start, 1)] = ServicesPart(rows.services, rows.calls).pack()
            return
        services, calls = (group_by_part(table.keys, parts) for table in (rows.services, rows.calls))
        for part in sorted({*services, *calls}):
            some = ServicesPart(rows.services.take(services.get(part, [])), rows.calls.take(calls.get(part, [])))
            written[ChunkKey(rows.step, rows.start, part)] = some.pack()

    def _excess(self, written: Mapping[ChunkKey, bytes], merged: set[ChunkKey], now: int) -> set[ChunkKey]:
        """The pieces that were merged, the chunks that are too old, and the oldest ones beyond the limit of bytes."""
        sizes = {**self._sizes, **{key: len(content) for key, content in written.items()}}
        keep = {MINUTE: self._limit.minutes, TEN_MINUTES: self._limit.ten_minutes}
        dropped = merged | {
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


def overlay(pieces: Sequence[HistoryRows], start: int, step: int, length: int) -> HistoryRows:
    """Return the rows of several pieces as one; of two rows of the same time, the later one counts."""
    rows = {piece_row(piece, start, place): row for piece in pieces for place, row in piece.rows.items()}
    changes = sorted({change for piece in pieces for change in piece.changes}, key=lambda one: one.at)
    services = _overlay_tables(
        [(piece.services, (piece.start - start) // step, sorted(piece.rows)) for piece in pieces],
        len(NODE_METRICS),
        length,
    )
    calls = _overlay_tables(
        [
            (
                piece.calls,
                piece.start // TEN_MINUTES - start // TEN_MINUTES,
                piece.places_of_calls(),
            )
            for piece in pieces
        ],
        len(EDGE_METRICS),
        call_rows(start, step, length),
    )
    return HistoryRows(start, step, length, rows, services, calls, tuple(changes))


def piece_row(piece: HistoryRows, start: int, place: int) -> int:
    """Return the place of a row of a piece in a chunk that begins at ``start``."""
    return (piece.start - start) // piece.step + place


def _overlay_tables(pieces: Sequence[tuple[Table, int, Sequence[int]]], metrics: int, length: int) -> Table:
    """The tables as one. Each comes with its place in the whole, and the rows that it has."""
    keys = tuple(dict.fromkeys(key for table, *_ in pieces for key in table.keys))
    row, whole = {key: i for i, key in enumerate(keys)}, Table.empty(keys, metrics, length)
    for table, first, places in pieces:
        into = np.array([row[key] for key in table.keys], np.int64)
        for place in places:
            whole.codes[:, into, first + place] = table.codes[:, :, place]
            whole.scores[into, first + place] = table.scores[:, place]
    return whole


def concatenate(tables: Sequence[Table], metrics: int, rows: int) -> Table:
    """Return the tables as one; they have different keys and the same rows."""
    if not tables:
        return Table.empty((), metrics, rows)
    keys = tuple(key for table in tables for key in table.keys)
    codes, scores = [table.codes for table in tables], [table.scores for table in tables]
    return Table(keys, np.concatenate(codes, axis=1), np.concatenate(scores))


@dataclass(frozen=True, slots=True, eq=False)
class _Stack:
    """Snapshots as arrays: metrics ``[T, K, M]``, 0 if not observed, whether they were, and scores ``[T, K]``."""

    services: tuple[str, ...]
    calls: tuple[str, ...]
    node_values: FloatArray
    node_observed: BoolArray
    node_scores: Scores
    edge_values: FloatArray
    edge_observed: BoolArray
    edge_scores: Scores

    @classmethod
    def of(cls, scored: Sequence[ScoredRow]) -> Self:
        keys = _Keys()
        at: list[tuple[IntArray | slice, IntArray | slice]] = [keys.find(one.snapshot) for one in scored]
        count, services, calls = len(scored), len(keys.services), len(keys.calls)
        nodes = np.zeros((count, services, len(NODE_METRICS)), np.float32)
        edges = np.zeros((count, calls, len(EDGE_METRICS)), np.float32)
        seen_nodes, seen_edges = np.zeros(nodes.shape, bool), np.zeros(edges.shape, bool)
        of_nodes = np.full((count, services), NOT_SCORED, np.uint8)
        of_edges = np.full((count, calls), NOT_SCORED, np.uint8)
        if all(one is at[0] for one in at):
            at = [(slice(None), slice(None))] * count  # several times as fast
        for t, (one, (node, edge)) in enumerate(zip(scored, at, strict=True)):
            snapshot = one.snapshot
            nodes[t, node], seen_nodes[t, node] = snapshot.node_features, snapshot.node_observed
            edges[t, edge], seen_edges[t, edge] = snapshot.edge_features, snapshot.edge_observed
            scores = np.frombuffer(one.deviations, np.uint8)
            if len(scores) == snapshot.num_nodes + snapshot.num_edges:  # otherwise unknown
                of_nodes[t, node], of_edges[t, edge] = scores[: snapshot.num_nodes], scores[snapshot.num_nodes :]
        names = tuple(keys.services), tuple(keys.calls)
        return cls(*names, nodes, seen_nodes, of_nodes, edges, seen_edges, of_edges)


class _Keys:
    """Numbers the services and calls of snapshots. Most snapshots share their names and topology."""

    def __init__(self) -> None:
        self.services: dict[str, int] = {}
        self.calls: dict[str, int] = {}
        self._last: MeshSnapshot | None = None
        self._found: tuple[IntArray, IntArray] | None = None

    def find(self, snapshot: MeshSnapshot) -> tuple[IntArray, IntArray]:
        """The numbers of the services and of the calls of a snapshot."""
        last, names = self._last, snapshot.node_ids
        if (
            self._found is None
            or last is None
            or last.node_ids is not names
            or last.edge_index is not snapshot.edge_index
        ):
            calls = (call_key(names[source], names[end]) for source, end in snapshot.edge_index.T.tolist())
            self._last, self._found = snapshot, (_number(self.services, names), _number(self.calls, calls))
        return self._found


def _number(known: dict[str, int], keys: Iterable[str]) -> IntArray:
    return np.array([known.setdefault(key, len(known)) for key in keys], np.int64)


def _join(
    keys: tuple[str, ...], values: FloatArray, observed: BoolArray, scores: Scores, places: IntArray, length: int
) -> Table:
    """The table of snapshots at these places, which ascend."""
    table = Table.empty(keys, values.shape[2], length)
    found, first = np.unique(places, return_index=True)
    for place, begin, end in zip(found.tolist(), first.tolist(), [*first[1:].tolist(), len(places)], strict=True):
        table.codes[:, :, place] = encode_values(mean_of_observed(values[begin:end], observed[begin:end])).T
        table.scores[:, place] = highest(scores[begin:end], 0)
    return table


def _coarsen(table: Table, factor: int) -> Table:
    metrics, keys, rows = table.codes.shape
    grouped = decode_values(table.codes).reshape(metrics, keys, rows // factor, factor)
    values = mean(np.moveaxis(grouped, (3, 0), (0, 3)))  # [K, rows, M]
    scores = highest(table.scores.reshape(keys, rows // factor, factor), 2)
    return Table(table.keys, np.ascontiguousarray(np.moveaxis(encode_values(values), 2, 0)), scores)
