"""Each service against its own past: 1.5 times the 99th percentile of the warm-up.

A service that did not exist in the warm-up has no limit and never alarms.
"""

from dataclasses import dataclass

import numpy as np

from lab.contenders.limits import samples, times_over
from lab.contenders.paging import Floats, PagingState, build_verdict
from lab.contenders.past import Past, quantiles
from model.snapshot import MeshSnapshot, NodeMetric
from model.verdict import Verdict

LABEL = "own limit"
METRICS = [
    NodeMetric.ERROR_RATE,
    NodeMetric.P50_LATENCY,
    NodeMetric.P99_LATENCY,
    NodeMetric.CPU_UTILIZATION,
    NodeMetric.MEMORY_UTILIZATION,
]
OVER, PERCENTILE = 1.5, 0.99
LEAST_ERRORS = 0.01  # lowest limit: in a service without errors, 1.5 times the percentile would be 0


@dataclass(frozen=True, slots=True)
class OwnLimitState:
    """``seen``: samples of the warm-up; ``limits`` ``[K, 5]``: set when the warm-up is over."""

    watch: PagingState
    seen: Past
    limits: Floats | None = None


def start(interval_seconds: float, warm_up: int) -> OwnLimitState:
    return OwnLimitState(PagingState(interval_seconds, warm_up), Past(length=warm_up))


def advance(state: OwnLimitState, snapshot: MeshSnapshot) -> tuple[Verdict, OwnLimitState]:
    watch, seen, limits = state.watch, state.seen, state.limits
    values = samples(snapshot, watch.interval_seconds)[:, METRICS]
    over = np.zeros(len(values))
    if watch.is_warming_up:
        seen = seen.with_frame(snapshot.node_ids, values)
    else:
        if limits is None:
            limits, seen = _limits(seen), seen.without_frames()
        over = times_over(values, seen.look_up(limits, snapshot.node_ids, missing=np.inf))
    verdict, watch = build_verdict(watch, snapshot, over, 1.0)
    return verdict, OwnLimitState(watch, seen, limits)


def _limits(seen: Past) -> Floats:
    """Limits of the services that were seen; infinite where nothing was observed."""
    (percentile,) = quantiles(seen.cube(), [PERCENTILE])
    limits = OVER * np.nan_to_num(percentile, nan=np.inf)
    limits[:, 0] = np.maximum(limits[:, 0], LEAST_ERRORS)
    return np.where(limits > 0, limits, np.inf)
