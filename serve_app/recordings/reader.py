"""Reads a recording snapshot by snapshot; :mod:`~serve_app.recordings.format` describes its files."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from heapq import merge
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from model.errors import InvalidSnapshot
from model.names import is_service_name
from model.snapshot import EDGE_METRICS, NODE_METRICS, EdgeMetric, MeshSnapshot, PlannedChange, Signal, SignalKind
from serve_app.errors import BadRecording
from serve_app.recordings.format import (
    BATCH_ROWS,
    EDGE_KEYS,
    INCIDENT_COLUMNS,
    NODE_KEYS,
    SIGNAL_COLUMNS,
    TIME,
    LabelledIncident,
)

_KINDS = {kind.value: kind for kind in SignalKind}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class RecordingReader:
    """Reads one recording; a :class:`~serve_app.collect.base.SnapshotSource`.

    Attributes:
        meta: content of meta.json.
        unmeasured_calls: rows of edges.parquet without a request rate in the latest pass of ``snapshots()``.
        dropped_calls: rows of edges.parquet at a time without any node row, in the latest pass.
        unnamed_changes: rows of events.parquet whose object is not a service, in the latest pass.

    Raises:
        BadRecording: if ``path`` is not a complete recording.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.meta: dict[str, Any] = _read_meta(self.path)
        self.unmeasured_calls = 0
        self.dropped_calls = 0
        self.unnamed_changes = 0

    @property
    def interval_seconds(self) -> float:
        """Expected time between two snapshots, s."""
        return float(self.meta["sampling_interval_seconds"])

    def snapshots(self) -> Iterator[MeshSnapshot]:
        """Yield the snapshots, oldest first, each with the changes announced since the previous one.

        Raises:
            BadRecording: a column is missing, rows are not sorted by time, or a snapshot is invalid.
        """
        self.unmeasured_calls = self.dropped_calls = self.unnamed_changes = 0
        changes, next_change = self.changes(), 0
        files = (
            _instants(self.path, "nodes", NODE_KEYS, NODE_METRICS),
            _instants(self.path, "edges", (*EDGE_KEYS, "requests_per_second"), EDGE_METRICS),
            _instants(self.path, "signals", SIGNAL_COLUMNS[1:]),
        )
        for time, of_time in groupby(merge(*files, key=itemgetter(0)), key=itemgetter(0)):
            rows_by_file = {name: rows for _, name, rows in of_time}
            if "nodes" not in rows_by_file:
                self.dropped_calls += rows_by_file["edges"].num_rows if "edges" in rows_by_file else 0
                continue
            now, first_change = _datetime(time), next_change
            while next_change < len(changes) and changes[next_change][0] <= now:
                next_change += 1
            its_changes = [change for _, change in changes[first_change:next_change]]
            its_signals = self._signals(now, rows_by_file.get("signals"))
            yield self._snapshot(now, rows_by_file["nodes"], rows_by_file.get("edges"), its_changes, its_signals)

    def incidents(self) -> list[LabelledIncident]:
        """Return the labelled incidents, sorted by start; empty if the recording has none."""
        incidents = [_incident(row) for row in _read_small_file(self.path / "incidents.parquet", INCIDENT_COLUMNS[:3])]
        return sorted(incidents, key=lambda incident: incident.start)

    def changes(self) -> list[tuple[datetime, PlannedChange]]:
        """Return the planned changes with their times, sorted by time; empty if the recording has none."""
        rows = _read_small_file(self.path / "events.parquet", ("time", "kind", "object"))
        changes = [(row["time"], PlannedChange(row["kind"], row["object"], row.get("reason") or "")) for row in rows]
        return sorted(changes, key=lambda change: change[0])

    def _signals(self, now: datetime, rows: pa.Table | None) -> list[Signal]:
        """Return an instant's signals. Rows without a value were not measured."""
        if rows is None:
            return []
        kinds, values = rows["kind"].cast(pa.string()).to_pylist(), _features(rows, SIGNAL_COLUMNS[-1:])[:, 0].tolist()
        if unknown := [str(kind) for kind in kinds if kind not in _KINDS]:
            raise BadRecording(
                f"{self.path / 'signals.parquet'}, time {now.isoformat()}: kind: expected one of {', '.join(_KINDS)}, "
                f"got {unknown[0][:80]!r}; correct it or leave the row out"
            )
        services = _node_ids(rows, *NODE_KEYS).to_pylist()
        rows_with_values = zip(kinds, services, values, strict=True)
        return [Signal(_KINDS[kind], service, value) for kind, service, value in rows_with_values if value == value]

    def _snapshot(
        self,
        now: datetime,
        nodes: pa.Table,
        calls: pa.Table | None,
        changes: list[PlannedChange],
        signals: list[Signal],
    ) -> MeshSnapshot:
        ids, node_features = _node_ids(nodes, *NODE_KEYS), _features(nodes, NODE_METRICS)
        index = np.empty((2, 0), dtype=np.int64)
        features = np.empty((0, len(EDGE_METRICS)), dtype=np.float32)
        if calls is not None:
            features = _features(calls, EDGE_METRICS)
            is_measured = ~np.isnan(features[:, EdgeMetric.REQUESTS_PER_SECOND])
            self.unmeasured_calls += int((~is_measured).sum())
            ends = [_node_ids(calls, *keys).filter(pa.array(is_measured)) for keys in (EDGE_KEYS[:2], EDGE_KEYS[2:])]
            features = features[is_measured]
            ids = _with_silent(ids, ends)
            silent = np.full((len(ids) - len(node_features), node_features.shape[1]), np.nan, np.float32)
            node_features = np.concatenate([node_features, silent])
            index = np.stack([_positions(end, ids) for end in ends])
        names = ids.to_pylist()
        service_changes = [change for change in changes if is_service_name(change.service) or change.service in names]
        self.unnamed_changes += len(changes) - len(service_changes)
        try:
            return MeshSnapshot.create(
                node_ids=names,
                edge_index=index,
                node_features=node_features,
                edge_features=features,
                observed_at=now,
                changes=service_changes,
                signals=signals,
            )
        except InvalidSnapshot as error:
            raise BadRecording(f"recording {self.path}, time {now.isoformat()}: {error.message}") from error


def _with_silent(ids: pa.Array, ends: Sequence[pa.Array]) -> pa.Array:
    """Return an instant's services, followed by the call ends without a row: they exist, but were not measured."""
    call_ends = pc.unique(pa.concat_arrays(list(ends)))
    silent = call_ends.filter(pc.invert(pc.is_in(call_ends, value_set=ids)))
    return pa.concat_arrays([ids, silent.sort()]) if len(silent) else ids


def _read_meta(folder: Path) -> dict[str, Any]:
    path = folder / "meta.json"
    absent = [name for name in ("meta.json", "nodes.parquet", "edges.parquet") if not (folder / name).exists()]
    if absent:
        raise BadRecording(
            f"recording {folder}: expected nodes.parquet, edges.parquet and meta.json, missing: {', '.join(absent)}; "
            "it is not a recording, or its writer did not finish"
        )
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
        interval = float(meta["sampling_interval_seconds"])
    except (ValueError, TypeError, KeyError) as error:
        raise BadRecording(
            f"{path}: expected a JSON object with a number sampling_interval_seconds, got {error!r}; correct it"
        ) from error
    if not 0 < interval < float("inf"):
        raise BadRecording(
            f"{path}: sampling_interval_seconds: expected a number above 0, got {interval:g}; correct it"
        )
    return dict(meta)


@contextmanager
def _parquet(path: Path) -> Iterator[pq.ParquetFile]:
    try:
        # the default, pre_buffer, holds all of the file's column chunks in memory
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=2**20) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        raise BadRecording(f"{path}: expected a whole Parquet file, got {error}; write the recording again") from error


def _require(path: Path, present: Sequence[str], required_columns: Sequence[str]) -> None:
    missing = [name for name in required_columns if name not in present]
    if missing:
        raise BadRecording(f"{path}: expected the columns {', '.join(required_columns)}; add {', '.join(missing)}")


def _read_small_file(path: Path, required_columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return all rows of a file, with times in UTC; empty if the file does not exist."""
    if not path.exists():
        return []
    with _parquet(path) as file:
        _require(path, file.schema_arrow.names, required_columns)
        table = file.read()
    for i, column in enumerate(table.schema):
        values = table.column(i)
        if column.name in required_columns and values.null_count:
            raise BadRecording(f"{path}: {column.name}: expected a value in every row, got {values.null_count} nulls")
        if column.name in ("time", "start", "end") or pa.types.is_timestamp(column.type):
            table = table.set_column(i, column.name, _as_utc(path, column.name, values))
    rows: list[dict[str, Any]] = table.to_pylist()
    for row in rows:
        row |= {name: value.astimezone(UTC) for name, value in row.items() if isinstance(value, datetime)}
    return rows


def _as_utc(path: Path, name: str, times: Any) -> Any:
    if not pa.types.is_timestamp(times.type):
        raise BadRecording(f"{path}: {name}: expected a timestamp column, got {times.type}; convert it")
    instants = times if times.type.tz else times.cast(pa.timestamp(times.type.unit, tz="UTC"))
    return instants.cast(TIME, safe=False)


def _instants(
    folder: Path, name: str, required_columns: Sequence[str], metrics: Sequence[str] = ()
) -> Iterator[tuple[int, str, pa.Table]]:
    """Yield each instant of a file (µs since 1970) with the file's name and the rows, oldest first; none if the file
    does not exist. An instant can span batches."""
    path = folder / f"{name}.parquet"
    if not path.exists():
        return
    with _parquet(path) as file:
        present = file.schema_arrow.names
        _require(path, present, ("time", *required_columns))
        columns = [name for name in dict.fromkeys(("time", *required_columns, *metrics)) if name in present]
        batches: list[pa.RecordBatch] = []
        row = before = 0
        for batch in file.iter_batches(BATCH_ROWS, columns=columns, use_threads=False):
            times = _times(path, batch, row)
            for start, stop in pairwise([0, *(np.flatnonzero(np.diff(times)) + 1), len(times)]):
                time = int(times[start])
                if batches and time < before:
                    raise BadRecording(
                        f"{path}, row {row + start}: expected rows sorted by time, got {_datetime(time).isoformat()} "
                        f"after {_datetime(before).isoformat()}; sort the file by time"
                    )
                if batches and time != before:
                    yield before, name, pa.Table.from_batches(batches)
                    batches = []
                batches.append(batch.slice(start, stop - start))
                before = time
            row += len(times)
        if batches:
            yield before, name, pa.Table.from_batches(batches)


def _times(path: Path, batch: pa.RecordBatch, row: int) -> NDArray[np.int64]:
    column = batch.column("time")
    if column.null_count:
        raise BadRecording(
            f"{path}: time: expected a value in every row, got {column.null_count} nulls in rows {row} to "
            f"{row + len(column)}; leave such rows out"
        )
    microseconds: NDArray[np.int64] = _as_utc(path, "time", column).cast(pa.int64()).to_numpy()
    return microseconds


def _features(rows: pa.Table, metrics: Sequence[str]) -> NDArray[np.float32]:
    """Return metrics ``[rows, metrics]``; NaN if a value or its column is missing."""
    features = np.full((rows.num_rows, len(metrics)), np.nan, dtype=np.float32)
    for column, name in enumerate(metrics):
        if name in rows.schema.names:
            features[:, column] = rows[name].cast(pa.float32(), safe=False).to_numpy()
    return features


def _node_ids(rows: pa.Table, service: str, namespace: str) -> pa.Array:
    parts = (rows[name].cast(pa.string()).combine_chunks().fill_null("") for name in (namespace, service))
    return pc.binary_join_element_wise(*parts, "/")


def _positions(ends: pa.Array, ids: pa.Array) -> NDArray[np.int64]:
    """Return each end's position in ``ids``; -1 if it is not there."""
    positions_or_null = pc.index_in(ends, value_set=ids).fill_null(-1)
    positions: NDArray[np.int64] = positions_or_null.to_numpy(zero_copy_only=False).astype(np.int64)
    return positions


def _incident(row: dict[str, Any]) -> LabelledIncident:
    standard_columns: dict[str, Any] = {name: row.get(name) for name in INCIDENT_COLUMNS}
    return LabelledIncident(
        **standard_columns, details={name: value for name, value in row.items() if name not in standard_columns}
    )


def _datetime(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)
