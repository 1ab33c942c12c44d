"""Cuts the lists of a document until it fits into the answer of a tool. An agent has room for a few thousand words."""

import json
from collections.abc import Iterator
from typing import Any

from serve_app.errors import DocumentTooLarge

MAX_CHARACTERS = 30_000  # of a document, about 10,000 tokens: clients refuse answers much above
MAX_ITEMS = (None, 1000, 500, 200, 100, 50, 20, 10, 5, 2, 1)  # of each list, in the order in which they are tried


def fit(document: Any, *, newest: bool = False, max_characters: int = MAX_CHARACTERS) -> list[str]:
    """Return a document as JSON of at most ``max_characters``, and a note on its lists if some were cut.

    All lists are cut to the same length, so columns of a table still belong together.

    Args:
        document: of JSON types.
        newest: keep the last items of each list instead of the first.
        max_characters: of the JSON text.

    Raises:
        DocumentTooLarge: it is too long even with lists of one item.
    """
    for most in MAX_ITEMS:
        text = json.dumps(_cut(document, most, newest), ensure_ascii=False, separators=(",", ":"))
        if len(text) <= max_characters:
            return [text] if most is None else [text, _note(document, most, newest)]
    raise DocumentTooLarge(
        f"expected at most {max_characters} characters in an answer, got {len(text)} even with one item per list; "
        "request a part of it"
    )


def _cut(value: Any, most: int | None, newest: bool) -> Any:
    if isinstance(value, dict):
        return {key: _cut(item, most, newest) for key, item in value.items()}
    if isinstance(value, list):
        return [_cut(item, most, newest) for item in (value[-most:] if newest and most else value[:most])]
    return value


def _note(document: Any, most: int, newest: bool) -> str:
    lengths: dict[str, int] = {}
    for name, length in _long_lists(document, most, ""):
        lengths[name] = max(length, lengths.get(name, 0))
    which = "last" if newest else "first"
    return f"Truncated: each list has its {which} {most} items. Full lengths: " + ", ".join(
        f"{name} {length}" for name, length in lengths.items()
    )


def _long_lists(value: Any, most: int, name: str) -> Iterator[tuple[str, int]]:
    """Names, such as ``incidents.affected``, and lengths of the lists of more than ``most`` items."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _long_lists(item, most, f"{name}.{key}" if name else key)
    elif isinstance(value, list):
        if len(value) > most:
            yield name, len(value)
        for item in value:
            yield from _long_lists(item, most, name)
