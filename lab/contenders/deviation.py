"""How far each series is above its own past, in spreads above the median of the newest samples.

Uses errors, latencies and cpu of services and of calls. Rates, memory and connections are left out because they depend
more on load than on faults. Latencies are logarithms. The spread is the interquartile range divided by 1.349, which is
the standard deviation of a normal distribution. It is never less than ``FLOOR``, so a flat series can still vary.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from lab.contenders.paging import Floats
from lab.contenders.past import Past, quantiles
from model.snapshot import EDGE_METRICS, NODE_METRICS, BoolArray, FloatArray, MeshSnapshot

FLOOR = {
    "error_rate": 0.002,
    "p50_latency": 0.1,
    "p99_latency": 0.1,
    "cpu_utilization": 0.02,
}  # of latencies: of their logarithms
OF_SERVICES = tuple(name for name in NODE_METRICS if name in FLOOR)
OF_CALLS = tuple(name for name in EDGE_METRICS if name in FLOOR)
LEAST_SEEN = 5  # fewest samples for a spread
SMALLEST = 1e-6  # s; shorter latencies count as this
RENEWED = 24  # updates of the baseline in a full window; at each snapshot while the window is short


@dataclass(frozen=True, slots=True)
class Series:
    """The past of all series of one kind.

    Attributes:
        floors: least spread of each metric.
        past: the samples.
        baseline: ``[K, 2 M]`` medians and spreads, NaN where there are too few samples.
        age: frames since the baseline was computed.
    """

    floors: tuple[float, ...]
    past: Past
    baseline: Floats
    age: int = 0

    @classmethod
    def empty(cls, floors: tuple[float, ...], length: int) -> "Series":
        return cls(floors, Past(length), np.empty((0, 2 * len(floors))))

    def rises(self, names: tuple[str, ...], values: Floats) -> Floats:
        """Spreads above the median, ``[N, M]``; 0 where below it or where there is no baseline."""
        table = self.past.look_up(self.baseline, names)
        median, spread = np.split(table, 2, axis=1)
        return np.maximum(np.nan_to_num((values - median) / spread), 0.0)

    def with_frame(self, names: tuple[str, ...], values: Floats) -> "Series":
        past, age = self.past.with_frame(names, values), self.age + 1
        if age < len(past.frames) // RENEWED:
            return replace(self, past=past, age=age)
        cube = past.cube()
        low, median, high = quantiles(cube, (0.25, 0.5, 0.75))
        spread = np.maximum((high - low) / 1.349, self.floors)
        seen = np.isfinite(cube).sum(axis=2) >= LEAST_SEEN
        baseline = np.where(np.tile(seen, 2), np.concatenate([median, spread], axis=1), np.nan)
        return replace(self, past=past, baseline=baseline, age=0)


@dataclass(frozen=True, slots=True)
class Mesh:
    services: Series
    calls: Series

    @classmethod
    def empty(cls, length: int) -> "Mesh":
        floors = (tuple(FLOOR[name] for name in names) for names in (OF_SERVICES, OF_CALLS))
        return cls(*(Series.empty(floor, length) for floor in floors))

    def rises(self, snapshot: MeshSnapshot) -> tuple[Floats, Floats]:
        """Rises of services ``[N, 4]`` and calls ``[E, 3]`` above the snapshots before."""
        services, calls = samples(snapshot)
        return self.services.rises(snapshot.node_ids, services), self.calls.rises(call_names(snapshot), calls)

    def with_snapshot(self, snapshot: MeshSnapshot) -> "Mesh":
        services, calls = samples(snapshot)
        return Mesh(
            self.services.with_frame(snapshot.node_ids, services), self.calls.with_frame(call_names(snapshot), calls)
        )


def samples(snapshot: MeshSnapshot) -> tuple[Floats, Floats]:
    """Return samples of services ``[N, 4]`` and calls ``[E, 3]`` on their scales, NaN where not observed."""
    return (
        _on_scale(snapshot.node_features, snapshot.node_observed, NODE_METRICS, OF_SERVICES),
        _on_scale(snapshot.edge_features, snapshot.edge_observed, EDGE_METRICS, OF_CALLS),
    )


def call_names(snapshot: MeshSnapshot) -> tuple[str, ...]:
    return _call_names(snapshot.node_ids, snapshot.edge_index.tobytes())


@lru_cache(maxsize=4)
def _call_names(names: tuple[str, ...], edges: bytes) -> tuple[str, ...]:
    """Cached, because several contenders ask for the same snapshot."""
    sources, destinations = np.frombuffer(edges, np.int64).reshape(2, -1).tolist()
    return tuple(f"{names[a]}\0{names[b]}" for a, b in zip(sources, destinations, strict=True))


def max_of_incoming_calls(snapshot: MeshSnapshot, of_calls: Floats) -> Floats:
    """Return each service's largest value over the calls into it, from ``[E]`` or ``[E, M]``; 0 without such calls."""
    found = np.zeros((snapshot.num_nodes, *of_calls.shape[1:]))
    np.maximum.at(found, snapshot.edge_index[1], of_calls)
    return found


def _on_scale(features: FloatArray, observed: BoolArray, names: tuple[str, ...], chosen: tuple[str, ...]) -> Floats:
    columns = [names.index(name) for name in chosen]
    values = np.where(observed[:, columns], features[:, columns].astype(np.float64), np.nan)
    slow = [i for i, name in enumerate(chosen) if name.endswith("_latency")]
    values[:, slow] = np.log(np.maximum(values[:, slow], SMALLEST))
    return values
