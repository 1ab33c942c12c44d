"""MessagePack before it is decoded: how many rows and keys it declares, and whether a key is repeated.

A row may be one byte here and a hundred in Python, so counts are read from the headers and held to the limits first.
"""

from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from serve_app.api.codec import memory as weight
from serve_app.api.codec.validation import ERRORS_LISTED, SHOWN, Limits, TooHeavy, Unclear, pointer, wrong, wrong_places
from serve_app.errors import InvalidDocument

_DECODER = msgspec.msgpack.Decoder()
_ARRAYS, _MAPS = {0xDC: 2, 0xDD: 4}, {0xDE: 2, 0xDF: 4}  # codes of long ones, and bytes of their counts
_SIZED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}  # bin, ext, str
_EXTENSIONS = frozenset({0xC7, 0xC8, 0xC9})  # one byte more, for the kind
_FIXED = {0xC0: 1, 0xC2: 1, 0xC3: 1, 0xCA: 5, 0xCB: 9, 0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD0: 2, 0xD1: 3, 0xD2: 5}
_FIXED |= {0xD3: 9, 0xD4: 3, 0xD5: 4, 0xD6: 6, 0xD7: 10, 0xD8: 18}
# A body is read value by value up to this size and number, which takes less than a second.
_LARGEST, _MOST_VALUES = 2**23, 10**6
_DEEPEST, _WIDEST = 64, 1000  # a snapshot has five levels, and no map of more than ten entries
_VALUE, _MAP = 64, 128  # bytes of Python, at the most, of a value or a key, and of a map more
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


class _Several(Struct, forbid_unknown_fields=True):
    snapshots: Raw


_FIELDS = msgspec.msgpack.Decoder(_Fields).decode
_COLUMNS = msgspec.msgpack.Decoder(_Columns).decode
_SEVERAL = msgspec.msgpack.Decoder(_Several).decode
_ROWS_OF_COLUMNS = msgspec.msgpack.Decoder(list[_Columns])
_MAP_OF_RAW = msgspec.msgpack.Decoder(dict[str, Raw])


@dataclass(frozen=True, slots=True)
class Parts:
    """The fields of a snapshot, not decoded yet, and how many keys all of its maps declare."""

    fields: dict[str, bytes]
    keys: int


def parts(body: bytes, limits: Limits) -> Parts:
    """The fields of a snapshot, within ``limits``.

    Raises:
        Unclear, ValueError: this is no snapshot, or not plainly one.
        DocumentTooLarge: more rows than ``limits`` allow.
    """
    found = _FIELDS(body)
    fields = {name: bytes(raw) for name in found.__struct_fields__ if isinstance(raw := getattr(found, name), Raw)}
    lists = {name: fields[name] for name in ("services", "calls", "changes", "policies") if name in fields}
    limits.check(**{name: _rows(raw) for name, raw in lists.items()})
    if fields.get("version", b"\x01") != b"\x01":
        raise Unclear
    return Parts(fields, _declared(body) + sum(_keys(name, raw) for name, raw in lists.items()))


def several(body: bytes, limits: Limits) -> list[bytes]:
    """The snapshots of ``{"snapshots": [...]}``; errors as of :func:`parts`."""
    raw = bytes(_SEVERAL(body).snapshots)
    if _declared(body) != 1 or not _is_array(raw):
        raise Unclear
    limits.check_snapshots(_count(raw))
    return [bytes(one) for one in _LIST_OF_RAW.decode(raw)]


def parse(body: bytes) -> Any:
    """The values of a MessagePack body, every key once.

    Raises:
        ValueError, RecursionError: this is no MessagePack.
        TooHeavy: it would take more memory than a body of this size may, or too long.
        InvalidDocument: a map gives a key twice, or far too many; names the places.
    """
    if len(body) > _LARGEST:
        raise TooHeavy
    repeated = _scan(body)
    document = _DECODER.decode(body)
    if repeated is not None:
        raise repeated
    return document


def _rows(raw: bytes) -> int:
    """How many rows a list declares; of columns the longest one."""
    if _is_array(raw):
        return _count(raw)
    if not _is_map(raw):
        return 0
    columns = _MAP_OF_RAW.decode(raw)
    inner = bytes(columns.get("metrics", b""))
    every = [*columns.values(), *(_MAP_OF_RAW.decode(inner).values() if inner and _is_map(inner) else ())]
    return max((_length(bytes(memoryview(column)[:9])) for column in every), default=0)


def _length(raw: bytes) -> int:
    """Values of one column, from the beginning of it."""
    if _is_array(raw):
        return _count(raw)
    size = {0xC4: 1, 0xC5: 2, 0xC6: 4}.get(raw[0])
    return int.from_bytes(raw[1 : 1 + size], "big") // 4 if size else 0


def _keys(name: str, raw: bytes) -> int:
    """Entries that the maps of a list of rows, or of columns, declare."""
    if _is_map(raw):
        metrics = _COLUMNS(raw).metrics
        return _declared(raw) + (_declared_or_none(metrics) if isinstance(metrics, Raw) else 0)
    keys = sum(_declared(memoryview(row)) for row in _LIST_OF_RAW.decode(raw))
    if name == "services":
        inner = (row.metrics for row in _ROWS_OF_COLUMNS.decode(raw))
        keys += sum(_declared_or_none(metrics) for metrics in inner if isinstance(metrics, Raw))
    return keys


def _declared_or_none(raw: Raw) -> int:
    view = memoryview(raw)
    return 0 if view[0] == 0xC0 else _declared(view)


def _declared(raw: bytes | memoryview) -> int:
    """Entries that a short map declares; no map of a snapshot has 16."""
    if 0x80 <= raw[0] <= 0x8F:
        return raw[0] & 0x0F
    raise Unclear


def _is_array(raw: bytes) -> bool:
    return 0x90 <= raw[0] <= 0x9F or raw[0] in _ARRAYS


def _is_map(raw: bytes) -> bool:
    return 0x80 <= raw[0] <= 0x8F or raw[0] in _MAPS


def _count(raw: bytes) -> int:
    if raw[0] <= 0x9F:
        return raw[0] & 0x0F
    size = (_ARRAYS | _MAPS)[raw[0]]
    return int.from_bytes(raw[1 : 1 + size], "big")


class _Open:
    """A map or an array that is being read: what is still to come, and where it is."""

    __slots__ = ("at", "is_key", "key", "left", "seen")

    def __init__(self, left: int, is_map: bool) -> None:
        self.left = 2 * left if is_map else left
        self.seen: set[bytes] | None = set() if is_map else None
        self.is_key = is_map
        self.at, self.key = -1, b""


def _scan(body: bytes) -> InvalidDocument | None:
    """What is wrong with the keys of a body: every value is passed over, none is built.

    Raises:
        ValueError: it ends too soon, or a byte stands for nothing.
        TooHeavy: see :func:`parse`.
    """
    most, taken, i, size = weight.FACTOR * len(body) + weight.SPARE_BYTES, 0, 0, len(body)
    most = min(most, _VALUE * _MOST_VALUES)
    opened = [_Open(1, is_map=False)]
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
                raise wrong(_pointer(opened), f"expected at most {_WIDEST} entries, came {count}; leave the others out")
            if len(opened) > _DEEPEST:
                raise ValueError(f"byte {start} is more than {_DEEPEST} levels deep")
            if count:
                opened.append(_Open(count, is_map))
    return wrong_places(repeated) if repeated else None


def _width(body: bytes, i: int) -> int:
    """Bytes of the value that begins at ``i``; of a map or an array, of its header."""
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
    raise ValueError(f"byte {i} is no MessagePack")


def _pointer(opened: list[_Open]) -> str:
    return pointer([_name(one.key) if one.seen is not None else one.at for one in opened[1:]])


def _name(key: bytes) -> str:
    """A key as text."""
    try:
        return str(_DECODER.decode(key))[:SHOWN]
    except (ValueError, RecursionError):
        return repr(key[:SHOWN])
