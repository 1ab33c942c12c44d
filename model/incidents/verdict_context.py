"""The inputs of a verdict besides the evidence."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class VerdictContext:
    """The inputs of a verdict besides the evidence.

    Attributes:
        observed_at: the snapshot's time.
        sequence: snapshots counted, this one included.
        learned: snapshots learned from, this one included.
        interval_seconds: between snapshots, s.
        level, notice_level: threshold of alerts and level of notices, surprise.
        missing_parts: parts that did not answer.
    """

    observed_at: datetime
    sequence: int
    learned: int
    interval_seconds: float
    level: float
    notice_level: float
    missing_parts: tuple[int, ...] = ()
