"""Parses MessagePack to dicts, lists, strings and numbers, and refuses duplicate keys."""

from typing import Any

import msgpack

from serve_app.api.codec import memory as weight
from serve_app.api.codec.keys import UniqueKeys
from serve_app.api.codec.mistakes import NeedsFullCheck, TooHeavy

ONE_KEY = (b"\x81", b"\xde\0\1", b"\xdf\0\0\0\1")  # headers of a map with one entry
# The parser stores a value of two bytes in up to 50, and allocates a list before it reads it. A body of this size may.
_LARGEST, _LONGEST_LIST = 2**21, 2**18
_WIDEST = 1000  # entries of a map; a snapshot has at most ten
_CONTAINER = 200  # bytes of a short list or map


def parse(body: bytes) -> Any:
    """Parse a MessagePack body.

    Raises:
        ValueError, RecursionError: the body is not MessagePack.
        TooHeavy: it could take more memory than a body of this size may.
        InvalidDocument: a map has a duplicate key; lists the places.
    """
    if len(body) > _LARGEST:
        raise TooHeavy
    unique, left = UniqueKeys(), (weight.FACTOR * len(body) + weight.SPARE_BYTES) // _CONTAINER

    def count(container: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise TooHeavy
        return container

    try:
        document = msgpack.unpackb(
            body,
            object_pairs_hook=lambda pairs: count(unique(pairs)),
            list_hook=count,
            strict_map_key=False,
            timestamp=3,  # as datetime
            max_map_len=_WIDEST,
            max_array_len=_LONGEST_LIST,
        )
    except TypeError as error:  # a key that is a list or map
        raise ValueError(str(error)) from None
    except ValueError as error:
        if "max_array_len" in str(error) or "max_map_len" in str(error):
            raise TooHeavy from None
        raise
    return unique.require(document)


def require_each_key_once(body: bytes, keys: int, _: int) -> None:
    """Check that a correct body has only this many keys: typed decoders silently take the last of two equal ones.

    Raises ``NeedsFullCheck``.
    """
    found = 0

    def count(pairs: list[Any]) -> None:
        nonlocal found
        found += len(pairs)

    try:
        msgpack.unpackb(body, object_pairs_hook=count, max_map_len=_WIDEST)
    except ValueError:
        raise NeedsFullCheck from None
    if found != keys:
        raise NeedsFullCheck
