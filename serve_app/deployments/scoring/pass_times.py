"""How long the passes of a scorer take: a fixed part, and one that grows with the services and calls."""

from dataclasses import dataclass, replace

FORGET = 0.05  # weight of a new measurement; the average is over about the newest 20


@dataclass(frozen=True, slots=True)
class PassTimes:
    """Averages over the passes of one replica, with exponential forgetting; None before the first.

    Attributes:
        work: services and calls of a pass.
        seconds: duration of a pass.
        work_variance, covariance: of the work of passes, and of it with their duration.
    """

    work: float | None = None
    seconds: float | None = None
    work_variance: float = 0.0
    covariance: float = 0.0

    def finish(self, work: int, seconds: float) -> "PassTimes":
        """Count a pass."""
        if self.work is None or self.seconds is None:
            return replace(self, work=float(work), seconds=seconds)
        more_work, more_seconds = work - self.work, seconds - self.seconds
        keep = 1 - FORGET
        return replace(
            self,
            work=self.work + FORGET * more_work,
            seconds=self.seconds + FORGET * more_seconds,
            work_variance=keep * (self.work_variance + FORGET * more_work**2),
            covariance=keep * (self.covariance + FORGET * more_work * more_seconds),
        )

    def expect(self, work: int) -> float:
        """Return how long a pass over this many services and calls takes, s; 0 before the first pass."""
        fixed, slope = self._line()
        return fixed + slope * work

    def _line(self) -> tuple[float, float]:
        """The fixed part of a pass, s, and the s for each service or call: the regression line of duration on work."""
        if not self.work or not self.seconds:
            return 0.0, 0.0
        proportional = self.seconds / self.work
        slope = self.covariance / self.work_variance if self.work_variance > 0 else proportional
        slope = min(max(slope, 0.0), proportional)
        return self.seconds - slope * self.work, slope
