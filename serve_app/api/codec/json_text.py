"""Parses JSON to dicts, lists, strings and numbers, and refuses duplicate keys."""

import json
from typing import Any

import numpy as np

from serve_app.api.codec import memory
from serve_app.api.codec.keys import UniqueKeys
from serve_app.api.codec.mistakes import TooHeavy

_QUOTE, _COLON, _SPACE = b'": '


def parse(body: bytes) -> Any:
    """Parse a JSON body. NaN and Infinity are accepted here, so that a later check can report their place.

    Raises:
        ValueError, RecursionError: the body is not JSON.
        TooHeavy: it would take more memory than a body of this size may.
        InvalidDocument: an object has a duplicate key; lists the places.
    """
    if memory.text_weight(body) > memory.budget(len(body)):
        raise TooHeavy
    unique = UniqueKeys()
    return unique.require(json.loads(body.decode("utf-8"), object_pairs_hook=unique))


def require_each_key_once(body: bytes, keys: int, colons: int) -> None:
    """Check that a correct body has no more than this many keys: typed decoders silently take the last of two equal
    ones.

    Args:
        body: which is otherwise correct.
        keys: each of them has a colon.
        colons: in its texts, at least.

    Raises as :func:`parse`.
    """
    if b"\\" in body or (memory.count(body, ":") > keys + colons and _count_keys(body) != keys):
        parse(body)


def _count_keys(body: bytes) -> int:
    """Number of keys in a correct body without escapes, or more; -1 if a space is before a colon.

    Without such a space, each key ends in ``":``. Elsewhere only a text that begins with a colon has it.
    """
    characters = np.frombuffer(body, np.uint8)
    before = characters[:-1][characters[1:] == _COLON]
    return -1 if (before <= _SPACE).any() else int(np.count_nonzero(before == _QUOTE))
