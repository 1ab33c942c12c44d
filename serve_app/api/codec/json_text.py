"""Parses JSON to dicts, lists, strings and numbers, and refuses duplicate keys."""

import json
from collections.abc import Iterator
from typing import Any

from serve_app.api.codec import memory as weight
from serve_app.api.codec.validation import ERRORS_LISTED, SHOWN, TooHeavy, errors_at, pointer

ENTRY, ESCAPE = b":", b"\\"
Place = tuple[str | int, ...]


class _DuplicateKey(dict[str, Any]):
    """An object with a duplicate key."""

    key: str


def parse(body: bytes) -> Any:
    """Parse a JSON body. NaN and Infinity are accepted here, so that a later check can report their place.

    Raises:
        ValueError, RecursionError: the body is not JSON.
        TooHeavy: it would take more memory than a body of this size may.
        InvalidDocument: an object has a duplicate key; lists the places.
    """
    if not weight.fits(weight.text_weight(body), len(body)):
        raise TooHeavy
    repeated: list[_DuplicateKey] = []

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            made = _DuplicateKey(made)
            made.key = _first_repeated(pairs)
            repeated.append(made)
        return made

    document = json.loads(body.decode("utf-8"), object_pairs_hook=build)
    if repeated:
        raise errors_at(
            (pointer((*place, found.key)), f"{found.key[:SHOWN]!r} is given more than once; give it once")
            for place, found in _places(document, len(repeated))
        )
    return document


def count_colons(body: bytes) -> int:
    """Number of colons in a body: one for each entry of an object, and those inside strings."""
    return weight.counts(body, ENTRY)[0]


def _first_repeated(pairs: list[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    return next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]


def _places(document: Any, count: int) -> Iterator[tuple[Place, _DuplicateKey]]:
    """The first objects with a duplicate key, in the order of the document. An object that a later entry replaced is
    not found."""
    left = min(count, ERRORS_LISTED)
    open_containers: list[Iterator[tuple[Place, Any]]] = [iter([((), document)])]
    while open_containers and left:
        entry = next(open_containers[-1], None)
        if entry is None:
            open_containers.pop()
            continue
        place, value = entry
        if isinstance(value, _DuplicateKey):
            left -= 1
            yield place, value
        if isinstance(value, dict | list):
            open_containers.append(_entries(place, value))


def _entries(place: Place, container: dict[str, Any] | list[Any]) -> Iterator[tuple[Place, Any]]:
    for key, value in container.items() if isinstance(container, dict) else enumerate(container):
        yield (*place, key), value
