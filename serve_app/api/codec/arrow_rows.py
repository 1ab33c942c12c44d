"""Converts a row of an Arrow table to a document of rows, with bounded memory.

A few bytes of Arrow can expand to more than the machine's memory: nulls have no width, and many rows can share one
entry of a dictionary. So types that expand but that no snapshot needs are refused, and the expanded size of the others
is computed before anything is built.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from serve_app.api.codec.columns import NamedRows
from serve_app.api.codec.validation import Limits, error_at
from serve_app.errors import DocumentTooLarge, InvalidDocument

LARGEST = 2**26  # bytes of an expanded row; 200,000 calls between names of 60 letters need 50 million
LARGEST_SMALL = 2**24  # bytes of everything but services and calls
LARGEST_ROWS = 2**22  # bytes of one block of rows
MOST_FIELDS = 256  # of a schema, including fields of structs; a snapshot has about thirty
_ITEM, _CONTAINER = 16, 64  # bytes of a value, and of a list or struct, at least
_UNREADABLE = (
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
    if (fields := _fields_within(schema)) > MOST_FIELDS:
        raise error_at("", f"expected a schema of at most {MOST_FIELDS} fields, came {fields}; remove the unknown ones")
    names: set[str] = set()
    for field in schema:
        if field.name in names:
            raise error_at(f"/{field.name}", "expected each column once, came a second one of this name; remove one")
        names.add(field.name)
        if not _is_plain(field.type):
            raise error_at(
                f"/{field.name}",
                "expected numbers, text, a time, or lists and structs of them, ends of calls also as a dictionary; "
                f"came {str(field.type)[:120]}",
            )


@dataclass(frozen=True, slots=True)
class ArrowRows:
    """Rows of a list, by the name of its column."""

    name: str
    items: pa.Array

    def __len__(self) -> int:
        return len(self.items)

    def read(self, start: int, stop: int) -> list[Any]:
        """The rows from ``start`` to before ``stop``; raises ``DocumentTooLarge`` and ``InvalidDocument``."""
        rows = self.items.slice(start, stop - start)
        if (size := _expanded_size(rows)) > LARGEST_ROWS:
            raise DocumentTooLarge(
                f"rows {start} to {stop}: expected at most {LARGEST_ROWS} bytes when expanded, came {size}; send "
                "shorter texts"
            )
        try:
            return [_drop_nulls(row) for row in rows.to_pylist()]
        except _UNREADABLE as error:
            raise _unreadable_error(self.name, error) from None


def read_document(row: pa.Table, limits: Limits) -> dict[str, Any]:
    """The document of a table with one row. Null fields are left out, since Arrow structs always have all fields.
    Services and calls are ``Rows``.

    Raises:
        InvalidDocument: a value that Python cannot represent, such as a time after the year 9999.
        DocumentTooLarge: more rows than ``limits`` allow, or more than :data:`LARGEST` bytes.
    """
    limits.check(**{name: _length(row, name) for name in ("services", "calls", "changes", "policies")})
    sizes = {name: sum(_expanded_size(chunk) for chunk in row[name].chunks) for name in row.column_names}
    many = {name: items for name in ("services", "calls") if (items := _items(row, name)) is not None}
    small = sum(size for name, size in sizes.items() if name not in many)
    for size, most in ((sum(sizes.values()), LARGEST), (small, LARGEST_SMALL)):
        if size > most:
            raise DocumentTooLarge(
                f"row: expected at most {most} bytes when expanded, came {size}; send each service and call once"
            )
    document: dict[str, Any] = {
        name: value for name in row.column_names if name not in many and (value := _value(row, name)) is not None
    }
    document |= {name: ArrowRows(name, items) for name, items in many.items()}
    if "calls" in many:
        document["calls"] = NamedRows(document["calls"], document.get("services"))
    return document


def _items(row: pa.Table, name: str) -> pa.Array | None:
    """The items of a column's only list, or None if it has none."""
    if name not in row.column_names or not row[name].num_chunks:
        return None
    cell = row[name].combine_chunks() if row[name].num_chunks != 1 else row[name].chunk(0)
    return cell.flatten() if isinstance(cell, pa.ListArray | pa.LargeListArray) and not cell.null_count else None


def _fields_within(fields: Iterable[pa.Field]) -> int:
    """Number of fields, at any depth."""
    count, waiting = 0, [*fields]
    while waiting:
        kind = waiting.pop().type
        count += 1
        waiting += [kind.field(i) for i in range(kind.num_fields)]
    return count


def _is_plain(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        return len(set(names)) == len(names) and all(_is_plain(field.type) for field in kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _is_plain(kind.value_type)
    if pa.types.is_dictionary(kind):
        return _is_scalar(kind.value_type)
    return _is_scalar(kind)


def _is_scalar(kind: pa.DataType) -> bool:
    tests = (pa.types.is_null, pa.types.is_primitive, pa.types.is_string, pa.types.is_large_string, pa.types.is_decimal)
    return any(test(kind) for test in tests)


def _length(row: pa.Table, name: str) -> int:
    kind = row.schema.field(name).type if name in row.column_names else None
    if kind is None or not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return 0
    return pc.sum(pc.list_value_length(row[name])).as_py() or 0


def _expanded_size(array: pa.Array) -> int:
    """Bytes of all values when expanded. A dictionary entry counts once for each use."""
    items = (_CONTAINER if pa.types.is_nested(array.type) else _ITEM) * len(array)
    if isinstance(array, pa.StructArray):
        return items + sum(_expanded_size(column) for column in array.flatten())
    if isinstance(array, pa.ListArray | pa.LargeListArray):
        return items + _expanded_size(array.flatten())
    if isinstance(array, pa.DictionaryArray) and not pa.types.is_primitive(array.type.value_type):
        lengths = pc.binary_length(array.dictionary.cast(pa.large_string())).take(array.indices)
        return items + (pc.sum(lengths).as_py() or 0)
    return items + int(array.nbytes)


def _value(row: pa.Table, name: str) -> Any:
    column = row[name]
    try:
        if pa.types.is_timestamp(column.type):  # a datetime has no nanoseconds; anything else must fit
            column = column.cast(pa.timestamp("us", column.type.tz), safe=column.type.unit != "ns")
        [value] = column.to_pylist()
    except _UNREADABLE as error:
        raise _unreadable_error(name, error) from None
    return _drop_nulls(value)


def _unreadable_error(name: str, error: Exception) -> InvalidDocument:
    return error_at(f"/{name}", f"expected values that Python can represent, came {str(error)[:120]}")


def _drop_nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [_drop_nulls(item) for item in value]
    if isinstance(value, dict):
        return {name: _drop_nulls(inner) for name, inner in value.items() if inner is not None}
    return value
