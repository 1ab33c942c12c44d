"""A row of an Arrow table as a document of rows, which takes no more memory than its body gives reason for.

Arrow can say in a few bytes what fills a machine once it is spelled out: nulls have no width, an entry of a dictionary
is written once and used by all. So kinds of columns that can do this without need are refused, and what the others come
to is counted before anything is built.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from serve_app.api.codec.columns import NamedRows
from serve_app.api.codec.validation import Limits, wrong
from serve_app.errors import DocumentTooLarge, InvalidDocument

LARGEST = 2**26  # bytes of a row spelled out; 200,000 calls between names of 60 letters come to 50 million
LARGEST_SMALL = 2**24  # bytes of all but services and calls
LARGEST_ROWS = 2**22  # bytes of the rows that are checked together
MOST_FIELDS = 256  # of a schema, those of structs included; a snapshot has some thirty
_ITEM, _CONTAINER = 16, 64  # bytes that a value takes at the least, and a list or a struct
_UNREADABLE = (pa.ArrowException, LookupError, OverflowError, ValueError)  # what Python cannot hold


def check_kinds(schema: pa.Schema) -> None:
    """Refuse a schema of very many fields, and columns that are given twice or that no snapshot has use for.

    Reading a table costs time for every field, even where it has no rows.

    Raises:
        InvalidDocument: names the first such column.
    """
    if (fields := _fields_within(schema)) > MOST_FIELDS:
        raise wrong("", f"expected a schema of at most {MOST_FIELDS} fields, came {fields}; leave out what is unknown")
    names: set[str] = set()
    for field in schema:
        if field.name in names:
            raise wrong(f"/{field.name}", "expected each column once, came another of this name; leave one out")
        names.add(field.name)
        if not _is_plain(field.type):
            raise wrong(
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

    def some(self, start: int, stop: int) -> list[Any]:
        """The rows from ``start`` to before ``stop``; raises ``DocumentTooLarge`` and ``InvalidDocument``."""
        rows = self.items.slice(start, stop - start)
        if (size := _spelled_out(rows)) > LARGEST_ROWS:
            raise DocumentTooLarge(
                f"rows {start} to {stop}: expected at most {LARGEST_ROWS} bytes once spelled out, came {size}; send "
                "shorter texts"
            )
        try:
            return [_given(row) for row in rows.to_pylist()]
        except _UNREADABLE as error:
            raise _unreadable(self.name, error) from None


def document_of(row: pa.Table, limits: Limits) -> dict[str, Any]:
    """The one row of a table; what is null is left out, for Arrow has a place for every field of a struct. Services and
    calls are ``Rows``.

    Raises:
        InvalidDocument: a value that Python cannot hold, such as a time after the year 9999.
        DocumentTooLarge: more rows than ``limits`` allow, or more than :data:`LARGEST` bytes.
    """
    limits.check(**{name: _length(row, name) for name in ("services", "calls", "changes", "policies")})
    sizes = {name: sum(_spelled_out(chunk) for chunk in row[name].chunks) for name in row.column_names}
    many = {name: items for name in ("services", "calls") if (items := _items(row, name)) is not None}
    small = sum(size for name, size in sizes.items() if name not in many)
    for size, most in ((sum(sizes.values()), LARGEST), (small, LARGEST_SMALL)):
        if size > most:
            raise DocumentTooLarge(
                f"row: expected at most {most} bytes once spelled out, came {size}; send each service and call once"
            )
    document: dict[str, Any] = {
        name: value for name in row.column_names if name not in many and (value := _value(row, name)) is not None
    }
    document |= {name: ArrowRows(name, items) for name, items in many.items()}
    if "calls" in many:
        document["calls"] = NamedRows(document["calls"], document.get("services"))
    return document


def _items(row: pa.Table, name: str) -> pa.Array | None:
    """What the one list of a column holds; None: it holds none."""
    if name not in row.column_names or not row[name].num_chunks:
        return None
    cell = row[name].combine_chunks() if row[name].num_chunks != 1 else row[name].chunk(0)
    return cell.flatten() if isinstance(cell, pa.ListArray | pa.LargeListArray) and not cell.null_count else None


def _fields_within(fields: Iterable[pa.Field]) -> int:
    """How many fields there are, at any depth."""
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


def _spelled_out(array: pa.Array) -> int:
    """Bytes of all values, those of a dictionary as often as they are used."""
    items = (_CONTAINER if pa.types.is_nested(array.type) else _ITEM) * len(array)
    if isinstance(array, pa.StructArray):
        return items + sum(_spelled_out(column) for column in array.flatten())
    if isinstance(array, pa.ListArray | pa.LargeListArray):
        return items + _spelled_out(array.flatten())
    if isinstance(array, pa.DictionaryArray) and not pa.types.is_primitive(array.type.value_type):
        lengths = pc.binary_length(array.dictionary.cast(pa.large_string())).take(array.indices)
        return items + (pc.sum(lengths).as_py() or 0)
    return items + int(array.nbytes)


def _value(row: pa.Table, name: str) -> Any:
    column = row[name]
    try:
        if pa.types.is_timestamp(column.type):  # a datetime holds no nanoseconds; anything else must fit
            column = column.cast(pa.timestamp("us", column.type.tz), safe=column.type.unit != "ns")
        [value] = column.to_pylist()
    except _UNREADABLE as error:
        raise _unreadable(name, error) from None
    return _given(value)


def _unreadable(name: str, error: Exception) -> InvalidDocument:
    return wrong(f"/{name}", f"expected values that Python can hold, came {str(error)[:120]}")


def _given(value: Any) -> Any:
    if isinstance(value, list):
        return [_given(item) for item in value]
    if isinstance(value, dict):
        return {name: _given(inner) for name, inner in value.items() if inner is not None}
    return value
