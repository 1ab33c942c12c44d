"""What the bands of Grafana's promql-anomaly-detection have in common: which samples, and how far outside one is.

Rates, errors, latencies, cpu and memory of services; errors and latencies of the calls into them. As in the published
rules only samples above 0 count, rates only of series with 5 requests a minute; a band is at least half of its middle
wide on either side; a sample below it is as strange as one above. The rules want 5 minutes outside (``for: 5m``); here,
as for all contenders, two snapshots in a row: the same at 5 minutes, kinder at shorter intervals.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from benchmarks.contenders.deviation import call_names, into
from benchmarks.contenders.paging import Floats, Watch
from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot

OF_SERVICES = [i for i, name in enumerate(NODE_METRICS) if name != "active_connections"]
OF_CALLS = [i for i, name in enumerate(EDGE_METRICS) if name != "requests_per_second"]
RATE = OF_SERVICES.index(NODE_METRICS.index("request_rate"))
SPARSE = 5 / 60  # 1/s
MARGIN = 0.5  # of the middle
TIMES = 2.0  # spreads
Bands = TypeVar("Bands")
Named = tuple[tuple[str, ...], Floats]  # names of series, and their samples


@dataclass(frozen=True, slots=True)
class State(Generic[Bands]):
    """Between two snapshots."""

    watch: Watch
    services: Bands
    calls: Bands


def selected(snapshot: MeshSnapshot) -> tuple[Named, Named]:
    """Of services ``[N, 6]`` and calls ``[E, 3]``, NaN where they do not count."""
    services = np.where(snapshot.node_observed, snapshot.node_features.astype(np.float64), np.nan)[:, OF_SERVICES]
    calls = np.where(snapshot.edge_observed, snapshot.edge_features.astype(np.float64), np.nan)[:, OF_CALLS]
    for values in (services, calls):
        values[~(values > 0)] = np.nan
    return (snapshot.node_ids, services), (call_names(snapshot), calls)


def outside(values: Floats, middle: Floats, below: Floats, above: Floats) -> Floats:
    """How far a sample is from the middle, in units of how far the band reaches there; 0 where nothing is known."""
    up, down = (values - middle) / (above - middle), (middle - values) / (middle - np.maximum(below, 0.0))
    return np.nan_to_num(np.fmax(up, down))


def worst(snapshot: MeshSnapshot, of_services: Floats, of_calls: Floats) -> Floats:
    """Of each service ``[N]``, the calls into it among its series."""
    return np.maximum(of_services.max(axis=1), into(snapshot, of_calls.max(axis=1)))
