"""The format of the history of a mesh: chunks of rows, one row for each minute, or for each ten minutes.

A chunk of minutes has an hour, one of ten minutes has half a day. Until that time is over, it is in pieces, each
written once. A piece is a chunk with fewer rows and undivided services.

A chunk has parts. Part 0 is about the mesh, and is JSON. Each other part has some of the services, chosen by a hash of
their names, and the calls to them, so that one service is read without the others.

A part of services is a header (JSON) and one compressed column for each score and metric, so that a reader decodes only
the columns that it needs. A metric is rounded to 64 steps an octave, which is at most 0.6% of its value: minutes of
real traffic differ by more. Differences between rows compress best, with their high and low bytes apart.
"""

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from model.snapshot import EDGE_METRICS, NODE_METRICS, FloatArray
from serve_app.api.views import STEPS_A_DECADE, UNKNOWN
from serve_app.stores.compression import decompress_column, squeeze_column

MINUTE, TEN_MINUTES = 60, 600  # seconds of a row
ROWS = {MINUTE: 60, TEN_MINUTES: 72}  # of a chunk: an hour, and half a day
SERVICES_PER_PART, MAX_PARTS = 32, 256
STEPS_AN_OCTAVE, LOWEST_OCTAVE = 64, -30
NOT_OBSERVED, ZERO, FIRST = 0, 1, 2  # codes of metrics; from FIRST on, powers of two
NOT_SCORED = UNKNOWN  # scores have the steps in which verdicts store them
_LENGTH = 4  # bytes

Codes = NDArray[np.uint16]
Scores = NDArray[np.uint8]
_OCTAVES = (np.arange(2**16, dtype=np.float64) - FIRST) / STEPS_AN_OCTAVE + LOWEST_OCTAVE
_VALUES = np.exp2(np.minimum(_OCTAVES, 120.0)).astype(np.float32)
_VALUES[NOT_OBSERVED], _VALUES[ZERO] = np.nan, 0.0


def encode_values(values: FloatArray) -> Codes:
    """Return the codes of metrics, which are not negative; NaN is not observed."""
    with np.errstate(divide="ignore", invalid="ignore"):
        octaves = np.rint((np.log2(values) - LOWEST_OCTAVE) * STEPS_AN_OCTAVE) + FIRST
    codes = np.where(values > 0, np.clip(octaves, FIRST, 2**16 - 1), ZERO)
    return np.where(np.isnan(values), NOT_OBSERVED, codes).astype(np.uint16)


def decode_values(codes: Codes) -> FloatArray:
    """Inverse of :func:`encode_values`, up to rounding."""
    values: FloatArray = _VALUES[codes]
    return values


def decode_scores(steps: Scores) -> FloatArray:
    """Return anomaly scores (log10); NaN is not scored."""
    return np.where(steps == NOT_SCORED, np.float32(np.nan), steps.astype(np.float32) / STEPS_A_DECADE)


def part_of(service: str, parts: int) -> int:
    """Return the number of the part that has a service and the calls to it, from 1."""
    return 1 + zlib.crc32(service.encode()) % parts


def parts_for(services: int) -> int:
    """Return how many parts a new chunk should have besides the one of the mesh."""
    return min(MAX_PARTS, max(1, -(-services // SERVICES_PER_PART)))


@dataclass(frozen=True, slots=True)
class MeshRow:
    """A minute, or ten, of a whole mesh.

    Attributes:
        snapshots: that it is made of.
        score, highest_score: mean and highest anomaly score (log10).
        threshold: the last one; None: there was none.
        status: of the worst snapshot.
    """

    snapshots: int
    score: float
    highest_score: float
    threshold: float | None
    status: str


@dataclass(frozen=True, slots=True)
class StoredChange:
    """A planned change, with the Unix time of its snapshot, s."""

    at: float
    kind: str
    service: str
    reason: str


@dataclass(frozen=True, slots=True)
class MeshPart:
    """Part 0 of a chunk.

    Attributes:
        parts: number of the other parts.
        length: number of rows.
        rows: by their place in the chunk; without those that have no snapshot.
        changes: planned changes, oldest first.
    """

    parts: int
    length: int
    rows: dict[int, MeshRow] = field(default_factory=dict)
    changes: tuple[StoredChange, ...] = ()

    def pack(self) -> bytes:
        """Encode to bytes."""
        rows = [
            [place, row.snapshots, round(row.score, 3), round(row.highest_score, 3), row.threshold, row.status]
            for place, row in sorted(self.rows.items())
        ]
        changes = [[one.at, one.kind, one.service, one.reason] for one in self.changes]
        return json.dumps([self.parts, self.length, rows, changes], separators=(",", ":")).encode()

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        """Inverse of :meth:`pack`."""
        parts, length, rows, changes = json.loads(packed)
        read = {place: MeshRow(*row) for place, *row in rows}
        return cls(parts, length, read, tuple(StoredChange(*one) for one in changes))


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Services or calls of a part: K keys, T rows of the chunk, M metrics.

    Attributes:
        keys: names of services; or the caller of a call, a line break, and its destination.
        codes: of the metrics, ``[M, K, T]``.
        scores: highest of each row, ``[K, T]``.
    """

    keys: tuple[str, ...]
    codes: Codes
    scores: Scores

    @classmethod
    def empty(cls, keys: Sequence[str], metrics: int, rows: int) -> Self:
        """A table in which nothing was observed."""
        shape = len(keys), rows
        return cls(tuple(keys), np.zeros((metrics, *shape), np.uint16), np.full(shape, NOT_SCORED, np.uint8))

    def at(self, place: int) -> tuple[tuple[str, ...], FloatArray, FloatArray]:
        """The keys, values ``[K, M]`` and scores ``[K]`` of a row."""
        return self.keys, decode_values(self.codes[:, :, place]).T, decode_scores(self.scores[:, place])

    def take(self, rows: Sequence[int]) -> "Table":
        """The table of the keys at these rows."""
        return Table(tuple(self.keys[i] for i in rows), self.codes[:, rows], self.scores[rows])


@dataclass(frozen=True, slots=True, eq=False)
class ServicesPart:
    """A part of a chunk with services, one row for each of its rows, and the calls to them, one for each ten minutes:
    there are several times as many calls as services."""

    services: Table
    calls: Table

    def pack(self) -> bytes:
        """Encode to bytes."""
        tables = self.services, self.calls
        shapes = [table.scores.shape[1] for table in tables]
        head = json.dumps([*shapes, *(table.keys for table in tables)], separators=(",", ":"))
        columns = [squeeze_column(head.encode())]
        for table in tables:
            columns.append(squeeze_column(table.scores.tobytes()))
            columns += [squeeze_column(_flatten(codes)) for codes in table.codes]
        return b"".join(len(column).to_bytes(_LENGTH, "big") + column for column in columns)


class PackedPart:
    """A packed :class:`ServicesPart`, whose columns are decoded one by one.

    Args:
        packed: of :meth:`ServicesPart.pack`.
    """

    def __init__(self, packed: bytes) -> None:
        self._columns: list[memoryview] = []
        at, whole = 0, memoryview(packed)
        while at < len(whole):
            end = at + _LENGTH + int.from_bytes(whole[at : at + _LENGTH], "big")
            self._columns.append(whole[at + _LENGTH : end])
            at = end
        head: list[Any] = json.loads(decompress_column(self._columns[0]))
        self._rows: list[int] = head[:2]
        self.services, self.calls = tuple(head[2]), tuple(head[3])

    def scores(self) -> Scores:
        """Scores of the services, ``[K, T]``."""
        return self._read_scores(1, len(self.services), self._rows[0])

    def service_table(self) -> Table:
        """The services."""
        return self._table(1, self.services, len(NODE_METRICS), self._rows[0])

    def call_table(self) -> Table:
        """The calls."""
        return self._table(2 + len(NODE_METRICS), self.calls, len(EDGE_METRICS), self._rows[1])

    def _table(self, first: int, keys: tuple[str, ...], metrics: int, rows: int) -> Table:
        codes = [self._read_codes(first + 1 + i, len(keys), rows) for i in range(metrics)]
        return Table(keys, np.stack(codes), self._read_scores(first, len(keys), rows))

    def _read_scores(self, column: int, keys: int, rows: int) -> Scores:
        flat: Scores = np.frombuffer(decompress_column(self._columns[column]), np.uint8)
        return flat.reshape(keys, rows)

    def _read_codes(self, column: int, keys: int, rows: int) -> Codes:
        planes = np.frombuffer(decompress_column(self._columns[column]), np.uint8).reshape(2, keys, rows)
        steps = (planes[0].astype(np.uint16) << 8) | planes[1]
        codes: Codes = np.cumsum(steps, axis=1, dtype=np.uint16)
        return codes


def _flatten(codes: Codes) -> bytes:
    """The differences between the rows, first all high bytes, then all low ones."""
    steps = np.diff(codes, axis=1, prepend=np.uint16(0)).astype(np.uint16)
    return (steps >> 8).astype(np.uint8).tobytes() + (steps & 0xFF).astype(np.uint8).tobytes()


def call_key(source: str, destination: str) -> str:
    """Return the key of a call in a table."""
    return f"{source}\n{destination}"


def call_ends(key: str) -> tuple[str, str]:
    """Inverse of :func:`call_key`."""
    source, _, destination = key.partition("\n")
    return source, destination


def group_by_part(keys: Sequence[str], parts: int) -> dict[int, list[int]]:
    """Map each part to the positions of the keys that it has; of a call, its destination decides."""
    found: dict[int, list[int]] = {}
    for i, key in enumerate(keys):
        found.setdefault(part_of(key.rpartition("\n")[2], parts), []).append(i)
    return found
