"""The Parquet files of a mesh's history.

A file of minutes covers three hours, one of ten minutes a day. Until that time is over, it consists of pieces, each
written once. Part 0 is about the mesh: :data:`MESH`. Each other part has some services, chosen by a hash of their
names, and the calls to them, so that one service is read without the others: :data:`SERIES`.

Metrics are rounded to 16 bits, at most 0.4% of their value: minutes of real traffic differ by more. Their bytes
compress best apart.
"""

import logging
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import lru_cache
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from model.snapshot import EDGE_METRICS, NODE_METRICS, FloatArray, IntArray
from serve_app.stores.records import ChunkKey

MINUTE, TEN_MINUTES = 60, 600  # seconds of a row
ROWS = {MINUTE: 180, TEN_MINUTES: 144}  # per file: three hours, and a day
SERVICES_PER_PART, MAX_PARTS = 64, 128
METRICS = tuple(dict.fromkeys((*NODE_METRICS, *EDGE_METRICS)))
ROUNDING = 16  # bits of a metric's 24 that are left out

_TIME, _NAME = pa.timestamp("us", "UTC"), pa.dictionary(pa.int32(), pa.string())
_CHANGE = pa.struct([("at", _TIME), ("kind", pa.string()), ("service", pa.string()), ("reason", pa.string())])
MESH = pa.schema(
    [
        ("time", _TIME),
        ("snapshots", pa.int32()),
        ("score", pa.float64()),
        ("highest_score", pa.float64()),
        ("threshold", pa.float64()),
        ("status", pa.string()),
        ("changes", pa.list_(_CHANGE)),
    ]
)
"""Rows of a mesh, by time."""
SERIES = pa.schema(
    [
        ("service", _NAME),
        ("source", _NAME),
        ("time", _TIME),
        *((name, pa.float32()) for name in METRICS),
        ("score", pa.float32()),
    ]
)
"""Rows of services, and of calls, which have a ``source``; by name, then by time. Null: not observed, or not scored."""
Times = NDArray[np.float64]
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredChange:
    """A planned change, with the time of its snapshot."""

    at: datetime
    kind: str
    service: str
    reason: str


@dataclass(frozen=True, slots=True)
class MeshRow:
    """A snapshot, a minute, or ten, of a whole mesh.

    Attributes:
        at: Unix time of its beginning, s.
        snapshots: number of snapshots.
        score, highest_score: mean and highest anomaly score (log10).
        threshold: the last one; None: there was none.
        status: of the worst snapshot.
    """

    at: float
    snapshots: int
    score: float
    highest_score: float
    threshold: float | None
    status: str
    changes: tuple[StoredChange, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class PastSeries:
    """The rows of a service or a call.

    Attributes:
        metrics: M names.
        times: Unix time of each row's beginning, ascending, s ``[T]``.
        values: ``[T, M]``, NaN where not observed.
        scores: highest anomaly scores (log10) ``[T]``, NaN where not scored.
    """

    metrics: Sequence[str]
    times: Times
    values: FloatArray
    scores: FloatArray

    @classmethod
    def join(cls, metrics: Sequence[str], parts: Iterable["PastSeries"]) -> Self:
        """Concatenate series of these metrics."""
        empty = cls(metrics, np.zeros(0), np.zeros((0, len(metrics)), np.float32), np.zeros(0, np.float32))
        series: list[PastSeries] = [empty, *parts]
        return cls(
            metrics,
            np.concatenate([part.times for part in series]),
            np.concatenate([part.values for part in series]),
            np.concatenate([part.scores for part in series]),
        )


def mesh_table(rows: Sequence[MeshRow]) -> pa.Table:
    records = [{**asdict(row), "time": round(row.at * 1e6)} for row in rows]
    return pa.Table.from_pylist(records, MESH)


def mesh_rows(table: pa.Table) -> list[MeshRow]:
    """Inverse of :func:`mesh_table`."""
    columns = [table[name].to_pylist() for name in MESH.names[1:-1]]
    changes = [tuple(StoredChange(**fields) for fields in row) for row in table["changes"].to_pylist()]
    return [MeshRow(*row) for row in zip(seconds(table).tolist(), *columns, changes, strict=True)]


def seconds(table: pa.Table) -> IntArray:
    """Return the Unix time of each row of a table, s."""
    times: IntArray = table["time"].cast(pa.int64()).to_numpy() // 1_000_000
    return times


def matrix(table: pa.Table, names: Sequence[str]) -> FloatArray:
    """Return columns of a table ``[rows, names]``, NaN where they are null."""
    return np.stack([table[name].to_numpy() for name in names], axis=1, dtype=np.float32)


def encode(names: pa.ChunkedArray) -> tuple[IntArray, list[str]]:
    """Return the number of each row's name, -1 where it is null, and the names by number."""
    encoding = names.combine_chunks().dictionary_encode()
    return encoding.indices.fill_null(-1).to_numpy().astype(np.int64), encoding.dictionary.to_pylist()


@dataclass(frozen=True, slots=True, eq=False)
class SeriesRows:
    """R rows of numbered services or calls.

    Attributes:
        number: of the service or call ``[R]``.
        times: Unix time, s ``[R]``.
        values: of M metrics ``[R, M]``, NaN where not observed.
        scores: highest anomaly scores (log10) ``[R]``, NaN where not scored.
    """

    number: IntArray
    times: IntArray
    values: FloatArray
    scores: FloatArray

    def table(
        self, metrics: Sequence[str], names: Sequence[str], services: IntArray, sources: IntArray | None = None
    ) -> pa.Table:
        """Return the rows as :data:`SERIES`.

        Args:
            metrics: M names.
            names: of services.
            services, sources: index in ``names`` of each service or call by its number; no sources: services.
        """
        values, dictionary = round_metrics(self.values, ROUNDING), pa.array(names, pa.string())
        columns: dict[str, pa.Array] = {name: _floats(values[:, i]) for i, name in enumerate(metrics)}
        columns |= {"time": pa.array(self.times * 1_000_000, _TIME), "score": _floats(self.scores)}
        for name, indices in (("service", services), ("source", sources)):
            if indices is not None:
                row_indices = pa.array(indices[self.number], pa.int32())
                columns[name] = pa.DictionaryArray.from_arrays(row_indices, dictionary)
        return pa.table(
            [columns.get(field.name, pa.nulls(len(self.times), field.type)) for field in SERIES], schema=SERIES
        )


def _floats(values: FloatArray) -> pa.Array:
    return pa.array(values, pa.float32(), from_pandas=True)  # NaN becomes null


def round_metrics(values: FloatArray, bits: int) -> FloatArray:
    """Round metrics by this number of bits, so that they compress to half the size."""
    steps = np.ascontiguousarray(values, np.float32).view(np.uint32) + np.uint32(1 << bits - 1)
    return (steps >> bits << bits).view(np.float32)


def part_of(service: str, parts: int) -> int:
    """Return the number, from 1, of the part that has a service and the calls to it."""
    return 1 + zlib.crc32(service.encode()) % max(parts, 1)


def parts_for(services: int) -> int:
    """Return the number of parts for a new file, without part 0."""
    return min(MAX_PARTS, max(1, -(-services // SERVICES_PER_PART)))


def write_file(table: pa.Table) -> bytes:
    metrics = [name for name in table.column_names if name in METRICS]
    # Names as strings: a dictionary would have the services of all parts.
    fields = [(field.name, pa.string() if field.type == _NAME else field.type) for field in table.schema]
    sink = pa.BufferOutputStream()
    pq.write_table(
        table.cast(pa.schema(fields)),
        sink,
        compression="lz4",  # takes a fifth more space than Zstandard, and is read in half the time
        use_dictionary=[name for name in table.column_names if name not in metrics],
        column_encoding=dict.fromkeys(metrics, "BYTE_STREAM_SPLIT"),
        write_statistics=False,  # files are small
        store_schema=False,
    )
    return bytes(sink.getvalue())


def read_files(
    mesh: str, files: Mapping[ChunkKey, bytes], columns: Collection[str] | None = None
) -> dict[ChunkKey, pa.Table]:
    """Return a mesh's files as tables, with all or some ``columns``. Files of another version are left out."""
    tables: dict[ChunkKey, pa.Table] = {}
    for key, content in files.items():
        try:
            file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=["service", "source"] if key.part else None)
        except (pa.ArrowException, OSError, KeyError):
            continue
        if file.schema_arrow.names == (SERIES if key.part else MESH).names:
            tables[key] = file.read(columns=None if columns is None else [*columns], use_threads=False)
    if len(tables) < len(files):
        _log_unreadable(mesh, len(files) - len(tables))
    return tables


@lru_cache(maxsize=1024)  # once, and not with each read
def _log_unreadable(mesh: str, count: int) -> None:
    log.error(
        "history of mesh %r: %d files are of another version and are left out; they are deleted when they are too old",
        mesh,
        count,
    )
