"""Documents with columns, and their conversion to rows.

A column of numbers is a list with null for "not observed", or bytes of little-endian float32 with NaN for it. Ends of
calls are names or positions in ``services``; positions may also be bytes of little-endian int32.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot, SignalKind
from serve_app.api.codec.validation import (
    ERRORS_LISTED,
    Limits,
    NeedsFullCheck,
    Rows,
    abbreviate,
    describe_unknown_field,
    error_at,
    errors_at,
    pointer,
    snapshot_document,
    table_of_signals,
    to_float32,
)

ENDS = ("source", "destination")
ABSENT = -math.inf  # in a row: the field is missing, not null; clients cannot send this value
_FLOATS, _INTS = np.dtype("<f4"), np.dtype("<i4")
_INNER = {"metrics": (NODE_METRICS, "metric"), "signals": (tuple(SignalKind), "kind")}  # columns within services
Column = Sequence[Any] | bytes | None


def matrix(columns: Sequence[Column], rows: int) -> NDArray[np.float32]:
    """float32 ``[rows, columns]``, NaN where not observed.

    Raises:
        NeedsFullCheck: a column has another length.
    """
    table = np.full((len(columns), rows), np.nan, np.float32)
    for i, column in enumerate(columns):
        if column is not None:
            values = numbers(column)
            if len(values) != rows:
                raise NeedsFullCheck
            table[i] = values
    return table.T


def numbers(column: Sequence[Any] | bytes) -> NDArray[np.float32]:
    """One column, NaN for null. Values beyond float32 become infinite, which the check of the snapshot refuses.

    Raises:
        NeedsFullCheck: the bytes are not a whole number of values, or a list has a NaN.
    """
    return _unpack(column, _FLOATS) if isinstance(column, bytes) else to_float32(_to_float64(column))


def row_numbers(values: Sequence[float | None]) -> tuple[NDArray[np.float32], int]:
    """Values of rows with NaN for null and ``ABSENT``, and how many are not ``ABSENT``. Errors as :func:`numbers`."""
    exact = _to_float64(values)
    absent = exact == ABSENT
    return to_float32(np.where(absent, np.nan, exact)), len(exact) - int(np.count_nonzero(absent))


def to_int64(values: Sequence[Any]) -> NDArray[np.int64]:
    """Whole numbers as an array.

    Raises:
        NeedsFullCheck: anything else, or a number beyond int64.
    """
    try:
        return _pack("q", values)
    except struct.error:
        raise NeedsFullCheck from None


def _to_float64(values: Sequence[float | None]) -> NDArray[np.float64]:
    try:
        nulls, exact = 0, _pack("d", values)
    except struct.error:  # a null; Arrow converts a list with nulls in half the time of numpy
        array = pa.array(values, pa.float64())
        nulls, exact = array.null_count, array.to_numpy(zero_copy_only=False)
    if np.count_nonzero(exact != exact) != nulls:
        raise NeedsFullCheck
    return exact


def _pack(kind: str, values: Sequence[Any]) -> NDArray[Any]:
    """Numbers as an array of a type of ``struct``, in half the time of numpy. Raises ``struct.error`` for others."""
    return np.frombuffer(struct.pack(f"{len(values)}{kind}", *values), kind)


def positions(ends: Sequence[Any] | bytes, place: Mapping[Any, int]) -> NDArray[np.int64]:
    """Positions of one end of each call in the services.

    Raises:
        NeedsFullCheck: an end is not among the services.
    """
    if isinstance(ends, bytes):
        found = _unpack(ends, _INTS).astype(np.int64)
    else:
        named = any(isinstance(end, str) for end in ends[:1])
        try:
            found = to_int64([place[end] for end in ends] if named else ends)
        except KeyError:
            raise NeedsFullCheck from None
    if len(found) and not 0 <= found.min() <= found.max() < len(place):
        raise NeedsFullCheck
    return found


def as_columns(snapshot: MeshSnapshot) -> dict[str, Any]:
    """The document of a snapshot with columns as bytes."""
    document = snapshot_document(snapshot.take([], [])) | {"observed_at": snapshot.observed_at.isoformat()}
    namespaces, names = zip(*(name.split("/", 1) for name in snapshot.node_ids), strict=True)
    nodes = np.where(snapshot.node_observed, snapshot.node_features, np.float32(np.nan))
    edges = np.where(snapshot.edge_observed, snapshot.edge_features, np.float32(np.nan))
    document["services"] = {"namespace": namespaces, "name": names, "metrics": _pack_columns(NODE_METRICS, nodes)}
    if snapshot.signals:
        document["services"]["signals"] = _pack_columns(list(SignalKind), table_of_signals(snapshot))
    ends = (end.astype(_INTS).tobytes() for end in snapshot.edge_index)
    document["calls"] = dict(zip(ENDS, ends, strict=True)) | _pack_columns(EDGE_METRICS, edges)
    return document


def as_rows(document: Any, limits: Limits) -> Any:
    """Convert a document with columns to one with rows; anything else is returned unchanged.

    Raises:
        InvalidDocument: unknown columns, columns of different lengths, or bytes that are not a whole number of values.
        DocumentTooLarge: columns longer than ``limits`` allow.
    """
    if not isinstance(document, Mapping):
        return document
    turned = dict(document)
    services, calls = document.get("services"), document.get("calls")
    limits.check(_longest(services), _longest(calls))
    if isinstance(services, Mapping):
        plain = {name: column for name, column in services.items() if name not in _INNER}
        turned["services"] = rows = _read_columns("/services", plain, ("namespace", "name"))
        for name, (known, what) in _INNER.items():
            inner = services.get(name)
            if isinstance(inner, Mapping) and inner:
                rows.inner[name] = _read_columns(f"/services/{name}", inner, known, len(rows))
            elif inner:
                raise error_at(f"/services/{name}", f"expected columns by {what}")
    if isinstance(calls, Mapping):
        turned["calls"] = NamedRows(_read_columns("/calls", calls, ENDS + EDGE_METRICS), turned.get("services"))
    return turned


@dataclass(slots=True)
class ColumnRows:
    """Rows of columns; null fields are left out of a row.

    Attributes:
        columns: by name, all of one length.
        length: of the columns.
        inner: the columns of the services' metrics and signals, by ``metrics`` and ``signals``.
    """

    columns: Mapping[str, Sequence[Any] | NDArray[Any]]
    length: int
    inner: "dict[str, ColumnRows]" = field(default_factory=dict)

    def __len__(self) -> int:
        return self.length

    def read(self, start: int, stop: int) -> list[dict[str, Any]]:
        """The rows from ``start`` to before ``stop``."""
        parts = {name: _values(column[start:stop]) for name, column in self.columns.items()}
        rows = [
            {name: values[i] for name, values in parts.items() if values[i] is not None} for i in range(stop - start)
        ]
        for name, inner in self.inner.items():
            for row, measured in zip(rows, inner.read(start, stop), strict=True):
                row[name] = measured
        return rows


@dataclass(slots=True)
class NamedRows:
    """Calls with names instead of positions. What is not a position stays, and is refused later."""

    calls: Rows
    services: Any
    _names: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.calls)

    def read(self, start: int, stop: int) -> list[Any]:
        """The calls from ``start`` to before ``stop``."""
        rows = self.calls.read(start, stop)
        if not self._names and any(type(row.get(end)) is int for row in rows if isinstance(row, dict) for end in ENDS):
            self._names = _names(self.services)
        return [_name_ends(row, self._names) for row in rows] if self._names else rows


def _names(services: Any) -> list[str]:
    count = len(services) if isinstance(services, list | Rows) else 0
    rows = services.read(0, count) if isinstance(services, Rows) else services
    if not count:
        return []
    return [f"{s.get('namespace')}/{s.get('name')}" if isinstance(s, Mapping) else "" for s in rows]


def _read_columns(
    place: str, columns: Mapping[str, Any], known: Sequence[str], length: int | None = None
) -> ColumnRows:
    if not columns:
        raise error_at(place, "expected a list of rows, or columns by name, came neither")
    unknown = [name for name in columns if name not in known][:ERRORS_LISTED]
    if unknown:  # point to the first row, as for a document of rows
        rows, _, inside = place.removeprefix("/").partition("/")
        raise errors_at((pointer((rows, 0, *inside.split(), name)), describe_unknown_field(name)) for name in unknown)
    lists = {
        name: _read_column(f"{place}/{name}", name, column) for name, column in columns.items() if column is not None
    }
    for name, column in lists.items():
        length = len(column) if length is None else length
        if len(column) != length:
            raise error_at(f"{place}/{name}", f"expected {length} values as in the other columns, came {len(column)}")
    return ColumnRows(lists, length or 0)


def _values(column: Sequence[Any] | NDArray[Any]) -> Sequence[Any]:
    if isinstance(column, np.ndarray):
        return [None if value != value else value for value in column.tolist()]
    return column


def _longest(columns: Any) -> int:
    if not isinstance(columns, Mapping):
        return 0
    lengths = (len(c) // 4 if isinstance(c, bytes) else len(c) for c in columns.values() if isinstance(c, bytes | list))
    return max(lengths, default=0)


def _read_column(place: str, name: str, column: Any) -> Sequence[Any] | NDArray[Any]:
    if isinstance(column, bytes):
        try:
            return _unpack(column, _INTS if name in ENDS else _FLOATS)
        except NeedsFullCheck:
            raise error_at(place, f"expected 4 bytes for each value, came {len(column)} bytes") from None
    if not isinstance(column, list):
        raise error_at(place, f"expected a column, came {abbreviate(column)}")
    return column


def _name_ends(call: Any, names: Sequence[str]) -> Any:
    if not isinstance(call, Mapping):
        return call
    places = {end: call.get(end) for end in ENDS}
    return dict(call) | {end: names[i] for end, i in places.items() if type(i) is int and 0 <= i < len(names)}


def _unpack(column: bytes, dtype: np.dtype[Any]) -> NDArray[Any]:
    if len(column) % dtype.itemsize:
        raise NeedsFullCheck
    return np.frombuffer(column, dtype)


def _pack_columns(names: Sequence[str], table: NDArray[np.float32]) -> dict[str, bytes]:
    """Columns with at least one value."""
    return {n: c.astype(_FLOATS).tobytes() for n, c in zip(names, table.T, strict=True) if not np.isnan(c).all()}
