"""The files of the history of a mesh. They are Parquet, so any reader of Parquet opens them.

A file of minutes has three hours, one of ten minutes has a day. Until that time is over, it is in pieces, each written
once. Part 0 is about the mesh: :data:`MESH`. Each other part has some of the services, chosen by a hash of their names,
and the calls to them, so that one service is read without the others: :data:`SERIES`.

Metrics are rounded to 16 bits, which is at most 0.4% of their value: minutes of real traffic differ by more. Their
bytes compress best apart.
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
ROWS = {MINUTE: 180, TEN_MINUTES: 144}  # of a file: three hours, and a day
SERVICES_PER_PART, MAX_PARTS = 64, 128
METRICS = tuple(dict.fromkeys((*NODE_METRICS, *EDGE_METRICS)))
ROUNDING = 16  # of the 24 bits of a metric that are left out

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
        snapshots: number of them.
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
        metrics: their M names.
        times: Unix times of their beginning, ascending, s ``[T]``.
        values: of the metrics, ``[T, M]``, NaN where not observed.
        scores: highest anomaly scores (log10) ``[T]``, NaN where not scored.
    """

    metrics: Sequence[str]
    times: Times
    values: FloatArray
    scores: FloatArray

    @classmethod
    def join(cls, metrics: Sequence[str], parts: Iterable["PastSeries"]) -> Self:
        """Several series of these metrics, one after the other."""
        nothing = cls(metrics, np.zeros(0), np.zeros((0, len(metrics)), np.float32), np.zeros(0, np.float32))
        joined: list[PastSeries] = [nothing, *parts]
        return cls(
            metrics,
            np.concatenate([one.times for one in joined]),
            np.concatenate([one.values for one in joined]),
            np.concatenate([one.scores for one in joined]),
        )


def mesh_table(rows: Sequence[MeshRow]) -> pa.Table:
    found = [{**asdict(row), "time": round(row.at * 1e6)} for row in rows]
    return pa.Table.from_pylist(found, MESH)


def mesh_rows(table: pa.Table) -> list[MeshRow]:
    """Inverse of :func:`mesh_table`."""
    columns = [table[name].to_pylist() for name in MESH.names[1:-1]]
    changes = [tuple(StoredChange(**one) for one in some) for some in table["changes"].to_pylist()]
    return [MeshRow(*row) for row in zip(seconds(table).tolist(), *columns, changes, strict=True)]


def seconds(table: pa.Table) -> IntArray:
    """Return the Unix times of the rows of a table, s."""
    found: IntArray = table["time"].cast(pa.int64()).to_numpy() // 1_000_000
    return found


def matrix(table: pa.Table, names: Sequence[str]) -> FloatArray:
    """Return columns of a table, ``[rows, names]``; NaN where they are null."""
    return np.stack([table[name].to_numpy() for name in names], axis=1, dtype=np.float32)


def encode(names: pa.ChunkedArray) -> tuple[IntArray, list[str]]:
    """Return the number of the name of each row, -1 where it is null, and the names by number."""
    found = names.combine_chunks().dictionary_encode()
    return found.indices.fill_null(-1).to_numpy().astype(np.int64), found.dictionary.to_pylist()


@dataclass(frozen=True, slots=True, eq=False)
class SeriesRows:
    """R rows of services, or of calls, given by their numbers.

    Attributes:
        number: of the service or call.
        times: Unix time, s.
        values: of M metrics, ``[R, M]``, NaN where not observed.
        scores: highest anomaly scores (log10), NaN where not scored.
    """

    number: IntArray
    times: IntArray
    values: FloatArray
    scores: FloatArray

    def table(
        self, metrics: Sequence[str], names: Sequence[str], services: IntArray, sources: IntArray | None = None
    ) -> pa.Table:
        """Their :data:`SERIES`.

        Args:
            metrics: M names.
            names: of services.
            services, sources: places in ``names`` of each service or call by its number; no sources: services.
        """
        rounded, dictionary, count = round_metrics(self.values, ROUNDING), pa.array(names, pa.string()), len(self.times)
        columns: dict[str, pa.Array] = {name: _floats(rounded[:, i]) for i, name in enumerate(metrics)}
        columns |= {"time": pa.array(self.times * 1_000_000, _TIME), "score": _floats(self.scores)}
        for name, places in (("service", services), ("source", sources)):
            if places is not None:
                at = pa.array(places[self.number], pa.int32())
                columns[name] = pa.DictionaryArray.from_arrays(at, dictionary)
        whole = [columns.get(field.name, pa.nulls(count, field.type)) for field in SERIES]
        return pa.table(whole, schema=SERIES)


def _floats(values: FloatArray) -> pa.Array:
    return pa.array(values, pa.float32(), from_pandas=True)  # NaN becomes null


def round_metrics(values: FloatArray, bits: int) -> FloatArray:
    """Return metrics without so many of their bits, so that they compress to half the size."""
    steps = np.ascontiguousarray(values, np.float32).view(np.uint32) + np.uint32(1 << bits - 1)
    return (steps >> bits << bits).view(np.float32)


def part_of(service: str, parts: int) -> int:
    """Return the number of the part that has a service and the calls to it, from 1."""
    return 1 + zlib.crc32(service.encode()) % max(parts, 1)


def parts_for(services: int) -> int:
    """Return how many parts a new file should have besides the one of the mesh."""
    return min(MAX_PARTS, max(1, -(-services // SERVICES_PER_PART)))


def write_file(table: pa.Table) -> bytes:
    metrics = [name for name in table.column_names if name in METRICS]
    # As strings: a dictionary would have the services of all parts.
    plain = [(one.name, pa.string() if one.type == _NAME else one.type) for one in table.schema]
    sink = pa.BufferOutputStream()
    pq.write_table(
        table.cast(pa.schema(plain)),
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
    """Return the tables of files of a mesh, or some columns of them. Files of another version are left out."""
    found: dict[ChunkKey, pa.Table] = {}
    for key, content in files.items():
        try:
            file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=["service", "source"] if key.part else None)
        except (pa.ArrowException, OSError, KeyError):
            continue
        if file.schema_arrow.names == (SERIES if key.part else MESH).names:
            found[key] = file.read(columns=None if columns is None else [*columns], use_threads=False)
    if len(found) < len(files):
        _report(mesh, len(files) - len(found))
    return found


@lru_cache(maxsize=1024)  # once, and not with each read
def _report(mesh: str, count: int) -> None:
    log.error(
        "history of mesh %r: %d files are of another version and are left out; they are deleted when they are too old",
        mesh,
        count,
    )
