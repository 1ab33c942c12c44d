"""How long a scorer waits for a fuller batch, and how many groups a batch may have.

A pass over several groups costs less than a pass for each, because part of a pass does not depend on its size. Both
limits follow what the replica measures: the time between arrivals, and the fixed and the variable part of its passes.
"""

from dataclasses import dataclass, replace

FORGET = 0.05  # weight of a new measurement; the average is over about the newest 20


@dataclass(frozen=True, slots=True)
class Load:
    """Averages over arrivals and passes of one replica, with exponential forgetting; None before the first.

    Attributes:
        arrived_at: time of the newest arrival, s of any clock.
        gap: time between arrivals, s.
        work: services and calls of a group.
        pass_work: services and calls of a pass.
        pass_seconds: duration of a pass.
        work_variance, covariance: of the work of passes, and of it with their duration.
    """

    arrived_at: float | None = None
    gap: float | None = None
    work: float | None = None
    pass_work: float | None = None
    pass_seconds: float | None = None
    work_variance: float = 0.0
    covariance: float = 0.0

    def arrive(self, now: float, work: int) -> "Load":
        """Count the arrival of a group."""
        gap = self.gap if self.arrived_at is None else _average(self.gap, now - self.arrived_at)
        return replace(self, arrived_at=now, gap=gap, work=_average(self.work, float(work)))

    def finish(self, work: int, seconds: float) -> "Load":
        """Count a pass."""
        if self.pass_work is None or self.pass_seconds is None:
            return replace(self, pass_work=float(work), pass_seconds=seconds)
        more_work, more_seconds = work - self.pass_work, seconds - self.pass_seconds
        keep = 1 - FORGET
        return replace(
            self,
            pass_work=self.pass_work + FORGET * more_work,
            pass_seconds=self.pass_seconds + FORGET * more_seconds,
            work_variance=keep * (self.work_variance + FORGET * more_work**2),
            covariance=keep * (self.covariance + FORGET * more_work * more_seconds),
        )

    def pass_costs(self) -> tuple[float, float]:
        """Return the fixed part of a pass and the part for each group, s.

        Without passes of different sizes the fixed part is unknown, and counts as 0.
        """
        fixed, slope = self._line()
        return (fixed, slope * self.work) if self.work else (0.0, 0.0)

    def expect(self, work: int) -> float:
        """Return how long a pass over this many services and calls takes, s; 0 before the first pass."""
        fixed, slope = self._line()
        return fixed + slope * work

    def cost(self, work: int, pass_work: int, seconds: float) -> float:
        """What a pass for one group alone takes, s, if a pass for several took ``seconds``: the fixed part, and its
        share of the rest by work. So the cost of a model does not depend on how many other meshes use it.

        Args:
            work: services and calls of the group.
            pass_work: of all groups of the pass.
            seconds: duration of the pass.
        """
        fixed = min(self._line()[0], seconds)
        return fixed + (seconds - fixed) * work / max(pass_work, 1)

    def _line(self) -> tuple[float, float]:
        """The fixed part of a pass, s, and the s for each service or call: the regression line of duration on work."""
        if not self.pass_work or not self.pass_seconds:
            return 0.0, 0.0
        proportional = self.pass_seconds / self.pass_work
        slope = self.covariance / self.work_variance if self.work_variance > 0 else proportional
        slope = min(max(slope, 0.0), proportional)
        return self.pass_seconds - slope * self.pass_work, slope


def batch_limits(load: Load, target: float, longest_wait: float, largest: int) -> tuple[float, int]:
    """Return how long a pass waits for more groups, in s, and the largest number of groups in a batch.

    Waiting is worth it if the next group is likely to arrive sooner than a pass of its own would take. A pass waits at
    most as long as this fixed cost, so it never loses more than a further pass would have taken (the rule of ski
    rental: Karlin et al., "Competitive Randomized Algorithms for Nonuniform Problems", Algorithmica 11, 1994).

    Args:
        load: of the replica.
        target: time from the arrival of a group to its scores that both limits keep to, s.
        longest_wait: upper limit of the wait, s.
        largest: upper limit of the batch.
    """
    fixed, each = load.pass_costs()
    size = largest if each <= 0 else min(max(int((target - fixed) / each), 1), largest)
    wait = min(longest_wait, fixed, target - fixed - 2 * each)
    pays = size > 1 and load.gap is not None and load.gap < wait
    return (wait if pays else 0.0), size


def _average(old: float | None, new: float) -> float:
    return new if old is None else old + FORGET * (new - old)
