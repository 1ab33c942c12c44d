"""Rows of an Arrow table, for the full check. They are built on demand, so that few exist at a time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

ENDS = ("source", "destination")


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that are built on demand."""

    length: int
    read: Callable[[int, int], list[Any]]

    def __len__(self) -> int:
        return self.length


def name_ends(calls: Rows, services: Any) -> Rows:
    """Calls with names instead of positions. What is not a position stays, and is refused later."""

    @cache
    def names() -> list[str]:
        rows = services.read(0, len(services)) if isinstance(services, Rows) else services
        known = rows if isinstance(rows, list) else []
        return [f"{s.get('namespace')}/{s.get('name')}" if isinstance(s, Mapping) else "" for s in known]

    def name(end: Any) -> Any:
        return names()[end] if type(end) is int and 0 <= end < len(names()) else end

    def read(start: int, stop: int) -> list[Any]:
        return [
            row | {end: name(row[end]) for end in ENDS if end in row} if isinstance(row, dict) else row
            for row in calls.read(start, stop)
        ]

    return Rows(len(calls), read)
