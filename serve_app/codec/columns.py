"""Documents of columns, and what they are as rows.

A column of numbers is a list with null for "not observed", or bytes of little-endian float32 with NaN for it; ends of
calls are names or positions in ``services``, positions also as bytes of little-endian int32.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot
from serve_app.codec.documents import Limits, Unclear, snapshot_document, wrong

ENDS = ("source", "destination")
_FLOATS, _INTS = np.dtype("<f4"), np.dtype("<i4")
Column = Sequence[Any] | bytes | None


def matrix(columns: Sequence[Column], rows: int) -> NDArray[np.float32]:
    """float32 ``[rows, columns]``, NaN where not observed.

    Raises:
        Unclear: a column has another length.
    """
    table = np.full((len(columns), rows), np.nan, np.float32)
    for i, column in enumerate(columns):
        if column is not None:
            values = numbers(column)
            if len(values) != rows:
                raise Unclear
            table[i] = values
    return table.T


def numbers(column: Sequence[Any] | bytes) -> NDArray[np.float32]:
    """One column, null as NaN. Beyond float32 is infinite, which the snapshot's check refuses.

    Raises:
        Unclear: bytes that are no whole number of values, or a NaN in a list.
    """
    with np.errstate(over="ignore"):
        if isinstance(column, bytes):
            return _unpacked(column, _FLOATS)
        # Arrow turns a list with nulls into an array in half the time that numpy takes.
        array = pa.array(column, pa.float64())
        exact: NDArray[np.float64] = array.to_numpy(zero_copy_only=False)
        if np.isnan(exact).sum() != array.null_count:
            raise Unclear
        return exact.astype(np.float32)


def positions(ends: Sequence[Any] | bytes, place: Mapping[Any, int]) -> NDArray[np.int64]:
    """Positions of the services that one end of each call names.

    Raises:
        Unclear: some are not among the services.
    """
    if isinstance(ends, bytes):
        found = _unpacked(ends, _INTS).astype(np.int64)
    else:
        named = any(isinstance(end, str) for end in ends[:1])
        try:
            found = np.array([place[end] for end in ends] if named else ends, np.int64)
        except (KeyError, ValueError, OverflowError):  # names among positions, or the other way round
            raise Unclear from None
    if len(found) and not 0 <= found.min() <= found.max() < len(place):
        raise Unclear
    return found


def as_columns(snapshot: MeshSnapshot) -> dict[str, Any]:
    """The document of a snapshot with its columns as bytes."""
    document = snapshot_document(snapshot.take([], [])) | {"observed_at": snapshot.observed_at.isoformat()}
    namespaces, names = zip(*(name.split("/", 1) for name in snapshot.node_ids), strict=True)
    nodes = np.where(snapshot.node_observed, snapshot.node_features, np.float32(np.nan))
    edges = np.where(snapshot.edge_observed, snapshot.edge_features, np.float32(np.nan))
    document["services"] = {"namespace": namespaces, "name": names, "metrics": _bytes(NODE_METRICS, nodes)}
    ends = (end.astype(_INTS).tobytes() for end in snapshot.edge_index)
    document["calls"] = dict(zip(ENDS, ends, strict=True)) | _bytes(EDGE_METRICS, edges)
    return document


def as_rows(document: Any, limits: Limits) -> Any:
    """A document of columns as one of rows; anything else as it is.

    Raises:
        InvalidDocument: columns of different lengths, or bytes that are no whole number of values.
        DocumentTooLarge: columns longer than ``limits`` allow, before they are turned.
    """
    if not isinstance(document, Mapping):
        return document
    turned = dict(document)
    services, calls = document.get("services"), document.get("calls")
    limits.check(_longest(services), _longest(calls))
    if isinstance(services, Mapping):
        plain = {name: column for name, column in services.items() if name != "metrics"}
        turned["services"] = _turned("/services", plain)
        metrics = services.get("metrics")
        if isinstance(metrics, Mapping) and metrics:
            for row, measured in zip(
                turned["services"], _turned("/services/metrics", metrics, len(turned["services"])), strict=True
            ):
                row["metrics"] = measured
        elif metrics:
            raise wrong("/services/metrics", "expected columns by metric")
    if isinstance(calls, Mapping):
        turned["calls"] = _turned("/calls", calls)
        return with_names(turned)
    return turned


def with_names(document: dict[str, Any]) -> dict[str, Any]:
    """A document of rows with names in place of positions; what is no position stays, to be refused."""
    services, calls = document.get("services"), document.get("calls")
    if not isinstance(services, list) or not isinstance(calls, list):
        return document
    names = [f"{s.get('namespace')}/{s.get('name')}" if isinstance(s, Mapping) else "" for s in services]
    return document | {"calls": [_named(call, names) for call in calls]}


def _turned(place: str, columns: Mapping[str, Any], length: int | None = None) -> list[dict[str, Any]]:
    """Rows of columns; what is null is left out of a row."""
    if not columns:
        raise wrong(place, "expected a list of rows, or columns by name, came neither")
    lists = {name: _listed(f"{place}/{name}", name, column) for name, column in columns.items() if column is not None}
    for name, column in lists.items():
        length = len(column) if length is None else length
        if len(column) != length:
            raise wrong(f"{place}/{name}", f"expected {length} values as in the other columns, came {len(column)}")
    return [{name: column[i] for name, column in lists.items() if column[i] is not None} for i in range(length or 0)]


def _longest(columns: Any) -> int:
    if not isinstance(columns, Mapping):
        return 0
    lengths = (len(c) // 4 if isinstance(c, bytes) else len(c) for c in columns.values() if isinstance(c, bytes | list))
    return max(lengths, default=0)


def _listed(place: str, name: str, column: Any) -> Sequence[Any]:
    if isinstance(column, bytes):
        try:
            values = _unpacked(column, _INTS if name in ENDS else _FLOATS)
        except Unclear:
            raise wrong(place, f"expected 4 bytes a value, came {len(column)} bytes") from None
        return [None if value != value else value for value in values.tolist()]
    if not isinstance(column, Sequence) or isinstance(column, str):
        raise wrong(place, f"expected a column, came {str(column)[:80]!r}")
    return column


def _named(call: Any, names: Sequence[str]) -> Any:
    if not isinstance(call, Mapping):
        return call
    places = {end: call.get(end) for end in ENDS}
    return dict(call) | {end: names[i] for end, i in places.items() if type(i) is int and 0 <= i < len(names)}


def _unpacked(column: bytes, dtype: np.dtype[Any]) -> NDArray[Any]:
    if len(column) % dtype.itemsize:
        raise Unclear
    return np.frombuffer(column, dtype)


def _bytes(names: Sequence[str], table: NDArray[np.float32]) -> dict[str, bytes]:
    """Columns that have any value."""
    return {n: c.astype(_FLOATS).tobytes() for n, c in zip(names, table.T, strict=True) if not np.isnan(c).all()}
