"""A mesh's history: rows of minutes, and the files that are written with a snapshot.

The stored window has every snapshot of the last minutes. So nothing is accumulated: when a snapshot begins a new block
of ten minutes, the previous block's minutes are computed from the window, and written after the answer. If the process
is killed before, the next one writes them, because the window still has them, and no minute is counted twice. When
three hours are over, their minutes are joined to rows of ten minutes, which are kept for longer.

A minute has the mean of each metric, since minutes add up to hours; errors and latencies are weighted by requests. Of
scores, the highest counts, so that a spike of one snapshot shows. Calls have one row for each ten minutes, since there
are several times as many calls as services.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from model.snapshot import EDGE_METRICS, NODE_METRICS, FloatArray, IntArray
from model.verdict import Status
from serve_app.stores.history_files import (
    MINUTE,
    ROWS,
    SERIES,
    TEN_MINUTES,
    MeshRow,
    SeriesRows,
    StoredChange,
    encode,
    matrix,
    mesh_rows,
    mesh_table,
    part_of,
    parts_for,
    seconds,
    write_file,
)
from serve_app.stores.numbered import NumberedRows
from serve_app.stores.records import ChunkKey, HistoryUpdate
from serve_app.stores.rows import microseconds
from serve_app.stores.scored_snapshot import ScoredSnapshot

SEVERITY = [Status.NORMAL, Status.WARMING_UP, Status.PARTIAL, Status.ANOMALOUS]  # the worst last


@dataclass(frozen=True, slots=True)
class HistoryLimit:
    """How long each mesh's history keeps rows of each length. Beyond ``max_bytes``, the oldest files are deleted."""

    minutes: timedelta
    ten_minutes: timedelta
    max_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class HistoryRows:
    """A file's or piece's rows, from all its parts.

    Attributes:
        mesh: by time.
        series: ``SERIES`` of services and calls, by name, then by time.
    """

    mesh: Sequence[MeshRow]
    series: pa.Table


def mesh_row(scored: ScoredSnapshot) -> MeshRow:
    head, at = scored.stored.head, scored.at
    changes = tuple(StoredChange(at, change.kind, change.service, change.reason) for change in scored.snapshot.changes)
    return MeshRow(at.timestamp(), 1, head.mesh_score, head.mesh_score, head.threshold, head.status, changes)


def block_seconds(window_size: int, interval_seconds: float) -> int:
    """Return the seconds of a block: ten minutes if the window surely has all of them when they are over, else one."""
    return TEN_MINUTES if window_size * interval_seconds >= 2 * TEN_MINUTES else MINUTE


def unix(at: datetime) -> int:
    """Return whole seconds of Unix time."""
    return microseconds(at) // 1_000_000


def summarize(scored: Sequence[ScoredSnapshot]) -> HistoryRows:
    """Return the minutes of some snapshots, oldest first."""
    snapshots = [item.snapshot for item in scored]
    rows, deviations = NumberedRows.of(snapshots), [item.deviations for item in scored]
    times = np.array([unix(snapshot.observed_at) for snapshot in snapshots], np.int64)
    services = SeriesRows(
        np.concatenate(rows.nodes),
        np.repeat(times, [snapshot.num_nodes for snapshot in snapshots]),
        np.concatenate([_observed(s.node_features, s.node_observed) for s in snapshots]),
        np.concatenate([scores.services for scores in deviations]),
    )
    calls = SeriesRows(
        np.concatenate(rows.edges),
        np.repeat(times, [snapshot.num_edges for snapshot in snapshots]),
        np.concatenate([_observed(s.edge_features, s.edge_observed) for s in snapshots]),
        np.concatenate([scores.calls for scores in deviations]),
    )
    source, destination = rows.calls
    tables = [
        join_series(services, MINUTE).table(NODE_METRICS, rows.services, np.arange(len(rows.services))),
        join_series(calls, TEN_MINUTES).table(EDGE_METRICS, rows.services, destination, source),
    ]
    return HistoryRows(join_rows_by(map(mesh_row, scored), MINUTE), pa.concat_tables(tables))


def _observed(values: FloatArray, mask: NDArray[np.bool_]) -> FloatArray:
    return np.where(mask, values, np.float32(np.nan))


def coarsen(rows: HistoryRows) -> HistoryRows:
    """Return minutes as rows of ten minutes."""
    is_call = pc.is_valid(rows.series["source"])
    services, calls = rows.series.filter(pc.invert(is_call)), rows.series.filter(is_call)
    number, names = encode(services["service"])
    minutes = SeriesRows(number, seconds(services), matrix(services, NODE_METRICS), matrix(services, ["score"])[:, 0])
    tens = join_series(minutes, TEN_MINUTES).table(NODE_METRICS, names, np.arange(len(names)))
    return HistoryRows(join_rows_by(rows.mesh, TEN_MINUTES), pa.concat_tables([tens, calls]))


def join_series(rows: SeriesRows, step: int) -> SeriesRows:
    """Join the rows of each service or call that are within the same ``step`` seconds."""
    begin = rows.times // step
    first = begin.min(initial=np.iinfo(np.int64).max)
    length = begin.max(initial=first) - first + 1
    code = rows.number * length + begin - first
    is_present = np.zeros(code.max(initial=-1) + 1, bool)
    is_present[code] = True
    codes, group = np.flatnonzero(is_present), (np.cumsum(is_present) - 1)[code]
    return SeriesRows(
        codes // length,
        (codes % length + first) * step,
        means(rows.values, group, len(codes)),
        highest(rows.scores, group, len(codes)),
    )


def join_rows_by(rows: Iterable[MeshRow], step: int) -> list[MeshRow]:
    """Return rows of a mesh, oldest first, as rows of ``step`` seconds."""
    groups: dict[int, list[MeshRow]] = {}
    for row in rows:
        groups.setdefault(int(row.at // step) * step, []).append(row)
    return [join_rows(group, at) for at, group in groups.items()]


def join_rows(rows: Sequence[MeshRow], at: float) -> MeshRow:
    """Return the row at a time of several rows, oldest first."""
    snapshots = sum(row.snapshots for row in rows)
    return MeshRow(
        at,
        snapshots,
        sum(row.score * row.snapshots for row in rows) / snapshots,
        max(row.highest_score for row in rows),
        next((row.threshold for row in reversed(rows) if row.threshold is not None), None),
        worst_status(row.status for row in rows),
        tuple(change for row in rows for change in row.changes),
    )


def worst_status(statuses: Iterable[str]) -> str:
    """Return the worst of some statuses; an unknown one, of a later version, is the worst."""
    return max(statuses, key=lambda status: SEVERITY.index(Status(status)) if status in list(Status) else len(SEVERITY))


def means(values: FloatArray, group: IntArray, count: int) -> FloatArray:
    """Return each group's mean ``[count, M]`` over its rows in ``values`` ``[R, M]``, NaN where nothing was observed.
    The three columns after the requests, errors and latencies, are weighted by requests, if there were any."""
    is_known = ~np.isnan(values)
    filled_values = np.where(is_known, values, np.float32(0))
    requests = filled_values[:, :1]
    weights, weighted_values = is_known[:, 1:4] * requests, filled_values[:, 1:4] * requests

    def total(columns: NDArray[Any]) -> NDArray[np.float64]:
        return np.stack([np.bincount(group, column, count) for column in columns.T], axis=1)

    with np.errstate(invalid="ignore", divide="ignore"):
        result = total(filled_values) / total(is_known)  # NaN where nothing was observed
        weight = total(weights)
        result[:, 1:4] = np.where(weight > 0, total(weighted_values) / weight, result[:, 1:4])
    return result.astype(np.float32)


def highest(scores: FloatArray, group: IntArray, count: int) -> FloatArray:
    """Return each group's highest score ``[count]``, NaN if none was scored."""
    maxima = np.full(count, np.nan, np.float32)
    np.fmax.at(maxima, group, scores)
    return maxima


class HistoryWriter:
    """Computes the files that are written after a block: usually one small piece. When a file's time is over, its
    pieces become one.

    Args:
        sizes: of the stored files.
        read: returns the stored files with some keys, without unreadable ones.
    """

    def __init__(
        self,
        limit: HistoryLimit,
        sizes: Mapping[ChunkKey, int],
        read: Callable[[Collection[ChunkKey]], Mapping[ChunkKey, pa.Table]],
    ) -> None:
        self._limit, self._sizes, self._read = limit, sizes, read
        self._keys = set(sizes)  # of stored and new files
        self._new: dict[ChunkKey, pa.Table] = {}

    def update(self, scored: Sequence[ScoredSnapshot], now: datetime, block: int) -> HistoryUpdate:
        """Return the files to write and those to delete.

        Args:
            scored: snapshots of whole blocks that are over, oldest first, at least one.
            now: time of the newest snapshot, which is not among them.
            block: seconds of a block.
        """
        by_file: dict[int, list[ScoredSnapshot]] = {}
        for snapshot in scored:
            by_file.setdefault(start_of(unix(snapshot.at), MINUTE), []).append(snapshot)
        for start, snapshots in by_file.items():
            self._add(MINUTE, unix(snapshots[0].at) // block * block, summarize(snapshots))
            if start_of(unix(now), MINUTE) > start:
                self._add(TEN_MINUTES, start, coarsen(self._merge(MINUTE, start)))
            if start_of(unix(now), TEN_MINUTES) > (day := start_of(start, TEN_MINUTES)):
                self._merge(TEN_MINUTES, day)
        contents = {key: write_file(table) for key, table in self._new.items()}
        sizes = {key: len(contents[key]) if key in contents else self._sizes[key] for key in self._keys}
        keys = self._within_limit(sizes, unix(now))
        deletions = dict.fromkeys(key for key in self._sizes if key not in keys)
        return deletions | {key: content for key, content in contents.items() if key in keys}

    def _add(self, step: int, start: int, rows: HistoryRows) -> None:
        """Write rows as a piece, over its earlier rows if the mesh was set aside in between."""
        pieces = self._take(step, start, start + 1)
        self._put(step, start, overlay([*pieces, rows]), 1)  # dividing it would take longer than everything else

    def _merge(self, step: int, start: int) -> HistoryRows:
        """Replace the pieces of a file whose time is over with the whole file, and return its rows."""
        whole = overlay(self._take(step, start, start + step * ROWS[step]))
        self._put(step, start, whole, parts_for(len(encode(whole.series["service"])[1])))
        return whole

    def _take(self, step: int, begin: int, end: int) -> list[HistoryRows]:
        """Remove and return the pieces that begin in a period, oldest first."""
        keys = sorted(key for key in self._keys if key.step == step and begin <= key.start < end)
        tables = {**self._read([key for key in keys if key not in self._new]), **self._new}
        self._keys.difference_update(keys)
        pieces = []
        for start in dict.fromkeys(key.start for key in keys):
            parts = [tables[key] for key in keys if key.start == start and key.part and key in tables]
            if (mesh := tables.get(ChunkKey(step, start, 0))) is not None:
                pieces.append(HistoryRows(mesh_rows(mesh), pa.concat_tables([SERIES.empty_table(), *parts])))
        for key in keys:
            self._new.pop(key, None)
        return pieces

    def _put(self, step: int, start: int, rows: HistoryRows, parts: int) -> None:
        """Write rows as a file with ``parts`` parts and part 0."""
        tables = [mesh_table(rows.mesh), rows.series]
        if parts > 1:
            number = _parts_of(rows.series["service"], parts)
            tables[1:] = [rows.series.filter(pa.array(number == part)) for part in range(1, parts + 1)]
        files = {ChunkKey(step, start, part): table for part, table in enumerate(tables)}
        self._new |= files
        self._keys |= files.keys()

    def _within_limit(self, sizes: Mapping[ChunkKey, int], now: int) -> set[ChunkKey]:
        """Return the files to keep: without those that are too old, and the oldest ones beyond the size limit."""
        keep = {MINUTE: self._limit.minutes, TEN_MINUTES: self._limit.ten_minutes}
        remaining = {
            key for key in sizes if key.start + key.step * ROWS[key.step] > now - keep[key.step].total_seconds()
        }
        excess = sum(sizes[key] for key in remaining) - self._limit.max_bytes
        for oldest in sorted({(key.start, key.step) for key in remaining}):
            if excess <= 0:
                break
            keys = {key for key in remaining if (key.start, key.step) == oldest}
            remaining -= keys
            excess -= sum(sizes[key] for key in keys)
        return remaining


def end_of(sizes: Mapping[ChunkKey, int], read: Callable[[Collection[ChunkKey]], Mapping[ChunkKey, pa.Table]]) -> int:
    """Return the Unix time at which the stored minutes end, s; 0: there are none. :class:`HistoryWriter` describes the
    arguments."""
    files = [key for key in sizes if key.step == MINUTE and not key.part]
    if not files:
        return 0
    newest = max(files)
    table = read([newest]).get(newest)
    return newest.start if table is None else int(mesh_rows(table)[-1].at) + MINUTE


def start_of(at: int, step: int) -> int:
    """Return the start of the file that covers a time; both are Unix time, s."""
    return at // (step * ROWS[step]) * (step * ROWS[step])


def overlay(pieces: Sequence[HistoryRows]) -> HistoryRows:
    """Join several pieces. If two have a row for the same time, the later piece's row counts."""
    mesh = {row.at: row for piece in pieces for row in piece.mesh}
    whole = pa.concat_tables([SERIES.empty_table(), *(piece.series for piece in pieces)])
    number = np.repeat(np.arange(len(pieces)), [len(piece.series) for piece in pieces])
    times = seconds(whole) // MINUTE
    moment = (times - times.min(initial=2**62)) * 2 + pc.is_valid(whole["source"]).to_numpy()
    last = np.zeros(moment.max(initial=-1) + 1, np.int64)
    np.maximum.at(last, moment, number)
    (source, _), (service, names) = encode(whole["source"]), encode(whole["service"])
    order = np.lexsort((times, (source + 1) * len(names) + service))
    return HistoryRows([mesh[at] for at in sorted(mesh)], whole.take(order[(last[moment] == number)[order]]))


def _parts_of(services: pa.ChunkedArray, parts: int) -> IntArray:
    number, names = encode(services)
    return np.array([part_of(name, parts) for name in names])[number]
