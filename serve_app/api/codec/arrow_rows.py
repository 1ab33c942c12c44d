"""Converts a row of an Arrow table to a document, with bounded memory.

A few bytes of Arrow can expand to more than the machine's memory: nulls have no width, and many rows can share one
dictionary entry. So expanding types that no snapshot needs are refused, and the others' expanded size is computed
before anything is built.
"""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from serve_app.api.codec.documents import ENDS
from serve_app.api.codec.limits import Limits, memory_budget
from serve_app.api.codec.mistakes import error_at
from serve_app.errors import DocumentTooLarge, InvalidDocument

WEIGHT = 4  # bytes in Python per byte of an expanded row
MAX_SMALL_BYTES = 2**24  # bytes of everything but services and calls
ROWS_AT_ONCE = 1024
MAX_FIELDS = 256  # in a schema, including struct fields; a snapshot has about thirty
_LARGE_LISTS, _SMALL_LISTS = ("services", "calls"), ("changes", "policies")  # lists
_ITEM, _CONTAINER = 16, 64  # minimum bytes of a value, and of a list or struct
_VALUE_ERRORS = (
    pa.ArrowException,
    LookupError,
    OverflowError,
    ValueError,
)  # raised for values that Python cannot represent


def check_kinds(schema: pa.Schema) -> None:
    """Refuse a schema with too many fields, with duplicate columns, or with types that no snapshot uses.

    Reading a table takes time for each field, even if it has no rows.

    Raises:
        InvalidDocument: names the first such column.
    """
    kinds = [(field.name, field.type) for field in schema]
    for name, kind in kinds:  # grows as nested types are added
        if len(kinds) > MAX_FIELDS:
            raise error_at(
                "",
                f"a schema with {_fields_within(schema)} fields is too large: the limit is {MAX_FIELDS}; remove the "
                "unknown ones",
            )
        if (inner_kinds := _types_within(kind)) is None:
            raise error_at(
                f"/{name}",
                "expected numbers, text, a time, or lists and structs of them (ends of calls may be dictionaries); "
                f"got {str(kind)[:120]}",
            )
        kinds += [(name, inner) for inner in inner_kinds]
    for name in (names := schema.names):
        if names.count(name) > 1:
            raise error_at(f"/{name}", "expected each column once, got two with this name; remove one")


def split_row(row: pa.Table, limits: Limits) -> tuple[dict[str, Any], dict[str, pa.Array]]:
    """The fields of a table with one row, without null ones: services and calls as arrays of their items, where they
    are lists, and the others as Python values.

    Raises:
        InvalidDocument: a value that Python cannot represent, such as a time after the year 9999.
        DocumentTooLarge: more rows than ``limits`` allow, or more than :data:`MAX_SMALL_BYTES` bytes.
    """
    columns = {name: row[name] for name in row.column_names}
    large_lists = {name: items for name in _LARGE_LISTS if (items := _items(columns.get(name))) is not None}
    small = {name: column for name, column in columns.items() if name not in large_lists}
    counts = {name: _length(small[name]) for name in _SMALL_LISTS if name in small}
    limits.check(**counts, **{name: len(items) for name, items in large_lists.items()})
    if (size := sum(expanded_size(chunk) for column in small.values() for chunk in column.chunks)) > MAX_SMALL_BYTES:
        raise DocumentTooLarge(
            f"row: {size} bytes when expanded are too many: the limit is {MAX_SMALL_BYTES} beside services and calls"
        )
    values = {name: value for name, column in small.items() if (value := _value(name, column)) is not None}
    return values, large_lists


def add_rows(values: dict[str, Any], large_lists: dict[str, pa.Array], body_size: int) -> dict[str, Any]:
    """A row's document: its small fields, and its services and calls as lists. Null fields are omitted, since Arrow
    structs always have all fields; call ends that are positions become service names.

    Raises:
        InvalidDocument: a value that Python cannot represent.
        DocumentTooLarge: they need too much memory for a body of ``body_size`` bytes.
    """
    size = sum(map(expanded_size, large_lists.values()))
    if WEIGHT * size > memory_budget(body_size):
        raise DocumentTooLarge(
            f"row: {size} bytes when expanded are too many to be read one by one; if it has a mistake, send the same "
            "mistake in a smaller document to get its place"
        )
    document = values | {name: _rows(name, items) for name, items in large_lists.items()}
    if "calls" in large_lists and isinstance(document.get("services"), list):
        _name_ends(document["calls"], document["services"])
    return document


def _rows(name: str, items: pa.Array) -> list[Any]:
    rows: list[Any] = []
    try:
        for start in range(0, len(items), ROWS_AT_ONCE):
            rows += map(_drop_nulls, items.slice(start, ROWS_AT_ONCE).to_pylist())
    except _VALUE_ERRORS as error:
        raise _unreadable_error(name, error) from None
    return rows


def _name_ends(calls: list[Any], services: list[Any]) -> None:
    """Replace positions with names. Other values stay, and are refused later."""
    names = [f"{s.get('namespace')}/{s.get('name')}" if isinstance(s, dict) else "" for s in services]
    for call in calls:
        for end in ENDS if isinstance(call, dict) else ():
            at = call.get(end)
            if type(at) is int and 0 <= at < len(names):
                call[end] = names[at]


def _items(column: pa.ChunkedArray | None) -> pa.Array | None:
    """The items of a column's only list, or None if it has none."""
    if column is None or not column.num_chunks:
        return None
    cell = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return cell.flatten() if isinstance(cell, pa.ListArray | pa.LargeListArray) and not cell.null_count else None


def _fields_within(fields: Iterable[pa.Field]) -> int:
    count, waiting = 0, [*fields]
    while waiting:
        kind = waiting.pop().type
        count += 1
        waiting += [kind.field(i) for i in range(kind.num_fields)]
    return count


def _types_within(kind: pa.DataType) -> list[pa.DataType] | None:
    """A type's field types; None if no snapshot has the type."""
    if _is_scalar(kind):
        return []
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        return [field.type for field in kind] if len(set(names)) == len(names) else None
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [kind.value_type]
    return [] if pa.types.is_dictionary(kind) and _is_scalar(kind.value_type) else None


def _is_scalar(kind: pa.DataType) -> bool:
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(pa.types.is_primitive(kind) or is_text or pa.types.is_null(kind) or pa.types.is_decimal(kind))


def _length(column: pa.ChunkedArray) -> int:
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        return 0
    return pc.sum(pc.list_value_length(column)).as_py() or 0


def expanded_size(array: pa.Array) -> int:
    """Bytes of all values when expanded. A dictionary entry counts once for each use."""
    items = (_CONTAINER if pa.types.is_nested(array.type) else _ITEM) * len(array)
    if isinstance(array, pa.StructArray):
        return items + sum(expanded_size(column) for column in array.flatten())
    if isinstance(array, pa.ListArray | pa.LargeListArray):
        return items + expanded_size(array.flatten())
    if isinstance(array, pa.DictionaryArray) and not pa.types.is_primitive(array.type.value_type):
        lengths = pc.binary_length(array.dictionary.cast(pa.large_string())).take(array.indices)
        return items + (pc.sum(lengths).as_py() or 0)
    return items + int(array.nbytes)


def _value(name: str, column: pa.ChunkedArray) -> Any:
    try:
        if (
            pa.types.is_timestamp(column.type) and column.type.unit != "us"
        ):  # a datetime has no nanoseconds; anything else must fit
            column = column.cast(pa.timestamp("us", column.type.tz), safe=column.type.unit != "ns")
        value = column[0].as_py()
    except _VALUE_ERRORS as error:
        raise _unreadable_error(name, error) from None
    return _drop_nulls(value)


def _unreadable_error(name: str, error: Exception) -> InvalidDocument:
    return error_at(f"/{name}", f"expected values that Python can represent, got {str(error)[:120]}")


def _drop_nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [_drop_nulls(item) for item in value]
    if isinstance(value, dict):
        return {name: _drop_nulls(inner) for name, inner in value.items() if inner is not None}
    return value
