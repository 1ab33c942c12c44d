"""Snapshots in JSON.

Compiled code reads a body that is plainly right (:mod:`serve_app.api.codec.compiled`). Typed decoders read all other
bodies straight into arrays. A body that they refuse is parsed again without types, and
:mod:`serve_app.api.codec.validation` finds all its mistakes.
"""

import re
from typing import Any

import msgspec

from model.snapshot import MeshSnapshot
from serve_app.api.codec import compiled, json_text, memory
from serve_app.api.codec.limits import Limits
from serve_app.api.codec.mistakes import (
    ROWS_EXPECTED,
    NeedsFullCheck,
    TooHeavy,
    describe_missing_field,
    describe_unknown_field,
    error_at,
    located,
    pointer,
)
from serve_app.api.codec.typed import build, decoder, snapshot_type, snapshots_type
from serve_app.api.codec.validation import check_document
from serve_app.errors import DocumentTooLarge, InvalidDocument, MalformedDocument

_BROKEN = (ValueError, RecursionError)  # raised by decoders; msgspec.DecodeError and UnicodeError are ValueErrors
_STEP, _MISSING = re.compile(r"\.(\w+)|\[(\d+)\]"), re.compile("Object missing required field `(.+)`")
_UNKNOWN, _TOO_LONG = re.compile("Object contains unknown field `(.*)`"), re.compile("Expected `array` of length <=")
_COLUMNS = re.compile("Expected `array`, got `object`")


def decode(body: bytes, limits: Limits) -> MeshSnapshot:
    """Decode one snapshot."""
    if len(body) > memory.TYPED_BYTES:
        _require_light(body, memory.typed_weight(body))
    found = compiled.decode(body, limits)
    return decode_by_type(body, limits) if found is None else found


def decode_by_type(body: bytes, limits: Limits) -> MeshSnapshot:
    """As :func:`decode`, without compiled code."""
    try:
        document = decoder(snapshot_type(limits)).decode(body)
        snapshot, keys = build(document)
        json_text.require_each_key_once(body, keys, bytes(document.observed_at).count(b":"))
        return snapshot
    except (*_BROKEN, NeedsFullCheck, TooHeavy) as error:
        refused = error
    check_document(_parse(body, refused, limits), limits)
    raise _first_mistake(refused, limits)


def decode_many(body: bytes, limits: Limits) -> list[MeshSnapshot]:
    """Decode ``{"snapshots": [...]}``."""
    _require_light(body, max(memory.typed_weight(body), memory.encoded_weight(body)))
    try:
        snapshots = [bytes(raw) for raw in decoder(snapshots_type(limits)).decode(body).snapshots]
        json_text.require_each_key_once(body, 1, sum(memory.count(snapshot, ":") for snapshot in snapshots))
        decoded = []
        for i, snapshot in enumerate(snapshots):
            with located(f"/snapshots/{i}"):
                decoded.append(decode(snapshot, limits))
        return decoded
    except (*_BROKEN, NeedsFullCheck, TooHeavy) as error:
        refused = error
    document = _parse(body, refused, limits)
    given = document.get("snapshots") if isinstance(document, dict) else None
    if not isinstance(given, list) or len(document) > 1:
        detail = 'expected {"snapshots": [...]} and nothing else; put the snapshots into one list, oldest first'
        raise InvalidDocument(detail, pointer="/snapshots", errors=[{"pointer": "/snapshots", "detail": detail}])
    limits.check(snapshots=len(given))
    for i, snapshot in enumerate(given):
        with located(f"/snapshots/{i}"):
            check_document(snapshot, limits)
    raise _first_mistake(refused, limits)


def parse(body: bytes) -> Any:
    """Decode a body to dicts, lists, strings and numbers.

    Raises:
        MalformedDocument: the body is not JSON.
        InvalidDocument: a key is repeated.
        DocumentTooLarge: it would take far more memory than its size.
    """
    return _parse(body, TooHeavy(), Limits())


def _parse(body: bytes, refused: Exception, limits: Limits) -> Any:
    """As :func:`parse`; ``refused`` is the error of the typed decoder."""
    try:
        return json_text.parse(body)
    except TooHeavy:
        if isinstance(refused, msgspec.ValidationError):
            raise _first_mistake(refused, limits) from None
        if isinstance(refused, _BROKEN):
            raise _json_error(refused) from None
        raise DocumentTooLarge(
            f"body: it has a mistake, but {len(body)} bytes hold too many values to locate it; send the same mistake "
            "in a smaller document to get its place"
        ) from None
    except _BROKEN as error:
        raise _json_error(error) from None


def _json_error(error: Exception) -> MalformedDocument:
    return MalformedDocument(f"expected a JSON document, got {str(error)[:200]!r}; send UTF-8 JSON")


def _first_mistake(error: Exception, limits: Limits) -> InvalidDocument | DocumentTooLarge:
    """The mistake that a typed decoder stopped at, where the search for all mistakes is too heavy or finds none."""
    detail, _, path = str(error).partition(" - at `$")
    place: list[Any] = [key or int(row) for key, row in _STEP.findall(path)]
    if place and _TOO_LONG.match(detail):
        return limits.refuse(place[0], "these")
    if _COLUMNS.match(detail) and len(place) == 1:
        return error_at(pointer(place), ROWS_EXPECTED)
    if missing := _MISSING.match(detail):
        return error_at(pointer((*place, missing[1])), describe_missing_field(missing[1]))
    if unknown := _UNKNOWN.match(detail):
        return error_at(pointer((*place, unknown[1])), describe_unknown_field(unknown[1]))
    return error_at(pointer(place), f"{detail[:200] or 'expected a snapshot, got something else'}; correct it")


def _require_light(body: bytes, weight: int) -> None:
    """Refuse a body that would need too much memory. Typed decoders stop at the first mistake, so only long lists of
    short values can."""
    if weight > memory.budget(len(body)):
        raise DocumentTooLarge(
            f"body: {len(body)} bytes hold so many small values that they would take more than {memory.FACTOR} times "
            "as much memory; correct the document, or split it"
        )
