"""Writes a recording snapshot by snapshot."""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot, PlannedChange, namespace_of
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

_SIGNAL_SCHEMA = pa.schema(
    [("time", TIME), *((name, pa.string()) for name in SIGNAL_COLUMNS[1:-1]), (SIGNAL_COLUMNS[-1], pa.float32())]
)
_EVENT_SCHEMA = pa.schema([("time", TIME), *((name, pa.string()) for name in ("kind", "object", "reason"))])


class RecordingWriter:
    """Writes one recording; a context manager.

    If the ``with`` block ends without an exception, meta.json is written last, in one step. A writer that was killed or
    failed leaves a folder that :class:`~serve_app.recordings.reader.RecordingReader` refuses. A new writer overwrites
    such an incomplete folder, and never a complete recording.

    Args:
        interval_seconds: expected time between two snapshots, s.
        meta: further content of meta.json.

    Raises:
        BadRecording: if the folder already holds a complete recording, or snapshots come out of order.
    """

    def __init__(
        self, path: str | os.PathLike[str], interval_seconds: float, meta: Mapping[str, Any] | None = None
    ) -> None:
        self.path = Path(path)
        if (self.path / "meta.json").exists():
            raise BadRecording(
                f"recording {self.path}: expected a new folder, got a complete recording; choose another"
            )
        self._meta = {**(meta or {}), "sampling_interval_seconds": interval_seconds}
        self._incidents: list[LabelledIncident] = []
        self._events: list[tuple[datetime, PlannedChange]] = []
        self._newest: datetime | None = None
        self._snapshots = 0
        self._files = ExitStack()
        self._signals: _RowGroups | None = None  # None before the first signal

    def __enter__(self) -> Self:
        self.path.mkdir(parents=True, exist_ok=True)
        for stale in ("incidents.parquet", "events.parquet", "signals.parquet"):
            (self.path / stale).unlink(missing_ok=True)
        nodes, edges = _row_schema(NODE_KEYS, NODE_METRICS), _row_schema(EDGE_KEYS, EDGE_METRICS)
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
        """Append a snapshot. Its planned changes become events at its time.

        Raises:
            BadRecording: if it is not newer than the previous one.
        """
        if self._newest is not None and snapshot.observed_at <= self._newest:
            raise BadRecording(
                f"recording {self.path}: expected a snapshot after {self._newest.isoformat()}, got one of "
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
        if snapshot.signals:
            self._write_signals(snapshot)

    def _write_signals(self, snapshot: MeshSnapshot) -> None:
        """Append a snapshot's signals. The file is created with the first one: most recordings have none."""
        if self._signals is None:
            self._signals = self._files.enter_context(_RowGroups(self.path / "signals.parquet", _SIGNAL_SCHEMA))
        signals = snapshot.signals
        columns = [
            pa.repeat(pa.scalar(snapshot.observed_at, TIME), len(signals)),
            pa.array([signal.service.split("/", 1)[1] for signal in signals], pa.string()),
            pa.array([namespace_of(signal.service) for signal in signals], pa.string()),
            pa.array([signal.kind.value for signal in signals], pa.string()),
            pa.array([signal.value for signal in signals], pa.float32()),
        ]
        self._signals.write(pa.record_batch(columns, schema=_SIGNAL_SCHEMA))

    def add_incident(self, incident: LabelledIncident) -> None:
        """Label a fault, at any time before the ``with`` block ends."""
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
        partial_file = self.path / "meta.json.part"
        newest = {"newest": self._newest.isoformat()} if self._newest else {}
        partial_file.write_text(
            json.dumps({**self._meta, **newest, "counts": counts}, indent=1) + "\n", encoding="utf-8"
        )
        partial_file.replace(self.path / "meta.json")


class _RowGroups:
    """A Parquet file that grows by row groups of about ``BATCH_ROWS`` rows."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.schema, self.rows = schema, 0
        self._pending: list[pa.RecordBatch] = []
        self._file = pq.ParquetWriter(path, schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._flush()
        self._file.close()

    def write(self, rows: pa.RecordBatch) -> None:
        self.rows += len(rows)
        self._pending.append(rows)
        if sum(map(len, self._pending)) >= BATCH_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            self._file.write_table(pa.Table.from_batches(self._pending))
            self._pending = []


def _row_schema(keys: Sequence[str], metrics: Sequence[str]) -> pa.Schema:
    return pa.schema([("time", TIME), *((k, pa.string()) for k in keys), *((m, pa.float32()) for m in metrics)])


def _rows(
    time: datetime, keys: list[pa.Array], values: NDArray[np.float32], observed: NDArray[np.bool_], schema: pa.Schema
) -> pa.RecordBatch:
    metrics = [pa.array(values[:, m], pa.float32(), mask=~observed[:, m]) for m in range(values.shape[1])]
    return pa.record_batch([pa.repeat(pa.scalar(time, TIME), len(values)), *keys, *metrics], schema=schema)


def _incident_table(incidents: Sequence[LabelledIncident]) -> pa.Table:
    column_types = [(name, TIME if name in ("start", "end") else pa.string()) for name in INCIDENT_COLUMNS]
    columns = [pa.array([getattr(incident, name) for incident in incidents], type_) for name, type_ in column_types]
    detail_names = sorted({name for incident in incidents for name in incident.details})
    columns += [pa.array([incident.details.get(name) for incident in incidents]) for name in detail_names]
    return pa.table(dict(zip([*INCIDENT_COLUMNS, *detail_names], columns, strict=True)))
