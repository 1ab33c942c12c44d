"""The rows of a mesh's history: minutes, and their means over ten minutes.

A minute has the mean of each metric, since minutes add up to hours; errors and latencies are weighted by requests. Of
scores, the highest counts, so that a spike of one snapshot shows. Calls have one row for each ten minutes, since there
are several times as many calls as services.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
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
    seconds,
)
from serve_app.stores.numbered import NumberedRows
from serve_app.stores.rows import microseconds
from serve_app.stores.scored_snapshot import ScoredSnapshot

SEVERITY = [Status.NORMAL, Status.WARMING_UP, Status.PARTIAL, Status.ANOMALOUS]  # the worst last


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
        np.concatenate([_mask_unobserved(s.node_features, s.node_observed) for s in snapshots]),
        np.concatenate([scores.services for scores in deviations]),
    )
    calls = SeriesRows(
        np.concatenate(rows.edges),
        np.repeat(times, [snapshot.num_edges for snapshot in snapshots]),
        np.concatenate([_mask_unobserved(s.edge_features, s.edge_observed) for s in snapshots]),
        np.concatenate([scores.calls for scores in deviations]),
    )
    source, destination = rows.calls
    tables = [
        join_series(services, MINUTE).table(NODE_METRICS, rows.services, np.arange(len(rows.services))),
        join_series(calls, TEN_MINUTES).table(EDGE_METRICS, rows.services, destination, source),
    ]
    return HistoryRows(join_rows_by(map(mesh_row, scored), MINUTE), pa.concat_tables(tables))


def _mask_unobserved(values: FloatArray, mask: NDArray[np.bool_]) -> FloatArray:
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


def merge(pieces: Sequence[HistoryRows]) -> HistoryRows:
    """Join the pieces of a file. The calls of blocks shorter than ten minutes get their mean over ten minutes."""
    whole = overlay(pieces)
    tables = [piece.series.filter(pc.is_valid(piece.series["source"])) for piece in pieces]
    calls = pa.concat_tables([SERIES.empty_table(), *tables])
    (source, callers), (service, callees) = encode(calls["source"]), encode(calls["service"])
    pairs, number = np.unique(source * len(callees) + service, return_inverse=True)
    rows = SeriesRows(number, seconds(calls), matrix(calls, EDGE_METRICS), matrix(calls, ["score"])[:, 0])
    joined = join_series(rows, TEN_MINUTES)
    if len(joined.number) == len(calls):  # each block has ten minutes
        return whole
    destination = pairs % len(callees) + len(callers)
    table = joined.table(EDGE_METRICS, [*callers, *callees], destination, pairs // len(callees))
    services = whole.series.filter(pc.is_null(whole.series["source"]))
    return HistoryRows(whole.mesh, pa.concat_tables([services, table]))
