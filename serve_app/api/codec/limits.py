"""Limits for one document: its row counts, and the memory that it needs when decoded, which is estimated before
anything is built.

``{}`` is two bytes of JSON and 64 bytes of Python, so a small body can use up the machine's memory. A body may need 9
times its size plus 30 MiB; real snapshots need less than 8 times.
"""

from dataclasses import dataclass

import numpy as np

from serve_app.errors import DocumentTooLarge

FACTOR, SPARE_BYTES = 9, 30 * 2**20

# Bytes in Python per JSON character, for CPython 3.11 and 3.12. A comma counts as a value in a list (9 bytes) and a
# number (32), two quotation marks as a short string (64), a colon as an entry in a dict.
_OBJECT, _ARRAY, _ENTRY, _VALUE, _QUOTE = 112, 64, 100, 41, 32


@dataclass(frozen=True, slots=True)
class Limits:
    """The maximum counts in one document; None: no limit."""

    max_services: int | None = None
    max_calls: int | None = None
    max_changes: int | None = None
    max_policies: int | None = None
    max_snapshots: int | None = None

    def check(self, **counts: int) -> None:
        """Check a document's counts, such as ``services=60``.

        Raises:
            DocumentTooLarge: a count is above its limit.
        """
        for name, count in counts.items():
            limit = getattr(self, f"max_{name}")
            if limit is not None and count > limit:
                is_set = name in ("services", "calls")
                advice = "raise limits.max_services or split the mesh" if is_set else "send fewer"
                raise DocumentTooLarge(
                    f"{name}: {count} are too many: the limit is {limit}; {advice}", pointer=f"/{name}"
                )


def memory_budget(size: int) -> int:
    """The bytes of memory that a body of ``size`` bytes may need."""
    return FACTOR * size + SPARE_BYTES


def text_weight(body: bytes) -> int:
    """Upper bound for a JSON body's size as text, dicts, lists, strings and numbers, bytes."""
    # One character beyond ASCII makes all characters wider, both in the body and in the decoded string.
    highest = int(np.frombuffer(body, np.uint8).max()) if body else 0
    width = 4 if highest >= 0xF0 else 2 if highest >= 0x80 else 1
    containers = _OBJECT * _count(body, "{") + _ARRAY * _count(body, "[") + _ENTRY * _count(body, ":")
    return containers + _VALUE * _count(body, ",") + _QUOTE * _count(body, '"') + 2 * width * len(body)


def _count(body: bytes, character: str) -> int:
    """The number of times an ASCII character occurs in a body; ``bytes.count`` takes ten times as long."""
    return int(np.count_nonzero(np.frombuffer(body, np.uint8) == ord(character)))
