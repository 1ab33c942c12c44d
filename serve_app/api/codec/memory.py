"""Estimates the memory that a body needs when decoded, before anything is built.

``{}`` is two bytes of JSON and 64 bytes of Python, so a small body can use up the machine's memory. A body may need 9
times its size plus 30 MiB; real snapshots need less than 8 times.
"""

import numpy as np

FACTOR, SPARE_BYTES = 9, 30 * 2**20
TYPED_BYTES = 4 * 2**20  # a JSON body up to this size may be decoded into typed structs, which need 18 times its size

# Bytes of Python per character of JSON, for CPython 3.11 and 3.12. A comma counts as a value in a list (9 bytes) and a
# number (32), two quotation marks as a short string (64), a colon as an entry of a dict.
_OBJECT, _ARRAY, _ENTRY, _VALUE, _QUOTE = 112, 64, 100, 41, 32
_ENCODED = 65  # a value in a list that is kept encoded: msgspec.Raw and its place in the list


def budget(size: int) -> int:
    """The bytes of memory that a body of ``size`` bytes may need."""
    return FACTOR * size + SPARE_BYTES


def text_weight(body: bytes) -> int:
    """Upper bound for the bytes of a JSON body as text, dicts, lists, strings and numbers."""
    # One character beyond ASCII makes all characters of its string wider: of the body, and of the decoded string.
    highest = int(np.frombuffer(body, np.uint8).max()) if body else 0
    width = 4 if highest >= 0xF0 else 2 if highest >= 0x80 else 1
    containers = _OBJECT * count(body, "{") + _ARRAY * count(body, "[") + _ENTRY * count(body, ":")
    return containers + typed_weight(body) + 2 * width * len(body)


def typed_weight(body: bytes) -> int:
    """Upper bound for the bytes of a JSON body in lists of typed structs, without dicts."""
    return _VALUE * count(body, ",") + _QUOTE * count(body, '"')


def encoded_weight(body: bytes) -> int:
    """Upper bound for the bytes of a list of values of a JSON body that are kept encoded."""
    return _ENCODED * count(body, ",")


def count(body: bytes, character: str) -> int:
    """How often a character of ASCII occurs in a body; ``bytes.count`` takes ten times as long."""
    return int(np.count_nonzero(np.frombuffer(body, np.uint8) == ord(character)))
