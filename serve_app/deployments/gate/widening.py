"""A wider limit of admission while pushes are refused although verdicts are fast.

One slow push shrinks the limit, although most are fast. So while pushes are refused, and their times keep two targets
by a factor of two, the limit is doubled. Bursts then wait a moment and are not refused. It is halved
again when a target is missed, or when nothing has been refused for a while.
"""

import logging
from dataclasses import dataclass, field

WIDEST = 4.0  # factor of the limit
JUDGED_SECONDS = 15.0  # of pushes, by which the factor is chosen. A new factor shows its effect within them
QUIET_PERIODS = 2  # of so many seconds without a refusal, after which the factor is halved again
FEWEST_PUSHES = 20  # to judge by
REFUSED_SHARE = 0.01  # of the pushes; more are too many
TARGETS = ((0.2, 0.05), (0.4, 0.01))  # a share of the deadline, and the share of the pushes that may take longer
log = logging.getLogger(__name__)


@dataclass(slots=True)
class Widening:
    """The factor of the limit, by the pushes of the last seconds.

    Attributes:
        factor: from 1 to ``WIDEST``.
    """

    deadline_seconds: float
    factor: float = 1.0
    _began: float = float("-inf")  # of the pushes to judge by
    _refused: int = 0
    _seconds: list[float] = field(default_factory=list)  # of those that were answered
    _quiet: int = 0  # periods in a row

    def count_push(self, now: float, seconds: float | None) -> None:
        """Count a push that took this long; None: it was refused. ``now`` is in s of a monotonic clock."""
        if now - self._began >= JUDGED_SECONDS:
            self._judge()
            self._began, self._refused, self._seconds = now, 0, []
        if seconds is None:
            self._refused += 1
        else:
            self._seconds.append(seconds)

    def _judge(self) -> None:
        pushes = self._refused + len(self._seconds)
        is_refusing = self._refused > REFUSED_SHARE * pushes
        self._quiet = 0 if is_refusing else self._quiet + 1
        factor = self.factor
        if pushes >= FEWEST_PUSHES and not self._keeps(1.0):
            factor = max(1.0, factor / 2)
        elif pushes >= FEWEST_PUSHES and is_refusing and self._keeps(0.5):
            factor = min(WIDEST, 2 * factor)
        elif self._quiet >= QUIET_PERIODS:
            factor, self._quiet = max(1.0, factor / 2), 0
        if factor != self.factor:
            log.info("admission: %g times the usual limit, no longer %g times", factor, self.factor)
        self.factor = factor

    def _keeps(self, share: float) -> bool:
        """Whether the pushes keep this share of both targets."""
        return all(
            sum(seconds > share * target * self.deadline_seconds for seconds in self._seconds)
            <= allowed * len(self._seconds)
            for target, allowed in TARGETS
        )
