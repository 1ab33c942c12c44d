"""Moving variance: each series against the variance that it usually has over a few snapshots.

A step, a slope or an oscillation raises it, so it does not matter what the usual value is. The limit of a series is
1.5 times the 99th percentile of its own moving variance in the warm-up, and never less than the variance of a small
change. A series that did not exist in the warm-up has no limit and never alarms.
"""

from dataclasses import dataclass, replace

import numpy as np

from lab.contenders.deviation import FLOOR, OF_CALLS, OF_SERVICES, call_names, max_of_incoming_calls, samples
from lab.contenders.limits import times_over
from lab.contenders.paging import Floats, PagingState, build_verdict
from lab.contenders.past import Past, quantiles
from model.snapshot import MeshSnapshot
from model.verdict import Verdict

LABEL = "moving variance"
WINDOW = 8  # snapshots of a variance
LEAST_SEEN = 5  # fewest samples for a variance
OVER, PERCENTILE = 1.5, 0.99
SUMMARY = (
    f"variance over {WINDOW} snapshots of errors, latencies and cpu of services and of calls into them, above "
    f"{OVER} x its own 99th percentile in the warm-up, two in a row"
)


@dataclass(frozen=True, slots=True)
class VarianceSeries:
    """The series of one kind: services or calls.

    Attributes:
        least: lowest limit of each metric.
        newest: samples of the variance.
        seen: variances of the warm-up.
        limits: ``[K, M]``, set when the warm-up is over.
    """

    least: Floats
    newest: Past
    seen: Past
    limits: Floats | None = None

    @classmethod
    def empty(cls, metrics: tuple[str, ...], warm_up: int) -> "VarianceSeries":
        """Return the state before the first sample."""
        return cls(np.array([FLOOR[name] ** 2 for name in metrics]), Past(WINDOW), Past(warm_up))

    def advance(self, names: tuple[str, ...], values: Floats, *, warming_up: bool) -> "tuple[Floats, VarianceSeries]":
        """Return the largest ratio of a variance to its limit, ``[N]``, and the next state."""
        newest = self.newest.with_frame(names, values)
        variance = newest.look_up(_variances(newest), names)
        if warming_up:
            seen = self.seen.with_frame(names, variance)
            return np.zeros(len(names)), replace(self, newest=newest, seen=seen)
        limits = self._find_limits() if self.limits is None else self.limits
        over = times_over(variance, self.seen.look_up(limits, names, missing=np.inf)) if len(names) else np.zeros(0)
        return over, replace(self, newest=newest, seen=self.seen.without_frames(), limits=limits)

    def _find_limits(self) -> Floats:
        if not self.seen.frames:
            return np.empty((0, len(self.least)))
        (percentile,) = quantiles(self.seen.cube(), [PERCENTILE])
        return np.maximum(OVER * np.nan_to_num(percentile, nan=np.inf), self.least)


@dataclass(frozen=True, slots=True)
class VarianceState:
    """State between two snapshots."""

    watch: PagingState
    services: VarianceSeries
    calls: VarianceSeries


def start(interval_seconds: float, warm_up: int) -> VarianceState:
    """Return the state before the first snapshot."""
    services, calls = (VarianceSeries.empty(metrics, warm_up) for metrics in (OF_SERVICES, OF_CALLS))
    return VarianceState(PagingState(interval_seconds, warm_up), services, calls)


def advance(state: VarianceState, snapshot: MeshSnapshot) -> tuple[Verdict, VarianceState]:
    """Process one snapshot."""
    of_services, of_calls = samples(snapshot)
    warming_up = state.watch.is_warming_up
    over, services = state.services.advance(snapshot.node_ids, of_services, warming_up=warming_up)
    over_in_calls, calls = state.calls.advance(call_names(snapshot), of_calls, warming_up=warming_up)
    scores = np.maximum(over, max_of_incoming_calls(snapshot, over_in_calls))
    verdict, watch = build_verdict(state.watch, snapshot, scores, 1.0)
    return verdict, VarianceState(watch, services, calls)


def _variances(newest: Past) -> Floats:
    """Variance of each series ``[K, M]`` about the mean of its newest samples, NaN where there are too few."""
    cube = newest.cube().astype(np.float64)
    seen = np.isfinite(cube)
    count = seen.sum(axis=2)
    mean = np.where(seen, cube, 0).sum(axis=2) / np.maximum(count, 1)
    squares = (np.where(seen, cube - mean[..., None], 0) ** 2).sum(axis=2)
    return np.where(count >= LEAST_SEEN, squares / np.maximum(count, 1), np.nan)
