"""The subject of a question about metrics, a service or a call, and its period."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from math import ceil, floor
from typing import Self

import numpy as np

from model.snapshot import EDGE_METRICS, NODE_METRICS, IntArray
from serve_app.stores.history_files import Times

Ends = tuple[datetime, datetime]  # of a period, both included
GAP = 1.5  # intervals without a snapshot, above which a line has a gap


@dataclass(frozen=True, slots=True)
class Subject:
    """A service, or the calls to it from ``source``."""

    service: str
    source: str | None = None

    @property
    def ends(self) -> tuple[str, ...]:
        """Return the service, or both ends of the calls."""
        return (self.service,) if self.source is None else (self.source, self.service)

    @property
    def metrics(self) -> tuple[str, ...]:
        return NODE_METRICS if self.source is None else EDGE_METRICS


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A period, both ends included. ``points``: maximum number of steps in an answer."""

    start: datetime
    end: datetime
    points: int


@dataclass(frozen=True, slots=True, eq=False)
class RangeSteps:
    """The steps of a range: their length, and the Unix times of their beginnings, s ``[T]``, ascending."""

    seconds: float
    times: Times

    @classmethod
    def of_rows(cls, begin: float, end: float, row_seconds: int, points: int) -> Self:
        """Return steps of whole rows from ``begin`` to ``end``, at most ``points``. They start at multiples of their
        length since 1970, so that a period shifted by days has the same ones."""
        seconds = max(1, ceil((end - begin) / (max(points - 1, 1) * row_seconds))) * row_seconds
        first = floor(begin / seconds) * seconds
        count = floor((max(begin, end) - first) / seconds) + 1
        return cls(seconds, np.float64(first) + np.arange(count) * np.float64(seconds))

    @classmethod
    def of_snapshots(cls, times: Sequence[float], interval_seconds: float, points: int) -> Self:
        """Return the times of snapshots, and one without a snapshot in each gap; of too many snapshots, equal steps."""
        if len(times) > points // 2:
            whole = max(1, round(interval_seconds))
            return cls.of_rows(times[0], times[-1], whole, points)
        steps = list(times[:1])
        for before, time in pairwise(times):
            if time - before > GAP * interval_seconds:
                steps.append(before + interval_seconds)
            steps.append(time)
        return cls(interval_seconds, np.array(steps, np.float64))

    def find(self, times: Times) -> IntArray:
        """Return the step that each of these times belongs to; -1: none."""
        if not len(self.times):
            return np.full(len(times), -1)
        at = np.searchsorted(self.times, times, side="right") - 1
        late = times - self.times[np.maximum(at, 0)] >= max(self.seconds, 1)
        return np.where((at < 0) | late, -1, at)
