"""Rows of documents with columns, for the full check. They are built on demand, so that few exist at a time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from model.snapshot import EDGE_METRICS, NODE_METRICS, SignalKind
from serve_app.api.codec.limits import Limits
from serve_app.api.codec.mistakes import abbreviate, describe_unknown_field, error_at, errors_at, pointer

ENDS = ("source", "destination")
FLOATS, INTS = np.dtype("<f4"), np.dtype("<i4")  # of columns as bytes
_INNER = {"metrics": (NODE_METRICS, "metric"), "signals": (tuple(SignalKind), "kind")}  # columns within services


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that are built on demand.

    Attributes:
        length: how many there are.
        read: the rows from a start to before a stop.
    """

    length: int
    read: Callable[[int, int], list[Any]]

    def __len__(self) -> int:
        return self.length


def as_rows(document: Any, limits: Limits) -> Any:
    """Convert a document with columns to one with rows; anything else is returned unchanged. Null fields are left out
    of a row.

    Raises:
        InvalidDocument: unknown columns, columns of different lengths, or bytes that are not a whole number of values.
        DocumentTooLarge: columns longer than ``limits`` allow.
    """
    if not isinstance(document, Mapping):
        return document
    turned = dict(document)
    services, calls = document.get("services"), document.get("calls")
    limits.check(services=_longest(services), calls=_longest(calls))
    if isinstance(services, Mapping):
        plain = {name: column for name, column in services.items() if name not in _INNER}
        rows = _read_columns("/services", plain, ("namespace", "name"))
        turned["services"] = _with_inner(rows, services)
    if isinstance(calls, Mapping):
        turned["calls"] = name_ends(_read_columns("/calls", calls, ENDS + EDGE_METRICS), turned.get("services"))
    return turned


def name_ends(calls: Rows, services: Any) -> Rows:
    """Calls with names instead of positions. What is not a position stays, and is refused later."""

    @cache
    def names() -> list[str]:
        rows = services.read(0, len(services)) if isinstance(services, Rows) else services
        known = rows if isinstance(rows, list) else []
        return [f"{s.get('namespace')}/{s.get('name')}" if isinstance(s, Mapping) else "" for s in known]

    def name(end: Any) -> Any:
        return names()[end] if type(end) is int and 0 <= end < len(names()) else end

    def read(start: int, stop: int) -> list[Any]:
        return [
            row | {end: name(row[end]) for end in ENDS if end in row} if isinstance(row, dict) else row
            for row in calls.read(start, stop)
        ]

    return Rows(len(calls), read)


def _with_inner(rows: Rows, services: Mapping[str, Any]) -> Rows:
    """Services with the rows of their columns of metrics and signals."""
    inner: dict[str, Rows] = {}
    for name, (known, what) in _INNER.items():
        columns = services.get(name)
        if isinstance(columns, Mapping) and columns:
            inner[name] = _read_columns(f"/services/{name}", columns, known, len(rows))
        elif columns:
            raise error_at(f"/services/{name}", f"expected columns by {what}")

    def read(start: int, stop: int) -> list[dict[str, Any]]:
        read_rows: list[dict[str, Any]] = rows.read(start, stop)
        for name, measured in inner.items():
            for row, values in zip(read_rows, measured.read(start, stop), strict=True):
                row[name] = values
        return read_rows

    return Rows(len(rows), read)


def _read_columns(place: str, columns: Mapping[str, Any], known: Sequence[str], length: int | None = None) -> Rows:
    if not columns:
        raise error_at(place, "expected a list of rows, or columns by name, got neither")
    if unknown := [name for name in columns if name not in known]:
        # point to the first row, as for a document of rows
        rows, _, inside = place.removeprefix("/").partition("/")
        raise errors_at((pointer((rows, 0, *inside.split(), name)), describe_unknown_field(name)) for name in unknown)
    lists = {
        name: _read_column(f"{place}/{name}", name, column) for name, column in columns.items() if column is not None
    }
    for name, column in lists.items():
        length = len(column) if length is None else length
        if len(column) != length:
            raise error_at(f"{place}/{name}", f"expected {length} values as in the other columns, got {len(column)}")

    def read(start: int, stop: int) -> list[dict[str, Any]]:
        parts = [column[start:stop] for column in lists.values()]
        parts = [[None if v != v else v for v in part.tolist()] if hasattr(part, "tolist") else part for part in parts]
        if not parts:
            return [{} for _ in range(start, stop)]
        return [
            {name: value for name, value in zip(lists, values, strict=True) if value is not None}
            for values in zip(*parts, strict=True)
        ]

    return Rows(length or 0, read)


def _read_column(place: str, name: str, column: Any) -> Any:
    if isinstance(column, bytes):
        kind = INTS if name in ENDS else FLOATS
        if len(column) % kind.itemsize:
            raise error_at(place, f"expected 4 bytes for each value, got {len(column)} bytes")
        return np.frombuffer(column, kind)
    if not isinstance(column, list):
        raise error_at(place, f"expected a column, got {abbreviate(column)}")
    return column


def _longest(columns: Any) -> int:
    if not isinstance(columns, Mapping):
        return 0
    lengths = (len(c) // 4 if isinstance(c, bytes) else len(c) for c in columns.values() if isinstance(c, bytes | list))
    return max(lengths, default=0)
