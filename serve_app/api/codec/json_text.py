"""Parses JSON to dicts, lists, strings and numbers, and refuses duplicate keys."""

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from serve_app.api.codec.limits import memory_budget, text_weight
from serve_app.api.codec.mistakes import ERRORS_LISTED, SHOWN, errors_at, json_pointer
from serve_app.errors import DocumentTooLarge, MalformedDocument


def parse(body: bytes) -> Any:
    """Parse a JSON body. NaN and Infinity are accepted here, so that a later check can report their place.

    Raises:
        MalformedDocument: the body is not JSON.
        InvalidDocument: an object has a duplicate key; lists the places.
        DocumentTooLarge: it needs too much memory for its size.
    """
    if text_weight(body) > memory_budget(len(body)):
        raise DocumentTooLarge(
            f"body: {len(body)} bytes hold so many values that they need too much memory to be read one by one; if "
            "it has a mistake, send the same mistake in a smaller document to get its place; else send Arrow"
        )
    unique = _UniqueKeys()
    try:
        return unique.require(json.loads(body.decode("utf-8"), object_pairs_hook=unique))
    except (ValueError, RecursionError) as error:
        raise MalformedDocument(f"expected a JSON document, got {str(error)[:200]!r}; send UTF-8 JSON") from None


class _UniqueKeys:
    """Builds dicts from pairs, as a parser's ``object_pairs_hook``, and records duplicate keys, of which a dict would
    silently take the last."""

    def __init__(self) -> None:
        self._repeated: dict[int, tuple[dict[Any, Any], Any]] = {}  # by id, which the dict itself keeps from reuse

    def __call__(self, pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        entries = dict(pairs)
        if len(entries) < len(pairs):
            keys: set[Any] = set()
            key = next(key for key, _ in pairs if key in keys or keys.add(key))  # type: ignore[func-returns-value]
            self._repeated[id(entries)] = entries, key
        return entries

    def require(self, document: Any) -> Any:
        """The document, if no key is duplicate; else raise ``InvalidDocument`` with their places."""
        if self._repeated:
            raise errors_at(
                (json_pointer((*place, key)), f"{str(key)[:SHOWN]!r} is given more than once; give it once")
                for place, key in islice(self._places(document, ()), ERRORS_LISTED)
            )
        return document

    def _places(self, container: Any, place: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
        """Objects with a duplicate key, in the document's order; one that a later entry replaced is not found."""
        if id(container) in self._repeated:
            yield place, self._repeated[id(container)][1]
        for key, value in container.items() if isinstance(container, dict) else enumerate(container):
            if isinstance(value, dict | list):
                yield from self._places(value, (*place, key))
