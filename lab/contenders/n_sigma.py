"""The robust N-sigma rule: each series of services and calls against its own newest samples.

Uses errors, latencies and cpu of services, and errors and latencies of calls. Rates, memory and connections are left
out because they depend more on load than on faults. Latencies are logarithms. The spread is the interquartile range
divided by 1.349, which is the standard deviation of a normal distribution. It is never less than ``FLOOR``, so a flat
series can still vary. A call counts for its destination. The rule does not use the graph otherwise.
"""

from dataclasses import dataclass, replace

import numpy as np

from lab.contenders.paging import Floats, PagingState, build_verdict
from lab.contenders.past import Past, quantiles
from model.snapshot import EDGE_METRICS, NODE_METRICS, BoolArray, FloatArray, MeshSnapshot
from model.verdict import Verdict

LABEL = "N-sigma"
WINDOW = 120  # snapshots
SIGMAS = 6.0
FLOOR = {
    "error_rate": 0.002,
    "p50_latency": 0.1,
    "p99_latency": 0.1,
    "cpu_utilization": 0.02,
}  # of latencies: of their logarithms
OF_SERVICES = tuple(name for name in NODE_METRICS if name in FLOOR)
OF_CALLS = tuple(name for name in EDGE_METRICS if name in FLOOR)
MIN_SEEN = 5  # samples for a spread
SMALLEST = 1e-6  # s; shorter latencies count as this
RENEWED = 24  # updates of the baseline in a full window; at each snapshot while the window is short


@dataclass(frozen=True, slots=True)
class Series:
    """The past of all series of one kind.

    Attributes:
        floors: least spread of each metric.
        baseline: ``[K, 2 M]`` medians and spreads, NaN where there are too few samples.
        age: frames since the baseline was computed.
    """

    floors: tuple[float, ...]
    past: Past
    baseline: Floats
    age: int = 0

    @classmethod
    def empty(cls, metrics: tuple[str, ...]) -> "Series":
        return cls(tuple(FLOOR[name] for name in metrics), Past(WINDOW), np.empty((0, 2 * len(metrics))))

    def rises(self, names: tuple[str, ...], values: Floats) -> Floats:
        """The largest rise of each row above its median, ``[N]``, in spreads; 0 without a baseline."""
        median, spread = np.split(self.past.look_up(self.baseline, names), 2, axis=1)
        return np.asarray(np.nan_to_num((values - median) / spread).max(axis=1, initial=0.0), np.float64)

    def with_frame(self, names: tuple[str, ...], values: Floats) -> "Series":
        past, age = self.past.with_frame(names, values), self.age + 1
        if age < len(past.frames) // RENEWED:
            return replace(self, past=past, age=age)
        cube = past.cube()
        low, median, high = quantiles(cube, (0.25, 0.5, 0.75))
        spread = np.maximum((high - low) / 1.349, self.floors)
        seen = np.isfinite(cube).sum(axis=2) >= MIN_SEEN
        baseline = np.where(np.tile(seen, 2), np.concatenate([median, spread], axis=1), np.nan)
        return replace(self, past=past, baseline=baseline, age=0)


@dataclass(frozen=True, slots=True)
class NSigmaState:
    watch: PagingState
    services: Series
    calls: Series


def start(interval_seconds: float, warm_up: int) -> NSigmaState:
    return NSigmaState(PagingState(interval_seconds, warm_up), Series.empty(OF_SERVICES), Series.empty(OF_CALLS))


def advance(state: NSigmaState, snapshot: MeshSnapshot) -> tuple[Verdict, NSigmaState]:
    names = snapshot.node_ids
    calls = tuple(f"{names[a]}\0{names[b]}" for a, b in snapshot.edge_index.T.tolist())
    of_services = _on_scale(snapshot.node_features, snapshot.node_observed, NODE_METRICS, OF_SERVICES)
    of_calls = _on_scale(snapshot.edge_features, snapshot.edge_observed, EDGE_METRICS, OF_CALLS)
    rises = state.services.rises(names, of_services)
    np.maximum.at(rises, snapshot.edge_index[1], state.calls.rises(calls, of_calls))
    verdict, watch = build_verdict(state.watch, snapshot, rises, SIGMAS)
    services, of_past_calls = state.services.with_frame(names, of_services), state.calls.with_frame(calls, of_calls)
    return verdict, NSigmaState(watch, services, of_past_calls)


def _on_scale(features: FloatArray, observed: BoolArray, names: tuple[str, ...], chosen: tuple[str, ...]) -> Floats:
    """Samples ``[N, M]`` of the chosen metrics, NaN where not observed."""
    columns = [names.index(name) for name in chosen]
    values = np.where(observed[:, columns], features[:, columns].astype(np.float64), np.nan)
    slow = [i for i, name in enumerate(chosen) if name.endswith("_latency")]
    values[:, slow] = np.log(np.maximum(values[:, slow], SMALLEST))
    return values
