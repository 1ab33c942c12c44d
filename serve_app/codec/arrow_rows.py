"""A row of an Arrow table as a document of rows, which takes no more memory than its body gives reason for.

Arrow can say in a few bytes what fills a machine once it is spelled out: nulls have no width, an entry of a dictionary
is written once and used by all. So kinds of columns that can do this without need are refused, and what the others come
to is counted before anything is built.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from serve_app.codec.documents import Limits, wrong
from serve_app.errors import DocumentTooLarge

LARGEST = 2**26  # bytes of a row spelled out; 200,000 calls between names of 60 letters come to 50 million
_ITEM = 16  # bytes that a value takes at the least


def check_kinds(schema: pa.Schema) -> None:
    """Refuse columns that are given twice or that no snapshot has use for.

    Raises:
        InvalidDocument: names the first such column.
    """
    for i, field in enumerate(schema):
        if field.name in schema.names[:i]:
            raise wrong(f"/{field.name}", "expected each column once, came another of this name; leave one out")
        if not _is_plain(field.type):
            raise wrong(
                f"/{field.name}",
                "expected numbers, text, a time, or lists and structs of them, ends of calls also as a dictionary; "
                f"came {str(field.type)[:120]}",
            )


def document_of(row: pa.Table, limits: Limits) -> dict[str, Any]:
    """The one row of a table; what is null is left out, for Arrow has a place for every field of a struct.

    Raises:
        InvalidDocument: a value that Python cannot hold, such as a time after the year 9999.
        DocumentTooLarge: more services or calls than ``limits`` allow, or more than :data:`LARGEST` bytes.
    """
    limits.check(_length(row, "services"), _length(row, "calls"))
    if (size := sum(_spelled_out(chunk) for column in row.columns for chunk in column.chunks)) > LARGEST:
        raise DocumentTooLarge(
            f"row: expected at most {LARGEST} bytes once spelled out, came {size}; send each service and call once"
        )
    return {name: value for name in row.column_names if (value := _value(row, name)) is not None}


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
    items = _ITEM * len(array)
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
    except (pa.ArrowException, LookupError, OverflowError, ValueError) as error:
        raise wrong(f"/{name}", f"expected values that Python can hold, came {str(error)[:120]}") from None
    return _given(value)


def _given(value: Any) -> Any:
    if isinstance(value, list):
        return [_given(item) for item in value]
    if isinstance(value, dict):
        return {name: _given(inner) for name, inner in value.items() if inner is not None}
    return value
