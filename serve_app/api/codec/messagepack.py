"""Parses MessagePack to dicts, lists, strings and numbers, and refuses duplicate keys."""

import math
from typing import Any

import msgpack

from serve_app.api.codec import memory
from serve_app.api.codec.keys import UniqueKeys
from serve_app.api.codec.mistakes import NeedsFullCheck, TooHeavy

ONE_KEY = (b"\x81", b"\xde\0\1", b"\xdf\0\0\0\1")  # headers of a map with one entry
# The parser allocates a list before it reads it, so that its length is limited here; a snapshot has ten keys at most.
_LONGEST_LIST, _LARGEST_MAP = 2**18, 1000
_CONTAINER, _ENTRY = 200, 58  # bytes of a short list or map, and of an entry with a short text, at most


def parse(body: bytes) -> Any:
    """Parse a MessagePack body.

    Raises:
        ValueError, RecursionError: the body is not MessagePack.
        TooHeavy: it could take more memory than a body of this size may.
        InvalidDocument: a map has a duplicate key; lists the places.
    """
    return _parse(body, UniqueKeys(), memory.budget(len(body)), _LONGEST_LIST)


def require_each_key_once(body: bytes, keys: int, _: int) -> None:
    """Check that a correct body has only so many keys: typed decoders silently take the last of two equal ones.

    Raises ``NeedsFullCheck``, otherwise as :func:`parse`.
    """
    unique = UniqueKeys()
    _parse(body, unique, math.inf, len(body))  # a correct body has no lists of tiny values
    if unique.count != keys:  # a value is -inf, which the typed decoder takes for absent
        raise NeedsFullCheck


def _parse(body: bytes, unique: UniqueKeys, budget: float, longest_list: int) -> Any:
    left = budget

    def weigh(container: Any) -> Any:
        nonlocal left
        left -= _CONTAINER + _ENTRY * len(container)
        if left < 0:
            raise TooHeavy
        return container

    try:
        document = msgpack.unpackb(
            body,
            object_pairs_hook=lambda pairs: weigh(unique(pairs)),
            list_hook=weigh,
            strict_map_key=False,
            timestamp=3,  # as datetime
            max_map_len=_LARGEST_MAP,
            max_array_len=longest_list,
        )
    except TypeError as error:  # a key that is a list or map
        raise ValueError(str(error)) from None
    except ValueError as error:
        if "max_array_len" in str(error) or "max_map_len" in str(error):
            raise TooHeavy from None
        raise
    return unique.require(document)
