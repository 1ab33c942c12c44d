"""Deadlines of calls between processes, which may run on nodes whose clocks differ."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # of Linux: all processes since its boot share a monotonic clock
LONGEST_WAIT_SECONDS = 60.0


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


def mark_time() -> str:
    """The current moment, for :func:`seconds_since` in another process: the boot of this machine, and its monotonic
    clock."""
    return f"{_boot()} {time.monotonic():.6f}"


def seconds_since(mark: str | None) -> float:
    """Seconds since :func:`mark_time`; 0 if that was on another machine, or the text is not such a moment."""
    boot, _, at = (mark or "").partition(" ")
    if not boot or boot != _boot():
        return 0.0
    try:
        passed = time.monotonic() - float(at)
    except ValueError:
        return 0.0
    return passed if 0.0 < passed < LONGEST_WAIT_SECONDS else 0.0


@cache
def _boot() -> str:
    """Name of this boot of the machine; empty where the system has none."""
    return BOOT_ID.read_text("ascii").strip() if BOOT_ID.exists() else ""
