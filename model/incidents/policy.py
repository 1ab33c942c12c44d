"""When to raise an alert, and the snapshot that is judged."""

from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Literal

import numpy as np

CONFIRM_SECONDS = 45.0  # of evidence that an alert needs
DOUBTFUL_SECONDS = 75.0  # the same if the page score is not far above the level
CLEAR_SECONDS = 60.0  # without evidence, after which an incident ends
NOTICE_CLEAR_SECONDS = 600.0  # the same of a notice


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertPolicy:
    """When to raise an alert.

    Attributes:
        false_pages_per_day: budget of false alerts; None: 1, or 1 for each 50 services.
        false_notices_per_day: budget of false notices; None: the same.
        confirm: k, the snapshots above the level that confirm a service ...
        confirm_of: ... among the last n. For longer intervals see :meth:`at_interval`.
        doubtful: snapshots that both are larger for a score below ``threshold.SEVERE`` times the threshold.
        lasting, lasting_of: the same for a deviation that lasts; see :mod:`model.incidents.threshold`.
        clear: snapshots in which its services are back to normal, after which an incident ends; see
            :meth:`at_interval`.
        percentile: of the mesh's own history without alerts, for the threshold and the limits of the reconstruction.
        reconstruction: what it does if the mesh as a whole exceeds its percentile in twice ``confirm`` of twice
            ``confirm_of`` snapshots: ``context`` shows it, ``alert`` also makes the status anomalous.
        latency_floor_seconds: least rise of a latency that counts in full, for each request that waits.
        mute_intervals: snapshots for which a planned deletion mutes its neighbourhood.
        change_intervals: snapshots for which a service near another planned change is compared with earlier changes.
        version_intervals: the same for a service with a new version itself, because a rollout can take minutes.
        warm_up: snapshots before the first verdict.
        longest_gap_seconds: without a snapshot, after which open incidents are given up.
    """

    false_pages_per_day: float | None = None
    false_notices_per_day: float | None = None
    confirm: int = 3
    confirm_of: int = 4
    doubtful: int = 2
    lasting: int = 12
    lasting_of: int = 16
    clear: int = 4
    percentile: float = 99.0
    reconstruction: Literal["context", "alert"] = "context"
    latency_floor_seconds: float = 0.02
    history: int = 2000
    mute_intervals: int = 2
    change_intervals: int = 12
    version_intervals: int = 24
    warm_up: int = 10
    longest_gap_seconds: float = 7200.0

    def budget(self, services: int) -> float:
        """Return the false alerts allowed per day in a mesh of this many services."""
        if self.false_pages_per_day is not None:
            return self.false_pages_per_day
        return max(1.0, services / 50)

    @property
    def change_memory(self) -> int:
        return max(self.change_intervals, self.mute_intervals) + 1

    @property
    def version_memory(self) -> int:
        """The same for a change that may bring a new version."""
        return max(self.change_memory, self.version_intervals + 1)

    @lru_cache(256)  # noqa: B019 - a policy is a small value, and every snapshot asks for the same
    def at_interval(self, interval_seconds: float) -> "AlertPolicy":
        """Return the policy for snapshots of this interval, s.

        Evidence for 45 s confirms a service, but at least two snapshots and at most ``confirm``. If it is doubtful, it
        takes up to 75 s. A quiet minute ends an incident, but at least two snapshots and at most ``clear``.
        """
        confirm = min(self.confirm, max(2, round(CONFIRM_SECONDS / interval_seconds)))
        return replace(
            self,
            confirm=confirm,
            confirm_of=round(self.confirm_of * confirm / self.confirm),
            doubtful=max(min(self.doubtful, int(DOUBTFUL_SECONDS / interval_seconds) - confirm), 0),
            clear=min(self.clear, max(2, round(CLEAR_SECONDS / interval_seconds))),
        )

    def page_level(self, services: int, interval_seconds: float) -> float:
        """Return the surprise that chance reaches as often as the budget allows, without the offset of the weights.

        With one test per service and snapshot it is ``log10(services x snapshots per day / budget)``.
        """
        return float(np.log10(services * 86400 / interval_seconds / self.budget(services)))

    def notice_level(self, services: int, interval_seconds: float) -> float:
        """Return the same for the budget of notices."""
        if self.false_notices_per_day is None:
            return self.page_level(services, interval_seconds)
        return float(np.log10(services * 86400 / interval_seconds / self.false_notices_per_day))


@dataclass(frozen=True, slots=True)
class VerdictContext:
    """The inputs of a verdict besides the evidence.

    Attributes:
        sequence: snapshots counted, this one included.
        learned: snapshots learned from, this one included.
        level, notice_level: threshold of alerts and notice level, surprise.
    """

    observed_at: datetime
    sequence: int
    learned: int
    interval_seconds: float
    level: float
    notice_level: float
    missing_parts: tuple[int, ...] = ()
