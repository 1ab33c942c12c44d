"""Recordings: a mesh's snapshots in a folder of Parquet files.

    nodes.parquet      time, service, namespace, and any of the node metrics
    edges.parquet      time, source, source_namespace, destination, destination_namespace, requests_per_second, and any
                       of the other edge metrics
    incidents.parquet  optional: start, end, kind, root_cause_service, root_cause_metric, and what else is known
    events.parquet     optional: time, kind, object, reason; ``object`` is a node id
    meta.json          ``sampling_interval_seconds`` and anything else; written last, so a folder without it is not a
                       recording (yet)

Times are UTC (a column without a zone is read as UTC). **Rows must be sorted by time**; within one instant any order
will do. Reading and writing both take the memory of a batch of rows and one snapshot, whatever the recording's length;
only incidents and events are held whole.

A null or an absent metric is "not observed". A call whose ``requests_per_second`` is null was not measured and is left
out. A call with an end that has no row in nodes.parquet at that time is left out too (an id alone would be a service
about which nothing is known); both are counted, never silent: see :class:`RecordingReader`. Everything else outside the
contract of :class:`~model.snapshot.MeshSnapshot` (a ratio above 1, a service twice) is refused with its time.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from model.errors import InvalidSnapshot
from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot, PlannedChange, namespace_of
from serve_app.errors import BadRecording

BATCH_ROWS = 65_536
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = pa.timestamp("us", tz="UTC")
_NODE_KEYS = ("service", "namespace")
_EDGE_KEYS = ("source", "source_namespace", "destination", "destination_namespace")
_INCIDENT_COLUMNS = ("start", "end", "kind", "root_cause_service", "root_cause_metric")
_EVENT_SCHEMA = pa.schema([("time", _TIME), *((name, pa.string()) for name in ("kind", "object", "reason"))])


def _row_schema(keys: Sequence[str], metrics: Sequence[str]) -> pa.Schema:
    return pa.schema([("time", _TIME), *((k, pa.string()) for k in keys), *((m, pa.float32()) for m in metrics)])


@dataclass(frozen=True, slots=True)
class LabelledIncident:
    """Ground truth: a fault that somebody injected or diagnosed.

    Attributes:
        start, end: UTC.
        kind: the fault's kind in the recording's own words.
        root_cause_service: the culprit as the recording names it, often without its namespace; None if unknown.
        root_cause_metric: the metric that shows it, if the source says so.
        details: the recording's further columns.
    """

    start: datetime
    end: datetime
    kind: str
    root_cause_service: str | None = None
    root_cause_metric: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


class RecordingReader:
    """Reads a recording snapshot by snapshot; a :class:`~serve_app.collect.base.SnapshotSource`.

    Attributes:
        meta: the content of meta.json.
        unmeasured_calls: rows of edges.parquet without a request rate, counted by the newest pass of ``snapshots()``.
        dropped_calls: rows of edges.parquet with an end that has no node row at that time, counted likewise.

    Raises:
        BadRecording: if ``path`` is not a complete recording.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.meta: dict[str, Any] = _read_meta(self.path)
        self.unmeasured_calls = 0
        self.dropped_calls = 0

    @property
    def interval_seconds(self) -> float:
        """Expected time between two snapshots, s."""
        return float(self.meta["sampling_interval_seconds"])

    def snapshots(self) -> Iterator[MeshSnapshot]:
        """The snapshots, oldest first, each with the changes announced since the one before.

        Raises:
            BadRecording: a column is missing, rows are not sorted by time, or a snapshot is impossible.
        """
        self.unmeasured_calls = self.dropped_calls = 0
        changes, announced = self.changes(), 0
        calls = _instants(self.path / "edges.parquet", _EDGE_KEYS, EDGE_METRICS)
        pending = next(calls, None)
        for nodes in _instants(self.path / "nodes.parquet", _NODE_KEYS, NODE_METRICS):
            while pending is not None and pending.time < nodes.time:
                self.dropped_calls += len(pending.features)  # calls of an instant without services
                pending = next(calls, None)
            present = None
            if pending is not None and pending.time == nodes.time:
                present, pending = pending, next(calls, None)
            now, first = _datetime(nodes.time), announced
            while announced < len(changes) and changes[announced][0] <= now:
                announced += 1
            yield self._snapshot(nodes, present, [change for _, change in changes[first:announced]])
        while pending is not None:
            self.dropped_calls += len(pending.features)
            pending = next(calls, None)

    def incidents(self) -> list[LabelledIncident]:
        """The labelled incidents by start; empty where the recording has none."""
        incidents = [_incident(row) for row in _listed(self.path / "incidents.parquet", _INCIDENT_COLUMNS[:3])]
        return sorted(incidents, key=lambda incident: incident.start)

    def changes(self) -> list[tuple[datetime, PlannedChange]]:
        """The rows of events.parquet by time; empty where the recording has none."""
        rows = _listed(self.path / "events.parquet", ("time", "kind", "object"))
        changes = [(row["time"], PlannedChange(row["kind"], row["object"], row.get("reason") or "")) for row in rows]
        return sorted(changes, key=lambda change: change[0])

    def _snapshot(self, nodes: "_Rows", calls: "_Rows | None", changes: list[PlannedChange]) -> MeshSnapshot:
        (ids,) = nodes.ids
        index = np.empty((2, 0), dtype=np.int64)
        features = np.empty((0, len(EDGE_METRICS)), dtype=np.float32)
        if calls is not None:
            index = np.stack([_positions(end, ids) for end in calls.ids])
            measured, known = ~np.isnan(calls.features[:, 0]), (index >= 0).all(axis=0)
            self.unmeasured_calls += int((~measured).sum())
            self.dropped_calls += int((measured & ~known).sum())
            index, features = index[:, measured & known], calls.features[measured & known]
        now = _datetime(nodes.time)
        try:
            return MeshSnapshot.create(
                node_ids=ids.to_pylist(),
                edge_index=index,
                node_features=nodes.features,
                edge_features=features,
                observed_at=now,
                changes=changes,
            )
        except InvalidSnapshot as error:
            raise BadRecording(f"recording {self.path}, time {now.isoformat()}: {error.message}") from error


class RecordingWriter:
    """Writes a recording snapshot by snapshot; a context manager.

    meta.json appears at the end of an undisturbed ``with`` block, in one step: a writer that was killed or left by an
    exception leaves a folder that :class:`RecordingReader` refuses. Such a folder is written over, no other.

    Args:
        path: folder to create.
        interval_seconds: expected time between two snapshots, s.
        meta: further content of meta.json.

    Raises:
        BadRecording: if the folder holds a complete recording already, or snapshots come out of order.
    """

    def __init__(
        self, path: str | os.PathLike[str], interval_seconds: float, meta: Mapping[str, Any] | None = None
    ) -> None:
        self.path = Path(path)
        if (self.path / "meta.json").exists():
            raise BadRecording(
                f"recording {self.path}: expected a new folder, came a complete recording; choose another"
            )
        self._meta = {**(meta or {}), "sampling_interval_seconds": interval_seconds}
        self._incidents: list[LabelledIncident] = []
        self._events: list[tuple[datetime, PlannedChange]] = []
        self._newest: datetime | None = None
        self._snapshots = 0
        self._files = ExitStack()

    def __enter__(self) -> Self:
        self.path.mkdir(parents=True, exist_ok=True)
        for stale in ("incidents.parquet", "events.parquet"):
            (self.path / stale).unlink(missing_ok=True)
        nodes, edges = _row_schema(_NODE_KEYS, NODE_METRICS), _row_schema(_EDGE_KEYS, EDGE_METRICS)
        self._nodes = self._files.enter_context(_RowGroups(self.path / "nodes.parquet", nodes))
        self._edges = self._files.enter_context(_RowGroups(self.path / "edges.parquet", edges))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.__exit__(kind, error, trace)
        if kind is None:
            self._complete()

    def write(self, snapshot: MeshSnapshot) -> None:
        """Append a snapshot, newer than the one before; its changes become events of its time."""
        if self._newest is not None and snapshot.observed_at <= self._newest:
            raise BadRecording(
                f"recording {self.path}: expected a snapshot after {self._newest.isoformat()}, came one of "
                f"{snapshot.observed_at.isoformat()}; write each instant once, oldest first"
            )
        self._newest = snapshot.observed_at
        self._snapshots += 1
        namespaces = pa.array([namespace_of(name) for name in snapshot.node_ids], pa.string())
        services = pa.array([name.split("/", 1)[1] for name in snapshot.node_ids], pa.string())
        source, destination = (pa.array(end) for end in snapshot.edge_index)
        node_keys = [services, namespaces]
        edge_keys = [column.take(end) for end in (source, destination) for column in node_keys]
        time = snapshot.observed_at
        self._nodes.write(_rows(time, node_keys, snapshot.node_features, snapshot.node_observed, self._nodes.schema))
        self._edges.write(_rows(time, edge_keys, snapshot.edge_features, snapshot.edge_observed, self._edges.schema))
        self._events += [(time, change) for change in snapshot.changes]

    def add_incident(self, incident: LabelledIncident) -> None:
        """Label a fault; at any time before the end."""
        self._incidents.append(incident)

    def _complete(self) -> None:
        pq.write_table(_incident_table(self._incidents), self.path / "incidents.parquet")
        if self._events:
            rows = [
                {"time": time, "kind": change.kind, "object": change.service, "reason": change.reason}
                for time, change in self._events
            ]
            pq.write_table(pa.Table.from_pylist(rows, _EVENT_SCHEMA), self.path / "events.parquet")
        counts = {
            "snapshots": self._snapshots,
            "node_rows": self._nodes.rows,
            "edge_rows": self._edges.rows,
            "incidents": len(self._incidents),
        }
        unfinished = self.path / "meta.json.part"
        newest = {"newest": self._newest.isoformat()} if self._newest else {}
        unfinished.write_text(json.dumps({**self._meta, **newest, "counts": counts}, indent=1) + "\n", encoding="utf-8")
        unfinished.replace(self.path / "meta.json")


class _RowGroups:
    """A Parquet file that grows by row groups of about ``BATCH_ROWS`` rows."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.schema, self.rows = schema, 0
        self._waiting: list[pa.RecordBatch] = []
        self._file = pq.ParquetWriter(path, schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._flush()
        self._file.close()

    def write(self, rows: pa.RecordBatch) -> None:
        self.rows += len(rows)
        self._waiting.append(rows)
        if sum(map(len, self._waiting)) >= BATCH_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._file.write_table(pa.Table.from_batches(self._waiting))
            self._waiting = []


def _read_meta(folder: Path) -> dict[str, Any]:
    path = folder / "meta.json"
    absent = [name for name in ("meta.json", "nodes.parquet", "edges.parquet") if not (folder / name).exists()]
    if absent:
        raise BadRecording(
            f"recording {folder}: expected nodes.parquet, edges.parquet and meta.json, {', '.join(absent)} not there; "
            "it is not a recording, or its writer did not finish"
        )
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
        interval = float(meta["sampling_interval_seconds"])
    except (ValueError, TypeError, KeyError) as error:
        raise BadRecording(
            f"{path}: expected a JSON object with a number sampling_interval_seconds, came {error!r}; correct it"
        ) from error
    if not 0 < interval < float("inf"):
        raise BadRecording(
            f"{path}: sampling_interval_seconds: expected a number above 0, came {interval:g}; correct it"
        )
    return dict(meta)


@contextmanager
def _parquet(path: Path) -> Iterator[pq.ParquetFile]:
    try:
        # pre_buffer, which is the default, would hold all column chunks of the file
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=2**20) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        raise BadRecording(f"{path}: expected a whole Parquet file, came {error}; write the recording again") from error


def _require(path: Path, present: Sequence[str], required: Sequence[str]) -> None:
    missing = [name for name in required if name not in present]
    if missing:
        raise BadRecording(f"{path}: expected the columns {', '.join(required)}; add {', '.join(missing)}")


def _listed(path: Path, required: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of a small file, times in UTC; none where the file is absent."""
    if not path.exists():
        return []
    with _parquet(path) as file:
        _require(path, file.schema_arrow.names, required)
        table = file.read()
    for i, column in enumerate(table.schema):
        values = table.column(i)
        if column.name in required and values.null_count:
            raise BadRecording(f"{path}: {column.name}: expected a value in every row, came {values.null_count} nulls")
        if column.name in ("time", "start", "end") or pa.types.is_timestamp(column.type):
            table = table.set_column(i, column.name, _as_utc(path, column.name, values))
    return [{name: _plain(value) for name, value in row.items()} for row in table.to_pylist()]


def _as_utc(path: Path, name: str, times: Any) -> Any:
    if not pa.types.is_timestamp(times.type):
        raise BadRecording(f"{path}: {name}: expected a timestamp column, came {times.type}; convert it")
    instants = times if times.type.tz else times.cast(pa.timestamp(times.type.unit, tz="UTC"))
    return instants.cast(_TIME, safe=False)


def _plain(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of one file and one instant.

    Attributes:
        time: microseconds since 1970.
        ids: one column of node ids for services, two (source, destination) for calls.
        features: float32 ``[rows, metrics]``, NaN where a value or its column is missing.
    """

    time: int
    ids: list[pa.Array]
    features: NDArray[np.float32]


def _instants(path: Path, keys: Sequence[str], metrics: Sequence[str]) -> Iterator[_Rows]:
    """The rows of each instant, oldest first; an instant may lie across batches."""
    with _parquet(path) as file:
        present = file.schema_arrow.names
        _require(path, present, ("time", *keys, *(("requests_per_second",) if "source" in keys else ())))
        columns = [name for name in ("time", *keys, *metrics) if name in present]
        held: list[_Rows] = []
        row = 0
        for batch in file.iter_batches(BATCH_ROWS, columns=columns, use_threads=False):
            times, features = _times(path, batch, row), _features(batch, metrics)
            ids = [
                _node_ids(batch, service, namespace) for service, namespace in zip(keys[::2], keys[1::2], strict=True)
            ]
            for start, stop in pairwise([0, *(np.flatnonzero(np.diff(times)) + 1), len(times)]):
                rows = _Rows(int(times[start]), [part.slice(start, stop - start) for part in ids], features[start:stop])
                if held and rows.time != held[0].time:
                    _check_order(path, held[0].time, rows.time, row + start)
                    yield _joined(held)
                    held = []
                held.append(rows)
            row += len(times)
        if held:
            yield _joined(held)


def _joined(parts: list[_Rows]) -> _Rows:
    if len(parts) == 1:
        return parts[0]
    ids = [pa.concat_arrays(column) for column in zip(*(part.ids for part in parts), strict=True)]
    return _Rows(parts[0].time, ids, np.concatenate([part.features for part in parts]))


def _check_order(path: Path, before: int, after: int, row: int) -> None:
    if after < before:
        raise BadRecording(
            f"{path}, row {row}: expected rows sorted by time, came {_datetime(after).isoformat()} after "
            f"{_datetime(before).isoformat()}; sort the file by time"
        )


def _one_batch(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    return parts[0] if len(parts) == 1 else pa.Table.from_batches(parts).combine_chunks().to_batches()[0]


def _times(path: Path, batch: pa.RecordBatch, row: int) -> NDArray[np.int64]:
    column = batch.column("time")
    if column.null_count:
        raise BadRecording(
            f"{path}: time: expected a value in every row, came {column.null_count} nulls in rows {row} to "
            f"{row + len(column)}; leave such rows out"
        )
    microseconds: NDArray[np.int64] = _as_utc(path, "time", column).cast(pa.int64()).to_numpy()
    return microseconds


def _features(rows: pa.RecordBatch, metrics: Sequence[str]) -> NDArray[np.float32]:
    features = np.full((len(rows), len(metrics)), np.nan, dtype=np.float32)
    for column, name in enumerate(metrics):
        if name in rows.schema.names:
            features[:, column] = rows.column(name).cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False)
    return features


def _node_ids(rows: pa.RecordBatch, service: str, namespace: str) -> pa.Array:
    parts = (rows.column(name).cast(pa.string()).fill_null("") for name in (namespace, service))
    return pc.binary_join_element_wise(*parts, "/")


def _positions(ends: pa.Array, ids: pa.Array) -> NDArray[np.int64]:
    """Position among ``ids`` of each end, -1 where it is not there."""
    found = pc.index_in(ends, value_set=ids).fill_null(-1)
    positions: NDArray[np.int64] = found.to_numpy(zero_copy_only=False).astype(np.int64)
    return positions


def _rows(
    time: datetime, keys: list[pa.Array], values: NDArray[np.float32], observed: NDArray[np.bool_], schema: pa.Schema
) -> pa.RecordBatch:
    metrics = [pa.array(values[:, m], pa.float32(), mask=~observed[:, m]) for m in range(values.shape[1])]
    return pa.record_batch([pa.repeat(pa.scalar(time, _TIME), len(values)), *keys, *metrics], schema=schema)


def _incident(row: dict[str, Any]) -> LabelledIncident:
    known: dict[str, Any] = {name: row.get(name) for name in _INCIDENT_COLUMNS}
    return LabelledIncident(**known, details={name: value for name, value in row.items() if name not in known})


def _incident_table(incidents: Sequence[LabelledIncident]) -> pa.Table:
    named = [(name, _TIME if name in ("start", "end") else pa.string()) for name in _INCIDENT_COLUMNS]
    columns = [pa.array([getattr(incident, name) for incident in incidents], type_) for name, type_ in named]
    further = sorted({name for incident in incidents for name in incident.details})
    columns += [pa.array([incident.details.get(name) for incident in incidents]) for name in further]
    return pa.table(dict(zip([*_INCIDENT_COLUMNS, *further], columns, strict=True)))


def _datetime(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)
