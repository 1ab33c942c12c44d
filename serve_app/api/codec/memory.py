"""Estimates the memory that a body needs when decoded, before anything is built.

``{}`` is two bytes of JSON and 64 bytes of Python, so a small body can use up the machine's memory. A body may need 9
times its size plus 30 MiB; real snapshots need less than 8 times.
"""

import numpy as np

FACTOR, SPARE_BYTES = 9, 30 * 2**20
TYPED_BYTES = (
    4 * 2**20
)  # a JSON body up to this size may always be decoded into typed structs, which need 18 times its size
CHUNK = 2**18  # bytes that are scanned together

# Bytes of Python per character of JSON, for CPython 3.11 and 3.12. A comma counts as a value in a list (9 bytes) and a
# number (32), two quotation marks as a short string (64), a colon as an entry of a dict.
_OBJECT, _ARRAY, _ENTRY, _VALUE, _QUOTE = 112, 64, 100, 41, 32


def fits(weight: int, size: int) -> bool:
    """Whether a body of ``size`` bytes may need ``weight`` bytes of memory."""
    return weight <= FACTOR * size + SPARE_BYTES


def text_weight(body: bytes) -> int:
    """Upper bound for the bytes of a JSON body as text, dicts, lists, strings and numbers."""
    objects, arrays, entries, values, quotes = counts(body, b'{[:,"')
    # One character beyond ASCII makes all characters of its string wider: of the body, and of the decoded string.
    width = 4 if _highest(body) >= 0xF0 else 2 if _highest(body) >= 0x80 else 1
    built = _OBJECT * objects + _ARRAY * arrays + _ENTRY * entries + _VALUE * values + _QUOTE * quotes
    return built + 2 * width * len(body)


def typed_weight(body: bytes) -> int:
    """Upper bound for the bytes of a JSON body in lists of typed structs, without dicts."""
    values, quotes = counts(body, b',"')
    return _VALUE * values + _QUOTE * quotes


def counts(body: bytes, characters: bytes) -> list[int]:
    """How often each of these characters occurs in a body."""
    found = [0] * len(characters)
    for start in range(0, len(body), CHUNK):
        chunk = np.frombuffer(body, np.uint8, min(CHUNK, len(body) - start), start)
        for i, character in enumerate(characters):
            found[i] += int(np.count_nonzero(chunk == character))
    return found


def _highest(body: bytes) -> int:
    return int(np.frombuffer(body, np.uint8).max()) if body else 0
