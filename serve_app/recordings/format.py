"""The format of a recording: a folder of Parquet files with the snapshots of one mesh.

    nodes.parquet      time, service, namespace, and any of the node metrics
    edges.parquet      time, source, source_namespace, destination, destination_namespace, requests_per_second, and any
                       of the other edge metrics
    incidents.parquet  optional: start, end, kind, root_cause_service, root_cause_metric, and any further columns
    events.parquet     optional: time, kind, object, reason; ``object`` is a node id
    signals.parquet    optional: time, service, namespace, kind, value; kinds as in :class:`~model.snapshot.SignalKind`
    meta.json          ``sampling_interval_seconds`` and any further content. It is written last, so a folder without it
                       is not a complete recording.

Times are UTC; a column without a time zone is read as UTC. **Rows must be sorted by time**; rows of one instant may be
in any order. Reading and writing hold one batch of rows and one snapshot in memory, however long the recording is. Only
incidents and events are read completely.

Signals at a time without any row in nodes.parquet are left out.

A null or an absent metric means "not observed". If an end of a call has no row in nodes.parquet at that time, it is a
service without measurements. Two kinds of calls are left out, and :class:`~serve_app.recordings.reader.RecordingReader`
counts both: calls whose ``requests_per_second`` is null, because they were not measured; and calls at a time without
any row in nodes.parquet. A snapshot that breaks the contract of :class:`~model.snapshot.MeshSnapshot` in any other way
(a ratio above 1, a duplicate service) is refused, and the error names its time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa

BATCH_ROWS = 65_536
TIME = pa.timestamp("us", tz="UTC")
NODE_KEYS = ("service", "namespace")
SIGNAL_COLUMNS = ("time", *NODE_KEYS, "kind", "value")
EDGE_KEYS = ("source", "source_namespace", "destination", "destination_namespace")
INCIDENT_COLUMNS = ("start", "end", "kind", "root_cause_service", "root_cause_metric")


@dataclass(frozen=True, slots=True)
class LabelledIncident:
    """Ground truth: an injected or diagnosed fault.

    Attributes:
        start, end: UTC.
        kind: the fault's kind, in the recording's own words.
        root_cause_service: the culprit as the recording names it, often without its namespace; None if unknown.
        root_cause_metric: the metric that shows the fault; None if unknown.
        details: the recording's further columns.
    """

    start: datetime
    end: datetime
    kind: str
    root_cause_service: str | None = None
    root_cause_metric: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
