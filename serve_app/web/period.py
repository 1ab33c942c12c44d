"""What questions about metrics are about: a service or a call, and a period."""

from dataclasses import dataclass
from datetime import datetime

from model.snapshot import EDGE_METRICS, NODE_METRICS

Ends = tuple[datetime, datetime]  # of a period, both included


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
        """Return the names of its metrics."""
        return NODE_METRICS if self.source is None else EDGE_METRICS


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A period, both ends included.

    Attributes:
        start, end: its ends.
        points: number of steps that an answer should have at most.
    """

    start: datetime
    end: datetime
    points: int


@dataclass(frozen=True, slots=True)
class PastTable:
    """The metrics of a subject from the mesh's Prometheus.

    Attributes:
        step_seconds: time between two instants, over which rates are.
        begin: Unix time of the first instant, s.
        count: number of instants.
        times: Unix times of those with data, s.
        values: a row of metrics for each of them, NaN where not observed; empty if nothing is known of the subject.
    """

    step_seconds: float
    begin: float
    count: int
    times: list[float]
    values: list[list[float]]
