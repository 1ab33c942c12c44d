"""Estimates the memory that a body needs when decoded, before anything is built.

``{}`` is two bytes of JSON and 64 bytes of Python, so a small body can use up the machine's memory. A body may need 9
times its size plus 30 MiB; real snapshots need less than 8 times.
"""

import numpy as np

FACTOR, SPARE_BYTES = 9, 30 * 2**20

# Bytes of Python per character of JSON, for CPython 3.11 and 3.12. A comma counts as a value in a list (9 bytes) and a
# number (32), two quotation marks as a short string (64), a colon as an entry of a dict.
_OBJECT, _ARRAY, _ENTRY, _VALUE, _QUOTE = 112, 64, 100, 41, 32


def budget(size: int) -> int:
    """The bytes of memory that a body of ``size`` bytes may need."""
    return FACTOR * size + SPARE_BYTES


def text_weight(body: bytes) -> int:
    """Upper bound for the bytes of a JSON body as text, dicts, lists, strings and numbers."""
    # One character beyond ASCII makes all characters of its string wider: of the body, and of the decoded string.
    highest = int(np.frombuffer(body, np.uint8).max()) if body else 0
    width = 4 if highest >= 0xF0 else 2 if highest >= 0x80 else 1
    containers = _OBJECT * count(body, "{") + _ARRAY * count(body, "[") + _ENTRY * count(body, ":")
    return containers + _VALUE * count(body, ",") + _QUOTE * count(body, '"') + 2 * width * len(body)


def count(body: bytes, character: str) -> int:
    """How often a character of ASCII occurs in a body; ``bytes.count`` takes ten times as long."""
    return int(np.count_nonzero(np.frombuffer(body, np.uint8) == ord(character)))
