"""The common part of the bands of Grafana's promql-anomaly-detection: the choice of samples, and the distance from a
band.

They use rates, errors, latencies, cpu and memory of services, and errors and latencies of the calls into them. As in
the published rules, only samples above 0 count, and rates count only for series with at least 5 requests per minute. A
band extends at least half of its middle to either side. Samples below and above the band count alike. The published
rules require 5 minutes outside of the band (``for: 5m``). Here, as for all contenders, two snapshots in a row suffice:
the same at intervals of 5 minutes, less strict at shorter ones.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from lab.contenders.deviation import call_names, max_of_incoming_calls
from lab.contenders.paging import Floats, PagingState
from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot, NodeMetric

OF_SERVICES = [i for i, name in enumerate(NODE_METRICS) if name != "active_connections"]
OF_CALLS = [i for i, name in enumerate(EDGE_METRICS) if name != "requests_per_second"]
RATE = OF_SERVICES.index(NodeMetric.REQUEST_RATE)
SPARSE = 5 / 60  # 1/s
MARGIN = 0.5  # of the middle
TIMES = 2.0  # spreads
Bands = TypeVar("Bands")
Named = tuple[tuple[str, ...], Floats]  # names of series, and their samples


@dataclass(frozen=True, slots=True)
class BandState(Generic[Bands]):
    """State between two snapshots."""

    watch: PagingState
    services: Bands
    calls: Bands


def select_samples(snapshot: MeshSnapshot) -> tuple[Named, Named]:
    """Return samples of services ``[N, 6]`` and calls ``[E, 3]``, NaN where they do not count."""
    services = np.where(snapshot.node_observed, snapshot.node_features.astype(np.float64), np.nan)[:, OF_SERVICES]
    calls = np.where(snapshot.edge_observed, snapshot.edge_features.astype(np.float64), np.nan)[:, OF_CALLS]
    for values in (services, calls):
        values[~(values > 0)] = np.nan
    return (snapshot.node_ids, services), (call_names(snapshot), calls)


def distance_outside(values: Floats, middle: Floats, below: Floats, above: Floats) -> Floats:
    """Distance of samples from the middle in units of the band's width on that side; 0 where it is unknown."""
    up, down = (values - middle) / (above - middle), (middle - values) / (middle - np.maximum(below, 0.0))
    return np.nan_to_num(np.fmax(up, down))


def max_of_service(snapshot: MeshSnapshot, of_services: Floats, of_calls: Floats) -> Floats:
    """Largest value of each service ``[N]``, over its own series and the calls into it."""
    largest: Floats = np.maximum(of_services.max(axis=1), max_of_incoming_calls(snapshot, of_calls.max(axis=1)))
    return largest
