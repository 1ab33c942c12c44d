"""A snapshot as an Arrow IPC stream with one row, as ``pa.Table.from_pylist([document])`` creates it.

Ends of calls may be strings, dictionary-encoded strings, or positions in ``services`` as integers, which are fastest.
Null means "not observed"; NaN is refused, as in JSON. Buffers must not be compressed, since their unpacked size is not
known in advance.
"""

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot, SignalKind
from serve_app.api.codec.arrays import create_snapshot, signals_of_table, table_of_signals, to_float32
from serve_app.api.codec.arrow_rows import MAX_SMALL_BYTES, add_rows, check_kinds, expanded_size, split_row
from serve_app.api.codec.documents import ENDS, snapshot_document
from serve_app.api.codec.limits import Limits
from serve_app.api.codec.mistakes import NeedsFullCheck, error_at
from serve_app.api.codec.validation import check_document
from serve_app.errors import InvalidDocument, MalformedDocument

# LookupError: an unknown time zone, if pytz is installed, which pyarrow then uses.
_READ_ERRORS = (pa.ArrowException, OSError, struct.error, LookupError, ValueError, OverflowError)
_RECORD_BATCH, _DICTIONARY_BATCH = 3, 2  # MessageHeader of Arrow's Message.fbs
_SMALL_LISTS = ("changes", "policies")
_SMALL_FIELDS = {"version", "observed_at", *_SMALL_LISTS}


def decode(body: bytes, limits: Limits) -> MeshSnapshot:
    table = _read(body)
    if table.num_rows != 1:
        raise InvalidDocument(
            f"expected one row (one snapshot), got {table.num_rows}; send one snapshot per request",
            pointer="",
            errors=[{"pointer": "", "detail": f"expected one row, got {table.num_rows}"}],
        )
    values, large_lists = split_row(table, limits)
    try:
        return _build(values, large_lists)
    except (NeedsFullCheck, *_READ_ERRORS):
        check_document(add_rows(values, large_lists, len(body)), limits)
        raise error_at(
            "", "expected the types that pyarrow.Table.from_pylist infers, got others; convert the columns"
        ) from None


def encode(snapshot: MeshSnapshot) -> bytes:
    """Encode a stream with one row, call ends as positions and metrics as float32."""
    namespaces, names = zip(*(name.split("/", 1) for name in snapshot.node_ids), strict=True)
    metrics = _struct(NODE_METRICS, _nullable(snapshot.node_features, snapshot.node_observed))
    services = _struct(
        ("namespace", "name", "metrics", *(("signals",) if snapshot.signals else ())),
        [pa.array(namespaces), pa.array(names), metrics, *_signal_column(snapshot)],
    )
    ends = [pa.array(end.astype(np.int32)) for end in snapshot.edge_index]
    calls = _struct(ENDS + EDGE_METRICS, ends + _nullable(snapshot.edge_features, snapshot.edge_observed))
    columns = {
        "observed_at": pa.array([snapshot.observed_at], pa.timestamp("us", "UTC")),
        "services": _row(services),
        "calls": _row(calls),
    }
    document = snapshot_document(snapshot.take([0], [])) if snapshot.changes or snapshot.policies else {}
    columns |= {name: pa.array([document[name]]) for name in _SMALL_LISTS if name in document}
    return write_stream(pa.table(columns))


def write_stream(table: pa.Table) -> bytes:
    """An Arrow IPC stream with a table."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _read(body: bytes) -> pa.Table:
    """Read the table, and check that its buffers lie within the body."""
    try:
        for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(body)):
            if _is_compressed(bytes(message.metadata)):
                raise MalformedDocument(
                    "expected an Arrow stream with plain buffers, got compressed ones; write it without compression"
                )
        stream = pa.ipc.open_stream(pa.BufferReader(body))
        check_kinds(stream.schema)  # reads all names, which may be invalid text
        table = stream.read_all()
        table.validate(full=True)
        return table
    except _READ_ERRORS as error:
        raise MalformedDocument(
            f"expected an Arrow IPC stream, got {str(error)[:200]}; write it with pyarrow.ipc.new_stream"
        ) from None


def _build(values: Mapping[str, Any], large_lists: Mapping[str, pa.Array]) -> MeshSnapshot:
    """Build the snapshot in a row; raises ``NeedsFullCheck`` for mistakes."""
    version = values.get("version", 1)
    if not values.keys() <= _SMALL_FIELDS or "services" not in large_lists or type(version) is not int or version != 1:
        raise NeedsFullCheck
    services = _flat(large_lists["services"], {"namespace", "name"}, {"metrics", "signals"})
    calls = _flat(large_lists["calls"], {*ENDS, EDGE_METRICS[0]}, set(EDGE_METRICS)) if "calls" in large_lists else {}
    ids = _ids(services["namespace"], services["name"]) if services else []
    if len(ids) < len(large_lists["services"]):
        raise NeedsFullCheck
    metrics, signals = (
        {} if _is_absent(services.get(name)) else _flat(services[name], set(), set(names))
        for name, names in (("metrics", NODE_METRICS), ("signals", SignalKind))
    )
    return create_snapshot(
        observed_at=values.get("observed_at"),
        node_ids=ids,
        edge_index=[_positions(calls[end], ids) for end in ENDS] if calls else np.empty((2, 0), np.int64),
        node_features=_matrix([metrics.get(name) for name in NODE_METRICS], len(ids)),
        edge_features=_matrix([calls.get(name) for name in EDGE_METRICS], len(large_lists["calls"]) if calls else 0),
        changes=values.get("changes", []),
        policies=values.get("policies", []),
        signals=signals_of_table(ids, _matrix([signals.get(kind) for kind in SignalKind], len(ids))) if signals else (),
    )


def _flat(items: pa.Array, mandatory: set[str], optional: set[str]) -> dict[str, pa.Array]:
    """The fields of structs. Unknown ones are allowed if they are null everywhere."""
    if not len(items):
        return {}
    if not isinstance(items, pa.StructArray):
        raise NeedsFullCheck
    fields = dict(zip((field.name for field in items.type), items.flatten(), strict=True))
    unknown = fields.keys() - mandatory - optional
    if not mandatory <= fields.keys() or any(fields[name].null_count < len(items) for name in unknown):
        raise NeedsFullCheck
    return fields


def _ids(namespaces: pa.Array, names: pa.Array) -> list[str]:
    namespaces, names = _text(namespaces), _text(names)
    if namespaces.null_count or names.null_count or pc.any(pc.match_substring(namespaces, "/")).as_py():
        raise NeedsFullCheck
    names = names if names.type == namespaces.type else names.cast(namespaces.type)
    ids: list[str] = pc.binary_join_element_wise(namespaces, names, "/").to_pylist()
    return ids


def _text(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type) and expanded_size(column) <= MAX_SMALL_BYTES:
        column = column.dictionary_decode()
    if not _is_text(column.type):
        raise NeedsFullCheck
    return column


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _positions(ends: pa.Array, ids: list[str]) -> NDArray[np.int64]:
    if ends.null_count:
        raise NeedsFullCheck
    positions: NDArray[np.int64]
    if pa.types.is_dictionary(ends.type):
        positions = _positions(ends.dictionary, ids)[ends.indices.to_numpy()]
    elif _is_text(ends.type):
        indices = pc.index_in(ends, pa.array(ids, ends.type))
        if indices.null_count:
            raise NeedsFullCheck
        positions = indices.to_numpy().astype(np.int64)
    elif pa.types.is_integer(ends.type):
        positions = ends.to_numpy().astype(np.int64)
        if len(positions) and not 0 <= positions.min() <= positions.max() < len(ids):
            raise NeedsFullCheck
    else:
        raise NeedsFullCheck
    return positions


def _matrix(columns: list[pa.Array | None], rows: int) -> NDArray[np.float32]:
    """float32 ``[rows, columns]``, NaN for null. A NaN in the column itself needs the full check."""
    table = np.full((rows, len(columns)), np.nan, np.float32)
    for i, column in enumerate(columns):
        if column is None or _is_absent(column):
            continue
        if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
            column = _as_float64(column)
        exact = column.to_numpy(zero_copy_only=False)
        values = exact if exact.dtype == np.float32 else to_float32(exact)
        if np.count_nonzero(values != values) != column.null_count:
            raise NeedsFullCheck
        table[:, i] = values
    return table


def _is_absent(column: pa.Array | None) -> bool:
    """Whether a column is missing or null everywhere; its type does not matter then."""
    return column is None or column.null_count == len(column)


def _as_float64(column: pa.Array) -> pa.Array:
    """Convert numbers of another type. Raises ``NeedsFullCheck`` for anything else."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not any(test(column.type) for test in (pa.types.is_floating, pa.types.is_integer, pa.types.is_decimal)):
        raise NeedsFullCheck
    return column.cast(pa.float64())


def _nullable(values: NDArray[np.float32], observed: NDArray[np.bool_]) -> list[pa.Array]:
    return [pa.array(column, mask=~mask) for column, mask in zip(values.T.copy(), observed.T, strict=True)]


def _signal_column(snapshot: MeshSnapshot) -> list[pa.Array]:
    """The signals as a column of structs; empty if there are none."""
    if not snapshot.signals:
        return []
    table = table_of_signals(snapshot)
    return [_struct(tuple(SignalKind), _nullable(np.nan_to_num(table), table == table))]


def _struct(names: tuple[str, ...], columns: list[pa.Array]) -> pa.StructArray:
    return pa.StructArray.from_arrays(columns, names)


def _row(items: pa.StructArray) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array([0, len(items)], pa.int32()), items)


def _is_compressed(metadata: bytes) -> bool:
    """Whether the buffers of a message are compressed: field 3 of RecordBatch in Arrow's Message.fbs.

    This reads the flatbuffer directly, since pyarrow would decompress at once.
    """
    message = _u32(metadata, 0)
    kind, header = _field(metadata, message, 1), _field(metadata, message, 2)
    if kind is None or header is None or metadata[kind] not in (_RECORD_BATCH, _DICTIONARY_BATCH):
        return False
    batch = header + _u32(metadata, header)
    if metadata[kind] == _DICTIONARY_BATCH:
        data = _field(metadata, batch, 1)
        if data is None:
            return False
        batch = data + _u32(metadata, data)
    return _field(metadata, batch, 3) is not None


def _field(buffer: bytes, table: int, number: int) -> int | None:
    """Position of a field in a flatbuffer's table; None if absent."""
    vtable = table - struct.unpack_from("<i", buffer, table)[0]
    slot = 4 + 2 * number
    if vtable < 0 or slot >= struct.unpack_from("<H", buffer, vtable)[0]:
        return None
    offset = struct.unpack_from("<H", buffer, vtable + slot)[0]
    return table + int(offset) if offset else None


def _u32(buffer: bytes, position: int) -> int:
    return int(struct.unpack_from("<I", buffer, position)[0])
