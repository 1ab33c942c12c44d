"""Reads a mesh's history: rows of the mesh, of one service or call, or of everything at one time."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot
from serve_app.api.views import Deviations
from serve_app.stores.history import highest, start_of
from serve_app.stores.history_files import (
    METRICS,
    MINUTE,
    SERIES,
    TEN_MINUTES,
    MeshRow,
    PastSeries,
    encode,
    matrix,
    mesh_rows,
    part_of,
    read_files,
    seconds,
)
from serve_app.stores.records import ChunkKey
from serve_app.stores.state_store import StateStore

FILES_PER_READ = 128  # some MB


@dataclass(frozen=True, slots=True)
class HistorySpan:
    """The part of a period that rows of one step cover; Unix times, s, the end excluded."""

    step: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class HistorySnapshot:
    """A row of the whole mesh as a snapshot, with its anomaly scores."""

    row: MeshRow
    step: int
    snapshot: MeshSnapshot
    deviations: Deviations


class HistoryReader:
    """The stored history of one mesh."""

    def __init__(self, store: StateStore, mesh: str) -> None:
        self._store, self._mesh = store, mesh
        self._rows: dict[ChunkKey, list[MeshRow]] = {}
        self._parts: dict[tuple[int, int], int] = {}  # number of parts by step and start, without part 0
        self._starts: dict[int, list[int]] = {MINUTE: [], TEN_MINUTES: []}
        for key in sorted(store.history_sizes(mesh)):
            self._parts[key.step, key.start] = key.part
            if not key.part:
                self._starts[key.step].append(key.start)

    def first(self, step: int) -> int | None:
        """Return the Unix time from which rows of a step are complete, s; None: there are none. Minutes count as rows
        of ten minutes that are not stored yet."""
        rows = next((rows for start in self._starts[step] if (rows := self._rows_of(step, start))), None)
        first = None if rows is None else int(rows[0].at)
        minutes = self.first(MINUTE) if step == TEN_MINUTES else None
        return first if minutes is None else min(first or minutes, minutes)

    def plan(self, begin: int, end: int, max_step: int) -> list[HistorySpan]:
        """Choose the rows to read for a period: the coarsest ones of at most ``max_step`` seconds, or the only ones
        that exist. The newest minutes stand in for rows of ten minutes that are not stored yet."""
        minutes, tens = self.first(MINUTE), self._starts[TEN_MINUTES]
        if minutes is None and not tens:
            return []
        is_coarse = bool(tens) and (max_step >= TEN_MINUTES or minutes is None or begin < minutes)
        if not is_coarse:
            return [HistorySpan(MINUTE, begin, end)]
        newest = self._rows_of(TEN_MINUTES, tens[-1])
        border = int(newest[-1].at) + TEN_MINUTES if newest else tens[-1]
        spans = HistorySpan(TEN_MINUTES, begin, min(end, border)), HistorySpan(MINUTE, max(begin, border), end)
        return [span for span in spans if span.begin < span.end]

    def mesh_rows(self, spans: Iterable[HistorySpan]) -> list[MeshRow]:
        """Return the rows of the mesh, oldest first."""
        result = []
        for span in spans:
            self._load_rows(span.step, self._files(span))
            rows = (row for start in self._files(span) for row in self._rows_of(span.step, start))
            result += [row for row in rows if span.begin <= row.at < span.end]
        return result

    def end(self, spans: Sequence[HistorySpan], default: float) -> float:
        """Return the Unix time at which a period's last row ends, s; ``default`` if it has none."""
        ends = (rows[-1].at + span.step for span in reversed(spans) if (rows := self.mesh_rows([span])))
        return next(ends, default)

    def series(self, spans: Iterable[HistorySpan], service: str, source: str | None = None) -> PastSeries:
        """Return the rows of a service, or of the calls from ``source`` to it."""
        metrics = NODE_METRICS if source is None else EDGE_METRICS
        pieces = []
        for span in spans:
            for table in self._tables(span.step, self._files(span), [service], (*metrics, "score")):
                (callees, names), (callers, sources) = encode(table["service"]), encode(table["source"])
                if service in names and (source is None or source in sources):
                    caller, times = -1 if source is None else sources.index(source), seconds(table)
                    is_match = (callees == names.index(service)) & (callers == caller)
                    rows = np.flatnonzero(is_match & (times >= span.begin) & (times < span.end))
                    values, scores = matrix(table, metrics)[rows], matrix(table, ["score"])[rows, 0]
                    pieces.append(PastSeries(metrics, times[rows].astype(np.float64), values, scores))
        return PastSeries.join(metrics, pieces)

    def highest_scores(self, spans: Iterable[HistorySpan]) -> dict[str, tuple[float, int]]:
        """Return each scored service's highest anomaly score, and the Unix time of its row, s."""
        peaks: dict[str, tuple[float, int]] = {}
        for span in spans:
            for table in self._tables(span.step, self._files(span), None, ("score",)):
                times, (number, names) = seconds(table), encode(table["service"])
                is_inside = pc.is_null(table["source"]).to_numpy() & (times >= span.begin) & (times < span.end)
                scores = np.where(is_inside, table["score"].to_numpy(), np.float32(np.nan))
                maxima = highest(scores, number, len(names))
                rows = np.flatnonzero(scores == maxima[number])[::-1]  # of equal scores, the first one counts
                peak_times = dict(zip(number[rows].tolist(), times[rows].tolist(), strict=True))
                for i, name in enumerate(names):
                    if i in peak_times and float(maxima[i]) > peaks.get(name, (-1.0, 0))[0]:
                        peaks[name] = float(maxima[i]), peak_times[i]
        return peaks

    def moment(self, at: int) -> HistorySnapshot | None:
        """Return the row that covers a Unix time, of a minute if possible; None if nothing is stored."""
        for step in (MINUTE, TEN_MINUTES):
            moment = next(self.moments(HistorySpan(step, at // step * step, at // step * step + 1)), None)
            if moment is not None:
                return moment
        return None

    def moments(self, span: HistorySpan, services: Collection[str] | None = None) -> Iterator[HistorySnapshot]:
        """Yield all rows of a period as snapshots, oldest first. With ``services``, only the parts that have them and
        the calls to them."""
        for start in self._files(span):
            rows = [row for row in self._rows_of(span.step, start) if span.begin <= row.at < span.end]
            if rows:
                parts = self._tables(span.step, [start], services, (*METRICS, "score"))
                whole = pa.concat_tables([SERIES.empty_table(), *parts])
                is_call, times = pc.is_valid(whole["source"]).to_numpy(), seconds(whole)
                for row in rows:
                    services_then = np.flatnonzero(~is_call & (times == row.at))
                    calls_then = np.flatnonzero(is_call & (times == int(row.at) // TEN_MINUTES * TEN_MINUTES))
                    yield _moment(row, span.step, whole.take(services_then), whole.take(calls_then))

    def _files(self, span: HistorySpan) -> list[int]:
        """Return the starts of the files that may have rows of a period, oldest first."""
        first = start_of(span.begin, span.step)
        return [start for start in self._starts[span.step] if first <= start < span.end]

    def _rows_of(self, step: int, start: int) -> list[MeshRow]:
        """Return the mesh's rows in a file; none if it is damaged, of another version, or just deleted."""
        self._load_rows(step, [start])
        return self._rows[ChunkKey(step, start, 0)]

    def _load_rows(self, step: int, starts: Iterable[int]) -> None:
        keys = [key for start in starts if (key := ChunkKey(step, start, 0)) not in self._rows]
        tables = read_files(self._mesh, self._store.history(self._mesh, keys))
        self._rows |= {key: [] for key in keys} | {key: mesh_rows(table) for key, table in tables.items()}

    def _tables(
        self, step: int, starts: Iterable[int], services: Collection[str] | None, columns: Collection[str]
    ) -> Iterator[pa.Table]:
        """Yield some columns of the parts that have these services, or of all parts if None, with the columns of names
        and times. A table may have the rows of several files."""
        keys = []
        for start in starts:
            parts = self._parts[step, start]
            numbers = range(parts) if services is None else sorted({part_of(name, parts) - 1 for name in services})
            keys += [ChunkKey(step, start, 1 + number) for number in numbers if parts]
        for first in range(0, len(keys), FILES_PER_READ):
            files = self._store.history(self._mesh, keys[first : first + FILES_PER_READ])
            tables = read_files(self._mesh, files, ("service", "source", "time", *columns))
            if tables:
                yield pa.concat_tables(tables.values())


def _moment(row: MeshRow, step: int, services: pa.Table, calls: pa.Table) -> HistorySnapshot:
    row_of = {name: i for i, name in enumerate(_names(services["service"]))}
    ends = [[row_of.get(name, -1) for name in _names(calls[end])] for end in ("source", "service")]
    edge_index, edge_features = np.array(ends, np.int64), matrix(calls, EDGE_METRICS)
    has_requests = (edge_index >= 0).all(axis=0) & ~np.isnan(edge_features[:, 0])
    snapshot = MeshSnapshot.create(
        node_ids=[*row_of],
        edge_index=edge_index[:, has_requests],
        node_features=matrix(services, NODE_METRICS),
        edge_features=edge_features[has_requests],
        observed_at=datetime.fromtimestamp(row.at, UTC),
    )
    scores = [matrix(table, ["score"])[:, 0] for table in (services, calls)]
    return HistorySnapshot(row, step, snapshot, Deviations(scores[0], scores[1][has_requests]))


def _names(column: pa.ChunkedArray) -> list[str]:
    number, names = encode(column)
    return [names[i] for i in number.tolist()]
