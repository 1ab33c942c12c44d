"""Deadlines of calls between processes, which may run on nodes whose clocks differ."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """The deadline of a request.

    Another process receives the time that is left and counts it by its own clock. So the clocks of nodes need not
    agree. The transfer takes milliseconds and is not counted.

    Attributes:
        at: s of the monotonic clock of this process.
    """

    at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """The deadline this many seconds from now."""
        return cls(time.monotonic() + seconds)

    @property
    def remaining_seconds(self) -> float:
        """Seconds that are left; 0 once it has passed."""
        return max(0.0, self.at - time.monotonic())

    def extend(self, seconds: float) -> Deadline:
        """The deadline this many seconds later."""
        return Deadline(self.at + seconds)

    def take_share(self, share: float) -> Deadline:
        """The deadline at a share of the time that is left."""
        return Deadline.after(share * self.remaining_seconds)

    def __reduce__(self) -> tuple[Callable[[float], Deadline], tuple[float]]:
        return Deadline.after, (self.remaining_seconds,)
