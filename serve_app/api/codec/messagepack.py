"""Checks MessagePack before decoding: how many rows and keys it declares, and whether a key is repeated.

A row of one byte may need a hundred bytes in Python, so the counts in the headers are checked against the limits first.
"""

from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from serve_app.api.codec import memory as weight
from serve_app.api.codec.validation import (
    ERRORS_LISTED,
    SHOWN,
    Limits,
    NeedsFullCheck,
    TooHeavy,
    error_at,
    errors_at,
    pointer,
)
from serve_app.errors import InvalidDocument

_DECODER = msgspec.msgpack.Decoder()
_ARRAYS, _MAPS = {0xDC: 2, 0xDD: 4}, {0xDE: 2, 0xDF: 4}  # codes of long ones, with the size of their count
_SIZED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}  # bin, ext, str
_EXTENSIONS = frozenset({0xC7, 0xC8, 0xC9})  # one more byte for the type
_FIXED = {0xC0: 1, 0xC2: 1, 0xC3: 1, 0xCA: 5, 0xCB: 9, 0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD0: 2, 0xD1: 3, 0xD2: 5}
_FIXED |= {0xD3: 9, 0xD4: 3, 0xD5: 4, 0xD6: 6, 0xD7: 10, 0xD8: 18}
# Up to this size and number of values, a body is scanned value by value in less than a second.
_LARGEST, _MOST_VALUES = 2**23, 10**6
_DEEPEST, _WIDEST = 64, 1000  # a snapshot has five levels, and at most ten entries in a map
_VALUE, _MAP = 64, 128  # upper bounds in bytes for a value or key, and for a map in addition
_LIST_OF_RAW = msgspec.msgpack.Decoder(list[Raw])


class _Fields(Struct, forbid_unknown_fields=True):
    observed_at: Raw
    services: Raw
    calls: Raw | UnsetType = UNSET
    changes: Raw | UnsetType = UNSET
    policies: Raw | UnsetType = UNSET
    version: Raw | UnsetType = UNSET


class _Columns(Struct):
    metrics: Raw | UnsetType = UNSET
    signals: Raw | UnsetType = UNSET


class _Several(Struct, forbid_unknown_fields=True):
    snapshots: Raw


_FIELDS = msgspec.msgpack.Decoder(_Fields).decode
_COLUMNS = msgspec.msgpack.Decoder(_Columns).decode
_SEVERAL = msgspec.msgpack.Decoder(_Several).decode
_ROWS_OF_COLUMNS = msgspec.msgpack.Decoder(list[_Columns])
_MAP_OF_RAW = msgspec.msgpack.Decoder(dict[str, Raw])


@dataclass(frozen=True, slots=True)
class Parts:
    """The encoded fields of a snapshot, and the number of keys that all its maps declare."""

    fields: dict[str, bytes]
    keys: int


def parts(body: bytes, limits: Limits) -> Parts:
    """Split a snapshot into its fields.

    Raises:
        NeedsFullCheck, ValueError: the body is not a snapshot, or has a mistake.
        DocumentTooLarge: more rows than ``limits`` allow.
    """
    found = _FIELDS(body)
    fields = {name: bytes(raw) for name in found.__struct_fields__ if isinstance(raw := getattr(found, name), Raw)}
    lists = {name: fields[name] for name in ("services", "calls", "changes", "policies") if name in fields}
    limits.check(**{name: _rows(raw) for name, raw in lists.items()})
    if fields.get("version", b"\x01") != b"\x01":
        raise NeedsFullCheck
    return Parts(fields, _count_entries(body) + sum(_keys(name, raw) for name, raw in lists.items()))


def split_snapshots(body: bytes, limits: Limits) -> list[bytes]:
    """The encoded snapshots of ``{"snapshots": [...]}``. Errors as :func:`parts`."""
    raw = bytes(_SEVERAL(body).snapshots)
    if _count_entries(body) != 1 or not _is_array(raw):
        raise NeedsFullCheck
    limits.check_snapshots(_count(raw))
    return [bytes(one) for one in _LIST_OF_RAW.decode(raw)]


def parse(body: bytes) -> Any:
    """Parse a MessagePack body, and refuse duplicate keys.

    Raises:
        ValueError, RecursionError: the body is not MessagePack.
        TooHeavy: it would take too long, or more memory than a body of this size may.
        InvalidDocument: a map has a duplicate key, or far too many keys; lists the places.
    """
    if len(body) > _LARGEST:
        raise TooHeavy
    repeated = _scan(body)
    document = _DECODER.decode(body)
    if repeated is not None:
        raise repeated
    return document


def _rows(raw: bytes) -> int:
    """Number of rows that a list declares; for columns, the length of the longest."""
    if _is_array(raw):
        return _count(raw)
    if not _is_map(raw):
        return 0
    columns = _MAP_OF_RAW.decode(raw)
    every = list(columns.values())
    for inner in (bytes(columns.get(name, b"")) for name in _Columns.__struct_fields__):
        every += _MAP_OF_RAW.decode(inner).values() if inner and _is_map(inner) else ()
    return max((_length(bytes(memoryview(column)[:9])) for column in every), default=0)


def _length(raw: bytes) -> int:
    """Number of values of a column, from its first bytes."""
    if _is_array(raw):
        return _count(raw)
    size = {0xC4: 1, 0xC5: 2, 0xC6: 4}.get(raw[0])
    return int.from_bytes(raw[1 : 1 + size], "big") // 4 if size else 0


def _keys(name: str, raw: bytes) -> int:
    """Number of entries that the maps of a list of rows, or of columns, declare."""
    if _is_map(raw):
        return _count_entries(raw) + _inner_keys(_COLUMNS(raw))
    keys = sum(_count_entries(memoryview(row)) for row in _LIST_OF_RAW.decode(raw))
    if name == "services":
        keys += sum(map(_inner_keys, _ROWS_OF_COLUMNS.decode(raw)))
    return keys


def _inner_keys(row: _Columns) -> int:
    """Number of entries that the maps of metrics and signals declare."""
    return sum(_count_entries_or_zero(inner) for inner in (row.metrics, row.signals) if isinstance(inner, Raw))


def _count_entries_or_zero(raw: Raw) -> int:
    view = memoryview(raw)
    return 0 if view[0] == 0xC0 else _count_entries(view)


def _count_entries(raw: bytes | memoryview) -> int:
    """Number of entries of a short map. No map of a snapshot has 16 or more."""
    if 0x80 <= raw[0] <= 0x8F:
        return raw[0] & 0x0F
    raise NeedsFullCheck


def _is_array(raw: bytes) -> bool:
    return 0x90 <= raw[0] <= 0x9F or raw[0] in _ARRAYS


def _is_map(raw: bytes) -> bool:
    return 0x80 <= raw[0] <= 0x8F or raw[0] in _MAPS


def _count(raw: bytes) -> int:
    if raw[0] <= 0x9F:
        return raw[0] & 0x0F
    size = (_ARRAYS | _MAPS)[raw[0]]
    return int.from_bytes(raw[1 : 1 + size], "big")


class _Container:
    """A map or array that is being read: how many values are left, and the current place."""

    __slots__ = ("at", "is_key", "key", "left", "seen")

    def __init__(self, left: int, is_map: bool) -> None:
        self.left = 2 * left if is_map else left
        self.seen: set[bytes] | None = set() if is_map else None
        self.is_key = is_map
        self.at, self.key = -1, b""


def _scan(body: bytes) -> InvalidDocument | None:
    """Find duplicate keys by scanning a body without decoding its values.

    Raises:
        ValueError: the body ends too soon, or a byte has no meaning.
        TooHeavy: see :func:`parse`.
    """
    most, taken, i, size = weight.FACTOR * len(body) + weight.SPARE_BYTES, 0, 0, len(body)
    most = min(most, _VALUE * _MOST_VALUES)
    opened = [_Container(1, is_map=False)]
    repeated: list[tuple[str, str]] = []
    while opened:
        inside = opened[-1]
        if not inside.left:
            opened.pop()
            continue
        if i >= size:
            raise ValueError("Input data was truncated")
        inside.left -= 1
        taken += _VALUE
        if taken > most:
            raise TooHeavy
        code, start = body[i], i
        i += _width(body, i)
        if inside.seen is None:
            inside.at += 1
        elif inside.is_key:
            inside.is_key, inside.key = False, body[start:i]
            if inside.key in inside.seen and len(repeated) < ERRORS_LISTED:
                repeated.append((_pointer(opened), f"{_name(inside.key)!r} is given more than once; give it once"))
            inside.seen.add(inside.key)
        else:
            inside.is_key = True
        if 0x80 <= code <= 0x9F or code in _ARRAYS or code in _MAPS:
            is_map = code <= 0x8F or code in _MAPS
            taken += _MAP * is_map
            count = _count(body[start : start + 5])
            if is_map and count > _WIDEST:
                raise error_at(_pointer(opened), f"expected at most {_WIDEST} entries, came {count}; remove the others")
            if len(opened) > _DEEPEST:
                raise ValueError(f"byte {start} is more than {_DEEPEST} levels deep")
            if count:
                opened.append(_Container(count, is_map))
    return errors_at(repeated) if repeated else None


def _width(body: bytes, i: int) -> int:
    """Size in bytes of the value at ``i``; of a map or array, the size of its header."""
    code = body[i]
    if code <= 0x9F or code >= 0xE0:
        return 1
    if code <= 0xBF:
        return 1 + (code & 0x1F)
    if code in _FIXED:
        return _FIXED[code]
    if code in _SIZED:
        size = _SIZED[code]
        return 1 + size + int.from_bytes(body[i + 1 : i + 1 + size], "big") + (code in _EXTENSIONS)
    if code in _ARRAYS or code in _MAPS:
        return 1 + (_ARRAYS | _MAPS)[code]
    raise ValueError(f"byte {i} is not MessagePack")


def _pointer(opened: list[_Container]) -> str:
    return pointer([_name(one.key) if one.seen is not None else one.at for one in opened[1:]])


def _name(key: bytes) -> str:
    """A key as text."""
    try:
        return str(_DECODER.decode(key))[:SHOWN]
    except (ValueError, RecursionError):
        return repr(key[:SHOWN])
