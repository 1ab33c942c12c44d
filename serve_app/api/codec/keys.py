"""Objects with a duplicate key, of which dicts would silently take the last."""

from collections.abc import Iterator
from typing import Any

from serve_app.api.codec.mistakes import ERRORS_LISTED, SHOWN, errors_at, pointer

Place = tuple[str | int, ...]


class _DuplicateKey(dict[Any, Any]):
    """An object with a duplicate key."""

    key: Any


class UniqueKeys:
    """Builds dicts from pairs, as the ``object_pairs_hook`` of a parser, and notes those with a duplicate key."""

    def __init__(self) -> None:
        self.repeated = 0

    def __call__(self, pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            made = _DuplicateKey(made)
            seen: set[Any] = set()
            made.key = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            self.repeated += 1
        return made

    def require(self, document: Any) -> Any:
        """The document itself. Raises ``InvalidDocument`` with the places of the duplicate keys, if there are any."""
        if self.repeated:
            raise errors_at(
                (pointer((*place, found.key)), f"{str(found.key)[:SHOWN]!r} is given more than once; give it once")
                for place, found in _places(document, min(self.repeated, ERRORS_LISTED))
            )
        return document


def _places(document: Any, left: int) -> Iterator[tuple[Place, _DuplicateKey]]:
    """The first objects with a duplicate key, in the order of the document. An object that a later entry replaced is
    not found."""
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


def _entries(place: Place, container: dict[Any, Any] | list[Any]) -> Iterator[tuple[Place, Any]]:
    for key, value in container.items() if isinstance(container, dict) else enumerate(container):
        yield (*place, key), value
